//! The threads of one codex server: which are subagents, and what each leaves open.

use relive_cli_agent::Dialect;

use crate::support::{events_of, fixtures, last_state, recording, reports};

const CODEX: Option<Dialect> = Some(Dialect::CodexAppServer);

fn thread_started(thread: &str, parent: &str) -> String {
    let parent = if parent.is_empty() { "null".into() } else { format!(r#""{parent}""#) };
    format!(r#"{{"method":"thread/started","params":{{"thread":{{"id":"{thread}","parentThreadId":{parent}}}}}}}"#)
}

fn turn_started(thread: &str, turn: &str) -> String {
    format!(r#"{{"method":"turn/started","params":{{"threadId":"{thread}","turn":{{"id":"{turn}"}}}}}}"#)
}

fn turn_completed(thread: &str, turn: &str, rest: &str) -> String {
    format!(
        r#"{{"method":"turn/completed","params":{{"threadId":"{thread}","turn":{{"id":"{turn}","status":{rest}}}}}}}"#
    )
}

fn call_started(thread: &str, turn: &str) -> String {
    let item = r#"{"type":"commandExecution","id":"call"}"#;
    format!(r#"{{"method":"item/started","params":{{"threadId":"{thread}","turnId":"{turn}","item":{item}}}}}"#)
}

fn asks(thread: &str, turn: &str) -> String {
    format!(
        r#"{{"id":7,"method":"item/commandExecution/requestApproval","params":{{"threadId":"{thread}","turnId":"{turn}","itemId":"call"}}}}"#
    )
}

fn status(thread: &str, status: &str) -> String {
    format!(r#"{{"method":"thread/status/changed","params":{{"threadId":"{thread}","status":{{"type":"{status}"}}}}}}"#)
}

fn check(lines: &[String], expected: &str) {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(last_state(CODEX, &lines), expected, "{lines:#?}");
}

#[test]
fn a_thread_with_a_known_parent_is_a_subagent_whatever_thread_is_open() {
    let item_of_parent = call_started("a", "t1");
    for known in [thread_started("a", ""), item_of_parent] {
        let lines = [known, thread_started("b", ""), thread_started("c", "a"), asks("c", "t3")];
        let reports = reports(CODEX, &lines.each_ref().map(String::as_str));
        assert_eq!(events_of(&reports, "subagent_started")[0]["id"], "c");
        assert_eq!(events_of(&reports, "approval_asked")[0]["subagent"], "c");
    }
    let lines = [thread_started("b", ""), thread_started("c", "gone")];
    let reports = reports(CODEX, &lines.each_ref().map(String::as_str));
    assert_eq!(events_of(&reports, "session_started").len(), 2, "nobody knows the parent: a user resumed the subagent");
}

#[test]
fn a_subagent_turn_that_starts_before_its_thread_is_not_left_open() {
    let parent = [thread_started("a", ""), turn_started("a", "t1")];
    let subagent = [turn_started("c", "t2"), thread_started("c", "a")];
    let end = [turn_completed("a", "t1", r#""completed""#)];
    check(&[&parent[..], &subagent, &end].concat(), "idle idle");
    // The parent has no turn.
    let lines = [&parent[..], &end, &subagent].concat();
    check(&lines, "idle idle");
    let reports = reports(CODEX, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(events_of(&reports, "session_started").last().unwrap()["session_id"], "a");
}

#[test]
fn a_thread_that_is_idle_has_no_turn() {
    let turn = [turn_started("a", "t1"), call_started("a", "t1"), asks("a", "t1")];
    check(&[&turn[..], &[status("a", "idle")]].concat(), "idle idle");
    check(&[&turn[..], &[status("a", "systemError")]].concat(), "idle idle");
    check(&[&turn[..], &[status("b", "idle")]].concat(), "working running_tool approval");
    check(&[&turn[..], &[turn_started("b", "t2"), status("a", "idle")]].concat(), "working responding");
    let subagent = [thread_started("a", ""), thread_started("c", "a"), turn_started("c", "t2"), asks("c", "t2")];
    check(&[&subagent[..], &[status("c", "idle")]].concat(), "idle idle");
}

#[test]
fn codex_is_idle_after_a_lost_end_of_turn_in_a_recording() {
    let recorded = recording(&fixtures().join("streams/codex_appserver.jsonl"));
    let is_end = |line: &str| line.contains(r#""method":"turn/completed""#);
    let ends: Vec<usize> = (0..recorded.len()).filter(|at| is_end(&recorded[*at].line)).collect();
    assert_eq!(ends.len(), 3);
    for lost in ends {
        let lines =
            recorded.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, recorded)| recorded.line.clone());
        check(&lines.collect::<Vec<_>>(), "idle idle");
    }
}

const USED_UP: &str = r#""failed","error":{"message":"no","codexErrorInfo":"usageLimitExceeded"}"#;

#[test]
fn a_quota_is_reported_while_another_turn_is_open() {
    let own = [turn_started("a", "t1"), turn_started("b", "t2"), turn_completed("a", "t1", USED_UP)];
    let subagent = [
        turn_started("a", "t1"),
        thread_started("c", "a"),
        turn_started("c", "t2"),
        turn_completed("c", "t2", USED_UP),
    ];
    for lines in [&own[..], &subagent] {
        let reports = reports(CODEX, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(events_of(&reports, "quota").len(), 1, "{lines:#?}");
        check(lines, "working idle");
    }
}

#[test]
fn a_turn_that_ends_while_another_is_open_closes_its_calls() {
    let asked = [turn_started("a", "t1"), turn_started("b", "t2"), call_started("a", "t1"), asks("a", "t1")];
    check(&asked, "working running_tool approval");
    let closed = r#"{"method":"thread/closed","params":{"threadId":"a"}}"#.to_owned();
    for end in [turn_completed("a", "t1", r#""interrupted""#), closed, turn_started("a", "t3")] {
        check(&[&asked[..], &[end]].concat(), "working responding");
    }
    check(&[&asked[..], &[turn_completed("b", "t2", r#""completed""#)]].concat(), "working running_tool approval");
    check(&[&asked[..], &[turn_started("a", "t1")]].concat(), "working running_tool approval");
}

#[test]
fn a_new_turn_drops_the_approval_of_a_lost_one() {
    let asked = [turn_started("a", "t1"), call_started("a", "t1"), asks("a", "t1")];
    check(&[&asked[..], &[turn_started("a", "t2")]].concat(), "working responding");
    let subagent = [thread_started("a", ""), thread_started("c", "a"), turn_started("c", "t1"), asks("c", "t1")];
    check(&[&subagent[..], &[turn_started("c", "t2")]].concat(), "idle idle");
}

/// Older versions have requests of their own, with answers of their own.
#[test]
fn a_request_of_an_older_codex_is_an_approval() {
    for (method, tool) in [("execCommandApproval", "commandExecution"), ("applyPatchApproval", "fileChange")] {
        let ask = format!(r#"{{"id":7,"method":"{method}","params":{{"conversationId":"a","callId":"call"}}}}"#);
        let reports = reports(None, &[&ask]);
        let asked = &events_of(&reports, "approval_asked")[0];
        assert_eq!((asked["tool"].as_str(), asked["tool_id"].as_str()), (Some(tool), Some("call")));
        let values: Vec<&str> =
            asked["options"].as_array().unwrap().iter().map(|option| option["value"].as_str().unwrap()).collect();
        assert_eq!(values, ["approved", "approved_for_session", "denied", "abort"]);
        check(&[turn_started("a", "t1"), ask, status("a", "idle")], "idle idle");
    }
}
