//! Properties of any bytes at all. Shared by the property tests and the fuzz target.

use std::time::Duration;

use jiff::Timestamp;
use relive_cli_agent::{Activity, AgentStream, Dialect, Lifecycle, LineReport, Machine};

/// Small, so that generated lines reach it.
pub(crate) const MAX_LINE_BYTES: usize = 1500;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn stream(dialect: Option<Dialect>) -> AgentStream {
    AgentStream::new(dialect, Duration::from_secs(60), NOW).with_max_line_bytes(MAX_LINE_BYTES)
}

/// Reads the output of a CLI in the given chunks.
pub(crate) fn read(dialect: Option<Dialect>, chunks: &[&[u8]]) -> Vec<LineReport> {
    let mut stream = stream(dialect);
    let mut reports = Vec::new();
    for chunk in chunks {
        stream.push(chunk, NOW, |_, report| reports.push(report));
    }
    stream.finish(NOW, |_, report| reports.push(report));
    check_state(stream.machine());
    reports
}

/// Checks that every line has one report, that the report is JSON on one line, and that events are no larger than their
/// line allows.
pub(crate) fn check(dialect: Option<Dialect>, bytes: &[u8]) {
    let reports = read(dialect, &[bytes]);
    let lines = bytes.split(|byte| *byte == b'\n').count() - usize::from(bytes.is_empty() || bytes.ends_with(b"\n"));
    assert_eq!(reports.len(), lines);
    for (index, (report, line)) in reports.iter().zip(bytes.split(|byte| *byte == b'\n')).enumerate() {
        assert_eq!(report.line, index as u64 + 1);
        assert!(report.events.len() <= line.len() + 1);
        let json = serde_json::to_string(report).unwrap();
        assert!(!json.contains('\n'));
        // Invalid bytes grow threefold, control characters sixfold, and every event has field names around its text.
        assert!(json.len() < 1000 + line.len() * 60, "{} bytes from {}", json.len(), line.len());
    }
}

/// Lines in both directions: one that begins with `<` is written to the CLI.
pub(crate) fn check_duplex(dialect: Option<Dialect>, bytes: &[u8]) {
    let mut stream = stream(dialect);
    for line in bytes.split(|byte| *byte == b'\n') {
        match line {
            [b'<', input @ ..] => {
                stream.push_input(input, NOW);
            }
            output => stream.push(&[output, b"\n"].concat(), NOW, |_, _| {}),
        }
        check_state(stream.machine());
    }
}

/// Checks that open work keeps an agent from being idle, and that only an idle agent has a countdown.
fn check_state(machine: &Machine) {
    let is_idle = machine.lifecycle() == Lifecycle::Idle;
    assert_eq!(machine.idle_kill_at().is_some(), is_idle);
    let is_open = machine.is_turn_open() || machine.background_commands() > 0 || machine.waiting().is_some();
    if machine.lifecycle() == Lifecycle::Spawning {
        assert!(machine.background_commands() == 0 && machine.waiting().is_none());
    } else {
        assert_eq!(is_open, machine.lifecycle() == Lifecycle::Working);
    }
    assert!(machine.is_turn_open() || machine.open_tools() == 0);
    assert!(machine.lifecycle() == Lifecycle::Working || machine.activity() == Activity::Idle);
}
