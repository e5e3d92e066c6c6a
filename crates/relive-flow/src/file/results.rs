//! The results of other nodes, which a node asks for: in the text of an intent, or in variables of a program.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};

use serde_saphyr::{Location, Spanned};

use super::parse::Names;
use super::{COMMAND_RESULTS_MAX, Condition, Node, RESULTS_MAX, Work, variable};
use crate::template;
use crate::yaml::{Checker, Value};

/// Reads `results`: the names of nodes. Whether they can be asked for is checked when all nodes are known.
pub(super) fn read_results(checker: &mut Checker<'_>, found: &Spanned<Value>) -> Vec<String> {
    let Value::List(list) = &found.value else {
        let message = format!("`results` must be a list of nodes like [plan], not {}", found.value.name());
        checker.wrong(&found.referenced, message);
        return Vec::new();
    };
    list.iter().filter_map(|name| checker.listed_name("results", name)).map(str::to_owned).collect()
}

/// Refuses results of nodes that have not ended when this one starts, and results in places where they cannot be.
pub(super) fn check_results(
    checker: &mut Checker<'_>,
    value: &Spanned<Value>,
    node: &Node,
    (names, nodes): (&Names<'_>, &[Option<Node>]),
) {
    let Value::Map(entries) = &value.value else { return };
    let ended = LazyCell::new(|| have_ended_before(node, nodes));
    let check = |checker: &mut Checker<'_>, at: &Location, name: &str| match names.place(name) {
        None => checker.wrong_because(at, || names.missing(name)),
        Some(place) if !ended.contains(&place) => {
            let message = format!("`{name}` may not have ended by then: add it to `depends_on` of `{}`", node.name);
            checker.wrong(at, message);
        }
        Some(_) => {}
    };
    for (key, value) in entries {
        match (key.value.as_str(), &value.value) {
            ("intent", Value::Text(written)) => {
                let results = template::count(written);
                if results > RESULTS_MAX {
                    let message =
                        format!("`{}` has {results} results in it, and {RESULTS_MAX} are the most", node.name);
                    checker.wrong(&value.referenced, message);
                }
                for name in names_in(checker, value, written) {
                    check(checker, &value.referenced, &name);
                }
            }
            ("command", Value::List(list)) => {
                for argument in list {
                    let Value::Text(written) = &argument.value else { continue };
                    if let Some(name) = names_in(checker, argument, written).into_iter().next() {
                        checker.wrong(&argument.referenced, not_in_command(&name));
                    }
                }
            }
            ("results", Value::List(list)) => {
                let variables = variables(checker, node, value, list);
                variables.into_iter().for_each(|(name, at)| check(checker, &at, name));
            }
            _ => {}
        }
    }
}

/// Returns the nodes whose results a text has; reports one that cannot be understood.
fn names_in(checker: &mut Checker<'_>, at: &Spanned<Value>, written: &str) -> Vec<String> {
    if let Err(error) = template::parse(written) {
        checker.wrong(&at.referenced, error.to_string());
    }
    template::nodes(written)
}

fn not_in_command(name: &str) -> String {
    format!(
        "the result of `{name}` cannot be part of a command, because a program might run it: \
         add `results: [{name}]`, and the program finds it in the variable {}",
        variable(name)
    )
}

/// Refuses variables that cannot be, and returns the other nodes that are listed.
fn variables<'a, 'text: 'a>(
    checker: &mut Checker<'text>,
    node: &Node,
    value: &Spanned<Value>,
    list: &'a [Spanned<Value>],
) -> Vec<(&'a str, Location)> {
    match &node.task.work {
        Work::Exec { .. } => {}
        Work::Agent { .. } | Work::Cli { .. } => {
            let message = "`results` is for a command: write {{ nodes.NAME.result }} in the intent";
            checker.wrong(&value.referenced, message);
            return Vec::new();
        }
    }
    if list.len() > COMMAND_RESULTS_MAX {
        let message = format!("a command is given at most {COMMAND_RESULTS_MAX} results, not {}", list.len());
        checker.wrong(&value.referenced, message);
        return Vec::new();
    }
    let (mut seen, mut listed): (HashMap<String, &str>, Vec<(&str, Location)>) = (HashMap::new(), Vec::new());
    for item in list {
        // One that cannot be a name was reported when the list was read.
        let Some(name) = checker.name(item) else { continue };
        match seen.insert(variable(name), name) {
            None => listed.push((name, item.referenced)),
            Some(other) if other == name => checker.wrong(&item.referenced, format!("`{name}` is given twice")),
            Some(other) => {
                let message = format!("`{other}` and `{name}` would both be {}: rename one of them", variable(name));
                checker.wrong(&item.referenced, message);
            }
        }
    }
    listed
}

/// Returns the nodes that have ended when this one starts: those that it waits for, and those that they wait for.
fn have_ended_before(node: &Node, nodes: &[Option<Node>]) -> HashSet<usize> {
    let (mut ended, mut to_visit) = (HashSet::new(), vec![node]);
    while let Some(node) = to_visit.pop() {
        for on in node.depends_on.iter().filter(|on| on.condition != Condition::Started) {
            if ended.insert(on.node) {
                to_visit.extend(nodes.get(on.node).and_then(Option::as_ref));
            }
        }
    }
    ended
}
