//! Recordings, and streams to replay them in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use relive_cli_agent::{AgentStream, Dialect, Event, LineReport, Machine};
use serde_json::Value;

pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A moment, in milliseconds since the recording started.
pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_794_796_000_000 + ms).unwrap()
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The files of a directory with an extension, in the order of their names.
pub(crate) fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    assert!(!files.is_empty(), "{}", directory.display());
    files
}

pub(crate) fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_str().unwrap().into()
}

/// One line of a recording.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub ms: i64,
    pub pipe: Pipe,
    pub line: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pipe {
    Stdin,
    Stdout,
    Stderr,
    /// No pipe: the process has ended.
    Exit,
}

/// Reads a recording in any of the forms that `INDEX.md` names. A line of a form without times comes after 100 ms.
#[expect(clippy::disallowed_methods, reason = "a test's own file")]
pub(crate) fn recording(path: &Path) -> Vec<Recorded> {
    let text = String::from_utf8(std::fs::read(path).unwrap()).unwrap();
    text.lines().enumerate().map(|(number, line)| recorded(i64::try_from(number).unwrap() * 100, line)).collect()
}

fn recorded(ms: i64, line: &str) -> Recorded {
    let Ok(value) = serde_json::from_str::<Value>(line) else {
        return Recorded { ms, pipe: Pipe::Stdout, line: line.into() };
    };
    if let (Some(ms), Some(line)) = (value["ms"].as_i64(), value["line"].as_str()) {
        let pipe = if value["fd"] == 2 { Pipe::Stderr } else { Pipe::Stdout };
        return Recorded { ms, pipe, line: line.into() };
    }
    if let (Some(ms), Some(code)) = (value["ms"].as_i64(), value["exit"].as_i64()) {
        return Recorded { ms, pipe: Pipe::Exit, line: code.to_string() };
    }
    if let Some(direction) = value["dir"].as_str() {
        let pipe = if direction == "in" { Pipe::Stdin } else { Pipe::Stdout };
        return Recorded { ms, pipe, line: value["m"].to_string() };
    }
    if let Some(hook) = value["ev"].as_str() {
        // The recorder wrote a summary of the body; these are the body's own names.
        let body = serde_json::json!({
            "hook_event_name": hook, "session_id": value["sid"], "tool_name": value["tool"],
            "notification_type": value["nt"],
        });
        return Recorded { ms, pipe: Pipe::Stdout, line: body.to_string() };
    }
    Recorded { ms, pipe: Pipe::Stdout, line: line.into() }
}

/// A stream that is shown whole lines.
pub(crate) struct Replay {
    pub stream: AgentStream,
}

impl Replay {
    pub(crate) fn new(dialect: Option<Dialect>) -> Self {
        Self { stream: AgentStream::new(dialect, IDLE_TIMEOUT, at(0)) }
    }

    pub(crate) fn read(&mut self, line: &str, ms: i64) -> LineReport {
        let mut reports = Vec::new();
        self.stream.push(format!("{line}\n").as_bytes(), at(ms), |_, report| reports.push(report));
        assert_eq!(reports.len(), 1, "{line}");
        reports.remove(0)
    }

    pub(crate) fn push_input(&mut self, line: &str, ms: i64) -> Vec<Event> {
        self.stream.push_input(line.as_bytes(), at(ms))
    }

    pub(crate) fn machine(&self) -> &Machine {
        self.stream.machine()
    }

    pub(crate) fn lifecycle_and_activity(&self) -> String {
        format!("{} {}", word(self.machine().lifecycle()), word(self.machine().activity()))
    }
}

/// Reads lines, and returns the reports as JSON. A line that begins with `<` is written to the CLI and has no report.
pub(crate) fn reports(dialect: Option<Dialect>, lines: &[&str]) -> Vec<Value> {
    let mut replay = Replay::new(dialect);
    let mut reports = Vec::new();
    for line in lines {
        match line.strip_prefix('<') {
            Some(input) => drop(replay.push_input(input, 0)),
            None => reports.push(serde_json::to_value(replay.read(line, 0)).unwrap()),
        }
    }
    reports
}

/// The events of some kind in all reports.
pub(crate) fn events_of(reports: &[Value], kind: &str) -> Vec<Value> {
    let events = reports.iter().flat_map(|report| report["events"].as_array().unwrap());
    events.filter(|event| event["kind"] == kind).cloned().collect()
}

/// The lifecycle, the activity and the awaited answer after the last line.
pub(crate) fn last_state(dialect: Option<Dialect>, lines: &[&str]) -> String {
    let reports = reports(dialect, lines);
    let last = reports.last().unwrap();
    let words = ["lifecycle", "activity", "waiting"].map(|name| last[name].as_str().unwrap_or_default());
    words.join(" ").trim_end().into()
}

/// A value as its JSON string, without the quotes.
pub(crate) fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().into()
}
