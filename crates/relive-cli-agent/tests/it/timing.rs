//! `last_active` and the countdown, along the recordings that have times.

use std::time::Duration;

use relive_cli_agent::{Activity, Lifecycle, Machine};

use crate::support::{IDLE_TIMEOUT, Pipe, Replay, at, files, fixtures, name, recording};

#[test]
fn last_active_is_the_time_of_the_last_line_and_the_countdown_runs_only_when_idle() {
    for path in files(&fixtures().join("streams/timed"), "jsonl") {
        let mut replay = Replay::new(None);
        let mut idle_lines = 0;
        for recorded in recording(&path).into_iter().filter(|recorded| recorded.pipe == Pipe::Stdout) {
            replay.read(&recorded.line, recorded.ms);
            let machine = replay.machine();
            assert_eq!(machine.last_active(), at(recorded.ms), "{}", path.display());
            let is_idle = machine.lifecycle() == Lifecycle::Idle;
            let expected = is_idle.then(|| at(recorded.ms) + IDLE_TIMEOUT);
            assert_eq!(machine.idle_kill_at(), expected, "{}: {}", path.display(), recorded.line);
            idle_lines += i32::from(is_idle);
        }
        assert!(idle_lines > 0, "{}", path.display());
        assert_eq!(replay.machine().lifecycle(), Lifecycle::Idle, "{}", path.display());
    }
}

/// The tool of the timed recordings sleeps three times for half a second.
#[test]
fn the_time_in_running_tool_matches_the_duration_of_the_tool() {
    for path in files(&fixtures().join("streams/timed"), "jsonl") {
        let mut replay = Replay::new(None);
        let (mut in_tool_ms, mut last_ms) = (0, 0);
        for recorded in recording(&path).into_iter().filter(|recorded| recorded.pipe == Pipe::Stdout) {
            if replay.machine().activity() == Activity::RunningTool {
                in_tool_ms += recorded.ms - last_ms;
            }
            last_ms = recorded.ms;
            replay.read(&recorded.line, recorded.ms);
        }
        // Codex reports the start of a command only after a moment.
        assert!((1300..2100).contains(&in_tool_ms), "{}: {in_tool_ms} ms", name(&path));
    }
}

#[test]
fn an_idle_timeout_of_zero_never_kills_and_a_huge_one_does_not_overflow() {
    for (timeout, kills) in [(Duration::ZERO, false), (Duration::MAX, true)] {
        let mut machine = Machine::new(timeout, at(0));
        machine.mark_idle();
        assert_eq!(machine.idle_kill_at().is_some(), kills, "{timeout:?}");
    }
}
