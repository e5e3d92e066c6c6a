//! Reads a compose file and finds all its mistakes at once.

use std::collections::HashMap;

use relive_types::suggest::closest;
use serde_saphyr::{Location, Spanned};

use super::results::{check_results, read_results};
use super::task::{TASK_KEYS, task};
use super::{ComposeFile, Condition, Dependency, NODES_MAX, Node, Retries, Task};
use crate::graph::Graph;
use crate::restart::{Backoff, Policy, Restart};
use crate::template::{self, NAME_MAX};
use crate::yaml::{Checker, Entry, Mistakes, Value};

const NODE_KEYS: [&str; 4] = ["depends_on", "results", "retries", "restart"];

/// A dependency as it is written.
struct Written<'a> {
    on: &'a str,
    at: Location,
    condition: Condition,
}

/// The names of all nodes, and the place of each.
pub(super) struct Names<'a> {
    all: Vec<&'a str>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        let all: Vec<&str> = entries.iter().map(|(name, _)| name.value.as_str()).collect();
        // Of two nodes with one name, which is a mistake, the first one counts.
        let places = all.iter().enumerate().rev().map(|(place, name)| (*name, place)).collect();
        Self { all, places }
    }

    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Says that there is no such node.
    pub(super) fn missing(&self, name: &str) -> String {
        let meant = closest(name, self.all.iter().copied());
        let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
        format!("there is no node `{name}`{meant}")
    }
}

pub(super) fn compose(text: &str) -> Result<ComposeFile, Mistakes> {
    let (mut checker, root) = Checker::read(text);
    let nodes = root.map(|root| read_nodes(&mut checker, &root));
    checker.into_result(nodes.map(|nodes| ComposeFile { nodes }))
}

fn read_nodes(checker: &mut Checker<'_>, root: &Spanned<Value>) -> Vec<Node> {
    let mut found = None;
    for (key, value) in checker.entries("the file", root) {
        match key.value.as_str() {
            "nodes" => found = Some(value),
            _ => checker.unknown("the file", key, &["nodes"]),
        }
    }
    let Some(found) = found else {
        if checker.problems.is_empty() {
            checker.wrong(&root.referenced, "the file has no `nodes`");
        }
        return Vec::new();
    };
    let entries = checker.entries("`nodes`", found);
    if entries.is_empty() && checker.problems.is_empty() {
        checker.wrong(&found.referenced, "`nodes` is empty");
    }
    if entries.len() > NODES_MAX {
        checker.wrong(&found.referenced, format!("a file has at most {NODES_MAX} nodes, not {}", entries.len()));
        return Vec::new();
    }
    let names = Names::of(entries);
    let (mut nodes, mut all_written) = (Vec::new(), Vec::new());
    for (name, value) in entries {
        let (node, written) = read_node(checker, name, value);
        nodes.push(node);
        all_written.push(written);
    }
    connect(checker, &names, &mut nodes, &all_written);
    for ((_, value), node) in entries.iter().zip(&nodes) {
        if let Some(node) = node {
            check_results(checker, value, node, (&names, &nodes));
        }
    }
    nodes.into_iter().flatten().collect()
}

pub(super) fn check_name(checker: &mut Checker<'_>, name: &Spanned<String>) {
    if !template::is_name(&name.value) {
        let message = format!(
            "`{}` cannot be a name: letters, digits, `-` and `_`, the first one a letter, at most {NAME_MAX}",
            name.value
        );
        checker.wrong(&name.referenced, message);
    }
}

fn read_node<'a, 'text: 'a>(
    checker: &mut Checker<'text>,
    name: &Spanned<String>,
    value: &'a Spanned<Value>,
) -> (Option<Node>, Vec<Written<'a>>) {
    check_name(checker, name);
    let what = format!("`{}`", name.value);
    let entries = checker.entries(&what, value);
    let (mut written, mut results) = (Vec::new(), Vec::new());
    let (mut retries, mut restart, mut retries_at) = (None, None, None);
    for (key, value) in entries {
        match key.value.as_str() {
            "depends_on" => written = dependencies(checker, value),
            "results" => results = read_results(checker, value),
            "retries" => {
                retries = read_retries(checker, value);
                retries_at = Some(key.referenced);
            }
            "restart" => restart = read_restart(checker, value),
            known if TASK_KEYS.contains(&known) => {}
            _ => checker.unknown(&what, key, &[&TASK_KEYS[..], &NODE_KEYS[..]].concat()),
        }
    }
    if let (Some(at), Some(_)) = (retries_at, restart) {
        checker.wrong(&at, "`retries` and `restart` exclude each other");
    }
    if !matches!(value.value, Value::Map(_)) {
        return (None, written);
    }
    let task = task(checker, name, entries).map(|task| Task { results, ..task });
    let retries = retries.unwrap_or_default();
    let node = task.map(|task| Node { name: name.value.clone(), task, depends_on: Vec::new(), retries, restart });
    (node, written)
}

fn dependencies<'a, 'text: 'a>(checker: &mut Checker<'text>, found: &'a Spanned<Value>) -> Vec<Written<'a>> {
    let mut written = Vec::new();
    match &found.value {
        Value::List(list) => {
            for item in list {
                if let Some(on) = checker.listed_name("depends_on", item) {
                    written.push(Written { on, at: item.referenced, condition: Condition::Succeeded });
                }
            }
        }
        Value::Map(entries) => {
            for (key, value) in entries {
                if let Some(condition) = checker.word(&key.value, value, &Condition::WORDS) {
                    written.push(Written { on: &key.value, at: key.referenced, condition });
                }
            }
        }
        other @ (Value::Nothing | Value::Truth(_) | Value::Number(_) | Value::Fraction(_) | Value::Text(_)) => {
            let message =
                format!("`depends_on` must be a list like [plan], or {{plan: completed}}, not {}", other.name());
            checker.wrong(&found.referenced, message);
        }
    }
    written
}

/// Turns names into places, and refuses names that do not exist and cycles.
fn connect(checker: &mut Checker<'_>, names: &Names<'_>, nodes: &mut [Option<Node>], written: &[Vec<Written<'_>>]) {
    let mut on: Vec<Vec<usize>> = vec![Vec::new(); names.all.len()];
    for (place, dependencies) in written.iter().enumerate() {
        for dependency in dependencies {
            let Some(other) = names.place(dependency.on) else {
                checker.wrong_because(&dependency.at, || names.missing(dependency.on));
                continue;
            };
            if on[place].contains(&other) {
                checker.wrong(&dependency.at, format!("`{}` is given twice", dependency.on));
                continue;
            }
            on[place].push(other);
            if let Some(message) = never_ends(nodes[other].as_ref(), dependency) {
                checker.wrong(&dependency.at, message);
            }
            if let Some(node) = &mut nodes[place] {
                node.depends_on.push(Dependency { node: other, condition: dependency.condition });
            }
        }
    }
    let Some(cycle) = Graph::new(on).cycle() else { return };
    let (first, next) = (cycle[0], cycle.get(1).copied().unwrap_or(cycle[0]));
    let at = written[first].iter().find(|dependency| dependency.on == names.all[next]).map(|dependency| dependency.at);
    let way: Vec<&str> = cycle.iter().chain(&cycle[..1]).map(|place| names.all[*place]).collect();
    let message = format!("the nodes depend on each other in a cycle: {}", way.join(" -> "));
    checker.wrong(&at.unwrap_or(Location::UNKNOWN), message);
}

/// Says why a node that waits for the end of another one would wait for ever.
fn never_ends(on: Option<&Node>, dependency: &Written<'_>) -> Option<String> {
    let waits_for_end = match dependency.condition {
        Condition::Succeeded | Condition::Completed => true,
        Condition::Started => false,
    };
    let Written { on: name, .. } = dependency;
    on.filter(|on| waits_for_end && on.is_service()).map(|_| {
        format!("`{name}` never ends, because it is `restart: permanent`: wait for its start with {{{name}: started}}")
    })
}

fn read_retries(checker: &mut Checker<'_>, found: &Spanned<Value>) -> Option<Retries> {
    /// The most retries of a node.
    const MAX: u64 = 1000;
    let number = |checker: &mut Checker<'_>, value: &Spanned<Value>| {
        checker.number("retries", value, 0, MAX).and_then(|max| u32::try_from(max).ok())
    };
    if !matches!(found.value, Value::Map(_)) {
        return number(checker, found).map(|max| Retries { max, ..Retries::default() });
    }
    let mut retries = Retries::default();
    for (key, value) in checker.entries("`retries`", found) {
        match key.value.as_str() {
            "max" => retries.max = number(checker, value)?,
            "backoff" => retries.backoff = Backoff::from_first(checker.duration_ms("backoff", value)?),
            _ => checker.unknown("`retries`", key, &["max", "backoff"]),
        }
    }
    Some(retries)
}

fn read_restart(checker: &mut Checker<'_>, found: &Spanned<Value>) -> Option<Restart> {
    if !matches!(found.value, Value::Map(_)) {
        let policy = checker.word("restart", found, &Policy::WORDS)?;
        return Some(Restart { policy, ..Restart::default() });
    }
    let mut restart = Restart::default();
    for (key, value) in checker.entries("`restart`", found) {
        match key.value.as_str() {
            "policy" => restart.policy = checker.word("policy", value, &Policy::WORDS)?,
            "fresh" => restart.fresh = checker.truth("fresh", value)?,
            _ if intensity(checker, (key, value), &mut restart.intensity, &mut restart.backoff) => {}
            _ => checker.unknown("`restart`", key, &["policy", "fresh", "max_restarts", "within", "backoff"]),
        }
    }
    Some(restart)
}

/// Reads one of the keys that say how often something is restarted; `false` if it is another key.
pub(super) fn intensity(
    checker: &mut Checker<'_>,
    (key, value): (&Spanned<String>, &Spanned<Value>),
    intensity: &mut crate::restart::Intensity,
    backoff: &mut Backoff,
) -> bool {
    /// The most restarts in a window: each one is remembered.
    const MAX: u64 = 1000;
    match key.value.as_str() {
        "max_restarts" => {
            let max = checker.number("max_restarts", value, 0, MAX).and_then(|max| u32::try_from(max).ok());
            intensity.max_restarts = max.unwrap_or_default();
        }
        "within" => {
            intensity.within_ms = checker.duration_ms("within", value).unwrap_or_default();
            if intensity.within_ms == 0 {
                checker.wrong(&value.referenced, "`within` must be longer than 0s");
            }
        }
        "backoff" => *backoff = Backoff::from_first(checker.duration_ms("backoff", value).unwrap_or_default()),
        _ => return false,
    }
    true
}

/// Returns the entries of a section, or none of what is no section.
pub(super) fn section(value: &Value) -> &[Entry] {
    match value {
        Value::Map(entries) => entries,
        Value::Nothing | Value::Truth(_) | Value::Number(_) | Value::Fraction(_) | Value::Text(_) | Value::List(_) => {
            &[]
        }
    }
}
