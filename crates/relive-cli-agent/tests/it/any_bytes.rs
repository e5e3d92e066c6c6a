//! What holds for any bytes at all. Shared by the property tests and the fuzz target.

use std::time::Duration;

use jiff::Timestamp;
use relive_cli_agent::{AgentStream, Dialect, Lifecycle, LineReport};

/// Small, so that generated lines reach it.
pub(crate) const MAX_LINE_BYTES: usize = 1500;

pub(crate) fn read(dialect: Option<Dialect>, chunks: &[&[u8]], max_line_bytes: usize) -> Vec<LineReport> {
    let now = Timestamp::UNIX_EPOCH;
    let mut stream = AgentStream::new(dialect, Duration::from_secs(60), now).with_max_line_bytes(max_line_bytes);
    let mut reports = Vec::new();
    for chunk in chunks {
        stream.push(chunk, now, |_, report| reports.push(report));
    }
    stream.finish(now, |_, report| reports.push(report));
    let machine = stream.machine();
    let is_idle = machine.lifecycle() == Lifecycle::Idle;
    assert_eq!(machine.idle_kill_at().is_some(), is_idle);
    reports
}

/// Every line has one report, the report is JSON on one line, and events are bounded by the line they came from.
pub(crate) fn check(dialect: Option<Dialect>, bytes: &[u8]) {
    let reports = read(dialect, &[bytes], MAX_LINE_BYTES);
    let lines = bytes.split(|byte| *byte == b'\n').count() - usize::from(bytes.is_empty() || bytes.ends_with(b"\n"));
    assert_eq!(reports.len(), lines);
    for (index, (report, line)) in reports.iter().zip(bytes.split(|byte| *byte == b'\n')).enumerate() {
        assert_eq!(report.line, index as u64 + 1);
        assert!(report.events.len() <= line.len() + 1);
        let json = serde_json::to_string(report).unwrap();
        assert!(!json.contains('\n'));
        // Invalid bytes grow threefold, control characters sixfold, and every event has names around its text.
        assert!(json.len() < 1000 + line.len() * 60, "{} bytes from {}", json.len(), line.len());
    }
}
