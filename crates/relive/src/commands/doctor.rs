//! `relive doctor`: what this machine gives us, and what to do about what it does not.
//!
//! Needs no daemon, starts none, and leaves nothing behind. A row is necessary (`failed`: nothing works without it) or a
//! rung that could be better (`weak`); both come with one remedy.

mod machine;
mod sessions;

use relive_session::tree::Ladder;
use serde::Serialize;
use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use crate::context::Context;
use crate::error::Outcome;
use crate::terminal::{Look, Paint, without_controls};

/// Show what this machine can hold, and what to do about what it cannot
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive doctor
  relive doctor --json | jq '.rows[] | select(.state != \"ok\")'")]
pub(crate) struct Args {}

/// Where rows are wrapped, on a terminal or not.
const WIDTH: usize = 80;
/// Of the columns before the text.
const INDENT: usize = 24;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    state: State,
    /// What was found, in a word or two where it has one.
    value: String,
    /// What that means.
    means: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// As good as it gets.
    Ok,
    /// It works; better is possible.
    Weak,
    /// Nothing works without it.
    Failed,
}

impl Row {
    fn ok(name: &'static str, value: impl Into<String>, means: impl Into<String>) -> Self {
        Self { name, state: State::Ok, value: value.into(), means: means.into(), hint: None }
    }

    fn weak(self, hint: impl Into<String>) -> Self {
        Self { state: State::Weak, hint: Some(hint.into()), ..self }
    }

    fn failed(self, hint: impl Into<String>) -> Self {
        Self { state: State::Failed, hint: Some(hint.into()), ..self }
    }
}

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    let mut rows = vec![machine::data(context), machine::config(context), machine::daemon(context).await];
    let prefix = format!("relive-doctor-{}", std::process::id());
    let ladder = Ladder::probe(&prefix);
    rows.extend([machine::kernel(), machine::user_namespaces(&prefix)]);
    rows.extend(sessions::rows(&ladder));
    let failed = rows.iter().any(|row| row.state == State::Failed);
    if context.json {
        context.print_json(&json!({ "ok": !failed, "rows": rows, "notes": ladder.notes }))?;
    } else {
        context.print(&text(&rows, &context.out))?;
    }
    Ok(u8::from(failed))
}

fn text(rows: &[Row], look: &Look) -> String {
    let mut out = String::new();
    for row in rows {
        let (word, paint) = match row.state {
            State::Ok => ("ok", Paint::Green),
            State::Weak => ("weak", Paint::Yellow),
            State::Failed => ("failed", Paint::Red),
        };
        let space = " ".repeat(8 - word.len());
        let said = [&row.value, &row.means].into_iter().filter(|part| !part.is_empty());
        let said = said.map(|part| without_controls(part).into_owned()).collect::<Vec<_>>().join(": ");
        out.push_str(&format!("{}{space}{:<16}", look.paint(paint, word), row.name));
        out.push_str(&wrapped(&said));
        if let Some(hint) = &row.hint {
            out.push_str(&" ".repeat(INDENT));
            out.push_str(&wrapped(&format!("hint: {}", without_controls(hint))));
        }
    }
    out
}

/// Lines of at most so many columns that all begin at the same one. A word that is longer stays whole.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = INDENT;
    for word in text.split_whitespace() {
        if column > INDENT && column + 1 + word.width() > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(INDENT));
            column = INDENT;
        }
        if column > INDENT {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.width();
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_eighty_columns_and_hints_stand_below() {
        let long = "so many words that one line of eighty columns cannot possibly hold all of them at once";
        let rows = [Row::ok("kernel", "6.1", "new enough"), Row::ok("tree", "process-group", long).weak(long)];
        let text = text(&rows, &Look::plain());
        assert!(text.lines().all(|line| line.width() <= WIDTH), "{text}");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("ok      kernel          6.1: new enough"));
        assert_eq!(lines.next(), Some("weak    tree            process-group: so many words that one line of eighty"));
        assert!(text.contains("\n                        hint: so many words"), "{text}");
    }
}
