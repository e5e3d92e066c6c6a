//! The behaviour cases of `docs/cases.md` that are about CLI agents.

use relive_cli_agent::{Activity, Event, EventKind, Lifecycle, Machine};

use crate::states::{
    approval_asked, background_started, done, error, text, thinking, tool_ended, tool_started, unknown,
};
use crate::support::{IDLE_TIMEOUT, Replay, at};

pub(crate) fn machine() -> Machine {
    Machine::new(IDLE_TIMEOUT, at(0))
}

/// Applies events, one each second, and returns the activities and lifecycles after them.
pub(crate) fn walk(machine: &mut Machine, events: Vec<EventKind>) -> Vec<(Activity, Lifecycle)> {
    let mut seconds = 0;
    events
        .into_iter()
        .map(|kind| {
            seconds += 1;
            machine.apply(&kind.into(), at(seconds * 1000));
            (machine.activity(), machine.lifecycle())
        })
        .collect()
}

#[test]
fn case_41_thinking_tool_text_and_done_walk_the_four_activities() {
    let mut machine = machine();
    assert_eq!((machine.activity(), machine.lifecycle()), (Activity::Idle, Lifecycle::Spawning));
    let states = walk(&mut machine, vec![thinking(), tool_started("a"), tool_ended("a"), text(), done()]);
    let expected = [
        (Activity::Thinking, Lifecycle::Working),
        (Activity::RunningTool, Lifecycle::Working),
        (Activity::Responding, Lifecycle::Working),
        (Activity::Responding, Lifecycle::Working),
        (Activity::Idle, Lifecycle::Idle),
    ];
    assert_eq!(states, expected);
}

#[test]
fn case_41_an_error_returns_to_idle_from_every_activity() {
    for before in [thinking(), tool_started("a"), text(), approval_asked()] {
        let states = walk(&mut machine(), vec![before, error()]);
        assert_eq!(states[1], (Activity::Idle, Lifecycle::Idle));
    }
}

#[test]
fn case_41_an_unknown_event_keeps_the_activity_and_moves_last_active() {
    let mut machine = machine();
    let states = walk(&mut machine, vec![tool_started("a"), unknown(), unknown()]);
    assert_eq!(states[2], (Activity::RunningTool, Lifecycle::Working));
    assert_eq!(machine.last_active(), at(3000));
}

#[test]
fn case_42_killed_is_sticky_until_the_next_spawn() {
    let mut machine = machine();
    walk(&mut machine, vec![tool_started("a"), approval_asked()]);
    machine.mark_killed();
    let states = walk(&mut machine, vec![text(), tool_ended("a"), done(), unknown()]);
    assert_eq!(states, [(Activity::Idle, Lifecycle::Killed); 4]);
    machine.mark_idle();
    assert_eq!(machine.lifecycle(), Lifecycle::Killed);
    assert_eq!((machine.last_active(), machine.idle_kill_at(), machine.waiting()), (at(2000), None, None));

    machine.mark_spawning(at(60_000));
    machine.mark_spawning(at(70_000));
    assert_eq!((machine.lifecycle(), machine.last_active()), (Lifecycle::Spawning, at(60_000)));
    // The call of the process before is forgotten: a result is enough to be responding.
    assert_eq!(walk(&mut machine, vec![tool_ended("z")]), [(Activity::Responding, Lifecycle::Working)]);
}

#[test]
fn case_42_a_malformed_line_is_a_warning_and_the_turn_continues() {
    let mut replay = Replay::new(None);
    replay.read(r#"{"type":"system","subtype":"init","session_id":"s"}"#, 0);
    replay.read(r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a"}]}}"#, 100);
    for (line, ms) in [("{\"type\":\"assist", 200), ("npm warn deprecated", 300), ("[1,2]", 400), ("\u{fffd}\0", 500)] {
        let report = replay.read(line, ms);
        assert!(matches!(report.events[..], [Event { kind: EventKind::Malformed { .. }, .. }]), "{line}");
        assert_eq!((report.activity, report.lifecycle), (Activity::Responding, Lifecycle::Working), "{line}");
        assert_eq!(replay.machine().last_active(), at(ms));
    }
    replay.read(r#"{"type":"result","subtype":"success","is_error":false}"#, 600);
    assert_eq!(replay.lifecycle_and_activity(), "idle idle");
}

#[test]
fn case_43_the_first_result_of_two_parallel_tools_does_not_end_running_tool() {
    let events = vec![tool_started("a"), tool_started("b"), tool_ended("a"), tool_ended("b")];
    let states = walk(&mut machine(), events);
    assert_eq!(states[2], (Activity::RunningTool, Lifecycle::Working));
    assert_eq!(states[3], (Activity::Responding, Lifecycle::Working));
}

#[test]
fn case_43_a_silent_turn_is_not_idle() {
    for silent in [thinking(), tool_started("a"), text(), EventKind::TurnStarted { turn_id: None }, approval_asked()] {
        let mut machine = machine();
        machine.apply(&silent.into(), at(0));
        assert_eq!((machine.lifecycle(), machine.idle_kill_at()), (Lifecycle::Working, None));
    }
    // A command in the background outlives its turn, and ending the process would end it.
    let mut machine = machine();
    let states = walk(&mut machine, vec![text(), background_started(), done()]);
    assert_eq!(states[2], (Activity::RunningTool, Lifecycle::Working));
    assert_eq!(machine.idle_kill_at(), None);
    let states = walk(&mut machine, vec![EventKind::BackgroundEnded { id: "b".into() }]);
    assert_eq!(states[0], (Activity::Idle, Lifecycle::Idle));
}

#[test]
fn case_43_a_housekeeping_line_after_done_does_not_bring_working_back() {
    let mut replay = Replay::new(None);
    replay.read(r#"{"type":"system","subtype":"init","session_id":"s"}"#, 0);
    replay.read(r#"{"type":"result","subtype":"success","is_error":false}"#, 1000);
    for line in [
        r#"{"type":"system","subtype":"status","status":"idle"}"#,
        r#"{"type":"system","subtype":"api_retry","attempt":1}"#,
        r#"{"type":"a_new_line"}"#,
        r#"{"type":"control_response","response":{"subtype":"success","request_id":"r"}}"#,
        r#"{"type":"stream_event","event":{"type":"message_stop"}}"#,
        "not JSON",
    ] {
        let report = replay.read(line, 2000);
        assert_eq!((report.activity, report.lifecycle), (Activity::Idle, Lifecycle::Idle), "{line}");
    }
    assert_eq!(replay.machine().last_active(), at(2000));
}

#[test]
fn marking_idle_does_not_update_last_active() {
    let mut machine = machine();
    walk(&mut machine, vec![tool_started("a")]);
    machine.mark_idle();
    machine.mark_idle();
    assert_eq!((machine.lifecycle(), machine.last_active()), (Lifecycle::Idle, at(1000)));
    assert_eq!(machine.idle_kill_at(), Some(at(1000) + IDLE_TIMEOUT));
}
