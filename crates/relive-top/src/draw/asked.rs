//! What an item asks of a person, all of it.

use relive_api::{Item, PendingCall};
use serde_json::Value;

use crate::state::State;
use crate::text::{clean, wrap};

/// In front of every line that an agent wrote, so that it cannot draw an answer or another question.
const BAR: &str = "  | ";

/// A line of the description of an item.
enum Line {
    Own(String),
    /// Of an agent.
    Foreign(String),
}

/// Returns what a person is asked, and the command of each answer, in lines that are not wider than this.
pub(super) fn lines(state: &State, item: &Item, width: usize) -> Vec<String> {
    let wrapped = |line: &Line| match line {
        Line::Own(text) => wrap(text, width),
        Line::Foreign(text) => {
            let parts = wrap(text, width.saturating_sub(BAR.len()));
            parts.into_iter().map(|part| format!("{BAR}{part}")).collect()
        }
    };
    whole(state, item).iter().flat_map(wrapped).collect()
}

/// Returns what a person is asked, and the command of each answer.
fn whole(state: &State, item: &Item) -> Vec<Line> {
    let process = state.known.get(&item.uuid).map(|known| &known.process);
    let mut lines = vec![Line::Own(format!("{}:", item.kind.word()))];
    let call = process.and_then(|process| process.approval.as_ref().or(process.in_doubt.first()));
    if let Some(call) = call {
        lines.push(Line::Own(format!("  {}", clean(&call.tool))));
        for (name, value) in arguments(call) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // A change of a file reads like a diff.
            let sign = match (call.tool.as_str(), name.as_str()) {
                ("edit", "old") => "-",
                ("edit", "new") | ("write", "content") => "+",
                (_, _) => "",
            };
            lines.push(Line::Own(format!("  {}:", clean(name))));
            lines.extend(text.lines().map(|line| Line::Foreign(format!("{sign}{}", clean(line)))));
        }
    } else if let Some(question) = process.and_then(|process| process.question.as_ref()) {
        lines.extend(foreign(&question.text));
    } else {
        lines.extend(foreign(&item.text));
    }
    for answer in &item.answers {
        lines.push(Line::Own(format!("[{}] {}  {}", answer.key, clean(&answer.text), clean(&answer.command))));
    }
    lines
}

/// Returns the arguments of a call: where it acts first, and what it removes before what it adds.
fn arguments(call: &PendingCall) -> Vec<(&String, &Value)> {
    let mut arguments: Vec<_> = call.args.as_object().into_iter().flatten().collect();
    let order = ["path", "old", "new", "content"];
    arguments.sort_by_key(|(name, _)| order.iter().position(|known| known == name).unwrap_or(order.len()));
    arguments
}

fn foreign(text: &str) -> impl Iterator<Item = Line> {
    text.lines().map(|line| Line::Foreign(clean(line)))
}
