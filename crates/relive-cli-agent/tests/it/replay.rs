//! Every recording, with the state at every line: `snapshots/`.
//!
//! A snapshot has one row for each line: its number (`<` for a line that was written to the CLI), lifecycle, activity,
//! the open work, and the events. A timed recording also has the milliseconds of each line, and the end of the process.
//!
//! The open work: `T` an open turn (`-` none), `2t` two tool calls, `1b` one background command, `ask` an approval or
//! `question` a question without an answer. An event is its JSON without the word `kind`.

use std::fmt::Write as _;
use std::path::Path;

use relive_cli_agent::{Event, Lifecycle, Waiting};

use crate::support::{Pipe, Replay, files, fixtures, name, recording, word};

/// An event is cut here: the snapshot is about the state.
const EVENT_CHARS: usize = 150;

fn replay(path: &Path) -> String {
    let mut replay = Replay::new(None);
    let mut text = String::new();
    let is_timed = path.parent().unwrap().ends_with("timed");
    for recorded in recording(path) {
        let (number, events) = match recorded.pipe {
            Pipe::Stdout => {
                let report = replay.read(&recorded.line, recorded.ms);
                (report.line.to_string(), report.events)
            }
            Pipe::Stdin => ("<".into(), replay.push_input(&recorded.line, recorded.ms)),
            Pipe::Stderr => continue,
            Pipe::Exit => {
                replay.stream.machine_mut().mark_killed();
                ("end".into(), Vec::new())
            }
        };
        if is_timed {
            write!(text, "{:>5} ms ", recorded.ms).unwrap();
        }
        let state = format!("{:<8} {:<12}", word(replay.machine().lifecycle()), word(replay.machine().activity()));
        let events: Vec<String> = events.iter().map(describe).collect();
        writeln!(text, "{}", format!("{number:>3} {state} {:<10} {}", open(&replay), events.join("  ")).trim_end())
            .unwrap();
    }
    text
}

/// The open work: the turn, calls, commands in the background, requests.
fn open(replay: &Replay) -> String {
    let machine = replay.machine();
    let mut open = String::new();
    open.push(if machine.is_turn_open() { 'T' } else { '-' });
    if machine.open_tools() > 0 {
        write!(open, " {}t", machine.open_tools()).unwrap();
    }
    if machine.background_commands() > 0 {
        write!(open, " {}b", machine.background_commands()).unwrap();
    }
    match machine.waiting() {
        Some(Waiting::Approval) => open.push_str(" ask"),
        Some(Waiting::Question) => open.push_str(" question"),
        None => {}
    }
    open
}

fn describe(event: &Event) -> String {
    let json = serde_json::to_string(event).unwrap();
    let json = json.replacen("{\"kind\":", "{", 1);
    if json.chars().count() <= EVENT_CHARS {
        return json;
    }
    json.chars().take(EVENT_CHARS).collect::<String>() + "..."
}

#[track_caller]
fn check(directory: &str) {
    for path in files(&fixtures().join(directory), "jsonl") {
        let name = name(&path);
        if name.ends_with(".stdin") {
            continue;
        }
        let snapshot = format!("{}__{name}", directory.replace('/', "_"));
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(snapshot, replay(&path));
        });
    }
}

#[test]
fn every_recording_gives_the_state_at_every_line() {
    check("streams");
}

#[test]
fn every_timed_recording_gives_the_state_at_every_line() {
    check("streams/timed");
}

#[test]
fn every_stream_written_by_hand_gives_the_state_at_every_line() {
    check("written");
}

/// Nothing that a real CLI printed is unknown or malformed.
#[test]
fn every_recorded_line_is_known() {
    for directory in ["streams", "streams/timed"] {
        for path in files(&fixtures().join(directory), "jsonl") {
            let text = if name(&path).ends_with(".stdin") { String::new() } else { replay(&path) };
            for row in text.lines() {
                assert!(!row.contains("{\"unknown\"") && !row.contains("{\"malformed\""), "{}: {row}", path.display());
            }
        }
    }
}

/// The kinds of the events of a file that was written to a CLI, one for each line.
fn kinds_of_input(name: &str) -> &'static str {
    match name {
        // `initialize`, two turns, an interrupt, two turns, an interrupt, five other control requests.
        "claude_stdin_interrupt.stdin" => {
            "other turn_started turn_started other turn_started turn_started other other other other other other"
        }
        "claude_tool_interrupt.stdin" => "turn_started other",
        // `initialize`, `initialized`, `thread/start`, two turns, an interrupt, a fork, a turn.
        "codex_appserver.stdin" => "other other other turn_started turn_started other other turn_started",
        _ => "turn_started",
    }
}

#[test]
fn every_recorded_input_gives_its_expected_events() {
    for path in files(&fixtures().join("streams"), "jsonl") {
        if !name(&path).ends_with(".stdin") {
            continue;
        }
        let dialect = if name(&path).starts_with("claude") { "claude" } else { "codex-app-server" };
        let mut replay = Replay::new(Some(dialect.parse().unwrap()));
        replay.stream.machine_mut().mark_idle();
        let events = recording(&path).into_iter().flat_map(|recorded| replay.push_input(&recorded.line, recorded.ms));
        let kinds: Vec<String> =
            events.map(|event| serde_json::to_value(event).unwrap()["kind"].as_str().unwrap().to_owned()).collect();
        assert_eq!(kinds.join(" "), kinds_of_input(&name(&path)), "{}", path.display());
        assert_eq!(replay.machine().lifecycle(), Lifecycle::Working, "{}", path.display());
    }
}

/// The standard error of a CLI does not affect its state, even if it is mixed with the output.
#[test]
fn standard_error_changes_no_state() {
    for path in files(&fixtures().join("streams"), "stderr") {
        let mut replay = Replay::new(None);
        for recorded in recording(&path) {
            let report = replay.read(&recorded.line, recorded.ms);
            assert_eq!((report.dialect, report.lifecycle), (None, Lifecycle::Spawning), "{}", recorded.line);
        }
    }
}
