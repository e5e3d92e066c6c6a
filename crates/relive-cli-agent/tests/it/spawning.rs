//! The time before a CLI is ready, and a new process after an earlier one.

use relive_cli_agent::{AgentStream, Dialect, Lifecycle};

use crate::support::{IDLE_TIMEOUT, Replay, at};

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
const STATUS: &str = r#"{"type":"system","subtype":"status","session_id":"s"}"#;
const USER: &str = r#"{"type":"user","message":{"content":"go"}}"#;

#[test]
fn junk_before_the_first_known_line_leaves_the_cli_spawning() {
    let mut replay = Replay::new(None);
    for (line, ms) in [("npm warn deprecated", 100), (r#"{"level":"info"}"#, 200), ("{\"type\":\"sys", 300)] {
        assert_eq!(replay.read(line, ms).lifecycle, Lifecycle::Spawning, "{line}");
        assert_eq!((replay.machine().last_active(), replay.machine().idle_kill_at()), (at(ms), None), "{line}");
    }
    replay.read(STATUS, 400);
    assert_eq!(replay.lifecycle_and_activity(), "idle idle");
}

#[test]
fn a_cli_that_is_not_recognized_stays_spawning() {
    let mut replay = Replay::new(None);
    for line in [r#"{"type":"started"}"#, r#"{"type":"message","text":"hi"}"#, "done"] {
        assert_eq!(replay.read(line, 0).lifecycle, Lifecycle::Spawning, "{line}");
    }
}

#[test]
fn a_turn_that_was_written_before_the_cli_was_ready_is_open_when_it_is() {
    let mut replay = Replay::new(Some(Dialect::Claude));
    replay.push_input(USER, 100);
    assert_eq!((replay.machine().lifecycle(), replay.machine().last_active()), (Lifecycle::Spawning, at(100)));
    replay.read("npm warn deprecated", 200);
    assert_eq!(replay.machine().lifecycle(), Lifecycle::Spawning);
    replay.read(STATUS, 300);
    assert_eq!(replay.machine().lifecycle(), Lifecycle::Working, "the turn has not ended");
    replay.read(r#"{"type":"result","subtype":"success","is_error":false}"#, 400);
    assert_eq!(replay.machine().lifecycle(), Lifecycle::Idle);
}

#[test]
fn a_new_process_starts_without_state_of_the_previous_one() {
    let mut stream = AgentStream::new(None, IDLE_TIMEOUT, at(0));
    let background = r#"{"type":"system","subtype":"task_started","task_id":"b","is_backgrounded":true}"#;
    stream.push(format!("{INIT}\n{background}\n{{\"half").as_bytes(), at(0), |_, _| {});
    stream.machine_mut().mark_killed();

    stream.respawn(at(1000));
    assert_eq!((stream.machine().lifecycle(), stream.machine().last_active()), (Lifecycle::Spawning, at(1000)));
    let mut reports = Vec::new();
    let thread = r#"{"type":"thread.started","thread_id":"01a1e064-e6e9-7740-b898-29d4e7339d96"}"#;
    stream.push(format!("{thread}\n").as_bytes(), at(2000), |_, report| reports.push(report));
    assert_eq!((reports[0].line, reports[0].dialect), (1, Some(Dialect::CodexExec)), "{reports:?}");

    // A new claude says the name of its conversation again.
    let mut stream = AgentStream::new(Some(Dialect::Claude), IDLE_TIMEOUT, at(0));
    for _ in 0..2 {
        let mut reports = Vec::new();
        stream.push(format!("{INIT}\n").as_bytes(), at(0), |_, report| reports.push(report));
        assert_eq!(reports[0].events.len(), 2, "{reports:?}");
        stream.respawn(at(0));
    }
}

/// The turn was written to a process that is gone.
#[test]
fn a_turn_written_to_a_process_that_was_never_ready_is_dropped() {
    let mut replay = Replay::new(Some(Dialect::Claude));
    replay.push_input(USER, 0);
    replay.stream.respawn(at(0));
    replay.read(STATUS, 0);
    assert_eq!(replay.machine().lifecycle(), Lifecycle::Idle);
}
