//! Requests of an agent, and how the wait for their answers ends.

use relive_cli_agent::{Activity, Dialect, Event, EventKind, Lifecycle, Line, Parser, Waiting};

use crate::cases::{machine, walk};
use crate::states::{answered, approval_asked, done, text, tool_ended, tool_started};
use crate::support::{Replay, at};

#[test]
fn an_answer_or_the_result_of_its_call_ends_the_wait() {
    for end in [answered(), tool_ended("a"), done()] {
        let mut machine = machine();
        walk(&mut machine, vec![tool_started("a"), approval_asked(), approval_asked()]);
        assert!(machine.waiting().is_some());
        machine.apply(&end.into(), at(0));
        assert_eq!(machine.waiting(), None);
    }
}

/// The end of the agent's turn is not the end of its subagents in the background.
#[test]
fn a_subagent_waits_for_its_approval_beyond_the_turn() {
    let of_subagent = |kind: EventKind| Event { kind, subagent: Some("x".into()) };
    let ends: [Event; 4] = [
        of_subagent(answered()),
        of_subagent(tool_ended("a")),
        EventKind::SubagentEnded { id: "x".into() }.into(),
        EventKind::BackgroundEnded { id: "x".into() }.into(),
    ];
    for end in ends {
        let mut machine = machine();
        for event in [text().into(), of_subagent(approval_asked()), done().into()] {
            machine.apply(&event, at(0));
        }
        assert_eq!((machine.lifecycle(), machine.waiting()), (Lifecycle::Working, Some(Waiting::Approval)));
        machine.apply(&end, at(0));
        assert_eq!((machine.lifecycle(), machine.waiting()), (Lifecycle::Idle, None), "{end:?}");
    }
}

const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false}"#;

#[test]
fn a_request_that_claude_withdraws_is_closed() {
    let mut replay = Replay::new(None);
    replay.read(r#"{"type":"system","subtype":"init","session_id":"s"}"#, 0);
    let ask = r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","agent_id":"x"}}"#;
    replay.read(RESULT, 0);
    assert_eq!(replay.read(ask, 0).events[0].subagent.as_deref(), Some("x"));
    assert!(replay.machine().waiting().is_some());
    replay.read(r#"{"type":"control_cancel_request","request_id":"r"}"#, 0);
    assert_eq!(replay.machine().lifecycle(), Lifecycle::Idle);
}

/// A request for permission of claude, which has no turn around it.
fn asks(request_id: &str, rest: &str) -> String {
    format!(r#"{{"type":"control_request","request_id":"{request_id}","request":{{"subtype":"can_use_tool"{rest}}}}}"#)
}

fn answer(request_id: &str) -> String {
    format!(r#"{{"type":"control_response","response":{{"request_id":"{request_id}"}}}}"#)
}

#[test]
fn more_requests_than_are_remembered_still_wait() {
    for (rest, after_turn) in [("", Lifecycle::Idle), (r#","agent_id":"x""#, Lifecycle::Working)] {
        let mut replay = Replay::new(None);
        for number in 0..300 {
            replay.read(&asks(&number.to_string(), rest), 0);
        }
        for number in 0..300 {
            assert!(replay.machine().waiting().is_some(), "{number} were answered");
            // A CLI may repeat an answer that its user wrote: the second one closes nothing else.
            replay.push_input(&answer(&number.to_string()), 0);
            replay.push_input(&answer(&number.to_string()), 0);
        }
        // The forgotten requests may or may not have been answered, so only the end of the turn ends the wait, and that
        // of a subagent not even then.
        assert_eq!((replay.machine().lifecycle(), replay.machine().idle_kill_at()), (Lifecycle::Working, None));
        replay.read(RESULT, 0);
        assert_eq!(replay.machine().lifecycle(), after_turn, "{rest}");
    }
}

#[test]
fn long_ids_with_the_same_start_are_told_apart() {
    let [first, second] = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(300)));
    let states = walk(&mut machine(), vec![tool_started(&first), tool_started(&second), tool_ended(&first)]);
    assert_eq!(states[2], (Activity::RunningTool, Lifecycle::Working));
    let mut replay = Replay::new(None);
    replay.read(&asks(&first, ""), 0);
    replay.read(&asks(&second, ""), 0);
    replay.push_input(&answer(&first), 0);
    assert!(replay.machine().waiting().is_some());
}

#[test]
fn a_dialog_that_claude_asks_its_client_for_is_refused_and_nobody_is_asked() {
    let mut replay = Replay::new(None);
    let ask = r#"{"type":"control_request","request_id":"r","request":{"subtype":"request_user_dialog","dialog_kind":"x","payload":{}}}"#;
    replay.read(ask, 0);
    assert_eq!(replay.machine().waiting(), None);
}

#[test]
fn the_input_of_more_calls_than_are_kept_is_not_waited_for() {
    let mut parser = Parser::new(Some(Dialect::Acp));
    let mut started = |number: usize, status: &str| {
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"tool_call_update","toolCallId":"t{number}","status":"{status}","title":"Shell","rawInput":{{}}}}}}}}"#
        );
        let events = parser.read(Line::Whole(line.as_bytes()));
        events.iter().any(|event| matches!(event.kind, EventKind::ToolStarted { preparing: true, .. }))
    };
    for number in 0..64 {
        assert!(started(number, "pending"), "{number}");
    }
    assert!(!started(64, "pending"), "its input would never come");
    started(0, "completed");
    assert!(started(65, "pending"), "one of the others is over");
}
