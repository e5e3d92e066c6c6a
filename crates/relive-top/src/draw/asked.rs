//! What an item asks of a person, all of it.

use relive_api::{Item, PendingCall, numbers_choose};
use relive_types::text::{BAR, REST_BAR, exact, lines as lines_of};
use serde_json::Value;

use crate::state::State;
use crate::text::wrap;

/// The longest name that cannot be taken for anything else.
const NAME_MAX: usize = 32;

/// A line of the description of an item.
enum Line {
    Own(String),
    /// Of an agent.
    Foreign(String),
    /// An answer that an agent proposes, by its key.
    Choice(char, String),
}

/// Returns what a person is asked, and the command of each answer, in lines that are not wider than this.
pub(super) fn lines(state: &State, item: &Item, width: usize) -> Vec<String> {
    let wrapped = |line: &Line| match line {
        Line::Own(text) => wrap(text, width),
        Line::Foreign(text) => {
            let parts = wrap(text, width.saturating_sub(BAR.len()));
            let bars = std::iter::once(BAR).chain(std::iter::repeat(REST_BAR));
            bars.zip(parts).map(|(bar, part)| format!("{bar}{part}")).collect()
        }
        // The number is in front of the bar, where no text of an agent can be.
        Line::Choice(key, text) => {
            let parts = wrap(text, width.saturating_sub(BAR.len() + 2)).into_iter().enumerate();
            parts.map(|(place, part)| format!("  {} | {part}", if place == 0 { *key } else { ' ' })).collect()
        }
    };
    whole(state, item).iter().flat_map(wrapped).collect()
}

/// Returns what a person is asked, and the command of each answer.
fn whole(state: &State, item: &Item) -> Vec<Line> {
    let process = state.known.get(&item.uuid).map(|known| &known.process);
    let then = item.then_paused().map(|then| format!(" {then}")).unwrap_or_default();
    let mut lines = vec![Line::Own(format!("{}:{then}", item.kind.word()))];
    let call = process.and_then(|process| process.approval.as_ref().or(process.in_doubt.first()));
    if let Some(call) = call {
        lines.push(named(&call.tool, ""));
        let compared = state.compared(item);
        for (name, value) in arguments(call) {
            if let (Some(lines_now), "content") = (compared, name.as_str()) {
                lines.push(Line::Own("  changes:".to_owned()));
                lines.extend(lines_now.iter().map(|line| Line::Foreign(exact(line))));
                continue;
            }
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // A change of a file reads like a diff.
            let sign = match (call.tool.as_str(), name.as_str()) {
                ("edit", "old") => "-",
                ("edit", "new") | ("write", "content") => "+",
                (_, _) => "",
            };
            lines.push(named(name, ":"));
            lines.extend(lines_of(&text).map(|line| Line::Foreign(format!("{sign}{}", exact(line)))));
        }
    } else if let Some(question) = process.and_then(|process| process.question.as_ref()) {
        lines.extend(foreign(&question.text));
    } else {
        lines.extend(foreign(&item.text));
    }
    let choices = item.answers.iter().filter(|answer| item.is_choice(answer));
    lines.extend(choices.map(|answer| Line::Choice(answer.key, exact(&answer.text))));
    for (keys, does) in item.keys() {
        let command = match item.answers.iter().find(|answer| answer.key.to_string() == keys && !item.is_choice(answer))
        {
            Some(answer) => exact(&answer.command),
            None => {
                let choices = item.answers.iter().filter(|answer| item.is_choice(answer));
                let choices: Vec<&str> = choices.map(|answer| answer.text.as_str()).collect();
                // A text of a choice wins over the number of another one.
                let by = if numbers_choose(&choices) { "N" } else { "TEXT" };
                format!("relive resolve {} --answer {by}", item.id.split(':').next().unwrap_or_default())
            }
        };
        lines.push(Line::Own(format!("[{keys}] {does}  {command}")));
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

/// Returns the name of a tool or an argument. A model chooses it, so only what is nothing but a name stands alone.
fn named(name: &str, end: &str) -> Line {
    let is_name = name.len() <= NAME_MAX && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if is_name { Line::Own(format!("  {name}{end}")) } else { Line::Foreign(format!("{}{end}", exact(name))) }
}

fn foreign(text: &str) -> impl Iterator<Item = Line> {
    lines_of(text).map(|line| Line::Foreign(exact(line)))
}
