//! Reads a supervisor file and finds all its mistakes at once.

use serde_saphyr::Spanned;

use super::parse::{check_name, intensity, section};
use super::task::{TASK_KEYS, task};
use super::{NODES_MAX, Run, SupervisedChild, SupervisorFile, template};
use crate::restart::{Backoff, Intensity, Policy, Strategy};
use crate::yaml::{Checker, Mistakes, Value};

const KEYS: [&str; 5] = ["strategy", "max_restarts", "within", "backoff", "children"];
const CHILD_KEYS: [&str; 3] = ["restart", "fresh", "supervisor"];
/// How deep supervisors are nested.
const DEPTH_MAX: u32 = 8;

pub(super) fn supervisor(text: &str) -> Result<SupervisorFile, Mistakes> {
    let (mut checker, root) = Checker::read(text);
    let file = root.and_then(|root| read(&mut checker, "the file", &root, 1));
    checker.into_result(file)
}

fn read(checker: &mut Checker<'_>, what: &str, found: &Spanned<Value>, depth: u32) -> Option<SupervisorFile> {
    if depth > DEPTH_MAX {
        checker.wrong(&found.referenced, format!("supervisors are at most {DEPTH_MAX} levels deep"));
        return None;
    }
    let mut file = SupervisorFile {
        strategy: Strategy::default(),
        intensity: Intensity::default(),
        backoff: Backoff::default(),
        children: Vec::new(),
    };
    let mut children = None;
    for (key, value) in checker.entries(what, found) {
        match key.value.as_str() {
            "strategy" => {
                file.strategy = checker.word("strategy", value, &Strategy::WORDS).unwrap_or_default();
            }
            "children" => children = Some(value),
            _ if intensity(checker, (key, value), &mut file.intensity, &mut file.backoff) => {}
            _ => checker.unknown(what, key, &KEYS),
        }
    }
    let Some(children) = children else {
        if matches!(found.value, Value::Map(_)) {
            checker.wrong(&found.referenced, format!("{what} has no `children`"));
        }
        return None;
    };
    let entries = checker.entries("`children`", children);
    if section(&children.value).is_empty() && matches!(children.value, Value::Map(_)) {
        checker.wrong(&children.referenced, "`children` is empty");
    }
    if entries.len() > NODES_MAX {
        let message = format!("a supervisor has at most {NODES_MAX} children, not {}", entries.len());
        checker.wrong(&children.referenced, message);
        return None;
    }
    for (name, value) in entries {
        file.children.extend(read_child(checker, name, value, depth));
    }
    Some(file)
}

fn read_child(
    checker: &mut Checker<'_>,
    name: &Spanned<String>,
    value: &Spanned<Value>,
    depth: u32,
) -> Option<SupervisedChild> {
    check_name(checker, name);
    let what = format!("`{}`", name.value);
    let entries = checker.entries(&what, value);
    let (mut restart, mut fresh, mut nested) = (Policy::default(), false, None);
    for (key, value) in entries {
        match key.value.as_str() {
            "restart" => restart = checker.word("restart", value, &Policy::WORDS).unwrap_or_default(),
            "fresh" => fresh = checker.truth("fresh", value).unwrap_or_default(),
            "supervisor" => nested = Some((key, value)),
            known if TASK_KEYS.contains(&known) => no_results(checker, value),
            _ => checker.unknown(&what, key, &[&TASK_KEYS[..], &CHILD_KEYS[..]].concat()),
        }
    }
    if !matches!(value.value, Value::Map(_)) {
        return None;
    }
    let run = match nested {
        Some((key, value)) => {
            if let Some((other, _)) = entries.iter().find(|(other, _)| TASK_KEYS.contains(&other.value.as_str())) {
                let message = format!("`{}` is a supervisor: `{}` is for its children", name.value, other.value);
                checker.wrong(&other.referenced, message);
            }
            Run::Supervisor(read(checker, &format!("`{}`", key.value), value, depth + 1)?)
        }
        None => Run::Task(task(checker, name, entries)?),
    };
    Some(SupervisedChild { name: name.value.clone(), run, restart, fresh })
}

/// Refuses results: the children of a supervisor do not wait for each other.
fn no_results(checker: &mut Checker<'_>, value: &Spanned<Value>) {
    let texts: Vec<&Spanned<Value>> = match &value.value {
        Value::List(list) => list.iter().collect(),
        Value::Text(_) => vec![value],
        Value::Nothing | Value::Truth(_) | Value::Number(_) | Value::Fraction(_) | Value::Map(_) => Vec::new(),
    };
    for text in texts {
        if let Value::Text(written) = &text.value
            && !template::nodes(written).is_empty()
        {
            checker.wrong(&text.referenced, "the children of a supervisor have no results of each other");
        }
    }
}
