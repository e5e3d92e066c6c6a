//! Subagents: one id each, a start for every end, and the work they leave open when they end.

use relive_cli_agent::{Dialect, Event, EventKind, Lifecycle, Waiting};

use crate::support::Replay;

const CLAUDE_CALL: &str = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"call","name":"Task","input":{"subagent_type":"Explore"}}]}}"#;
const CLAUDE_TEXT: &str =
    r#"{"type":"assistant","parent_tool_use_id":"call","agent_id":"agent","message":{"content":"looking"}}"#;
const CLAUDE_ASK: &str =
    r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","agent_id":"agent"}}"#;
const CLAUDE_CALL_ENDS: &str = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"call"}]}}"#;
const CLAUDE_RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false}"#;

/// Each subagent that started (`+`), ended (`-`), or that an approval names (`?`).
fn subagents(events: &[Event]) -> Vec<String> {
    let describe = |event: &Event| {
        if let EventKind::SubagentStarted { id, .. } = &event.kind {
            Some(format!("+{id}"))
        } else if let EventKind::SubagentEnded { id } = &event.kind {
            Some(format!("-{id}"))
        } else if let EventKind::ApprovalAsked(_) = &event.kind {
            Some(format!("?{}", event.subagent.as_deref().unwrap_or_default()))
        } else {
            None
        }
    };
    events.iter().filter_map(describe).collect()
}

fn read(dialect: Dialect, lines: &[&str]) -> (Replay, Vec<String>) {
    let mut replay = Replay::new(Some(dialect));
    let events: Vec<Event> = lines.iter().flat_map(|line| replay.read(line, 0).events).collect();
    (replay, subagents(&events))
}

#[test]
fn an_approval_of_a_claude_subagent_names_the_subagent_that_started() {
    let (replay, found) = read(Dialect::Claude, &[CLAUDE_CALL, CLAUDE_TEXT, CLAUDE_ASK]);
    assert_eq!(found, ["+call", "?call"]);
    assert_eq!(replay.machine().waiting(), Some(Waiting::Approval));
}

/// Claude may ask before it has printed a line with both ids.
#[test]
fn an_approval_without_both_ids_belongs_to_the_only_claude_subagent() {
    let (_, found) = read(Dialect::Claude, &[CLAUDE_CALL, CLAUDE_ASK]);
    assert_eq!(found, ["+call", "?call"]);
    let second = CLAUDE_CALL.replace("\"call\"", "\"second\"");
    let (_, found) = read(Dialect::Claude, &[CLAUDE_CALL, &second, CLAUDE_ASK]);
    assert_eq!(found, ["+call", "+second", "?agent"], "which of the two asks is not known");
}

/// Not every version of claude names the subagent in its request, but the call was shown as the subagent's.
#[test]
fn an_approval_of_a_claude_subagents_call_names_the_subagent() {
    let call = r#"{"type":"assistant","parent_tool_use_id":"call","message":{"content":[{"type":"tool_use","id":"inner","name":"Bash"}]}}"#;
    let ask =
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_use_id":"inner"}}"#;
    let second = CLAUDE_CALL.replace("\"call\"", "\"second\"");
    let (_, found) = read(Dialect::Claude, &[CLAUDE_CALL, &second, call, ask]);
    assert_eq!(found, ["+call", "+second", "?call"]);
    let own = ask.replace("inner", "own");
    let (_, found) = read(Dialect::Claude, &[CLAUDE_CALL, call, &own]);
    assert_eq!(found, ["+call", "?"]);
    let task =
        r#"{"type":"system","subtype":"task_started","tool_use_id":"call","task_id":"agent","is_backgrounded":true}"#;
    let (replay, _) = read(Dialect::Claude, &[CLAUDE_CALL, task, call, ask, CLAUDE_RESULT]);
    assert_eq!(replay.machine().waiting(), Some(Waiting::Approval), "in the background it waits beyond the turn");
}

#[test]
fn an_approval_hook_of_a_claude_subagents_call_names_the_subagent() {
    let hook = |name: &str, rest: &str| {
        let call = r#""tool_name":"Bash","tool_input":{"command":"ls"}"#;
        format!(r#"{{"hook_event_name":"{name}","session_id":"s",{call}{rest}}}"#)
    };
    let call = hook("PreToolUse", r#","agent_id":"x","tool_use_id":"inner""#);
    for rest in ["", r#","tool_use_id":"inner""#] {
        let (_, found) = read(Dialect::Claude, &[&call, &hook("PermissionRequest", rest)]);
        assert_eq!(found, ["?x"], "{rest}");
    }
    let own = hook("PreToolUse", r#","tool_use_id":"own""#);
    let (_, found) = read(Dialect::Claude, &[&own, &call, &hook("PermissionRequest", "")]);
    assert_eq!(found, ["?"], "the agent has such a call too");
    // The end of the call closes the request, whether or not it names the subagent.
    for rest in [r#","agent_id":"x","tool_use_id":"inner""#, r#","tool_use_id":"inner""#] {
        let lines = [&call, &hook("PermissionRequest", ""), &hook("PostToolUse", rest)];
        let (replay, _) = read(Dialect::Claude, &lines.map(String::as_str));
        assert_eq!((replay.machine().lifecycle(), replay.machine().waiting()), (Lifecycle::Idle, None), "{rest}");
    }
}

#[test]
fn the_end_of_a_claude_subagent_closes_its_request() {
    let (replay, found) =
        read(Dialect::Claude, &[CLAUDE_CALL, CLAUDE_TEXT, CLAUDE_ASK, CLAUDE_CALL_ENDS, CLAUDE_RESULT]);
    assert_eq!(found, ["+call", "?call", "-call"]);
    assert_eq!((replay.machine().lifecycle(), replay.machine().waiting()), (Lifecycle::Idle, None));
}

#[test]
fn a_claude_subagent_in_the_background_ends_with_its_task_and_can_start_again() {
    let started =
        r#"{"type":"system","subtype":"task_started","task_id":"agent","tool_use_id":"call","is_backgrounded":true}"#;
    let ended = r#"{"type":"system","subtype":"task_updated","task_id":"agent","patch":{"status":"completed"}}"#;
    let lines = [CLAUDE_CALL, started, CLAUDE_CALL_ENDS, CLAUDE_ASK, CLAUDE_RESULT];
    let (replay, found) = read(Dialect::Claude, &lines);
    assert_eq!(found, ["+call", "?call"]);
    assert_eq!(replay.machine().waiting(), Some(Waiting::Approval), "its call has returned, the subagent has not");
    let (replay, found) = read(Dialect::Claude, &[&lines[..], &[ended, started, CLAUDE_ASK, ended]].concat());
    assert_eq!(found, ["+call", "?call", "-call", "+call", "?call", "-call"]);
    assert_eq!((replay.machine().lifecycle(), replay.machine().waiting()), (Lifecycle::Idle, None));
}

fn codex(method: &str, thread: &str) -> String {
    let turn = r#"{"id":"u","status":"completed"}"#;
    format!(r#"{{"method":"{method}","params":{{"threadId":"{thread}","turn":{turn}}}}}"#)
}

fn codex_thread(id: &str, parent: &str) -> String {
    format!(r#"{{"method":"thread/started","params":{{"thread":{{"id":"{id}","parentThreadId":"{parent}"}}}}}}"#)
}

#[test]
fn a_codex_subagent_starts_as_often_as_it_ends() {
    let (agent, child) = (codex_thread("a", ""), codex_thread("c", "a"));
    let (starts, ends) = (codex("turn/started", "c"), codex("turn/completed", "c"));
    let (_, found) = read(Dialect::CodexAppServer, &[&agent, &child, &starts, &ends, &ends, &starts, &ends]);
    assert_eq!(found, ["+c", "-c", "+c", "-c"]);
}

#[test]
fn a_closed_codex_thread_is_no_longer_a_subagent() {
    let (agent, child) = (codex_thread("a", ""), codex_thread("c", "a"));
    let (closes, starts) = (codex("thread/closed", "c"), codex("turn/started", "c"));
    let (replay, found) = read(Dialect::CodexAppServer, &[&agent, &child, &closes]);
    assert_eq!((found, replay.machine().lifecycle()), (vec!["+c".into(), "-c".into()], Lifecycle::Idle));
    let (replay, _) = read(Dialect::CodexAppServer, &[&agent, &child, &closes, &starts]);
    assert_eq!(replay.machine().lifecycle(), Lifecycle::Working, "a turn on it is now the agent's");
}

/// More subagents than are remembered, one after the other.
#[test]
fn closed_codex_threads_make_room_for_others() {
    let mut replay = Replay::new(Some(Dialect::CodexAppServer));
    replay.read(&codex_thread("a", ""), 0);
    for number in 0..2000 {
        let id = format!("c{number}");
        let events = replay.read(&codex_thread(&id, "a"), 0).events;
        assert_eq!(subagents(&events), [format!("+{id}")]);
        replay.read(&codex("turn/started", &id), 0);
        assert_eq!(replay.machine().lifecycle(), Lifecycle::Idle, "{id} is a subagent");
        let events = replay.read(&codex("thread/closed", &id), 0).events;
        assert_eq!(subagents(&events), [format!("-{id}")]);
    }
}

/// A subagent in the foreground ends with the turn, whatever it waits for.
#[test]
fn a_claude_subagent_in_the_foreground_ends_with_the_turn() {
    let inner = r#"{"type":"assistant","parent_tool_use_id":"call","message":{"content":[{"type":"tool_use","id":"inner","name":"Bash"}]}}"#;
    let ask =
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_use_id":"inner"}}"#;
    let result = r#"{"type":"result","subtype":"error_max_turns","is_error":false}"#;
    let (replay, found) = read(Dialect::Claude, &[CLAUDE_CALL, inner, ask, result]);
    assert_eq!(found, ["+call", "?call", "-call"]);
    assert_eq!((replay.machine().lifecycle(), replay.machine().waiting()), (Lifecycle::Idle, None));
    // Which of the two asks is not known.
    let second = CLAUDE_CALL.replace("\"call\"", "\"second\"");
    let (replay, found) = read(Dialect::Claude, &[CLAUDE_CALL, &second, CLAUDE_ASK, result]);
    assert_eq!(found, ["+call", "+second", "?agent", "-call", "-second", "-agent"]);
    assert_eq!(replay.machine().lifecycle(), Lifecycle::Idle);
    // Reading began after the call of the subagent.
    let (replay, _) = read(Dialect::Claude, &[inner, ask, result]);
    assert_eq!(replay.machine().lifecycle(), Lifecycle::Idle);
}

#[test]
fn a_nested_claude_subagent_ends_with_the_one_that_started_it() {
    let nested = r#"{"type":"assistant","parent_tool_use_id":"call","message":{"content":[{"type":"tool_use","id":"nested","name":"Task"}]}}"#;
    let inner = r#"{"type":"assistant","parent_tool_use_id":"nested","message":{"content":[{"type":"tool_use","id":"inner","name":"Bash"}]}}"#;
    let ask =
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_use_id":"inner"}}"#;
    let (replay, found) = read(Dialect::Claude, &[CLAUDE_CALL, nested, inner, ask, CLAUDE_CALL_ENDS]);
    assert_eq!(found, ["+call", "+nested", "?nested", "-call", "-nested"]);
    assert_eq!((replay.machine().lifecycle(), replay.machine().waiting()), (Lifecycle::Working, None));
}

#[test]
fn a_result_of_a_claude_subagent_does_not_end_the_agents_turn() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
    let result = CLAUDE_RESULT.replacen('{', r#"{"parent_tool_use_id":"call","#, 1);
    let (replay, found) = read(Dialect::Claude, &[init, CLAUDE_CALL, &result]);
    assert_eq!((replay.machine().lifecycle(), found), (Lifecycle::Working, vec!["+call".into()]));
}
