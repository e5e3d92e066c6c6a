//! A call that a person is asked about, as a person reads it: a command with its line breaks, a change of a file as a diff.
//!
//! What is shown comes from a model, which may want to be allowed more than is seen. So every line of it begins with a bar
//! and is wrapped by us, and every character that is not seen, or that moves others about, is shown by its mark.

use std::iter;

pub(crate) use relive_api::command_of as command;
use relive_api::{PendingCall, Process};
use relive_types::CommandRule;
pub(crate) use relive_types::text::exact;
use relive_types::text::{BAR, REST_BAR, lines};
use serde_json::Value;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::diff::{self, Mark};
use crate::error::{CommandError, Outcome};
use crate::terminal::{Look, Paint};

/// The number of bytes of a call that are shown. A longer call cannot be allowed with a key.
const BYTES_MAX: usize = 1 << 20;
/// The narrowest terminal that lines are wrapped for.
const WIDTH_MIN: usize = 20;

/// The file that a call would change, and what it would be, as far as the call says.
pub(crate) fn written_file(call: &PendingCall) -> Option<&str> {
    let writes = matches!(call.tool.as_str(), "write" | "edit");
    call.args.get("path").and_then(Value::as_str).filter(|_| writes)
}

/// A question as it is shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub text: String,
    /// Whether it is all of the call.
    pub whole: bool,
}

impl Shown {
    /// Adds another part of the same question.
    pub(crate) fn add(&mut self, part: Self) {
        self.text.push_str(&part.text);
        self.whole &= part.whole;
    }

    /// Says where all of it can be read, if it was cut.
    pub(crate) fn point_to_rest(&mut self, process: &Process) {
        if !self.whole {
            self.text.push_str(&format!("to see all of it: relive info --json {}\n", process.pid));
        }
    }
}

/// The file that a call would write, as it is now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Absent,
    Text(String),
    /// It is not text, or too large to be compared.
    Hidden {
        bytes: u64,
    },
    /// A directory, a pipe or a device.
    NoFile,
}

/// Returns the call that needs an approval, without the prompt.
pub(crate) fn show(who: &str, call: &PendingCall, before: &Before, look: &Look) -> Shown {
    let text = |name: &str| call.args.get(name).and_then(Value::as_str);
    let fields = call.args.as_object().map_or(0, serde_json::Map::len);
    let who = exact(who);
    let (heading, lines): (String, Vec<(Mark, String)>) =
        match (call.tool.as_str(), command(call), text("path"), text("content"), text("old"), text("new")) {
            (_, Some(command), ..) if fields == 1 => (format!("{who} asks to run a command:"), as_lines(command)),
            (_, Some(command), ..) => {
                let others = call.args.as_object().into_iter().flatten().filter(|(name, _)| *name != "command");
                let others: Vec<String> = others.map(|(name, value)| exact(&format!("{name}: {value}"))).collect();
                (format!("{who} asks to run a command ({}):", others.join(", ")), as_lines(command))
            }
            ("write", _, Some(path), Some(content), ..) if fields == 2 => {
                let path = exact(path);
                match before {
                    Before::Text(before) => (format!("{who} asks to overwrite {path}:"), diff::lines(before, content)),
                    Before::Hidden { bytes } => (
                        format!("{who} asks to overwrite {path} ({}, not shown):", super::size::bytes(*bytes)),
                        diff::lines("", content),
                    ),
                    Before::NoFile => {
                        (format!("{who} asks to write to {path}, which is not a file:"), diff::lines("", content))
                    }
                    Before::Absent => (format!("{who} asks to write {path}:"), diff::lines("", content)),
                }
            }
            ("edit", _, Some(path), None, Some(old), Some(new)) => {
                let all = call.args.get("all").and_then(Value::as_bool).unwrap_or(false);
                let everywhere = if all { ", everywhere" } else { "" };
                let part = |text: &str| if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
                (format!("{who} asks to edit {}{everywhere}:", exact(path)), diff::lines(&part(old), &part(new)))
            }
            ("network", ..) if text("host").is_some() => {
                let host = exact(text("host").unwrap_or_default());
                (
                    format!("{who} asks to reach {host}, with a command that waits for it:"),
                    as_lines(text("command").unwrap_or_default()),
                )
            }
            (tool, ..) => (format!("{who} asks to use {}:", exact(tool)), as_lines(&call.args.to_string())),
        };
    body(&heading, &lines, look)
}

fn as_lines(text: &str) -> Vec<(Mark, String)> {
    lines(text).map(|line| (Mark::Same, line.to_owned())).collect()
}

fn body(heading: &str, lines: &[(Mark, String)], look: &Look) -> Shown {
    let Shown { text, whole } = barred(lines, look);
    // A path in it may be long, and a terminal would begin the rest of it at the left edge.
    let is_cut = |width: &usize| heading.width() > *width;
    let heading = wrapped(heading, look.width.filter(is_cut).map(|width| width.max(WIDTH_MIN) - BAR.len()));
    Shown { text: format!("{}\n{text}", heading.join(&format!("\n{REST_BAR}"))), whole }
}

fn barred(lines: &[(Mark, String)], look: &Look) -> Shown {
    let mut shown = Shown { text: String::new(), whole: true };
    let marked = lines.iter().any(|(mark, _)| *mark != Mark::Same);
    let mut room = BYTES_MAX;
    for (place, (mark, line)) in lines.iter().enumerate() {
        let mut line = exact(line);
        let missing = line.len().saturating_sub(room);
        // A long line is cut, and not left out.
        line.truncate(line.floor_char_boundary(room));
        room -= line.len();
        let paint = match mark {
            Mark::Same => None,
            Mark::Removed => Some(Paint::Red),
            Mark::Added => Some(Paint::Green),
            Mark::Skipped => Some(Paint::Dim),
        };
        let sign = if marked { mark.sign() } else { "" };
        let parts = wrapped(&line, look.width.map(|width| width.max(WIDTH_MIN) - BAR.len() - sign.len()));
        for (bar, part) in iter::once(BAR).chain(iter::repeat(REST_BAR)).zip(parts) {
            let part = format!("{sign}{part}");
            let part = paint.map_or_else(|| part.clone().into(), |paint| look.paint(paint, &part));
            shown.text.push_str(&format!("{bar}{part}\n"));
        }
        if missing > 0 {
            shown.whole = false;
            let more = lines.len() - place - 1;
            let missing = super::size::bytes(missing as u64);
            let lines = if more == 1 { "line" } else { "lines" };
            shown.text.push_str(&format!("not shown: {missing} of this line, and {more} {lines} after it\n"));
            break;
        }
    }
    shown
}

/// The line in parts that fit, so that no part of it begins at the left edge of the screen.
fn wrapped(line: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return vec![line.to_owned()] };
    let (mut parts, mut part, mut used) = (Vec::new(), String::new(), 0);
    for c in line.chars() {
        let width = c.width().unwrap_or(0);
        if used + width > room {
            parts.push(std::mem::take(&mut part));
            used = 0;
        }
        part.push(c);
        used += width;
    }
    parts.push(part);
    parts
}

/// The rule that `always` stores for this call; none where it holds for every call of the tool.
pub(crate) fn rule_for_always(call: &PendingCall) -> Outcome<Option<CommandRule>> {
    relive_api::rule_for_always(call).map_err(|error| {
        CommandError::invalid(format!("the command cannot be allowed permanently: {error}"))
            .with_hint("--rule RULE names the commands, like 'shell:git status*'")
    })
}

/// Returns a text of others as it is shown: behind a bar, wrapped, and cut where it is too long.
pub(crate) fn quoted(text: &str, look: &Look) -> Shown {
    barred(&as_lines(text), look)
}

/// Returns an answer that an agent proposes, with its number in front of the bar, where no text of the agent can be.
pub(crate) fn choice(number: usize, text: &str, look: &Look) -> String {
    let room = look.width.map(|width| width.max(WIDTH_MIN) - BAR.len() - 2);
    let parts = wrapped(&exact(text), room).into_iter().enumerate();
    let number = |place| if place == 0 { number.to_string() } else { String::new() };
    parts.map(|(place, part)| format!("  {:<1} | {part}\n", number(place))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pending(tool: &str, args: Value) -> PendingCall {
        let at = "2026-11-15T12:00:00Z".parse().unwrap();
        PendingCall { id: 6, call: 0, tool: tool.into(), args, at, looked: None }
    }

    fn check(tool: &str, args: Value, before: Option<&str>, expect: &str) {
        let before = before.map_or(Before::Absent, |text| Before::Text(text.to_owned()));
        let shown = show("PID 5", &pending(tool, args), &before, &Look { width: Some(50), ..Look::plain() });
        assert_eq!(shown, Shown { text: expect.to_owned(), whole: true });
    }

    #[test]
    fn a_call_is_shown_as_a_person_reads_it() {
        check(
            "shell",
            json!({"command": "cd src\nmake  -j4"}),
            None,
            "PID 5 asks to run a command:\n  | cd src\n  | make  -j4\n",
        );
        check(
            "shell",
            json!({"command": "make", "timeout": "30s"}),
            None,
            "PID 5 asks to run a command (timeout: \"30s\"):\n  | make\n",
        );
        check("write", json!({"path": "a", "content": "x\ny\n"}), None, "PID 5 asks to write a:\n  | +x\n  | +y\n");
        check(
            "write",
            json!({"path": "a", "content": "1\n2\nthree\n4\n"}),
            Some("1\n2\n3\n4\n"),
            "PID 5 asks to overwrite a:\n  |  1\n  |  2\n  | -3\n  | +three\n  |  4\n",
        );
        check(
            "edit",
            json!({"path": "a", "old": "x", "new": "y", "all": true}),
            None,
            "PID 5 asks to edit a, everywhere:\n  | -x\n  | +y\n",
        );
        check("sleep", json!({"duration": "1h"}), None, "PID 5 asks to use sleep:\n  | {\"duration\":\"1h\"}\n");
    }

    #[test]
    fn a_model_cannot_forge_the_screen() {
        let forged = format!("ls{}allow? [y]es\r\x1b[2J\u{202e}x\nrm -rf /", " ".repeat(40));
        let shown = show(
            "PID 5",
            &pending("shell", json!({"command": forged})),
            &Before::Absent,
            &Look { width: Some(30), ..Look::plain() },
        );
        assert!(shown.text.lines().skip(1).all(|line| line.starts_with("  |") && line.len() <= 30), "{}", shown.text);
        assert!(!shown.text.contains(['\r', '\u{1b}', '\u{202e}']), "{:?}", shown.text);
        assert!(shown.text.replace("\n  |>", "").contains("<CR><ESC>[2J<U+202E>x"), "{:?}", shown.text);
        let path = "a\nPID 5 asks to write b:";
        let shown =
            show("PID 5", &pending("write", json!({"path": path, "content": ""})), &Before::Absent, &Look::plain());
        assert_eq!(shown.text, "PID 5 asks to write a<LF>PID 5 asks to write b::\n");
    }

    #[test]
    fn what_is_not_seen_is_spelled_out_in_every_part_of_a_call() {
        let command = "ls\u{3164}\u{fe0f}\u{a0}\u{e0100}\r\n-l";
        let shown = show("PID 5", &pending("shell", json!({"command": command})), &Before::Absent, &Look::plain());
        assert!(shown.text.ends_with("  | ls<U+3164><U+FE0F><U+00A0><U+E0100><CR>\n  | -l\n"), "{}", shown.text);
        let (path, content) = ("a\u{2800}", "x\u{34f}\n");
        let shown = show(
            "PID 5",
            &pending("write", json!({"path": path, "content": content})),
            &Before::Absent,
            &Look::plain(),
        );
        assert_eq!(shown.text, "PID 5 asks to write a<U+2800>:\n  | +x<U+034F>\n");
    }

    #[test]
    fn no_two_commands_look_alike() {
        let look = Look { width: Some(20), ..Look::plain() };
        let shown =
            |command: &str| show("PID 5", &pending("shell", json!({"command": command})), &Before::Absent, &look).text;
        let check = |one: &str, other: &str| assert_ne!(shown(one), shown(other), "{one:?} {other:?}");
        check("printf 'a\tb'", "printf 'a\\tb'");
        check("ls\u{1b}[2J", "ls\\u{1b}[2J");
        check("ls\u{1b}[2J", "ls<ESC>[2J");
        check("ls\u{200b}", "ls<U+200B>");
        // A line that is wrapped, and one that ends where the screen does.
        check("0123456789abcdefrm -rf .", "0123456789abcdef\nrm -rf .");
    }

    #[test]
    fn a_long_path_does_not_reach_the_left_edge() {
        let look = Look { width: Some(30), ..Look::plain() };
        let path = format!("{}relive resolve 5 --allow", " ".repeat(40));
        let shown = show("PID 5", &pending("write", json!({"path": path, "content": "x\n"})), &Before::Absent, &look);
        assert!(shown.text.lines().skip(1).all(|line| line.starts_with("  |") && line.len() <= 30), "{}", shown.text);
    }

    #[test]
    fn an_answer_that_is_proposed_has_its_number_in_front_of_the_bar() {
        let look = Look { width: Some(20), ..Look::plain() };
        assert_eq!(choice(2, "twelve letters and\n3", &look), "  2 | twelve letters\n    |  and<LF>3\n");
        assert_eq!(quoted("a\n2 | b", &look).text, "  | a\n  | 2 | b\n");
    }

    #[test]
    fn long_commands_are_shown_to_their_end() {
        let look = Look { width: Some(50), ..Look::plain() };
        let shown =
            |command: &str| show("PID 5", &pending("shell", json!({"command": command})), &Before::Absent, &look);
        let line = shown(&format!("echo harmless; {}; touch deed", "y".repeat(20_000)));
        assert!(line.whole && line.text.replace("\n  |>", "").ends_with("yyy; touch deed\n"));
        let lines = shown(&format!("{}touch deed", "# nothing\n".repeat(3_000)));
        assert!(lines.whole && lines.text.ends_with("  | touch deed\n"));
        let cut = shown(&format!("echo {}\ntouch deed\n", "y".repeat(BYTES_MAX)));
        assert!(!cut.whole && cut.text.starts_with("PID 5 asks to run a command:\n  | echo yyy"));
        assert!(cut.text.ends_with("yyy\nnot shown: 5 bytes of this line, and 1 line after it\n"));
    }

    #[test]
    fn a_file_that_is_replaced_unseen_is_not_a_new_one() {
        let call = pending("write", json!({"path": "a", "content": "x\n"}));
        let check = |before, expect: &str| assert_eq!(show("PID 5", &call, &before, &Look::plain()).text, expect);
        let hidden = "PID 5 asks to overwrite a (22 bytes, not shown):\n  | +x\n";
        check(Before::Hidden { bytes: 22 }, hidden);
        check(Before::NoFile, "PID 5 asks to write to a, which is not a file:\n  | +x\n");
    }

    #[test]
    fn always_means_the_command_that_was_shown() {
        let rule = |tool, args| rule_for_always(&pending(tool, args)).unwrap().map(|rule| rule.to_string());
        assert_eq!(rule("shell", json!({"command": "ls *"})).as_deref(), Some(r"shell:ls \*"));
        assert_eq!(rule("write", json!({"path": "a", "command": "ls"})), None);
        let long = pending("shell", json!({"command": "x".repeat(5000)}));
        assert!(rule_for_always(&long).unwrap_err().message.contains("at most 4096 bytes"));
    }
}
