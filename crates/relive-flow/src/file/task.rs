//! What a node or a child runs.

use relive_types::{CommandRule, Isolation, Limits, Network, Usd, WorkspaceKind, model_name};
use serde_saphyr::Spanned;

use super::{Task, Work};
use crate::yaml::{Checker, Entry, Value};

pub(super) const TASK_KEYS: [&str; 14] = [
    "intent",
    "command",
    "cli",
    "model",
    "agent",
    "allow",
    "cwd",
    "workspace",
    "isolation",
    "network",
    "timeout",
    "max_steps",
    "max_tokens",
    "max_cost_usd",
];

/// The CLI agents that can be named. Another one has a file in `agents/`, and is named by `agent`.
const CLIS: [&str; 2] = ["claude", "codex"];

/// Reads the keys of a task, and refuses a model that cannot exist. The caller reports other keys.
pub(super) fn task(checker: &mut Checker<'_>, name: &Spanned<String>, entries: &[Entry]) -> Option<Task> {
    let task = read_task(checker, name, entries)?;
    // What a CLI agent calls its models is known to its program alone, and a script is a file.
    let is_native = entries.iter().all(|(key, _)| key.value != "cli");
    if let Work::Agent { model: Some(model), .. } = &task.work
        && is_native
        && !model.starts_with("script/")
        && let Err(error) = model_name::split(model)
        && let Some((_, found)) = entries.iter().find(|(key, _)| key.value == "model")
    {
        checker.wrong(&found.referenced, error.to_string());
    }
    Some(task)
}

fn read_task(checker: &mut Checker<'_>, name: &Spanned<String>, entries: &[Entry]) -> Option<Task> {
    let (mut intent, mut command, mut model, mut agent, mut cwd) = (None, None, None, None, None);
    let (mut allow, mut limits) = (Vec::new(), Limits::default());
    let (mut agents_only, mut natives_only) = (None, None);
    let (mut workspace, mut isolation, mut network, mut cli) = (None, None, None, None);
    for (key, value) in entries {
        match key.value.as_str() {
            "intent" => intent = Some(filled_text(checker, "intent", value)?),
            "command" => command = Some(arguments(checker, value)?),
            "cli" => cli = checker.word("cli", value, &CLIS.map(|name| (name, name))),
            "model" => model = checker.text_of("model", value),
            "agent" => agent = checker.text_of("agent", value),
            "allow" => allow = rules(checker, value),
            "cwd" => cwd = checker.text_of("cwd", value),
            "workspace" => {
                workspace = checker.word("workspace", value, &WorkspaceKind::ALL.map(|kind| (kind.word(), kind)))
            }
            "isolation" => {
                isolation = checker.word("isolation", value, &Isolation::ALL.map(|word| (word.name(), word)))
            }
            "network" => network = network_of(checker, value),
            "timeout" => {
                limits.timeout_ms = checker.duration_ms("timeout", value);
                if limits.timeout_ms == Some(0) {
                    checker.wrong(&value.referenced, "`timeout` must be above zero, such as 10m");
                }
            }
            "max_steps" => {
                let steps = checker.number("max_steps", value, 1, u32::MAX.into());
                limits.max_steps = steps.and_then(|steps| u32::try_from(steps).ok());
            }
            "max_tokens" => limits.max_tokens = checker.number("max_tokens", value, 1, u64::MAX),
            "max_cost_usd" => limits.max_cost_usd = dollars(checker, value),
            _ => {}
        }
        match key.value.as_str() {
            "cli" | "model" | "max_steps" | "max_tokens" | "max_cost_usd" => agents_only = agents_only.or(Some(key)),
            "agent" | "allow" => natives_only = natives_only.or(Some(key)),
            _ => {}
        }
    }
    let work = match (intent, command, cli) {
        (Some(intent), None, None) => Work::Agent { intent, model, agent, allow },
        (Some(intent), None, Some(cli)) => {
            if let Some(key) = natives_only {
                let message = format!("`{}` cannot be used together with `cli`: {cli} has its own", key.value);
                checker.wrong(&key.referenced, message);
            }
            refuse_for_cli(checker, cli, entries, isolation);
            Work::Cli { cli: cli.to_owned(), intent, model }
        }
        (None, Some(command), _) => {
            if let Some(key) = agents_only.or(natives_only) {
                checker.wrong(
                    &key.referenced,
                    format!("`{}` is for an agent, and `{}` runs a command", key.value, name.value),
                );
            }
            Work::Exec { command }
        }
        (Some(_), Some(_), _) => {
            checker.wrong(&name.referenced, format!("`{}` has an intent and a command: one of them", name.value));
            return None;
        }
        (None, None, _) => {
            let message = format!("`{}` needs an `intent` for an agent, or a `command` for a program", name.value);
            checker.wrong(&name.referenced, message);
            return None;
        }
    };
    Some(Task { cwd, limits, workspace, isolation, network, ..Task::new(work) })
}

/// Refuses keys that a CLI agent would not heed.
fn refuse_for_cli(checker: &mut Checker<'_>, cli: &str, entries: &[Entry], isolation: Option<Isolation>) {
    for (key, value) in entries {
        let message = match (key.value.as_str(), isolation) {
            ("max_steps", _) => {
                format!("`max_steps` cannot be used together with `cli`: {cli} decides that itself; use `max_tokens`")
            }
            ("isolation", Some(Isolation::Sealed)) => {
                format!("{cli} cannot be sealed: it could not reach its model; `confined` is possible")
            }
            _ => continue,
        };
        checker.wrong(&value.referenced, message);
    }
}

fn filled_text(checker: &mut Checker<'_>, key: &str, found: &Spanned<Value>) -> Option<String> {
    let text = checker.text_of(key, found)?;
    if text.trim().is_empty() {
        checker.wrong(&found.referenced, format!("`{key}` is empty"));
    }
    Some(text)
}

fn arguments(checker: &mut Checker<'_>, found: &Spanned<Value>) -> Option<Vec<String>> {
    let Value::List(list) = &found.value else {
        let message = format!("`command` must be a list like [make, test], not {}", found.value.name());
        checker.wrong(&found.referenced, message);
        return None;
    };
    if list.is_empty() {
        checker.wrong(&found.referenced, "`command` is empty");
    }
    if let Some(Spanned { value: Value::Text(program), .. }) = list.first()
        && program.trim().is_empty()
    {
        checker.wrong(&list[0].referenced, "the program of `command` is empty");
    }
    let mut command = Vec::new();
    for argument in list {
        command.push(match &argument.value {
            // A program is given texts.
            Value::Number(_) | Value::Truth(_) | Value::Fraction(_) => {
                checker.written(argument).unwrap_or_default().to_owned()
            }
            Value::Text(text) if text.contains('\0') => {
                checker.wrong(&argument.referenced, "an argument cannot contain a NUL byte");
                continue;
            }
            Value::Text(text) => text.clone(),
            other @ (Value::Nothing | Value::List(_) | Value::Map(_)) => {
                let message =
                    format!("an argument of `command` must be a text, not {}: put it in quotes", other.name());
                checker.wrong(&argument.referenced, message);
                continue;
            }
        });
    }
    Some(command)
}

fn rules(checker: &mut Checker<'_>, found: &Spanned<Value>) -> Vec<String> {
    let Value::List(list) = &found.value else {
        checker.wrong(&found.referenced, format!("`allow` must be a list of rules, not {}", found.value.name()));
        return Vec::new();
    };
    let mut rules = Vec::new();
    for rule in list {
        let Some(text) = checker.text_of("allow", rule) else { continue };
        if CommandRule::is_meant(&text)
            && let Err(error) = text.parse::<CommandRule>()
        {
            checker.wrong(&rule.referenced, format!("`allow`: {error}"));
        }
        rules.push(text);
    }
    rules
}

fn network_of(checker: &mut Checker<'_>, found: &Spanned<Value>) -> Option<Network> {
    let written = match &found.value {
        Value::List(domains) if !domains.is_empty() => {
            let texts = domains.iter().map(|domain| checker.text_of("network", domain)).collect::<Option<Vec<_>>>()?;
            let read = Network::allow(texts.iter().map(String::as_str));
            return read.inspect_err(|error| checker.wrong(&found.referenced, format!("`network`: {error}"))).ok();
        }
        Value::Text(word) => match word.parse() {
            Ok(network) => return Some(network),
            Err(_) => format!("`{word}`"),
        },
        other @ (Value::Nothing
        | Value::List(_)
        | Value::Truth(_)
        | Value::Number(_)
        | Value::Fraction(_)
        | Value::Map(_)) => other.name().to_owned(),
    };
    checker.wrong(&found.referenced, format!("`network` must be full, none or a list of domains, not {written}"));
    None
}

fn dollars(checker: &mut Checker<'_>, found: &Spanned<Value>) -> Option<Usd> {
    let amount = match &found.value {
        #[expect(clippy::cast_precision_loss, reason = "an amount that is too large for a float is refused by `Usd`")]
        Value::Number(number) => Usd::from_dollars(*number as f64),
        Value::Fraction(amount) => Usd::from_dollars(*amount),
        Value::Nothing | Value::Truth(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
    };
    if amount.is_none() {
        checker.wrong(&found.referenced, "`max_cost_usd` must be an amount of dollars, zero or more");
    }
    amount
}
