//! `relive doctor`: shows what this machine supports, and what to do about the rest.
//!
//! It needs no daemon, starts none, and leaves nothing behind. A row is necessary (`failed`: nothing works without it)
//! or could be better (`weak`); both come with one remedy.

mod machine;
mod sessions;

use relive_session::tree::Ladder;
use serde::Serialize;
use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use crate::context::Context;
use crate::error::Outcome;
use crate::terminal::{Look, Paint, without_controls};

/// Show what this machine supports, and how to fix what it does not
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive doctor
  relive doctor --json | jq '.rows[] | select(.state != \"ok\")'")]
pub(crate) struct Args {}

/// The width of rows, on a terminal or not.
const WIDTH: usize = 80;
/// Longer lines are hard to read.
const WIDTH_MAX: usize = 120;
/// Room for words beside the indentation, however narrow the terminal.
const WORDS_MIN: usize = 16;
/// The width of the columns before the text.
const INDENT: usize = 24;

/// The result of a check.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    state: State,
    /// The result, in a word or two.
    value: String,
    /// The explanation of the result.
    means: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// It works, but could be better.
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
    rows.extend(sessions::rows(&ladder.rungs));
    rows.push(sessions::isolation(&ladder.isolation));
    let failed = rows.iter().any(|row| row.state == State::Failed);
    if context.json {
        let isolation = sessions::grades(&ladder.isolation);
        context.print_json(&json!({ "ok": !failed, "rows": rows, "isolation": isolation, "notes": ladder.notes }))?;
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
        out.push_str(&wrapped(&said, look));
        if let Some(hint) = &row.hint {
            out.push_str(&" ".repeat(INDENT));
            out.push_str(&wrapped(&format!("hint: {}", without_controls(hint)), look));
        }
    }
    out
}

/// Wraps text to lines that all begin at the same column. A longer word stays whole.
fn wrapped(text: &str, look: &Look) -> String {
    // On a narrow terminal there is still room for some words behind the indentation.
    let width = look.width.unwrap_or(WIDTH).clamp(INDENT + WORDS_MIN, WIDTH_MAX);
    let mut out = String::new();
    let mut column = INDENT;
    for word in text.split_whitespace() {
        if column > INDENT && column + 1 + word.width() > width {
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
    use relive_session::tree::Rungs;

    use super::*;

    fn rungs(of: [&str; 6], degraded: &[&str]) -> Rungs {
        let [tree, pause, kill, pids, memory, cpu] = of.map(str::to_owned);
        let degraded = degraded.iter().map(ToString::to_string).collect();
        let (isolation, network, namespaces) = (String::new(), String::new(), Vec::new());
        Rungs { tree, pause, kill, pids, memory, cpu, isolation, network, namespaces, degraded }
    }

    /// After a change: `INSTA_UPDATE=always cargo test -p relive --bin relive doctor`, then read the diff as prose.
    #[test]
    fn doctor_reads_as_in_its_snapshot() {
        let good = rungs(["cgroup2", "cgroup2-freeze", "cgroup-kill", "cgroup2", "cgroup2", "cgroup2"], &[]);
        let weak = ["process-group", "sigstop", "subreaper", "rlimit", "none", "none"];
        let weak = rungs(weak, &["pids: all processes of the user count"]);
        let mut rows = vec![
            Row::ok("data", "/home/someone/.local/share/relive", "1.2 GB free"),
            Row::ok("config", "/home/someone/.config/relive/config.yaml", "invalid").failed("relive config show"),
            Row::ok("daemon", "running", "OS pid 5, version 0.0.1, while this is 0.1.0").weak("relive daemon restart"),
        ];
        rows.extend(sessions::rows(&good));
        rows.extend(sessions::rows(&weak));
        let shown = text(&rows, &Look::plain()) + &serde_json::to_string_pretty(&rows[..3]).unwrap();
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!("doctor", shown);
        });
    }

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
        let on = |width| super::text(&rows, &Look { width: Some(width), ..Look::plain() });
        assert!(on(40).lines().all(|line| line.width() <= 40), "{}", on(40));
        assert!(on(200).lines().any(|line| line.width() > WIDTH), "{}", on(200));
    }
}
