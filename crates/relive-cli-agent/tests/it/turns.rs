//! The end of a turn.

use relive_cli_agent::{Activity, Capabilities, Dialect, Encoder, Event, EventKind, Line, Parser, TurnOutcome};

use crate::support::{Replay, last_state, word};

const ACP_TEXT: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}}}"#;
const ACP_USER: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}}}"#;

/// A stream, and the lifecycles after some lines of it. A line that begins with `<` is written to the CLI.
#[track_caller]
fn check(dialect: Dialect, lines: &[(&str, &str)]) -> Vec<Event> {
    let mut replay = Replay::new(Some(dialect));
    let mut events = Vec::new();
    for (line, lifecycle) in lines {
        match line.strip_prefix('<') {
            Some(input) => events.extend(replay.push_input(input, 0)),
            None => events.extend(replay.read(line, 0).events),
        }
        assert_eq!(word(replay.machine().lifecycle()), *lifecycle, "{line}");
    }
    events
}

fn outcomes(events: &[Event]) -> Vec<TurnOutcome> {
    let outcome = |event: &Event| {
        let EventKind::TurnEnded { outcome, .. } = event.kind else { return None };
        Some(outcome)
    };
    events.iter().filter_map(outcome).collect()
}

#[test]
fn an_acp_reply_to_another_request_ends_no_turn() {
    check(
        Dialect::Acp,
        &[
            (r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}"#, "idle"),
            (r#"<{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#, "working"),
            (ACP_USER, "working"),
            (ACP_TEXT, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"configOptions":[]}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"modes":{}}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"result":null}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"stopReason":"end_turn"}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no such mode"}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#, "idle"),
        ],
    );
}

#[test]
fn without_input_lines_an_acp_turn_ends_only_when_the_agent_says_so() {
    let events = check(
        Dialect::Acp,
        &[
            (ACP_TEXT, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"configOptions":[]}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"result":null}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no such mode"}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}"#, "idle"),
        ],
    );
    assert_eq!(outcomes(&events), [TurnOutcome::Interrupted]);
}

#[test]
fn an_acp_agent_says_what_it_can_do_and_is_in_a_conversation_when_it_has_loaded_it() {
    let initialize = r#"<{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":1}}"#;
    let load = r#"<{"jsonrpc":"2.0","id":"b","method":"session/load","params":{"sessionId":"s"}}"#;
    let offered = r#"{"loadSession":true,"sessionCapabilities":{"fork":{},"resume":null}}"#;
    let offers =
        format!(r#"{{"jsonrpc":"2.0","id":"a","result":{{"protocolVersion":1,"agentCapabilities":{offered}}}}}"#);
    let events = check(
        Dialect::Acp,
        &[
            (initialize, "spawning"),
            (&offers, "idle"),
            (load, "idle"),
            (ACP_TEXT, "idle"),
            (r#"{"jsonrpc":"2.0","id":"b","result":null}"#, "idle"),
            (r#"{"jsonrpc":"2.0","id":4,"method":"fs/read_text_file","params":{"sessionId":"s"}}"#, "idle"),
        ],
    );
    let kinds: Vec<&EventKind> = events.iter().map(|event| &event.kind).collect();
    let capabilities = Capabilities { version: 1, load: true, resume: false, fork: true };
    assert!(kinds.contains(&&EventKind::Capabilities(capabilities)), "{kinds:?}");
    let entered =
        kinds.iter().position(|kind| matches!(kind, EventKind::SessionStarted { session_id, .. } if session_id == "s"));
    let replayed =
        kinds.iter().position(|kind| matches!(kind, EventKind::Other { name } if name.starts_with("replayed")));
    assert!(entered > replayed && replayed.is_some(), "{kinds:?}");
    assert!(
        matches!(kinds.last(), Some(EventKind::UnsupportedRequest { method, .. }) if method == "fs/read_text_file")
    );
    // All capabilities are optional.
    let events = check(
        Dialect::Acp,
        &[(initialize, "spawning"), (r#"{"jsonrpc":"2.0","id":"a","result":{"protocolVersion":1}}"#, "idle")],
    );
    let none = Capabilities { version: 1, load: false, resume: false, fork: false };
    assert_eq!(events.last().map(|event| &event.kind), Some(&EventKind::Capabilities(none)));
}

#[test]
fn a_conversation_that_cannot_be_had_is_no_mere_warning() {
    let refused = r#"{"jsonrpc":"2.0","id":"b","error":{"code":-32000,"message":"Authentication required"}}"#;
    for (dialect, method, params) in [
        (Dialect::Acp, "initialize", "{}"),
        (Dialect::Acp, "session/new", "{}"),
        (Dialect::Acp, "session/load", r#"{"sessionId":"s"}"#),
        (Dialect::CodexAppServer, "thread/resume", r#"{"threadId":"s"}"#),
    ] {
        let asked = format!(r#"<{{"jsonrpc":"2.0","id":"b","method":"{method}","params":{params}}}"#);
        let events = check(dialect, &[(&asked, "spawning"), (refused, "idle")]);
        let message = "Authentication required".to_owned();
        assert!(
            events.iter().any(|event| event.kind == EventKind::SessionFailed { message: message.clone() }),
            "{method}"
        );
        assert!(!events.iter().any(|event| matches!(event.kind, EventKind::SessionStarted { .. })), "{method}");
    }
}

/// The protocol lets an agent answer with nothing.
#[test]
fn a_loaded_acp_conversation_is_over() {
    for result in ["null", "{}", r#"{"_meta":{}}"#, r#"{"modes":{}}"#] {
        let reply = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{result}}}"#);
        let load = [(ACP_USER, "idle"), (ACP_TEXT, "working"), (&reply, "idle")];
        let prompt =
            [(ACP_TEXT, "working"), (r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}"#, "idle")];
        let events = check(Dialect::Acp, &[&load[..], &load[..]].concat());
        assert_eq!(outcomes(&events), [TurnOutcome::Replayed; 2], "{result}");
        let events = check(Dialect::Acp, &[&prompt[..], &load[..]].concat());
        assert_eq!(outcomes(&events), [TurnOutcome::Completed, TurnOutcome::Replayed], "{result}");
    }
    check(Dialect::Acp, &[(ACP_USER, "idle"), (ACP_TEXT, "working"), (ACP_SESSIONS, "working")]);
}

const ACP_SESSIONS: &str = r#"{"jsonrpc":"2.0","id":3,"result":{"sessions":[]}}"#;

#[test]
fn an_acp_agent_that_repeats_the_user_in_a_turn_is_not_taken_for_loading() {
    let events = check(
        Dialect::Acp,
        &[
            (ACP_USER, "idle"),
            (ACP_TEXT, "working"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#, "idle"),
            (ACP_USER, "idle"),
            (ACP_TEXT, "working"),
            (r#"{"jsonrpc":"2.0","id":3,"result":{"modes":{}}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}"#, "idle"),
        ],
    );
    assert_eq!(outcomes(&events), [TurnOutcome::Completed; 2]);
}

/// Some agents count their calls anew in each turn.
#[test]
fn an_acp_call_with_an_id_of_the_turn_before_is_another_call() {
    let update = |name: &str, status: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"{name}","toolCallId":"t","status":"{status}"}}}}}}"#
        )
    };
    let (start, end, late) = (
        update("tool_call", "pending"),
        update("tool_call_update", "completed"),
        update("tool_call_update", "pending"),
    );
    let reply = r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}"#;
    let turn = [start.as_str(), &end, reply];
    assert_eq!(last_state(Some(Dialect::Acp), &[&turn[..], &[&start]].concat()), "working running_tool");
    assert_eq!(last_state(Some(Dialect::Acp), &[&turn[..], &[&late]].concat()), "idle idle");
}

/// A reply does not name its session, but a session that waits for an approval has not ended.
#[test]
fn the_reply_to_an_acp_session_leaves_the_approval_of_another() {
    let other = ACP_TEXT.replace(r#""sessionId":"s""#, r#""sessionId":"b""#);
    let ask = r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}}"#;
    let ended = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}}}"#;
    let reply = r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}"#;
    let cancelled = r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"cancelled"}}"#;
    let asked = [(ACP_TEXT, "working"), (other.as_str(), "working"), (ask, "working")];
    let rest = [(reply, "working"), (ended, "working"), (reply, "idle")];
    assert_eq!(outcomes(&check(Dialect::Acp, &[&asked[..], &rest].concat())).len(), 1);
    let lines: Vec<&str> = asked.iter().chain(&rest[..1]).map(|(line, _)| *line).collect();
    assert_eq!(last_state(Some(Dialect::Acp), &lines), "working responding approval");
    // The session of the reply is not known.
    check(Dialect::Acp, &[&asked[..], &[(cancelled, "idle")]].concat());
    // No other session can be meant.
    check(Dialect::Acp, &[(ACP_TEXT, "working"), (ask, "working"), (reply, "idle")]);
}

#[test]
fn an_acp_agent_with_two_prompts_is_idle_after_both() {
    let events = check(
        Dialect::Acp,
        &[
            (r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}"#, "idle"),
            (r#"<{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#, "working"),
            (r#"<{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"b"}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"Internal error"}}"#, "idle"),
        ],
    );
    assert_eq!(outcomes(&events), []);
}

fn codex_turn(method: &str, thread: &str, turn: &str) -> String {
    format!(
        r#"{{"method":"turn/{method}","params":{{"threadId":"{thread}","turn":{{"id":"{turn}","status":"completed"}}}}}}"#
    )
}

fn codex_error(thread: &str, turn: &str, info: &str) -> String {
    let error = format!(r#"{{"message":"no","codexErrorInfo":{info}}}"#);
    format!(
        r#"{{"method":"error","params":{{"threadId":"{thread}","turnId":"{turn}","error":{error},"willRetry":false}}}}"#
    )
}

#[test]
fn the_end_of_another_codex_turn_ends_nothing() {
    let events = check(
        Dialect::CodexAppServer,
        &[
            (&codex_turn("started", "a", "a1"), "working"),
            (&codex_turn("completed", "b", "b1"), "working"),
            (&codex_turn("completed", "a", "a0"), "working"),
            (&codex_error("b", "b1", "null"), "working"),
            (&codex_error("a", "a1", r#"{"activeTurnNotSteerable":{}}"#), "working"),
            (r#"<{"id":9,"method":"turn/start","params":{"threadId":"a"}}"#, "working"),
            (r#"{"id":9,"error":{"code":-32600,"message":"a turn is running"}}"#, "working"),
            (&codex_turn("completed", "a", "a1"), "idle"),
        ],
    );
    assert_eq!(outcomes(&events), [TurnOutcome::Completed]);
}

#[test]
fn codex_is_idle_when_the_turns_of_all_its_threads_are_over() {
    let events = check(
        Dialect::CodexAppServer,
        &[
            (&codex_turn("started", "a", "a1"), "working"),
            (&codex_turn("started", "b", "b1"), "working"),
            (&codex_turn("completed", "a", "a1"), "working"),
            (&codex_error("b", "b1", "null"), "idle"),
            (&codex_turn("started", "b", "b2"), "working"),
            // A thread has one turn at a time: the one before was lost.
            (&codex_turn("started", "b", "b3"), "working"),
            (&codex_turn("completed", "b", "b3"), "idle"),
        ],
    );
    assert_eq!(outcomes(&events), [TurnOutcome::Completed]);
}

#[test]
fn codex_ends_a_turn_whose_start_was_not_seen() {
    let delta = r#"{"method":"item/agentMessage/delta","params":{"threadId":"a","turnId":"a1","delta":"hi"}}"#;
    check(Dialect::CodexAppServer, &[(delta, "working"), (&codex_turn("completed", "a", "a1"), "idle")]);
    let without_ids = r#"{"method":"turn/completed","params":{"turn":{"status":"completed"}}}"#;
    check(Dialect::CodexAppServer, &[(&codex_turn("started", "a", "a1"), "working"), (without_ids, "idle")]);
}

#[test]
fn an_interrupt_of_codex_names_the_thread_of_its_turn() {
    let mut encoder = Encoder::new(Dialect::CodexAppServer).unwrap();
    let thread = |id: &str| format!(r#"{{"method":"thread/started","params":{{"thread":{{"id":"{id}"}}}}}}"#);
    let mut parser = Parser::new(Some(Dialect::CodexAppServer));
    let mut read = |encoder: &mut Encoder, line: &str| {
        parser.read(Line::Whole(line.as_bytes())).iter().for_each(|event| encoder.observe(event));
    };
    for line in [&thread("a"), &thread("b"), &codex_turn("started", "a", "a1"), &codex_turn("started", "b", "b1")] {
        read(&mut encoder, line);
    }
    let interrupt = encoder.interrupt().unwrap();
    assert!(interrupt.contains(r#"{"threadId":"a","turnId":"a1"}"#), "{interrupt}");
}

#[test]
fn a_claude_turn_with_an_error_subtype_has_failed() {
    for (fields, outcome) in [
        (r#""subtype":"success","is_error":false"#, TurnOutcome::Completed),
        (r#""subtype":"success""#, TurnOutcome::Completed),
        (r#""subtype":"success","is_error":true"#, TurnOutcome::Failed),
        (r#""subtype":"error_max_turns","is_error":false"#, TurnOutcome::Failed),
        (r#""subtype":"error_during_execution""#, TurnOutcome::Failed),
        (
            r#""subtype":"error_during_execution","is_error":false,"terminal_reason":"aborted_streaming""#,
            TurnOutcome::Interrupted,
        ),
    ] {
        let events = check(Dialect::Claude, &[(&format!(r#"{{"type":"result",{fields}}}"#), "idle")]);
        assert_eq!(outcomes(&events), [outcome], "{fields}");
    }
    let events = check(Dialect::Claude, &[(r#"{"type":"result","subtype":"error_max_turns"}"#, "idle")]);
    let expected = EventKind::TurnEnded { outcome: TurnOutcome::Failed, message: Some("error_max_turns".into()) };
    assert_eq!(events.last().unwrap().kind, expected, "nothing else says why");
}

#[test]
fn a_line_with_an_empty_parent_is_the_agents_own() {
    for line in [
        r#"{"type":"assistant","parent_tool_use_id":"","message":{"content":"hi"}}"#,
        r#"{"hook_event_name":"PreToolUse","agent_id":"","tool_name":"Bash"}"#,
    ] {
        check(Dialect::Claude, &[(line, "working")]);
    }
}

/// A thread that was once a subagent's can be resumed as a conversation of its own.
#[test]
fn a_codex_thread_is_a_subagent_only_of_a_known_thread() {
    let resumed = r#"{"id":2,"result":{"thread":{"id":"c","parentThreadId":"p"}}}"#;
    check(
        Dialect::CodexAppServer,
        &[
            (resumed, "idle"),
            (&codex_turn("started", "c", "c1"), "working"),
            (&codex_turn("completed", "c", "c1"), "idle"),
        ],
    );
}

#[test]
fn a_step_of_opencode_without_a_reason_ends_no_turn() {
    let start = r#"{"type":"step_start","sessionID":"s","part":{}}"#;
    for (finish, lifecycle) in [
        (r#"{"type":"step_finish","sessionID":"s","part":{}}"#, "working"),
        (r#"{"type":"step_finish","sessionID":"s","part":{"reason":"tool-calls"}}"#, "working"),
        (r#"{"type":"step_finish","sessionID":"s","part":{"reason":"stop"}}"#, "idle"),
        (r#"{"type":"step_finish","sessionID":"s","part":{"reason":"length"}}"#, "idle"),
    ] {
        check(Dialect::Opencode, &[(start, "working"), (finish, lifecycle)]);
    }
}

#[test]
fn only_an_error_of_gemini_ends_its_turn() {
    let init = r#"{"type":"init","session_id":"s"}"#;
    for (severity, lifecycle) in [
        (r#","severity":"info""#, "working"),
        (r#","severity":"warning""#, "working"),
        (r#","severity":"notice""#, "working"),
        ("", "working"),
        (r#","severity":"error""#, "idle"),
    ] {
        let line = format!(r#"{{"type":"error"{severity},"message":"m"}}"#);
        check(Dialect::Gemini, &[(init, "working"), (&line, lifecycle)]);
    }
}

/// One thread more than are remembered.
#[test]
fn codex_works_while_a_turn_beyond_the_remembered_ones_runs() {
    let mut replay = Replay::new(Some(Dialect::CodexAppServer));
    for number in 0..65 {
        replay.read(&codex_turn("started", &format!("t{number}"), "u"), 0);
    }
    for number in 0..64 {
        replay.read(&codex_turn("completed", &format!("t{number}"), "u"), 0);
        assert_eq!(word(replay.machine().lifecycle()), "working", "t64 and others still run");
    }
    // Its end cannot be told from that of another turn.
    replay.read(&codex_turn("completed", "t64", "u"), 0);
    assert_eq!(word(replay.machine().lifecycle()), "working");
}

/// A finished background command starts a turn, which may be before the end of the running one.
#[test]
fn claude_is_idle_when_all_its_turns_are_over() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
    let background = r#"{"type":"system","subtype":"task_started","task_id":"b","is_backgrounded":true}"#;
    let ended = r#"{"type":"system","subtype":"task_notification","task_id":"b","status":"completed"}"#;
    let result = r#"{"type":"result","subtype":"success","is_error":false}"#;
    let events = check(
        Dialect::Claude,
        &[
            (init, "working"),
            (background, "working"),
            (ended, "working"),
            (init, "working"),
            (result, "working"),
            (result, "idle"),
            (result, "idle"),
        ],
    );
    assert_eq!(outcomes(&events), [TurnOutcome::Completed; 2]);
    // Another conversation leaves the turns of the one before behind.
    let other = r#"{"type":"system","subtype":"init","session_id":"t"}"#;
    check(Dialect::Claude, &[(init, "working"), (background, "working"), (other, "working"), (result, "idle")]);
}

#[test]
fn a_conversation_without_an_id_is_not_named() {
    for (dialect, line) in [
        (Dialect::CodexExec, r#"{"type":"thread.started"}"#),
        (Dialect::CodexExec, r#"{"type":"thread.started","thread_id":""}"#),
        (Dialect::Gemini, r#"{"type":"init","model":"m"}"#),
        (Dialect::Claude, r#"{"type":"system","subtype":"init","session_id":""}"#),
        (Dialect::Opencode, r#"{"type":"step_start","sessionID":""}"#),
    ] {
        let events = Replay::new(Some(dialect)).read(line, 0).events;
        assert!(!events.is_empty(), "{line}");
        assert!(!events.iter().any(|event| matches!(event.kind, EventKind::SessionStarted { .. })), "{events:?}");
    }
}

#[test]
fn an_acp_call_starts_with_its_first_update_and_ends_once() {
    let mut replay = Replay::new(None);
    let mut update = |fields: &str| {
        let update = format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"c"{fields}}}"#);
        let params = format!(r#"{{"sessionId":"s","update":{update}}}"#);
        replay.read(&format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#), 0).activity
    };
    assert_eq!(update(r#","status":"in_progress""#), Activity::RunningTool);
    assert_eq!(update(r#","status":"completed""#), Activity::Responding);
    assert_eq!(update(r#","title":"renamed""#), Activity::Responding);
}
