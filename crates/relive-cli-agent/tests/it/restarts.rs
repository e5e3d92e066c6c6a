//! Work that a process leaves open when it is killed or closed, and ends that belong to another process or session.

use std::path::Path;

use relive_cli_agent::Dialect;

use crate::support::{Pipe, Replay, events_of, files, fixtures, last_state, name, recording, reports};

const CLAUDE: Option<Dialect> = Some(Dialect::Claude);
const CODEX: Option<Dialect> = Some(Dialect::CodexAppServer);

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
const TOOL: &str =
    r#"{"type":"assistant","session_id":"s","message":{"content":[{"type":"tool_use","id":"t1","name":"Bash"}]}}"#;
const TOOL_ENDS: &str =
    r#"{"type":"user","session_id":"s","message":{"content":[{"type":"tool_result","tool_use_id":"t1"}]}}"#;
const TEXT: &str = r#"{"type":"assistant","session_id":"s","message":{"content":"hi"}}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"session_id":"s"}"#;
const BACKGROUND: &str =
    r#"{"type":"system","subtype":"task_started","session_id":"s","task_id":"b","is_backgrounded":true}"#;
const BACKGROUND_ENDS: &str =
    r#"{"type":"system","subtype":"task_updated","session_id":"s","task_id":"b","patch":{"status":"completed"}}"#;

fn init_at(socket: &str) -> String {
    INIT.replacen('{', &format!(r#"{{"messaging_socket_path":"/tmp/{socket}.sock","#), 1)
}

#[test]
fn a_claude_killed_and_resumed_in_one_stream_has_no_open_work() {
    assert_eq!(last_state(CLAUDE, &[INIT, TOOL, INIT]), "working idle", "the call of the killed process is gone");
    assert_eq!(last_state(CLAUDE, &[INIT, TOOL, INIT, TEXT, RESULT]), "idle idle");
    assert_eq!(last_state(CLAUDE, &[INIT, BACKGROUND, TOOL, INIT, TEXT, RESULT]), "idle idle");
    let reports = reports(CLAUDE, &[INIT, TOOL, INIT, TEXT, RESULT]);
    assert_eq!(events_of(&reports, "session_ended").len(), 1);
    assert_eq!(events_of(&reports, "session_started").len(), 2, "{reports:?}");
    assert_eq!(events_of(&reports, "turn_started").len(), 2);
}

/// Every version that names its socket has the same one in all turns of a process.
#[test]
fn a_claude_with_another_socket_is_another_process() {
    let (first, second) = (init_at("1"), init_at("2"));
    let ask = r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_use_id":"t1"}}"#;
    assert_eq!(last_state(CLAUDE, &[&first, TOOL, ask, BACKGROUND, BACKGROUND_ENDS, &second, RESULT]), "idle idle");
    assert_eq!(last_state(CLAUDE, &[&first, BACKGROUND, RESULT, &second, RESULT]), "idle idle");
    // The same one: a turn that a finished background command starts before the end of the running one.
    assert_eq!(last_state(CLAUDE, &[&first, BACKGROUND, BACKGROUND_ENDS, &first, RESULT]), "working idle");
    assert_eq!(last_state(CLAUDE, &[&first, BACKGROUND, RESULT, &first, RESULT]), "working running_tool");
}

/// In a PID namespace of its own, every claude has the same PID, and so the same socket.
#[test]
fn a_claude_that_starts_a_turn_in_an_open_one_is_another_process_despite_its_socket() {
    let init = init_at("2");
    let ask = r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_use_id":"t1"}}"#;
    assert_eq!(last_state(CLAUDE, &[&init, TOOL, &init]), "working idle");
    assert_eq!(last_state(CLAUDE, &[&init, TOOL, ask, &init, TEXT, RESULT]), "idle idle");
    assert_eq!(last_state(CLAUDE, &[&init, TOOL, ask, &init]), "working idle");
}

/// The recorded sockets are replaced by the one of a PID namespace.
#[test]
fn a_recorded_claude_that_was_killed_and_resumed_in_a_pid_namespace_is_idle() {
    let lines: Vec<String> = ["claude_tool_sigkill", "claude_resume_after_sigkill"]
        .iter()
        .flat_map(|name| recording(&fixtures().join(format!("streams/{name}.jsonl"))))
        .map(|recorded| with_socket(&recorded.line, "/tmp/cc-socks/2.sock"))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(last_state(CLAUDE, &lines), "idle idle");
}

fn with_socket(line: &str, socket: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
    if let Some(path) = value.get_mut("messaging_socket_path") {
        *path = socket.into();
    }
    value.to_string()
}

/// The next turn of the same process corrects the state.
#[test]
fn a_recorded_claude_whose_result_was_lost_is_idle_after_the_next_turn() {
    let recorded = recording(&fixtures().join("streams/claude_stdin_interrupt.jsonl"));
    let is_result = |line: &str| line.contains(r#""type":"result""#);
    let results: Vec<usize> = (0..recorded.len()).filter(|at| is_result(&recorded[*at].line)).collect();
    let (_, lost) = results.split_last().unwrap();
    assert_eq!(lost.len(), 3, "{lost:?}");
    for lost in lost {
        let lines =
            recorded.iter().enumerate().filter(|(at, _)| at != lost).map(|(_, recorded)| recorded.line.as_str());
        assert_eq!(last_state(CLAUDE, &lines.collect::<Vec<_>>()), "idle idle", "without line {}", lost + 1);
    }
}

#[test]
fn a_background_command_that_ends_in_a_turn_starts_a_second_turn_of_the_same_claude() {
    let lines = [INIT, BACKGROUND, BACKGROUND_ENDS, INIT, RESULT];
    assert_eq!(last_state(CLAUDE, &lines), "working idle");
    assert_eq!(last_state(CLAUDE, &[&lines[..], &[RESULT]].concat()), "idle idle");
    // Only once: the next turn without an end was cut off.
    assert_eq!(last_state(CLAUDE, &[INIT, BACKGROUND, BACKGROUND_ENDS, INIT, INIT, RESULT]), "idle idle");
}

/// Within a process, no turn starts while a call of the agent runs.
#[test]
fn a_claude_that_starts_a_turn_while_a_call_is_open_is_another_process() {
    assert_eq!(last_state(CLAUDE, &[INIT, BACKGROUND, BACKGROUND_ENDS, TOOL, INIT, RESULT]), "idle idle");
    let lines = [INIT, BACKGROUND, BACKGROUND_ENDS, TOOL, TOOL_ENDS, INIT, RESULT];
    assert_eq!(last_state(CLAUDE, &lines), "working responding");
}

#[test]
fn a_stray_line_of_another_conversation_does_not_keep_a_turn_open() {
    let stray = TEXT.replace(r#""session_id":"s""#, r#""session_id":"z""#);
    assert_eq!(last_state(CLAUDE, &[INIT, &stray, RESULT]), "idle idle");
    assert_eq!(last_state(CLAUDE, &[INIT, &stray, TEXT, RESULT]), "idle idle");
}

/// Claude names the conversation in all its lines, so it can also move without an `init`.
#[test]
fn a_line_of_another_conversation_moves_claude_to_it() {
    let other = |line: &str| line.replace(r#""session_id":"s""#, r#""session_id":"z""#);
    let (text, result) = (other(TEXT), other(RESULT));
    assert_eq!(last_state(CLAUDE, &[INIT, &text, &result]), "idle idle");
    let reports = reports(CLAUDE, &[INIT, &text, &result]);
    assert_eq!(events_of(&reports, "session_started")[1]["session_id"], "z");
}

#[test]
fn a_new_process_of_any_other_cli_has_no_open_work() {
    let codex = [
        r#"{"type":"thread.started","thread_id":"t"}"#,
        r#"{"type":"turn.started"}"#,
        r#"{"type":"item.started","item":{"id":"i0","type":"command_execution"}}"#,
        r#"{"type":"thread.started","thread_id":"t"}"#,
        r#"{"type":"turn.started"}"#,
    ];
    assert_eq!(last_state(Some(Dialect::CodexExec), &codex), "working idle");
    assert_eq!(last_state(Some(Dialect::CodexExec), &codex[..4]), "idle idle");
    let gemini = [
        r#"{"type":"init","session_id":"s"}"#,
        r#"{"type":"tool_use","tool_id":"t","tool_name":"run"}"#,
        r#"{"type":"init","session_id":"s"}"#,
    ];
    assert_eq!(last_state(Some(Dialect::Gemini), &gemini), "working idle");
    let opencode = [
        r#"{"type":"step_start","sessionID":"a","part":{}}"#,
        r#"{"type":"tool_use","sessionID":"a","part":{"callID":"c","tool":"bash","state":{}}}"#,
        r#"{"type":"step_start","sessionID":"b","part":{}}"#,
        r#"{"type":"step_finish","sessionID":"b","part":{"reason":"stop"}}"#,
    ];
    assert_eq!(last_state(Some(Dialect::Opencode), &opencode[..3]), "working idle");
    assert_eq!(last_state(Some(Dialect::Opencode), &opencode), "idle idle");
}

/// Only a new process answers `initialize`.
#[test]
fn a_server_that_is_initialized_again_has_no_open_work() {
    let initialized = r#"{"id":1,"result":{"userAgent":"x","codexHome":"/h"}}"#;
    let item = r#"{"method":"item/started","params":{"threadId":"a","item":{"id":"i","type":"commandExecution"}}}"#;
    let lines = [initialized, &codex("turn/started", "a"), item, initialized];
    assert_eq!(last_state(CODEX, &lines[..3]), "working running_tool");
    assert_eq!(last_state(CODEX, &lines), "idle idle");
    let initialized = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}"#;
    let call = acp_update(r#"{"sessionUpdate":"tool_call","toolCallId":"c"}"#);
    assert_eq!(last_state(Some(Dialect::Acp), &[initialized, &call]), "working running_tool");
    assert_eq!(last_state(Some(Dialect::Acp), &[initialized, &call, initialized]), "idle idle");
    let prompt = r#"<{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    let again = r#"<{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    // A turn that was written before the new process has answered is open.
    assert_eq!(
        last_state(Some(Dialect::Acp), &[initialized, prompt, &call, again, prompt, initialized]),
        "working idle"
    );
    let (again, start) = (r#"<{"id":1,"method":"initialize"}"#, r#"<{"id":2,"method":"turn/start"}"#);
    assert_eq!(last_state(CODEX, &[lines[0], start, lines[1], lines[2], again, start, lines[0]]), "working idle");
}

/// An interrupt overtakes the lines that are still in the pipe.
#[test]
fn a_line_of_a_codex_turn_that_is_over_opens_no_turn() {
    let ids = r#""threadId":"a","turnId":"u""#;
    for late in [
        format!(r#"{{"method":"item/agentMessage/delta","params":{{{ids},"delta":"x"}}}}"#),
        format!(r#"{{"method":"item/started","params":{{{ids},"item":{{"id":"i","type":"commandExecution"}}}}}}"#),
        format!(r#"{{"method":"item/completed","params":{{{ids},"item":{{"type":"agentMessage","text":"x"}}}}}}"#),
        format!(r#"{{"id":1,"method":"item/commandExecution/requestApproval","params":{{{ids},"itemId":"i"}}}}"#),
    ] {
        let lines = [&codex("turn/started", "a"), &codex("turn/completed", "a"), &late];
        assert_eq!(last_state(CODEX, &lines.map(String::as_str)), "idle idle", "{late}");
        assert!(last_state(CODEX, &[&late]).starts_with("working"), "reading may begin within a turn: {late}");
    }
}

/// Only the end of a turn is final: codex may continue after an error that sounds like one.
#[test]
fn a_codex_turn_that_continues_after_an_error_is_open() {
    let error = r#"{"method":"error","params":{"threadId":"a","turnId":"u","error":{"message":"no"}}}"#;
    let delta = r#"{"method":"item/agentMessage/delta","params":{"threadId":"a","turnId":"u","delta":"x"}}"#;
    let lines = [&codex("turn/started", "a"), error, delta, &codex("turn/completed", "a"), delta];
    let states: Vec<String> = (2..=5).map(|count| last_state(CODEX, &lines[..count])).collect();
    assert_eq!(states, ["idle idle", "working responding", "idle idle", "idle idle"]);
}

#[test]
fn a_codex_thread_that_was_unloaded_leaves_nothing_open() {
    let status = |kind: &str| {
        let params = format!(r#"{{"threadId":"a","status":{{"type":"{kind}"}}}}"#);
        format!(r#"{{"method":"thread/status/changed","params":{params}}}"#)
    };
    assert_eq!(last_state(CODEX, &[&codex("turn/started", "a"), &status("notLoaded")]), "idle idle");
    assert_eq!(last_state(CODEX, &[&codex("turn/started", "a"), &status("active")]), "working idle");
}

#[test]
fn an_opencode_call_that_is_printed_after_its_turn_opens_no_turn() {
    let call = r#"{"type":"tool_use","sessionID":"a","part":{"callID":"c","tool":"x","state":{"status":"completed"}}}"#;
    let turn = [
        r#"{"type":"step_start","sessionID":"a","part":{}}"#,
        r#"{"type":"step_finish","sessionID":"a","part":{"reason":"stop"}}"#,
    ];
    assert_eq!(last_state(Some(Dialect::Opencode), &[turn[0], turn[1], call]), "idle idle");
    assert_eq!(last_state(Some(Dialect::Opencode), &[call]), "working responding", "reading may begin within a turn");
}

#[test]
fn a_json_rpc_error_without_an_id_is_a_warning() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot parse"}}"#;
    for dialect in [Dialect::Acp, Dialect::CodexAppServer] {
        let found = events_of(&reports(Some(dialect), &[error]), "warning");
        assert_eq!(found[0]["message"], "cannot parse");
    }
}

fn hook(name: &str, rest: &str) -> String {
    format!(r#"{{"hook_event_name":"{name}","session_id":"s"{rest}}}"#)
}

#[test]
fn the_end_of_a_claude_session_leaves_nothing_open() {
    let end = hook("SessionEnd", r#","reason":"prompt_input_exit""#);
    let stop = hook("Stop", r#","background_tasks":[{"id":"b"}]"#);
    let of_subagent = r#","agent_id":"x","tool_name":"Bash","tool_input":{"command":"ls"}"#;
    let (call, ask) = (hook("PreToolUse", of_subagent), hook("PermissionRequest", of_subagent));
    let prompt = hook("UserPromptSubmit", "");
    assert_eq!(last_state(CLAUDE, &[&prompt, &stop]), "working running_tool");
    assert_eq!(last_state(CLAUDE, &[&prompt, &stop, &end]), "idle idle");
    assert_eq!(last_state(CLAUDE, &[&prompt, &call, &ask, &stop, &end]), "idle idle");
    assert_eq!(last_state(CLAUDE, &[&prompt, &call, &ask, &end]), "idle idle");
    assert_eq!(last_state(CLAUDE, &[INIT, TOOL, BACKGROUND, &end, RESULT]), "idle idle");
    // The next turn is an ordinary one.
    assert_eq!(last_state(CLAUDE, &[INIT, TOOL, &end, INIT]), "working idle");
    assert_eq!(last_state(CLAUDE, &[INIT, TOOL, &end, INIT, RESULT]), "idle idle");
}

fn codex(method: &str, thread: &str) -> String {
    let turn = r#"{"id":"u","status":"completed"}"#;
    let params = format!(r#"{{"threadId":"{thread}","turn":{turn},"thread":{{"id":"{thread}"}}}}"#);
    format!(r#"{{"method":"{method}","params":{params}}}"#)
}

#[test]
fn a_closed_codex_thread_leaves_nothing_open() {
    let ask = r#"{"id":1,"method":"item/commandExecution/requestApproval","params":{"threadId":"a","itemId":"i"}}"#;
    let (thread, starts) = (codex("thread/started", "a"), codex("turn/started", "a"));
    for closes in [codex("thread/closed", "a"), codex("thread/deleted", "a")] {
        assert_eq!(last_state(CODEX, &[&thread, &starts, ask, &closes]), "idle idle");
        assert_eq!(last_state(CODEX, &[&starts, ask, &closes]), "idle idle");
        assert_eq!(last_state(CODEX, &[&starts, &codex("turn/started", "b"), &closes]), "working idle");
        let both = [&starts, &codex("turn/started", "b"), &closes, &codex("turn/completed", "b")];
        assert_eq!(last_state(CODEX, &both.map(String::as_str)), "idle idle");
    }
    let other = codex("thread/closed", "z");
    assert_eq!(last_state(CODEX, &[&thread, &starts, &other]), "working idle");
    let reports = reports(CODEX, &[&thread, &starts, &codex("thread/closed", "a"), &thread]);
    assert_eq!(events_of(&reports, "session_started").len(), 2, "a thread that is resumed is named again");
}

#[test]
fn an_end_of_another_session_ends_nothing() {
    let other = |line: &str| line.replace(r#""session_id":"s""#, r#""session_id":"z""#);
    assert_eq!(last_state(CLAUDE, &[INIT, TOOL, &other(RESULT)]), "working running_tool");
    assert_eq!(last_state(CLAUDE, &[INIT, TOOL, &other(RESULT), TOOL_ENDS, RESULT]), "idle idle");
    let call = r#","tool_name":"Bash","tool_use_id":"t1""#;
    let (prompt, pre) = (hook("UserPromptSubmit", ""), hook("PreToolUse", call));
    for end in [
        hook("Stop", ""),
        hook("StopFailure", ""),
        hook("SessionEnd", ""),
        hook("Notification", r#","notification_type":"idle_prompt""#),
        hook("PostToolUse", call),
    ] {
        assert_eq!(last_state(CLAUDE, &[&prompt, &pre, &other(&end)]), "working running_tool", "{end}");
    }
    // Another prompt moves the stream to its session, and the one before is left behind.
    let moved = [&prompt, &pre, &other(&prompt)];
    assert_eq!(last_state(CLAUDE, &moved.map(String::as_str)), "working idle");
    let opencode = [
        r#"{"type":"step_start","sessionID":"a","part":{}}"#,
        r#"{"type":"step_finish","sessionID":"b","part":{"reason":"stop"}}"#,
        r#"{"type":"error","sessionID":"b","error":{"name":"x"}}"#,
    ];
    assert_eq!(last_state(Some(Dialect::Opencode), &opencode), "working idle");
}

#[test]
fn an_end_of_another_session_ends_no_turn_whose_start_was_not_seen() {
    let other = |line: &str| line.replace(r#""session_id":"s""#, r#""session_id":"z""#);
    assert_eq!(last_state(CLAUDE, &[TEXT, &other(RESULT)]), "working responding");
    assert_eq!(last_state(CLAUDE, &[TEXT, RESULT]), "idle idle");
    let delta = r#"{"method":"item/agentMessage/delta","params":{"threadId":"a","turnId":"u","delta":"x"}}"#;
    let error = r#"{"method":"error","params":{"threadId":"b","turnId":"v","error":{"message":"no"}}}"#;
    assert_eq!(last_state(CODEX, &[delta, &codex("turn/completed", "b")]), "working responding");
    assert_eq!(last_state(CODEX, &[delta, error]), "working responding");
    assert_eq!(last_state(CODEX, &[delta, &codex("turn/completed", "a")]), "idle idle");
    let opencode = [
        r#"{"type":"text","sessionID":"a","part":{"text":"x"}}"#,
        r#"{"type":"step_finish","sessionID":"b","part":{"reason":"stop"}}"#,
        r#"{"type":"step_finish","sessionID":"a","part":{"reason":"stop"}}"#,
    ];
    assert_eq!(last_state(Some(Dialect::Opencode), &opencode[..2]), "working responding");
    assert_eq!(last_state(Some(Dialect::Opencode), &opencode), "idle idle");
}

#[test]
fn the_end_of_a_call_after_its_turn_opens_no_turn() {
    assert_eq!(last_state(CLAUDE, &[INIT, TOOL, RESULT, TOOL_ENDS]), "idle idle");
    assert_eq!(last_state(CLAUDE, &[INIT, BACKGROUND, TOOL, RESULT, TOOL_ENDS, BACKGROUND_ENDS]), "idle idle");
    let call = r#","tool_name":"Bash","tool_use_id":"t1""#;
    let hooks = [hook("PreToolUse", call), hook("Stop", ""), hook("PostToolUse", call)];
    let hooks: Vec<&str> = hooks.iter().map(String::as_str).collect();
    assert_eq!(last_state(CLAUDE, &hooks), "idle idle");
    let item = r#"{"method":"item/completed","params":{"threadId":"a","item":{"id":"i","type":"commandExecution"}}}"#;
    let lines = [&codex("turn/started", "a"), &codex("turn/completed", "a"), item];
    assert_eq!(last_state(CODEX, &lines), "idle idle");
    // The end of a call may be the first line that is read.
    assert_eq!(last_state(CLAUDE, &[TOOL_ENDS]), "working responding");
}

const ACP_STOP: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#;

fn acp_update(update: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#)
}

#[test]
fn an_update_of_an_acp_call_after_its_turn_opens_no_turn() {
    let call = acp_update(r#"{"sessionUpdate":"tool_call","toolCallId":"c","status":"in_progress"}"#);
    let ends = acp_update(r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"failed"}"#);
    let renames = acp_update(r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"x"}"#);
    for late in [&ends, &renames] {
        assert_eq!(last_state(Some(Dialect::Acp), &[&call, ACP_STOP, late]), "idle idle", "{late}");
    }
}

/// What is written to the agent says that no prompt is open.
#[test]
fn a_message_of_an_acp_agent_after_its_turn_opens_no_turn() {
    let prompt = r#"<{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    let text = acp_update(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}"#);
    assert_eq!(last_state(Some(Dialect::Acp), &[prompt, &text]), "working responding");
    assert_eq!(last_state(Some(Dialect::Acp), &[prompt, &text, ACP_STOP, &text]), "idle idle");
}

#[test]
fn an_acp_error_without_its_request_ends_the_turn_unless_it_refuses_a_request() {
    let text = acp_update(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}"#);
    let error = |code: i64, message: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"{message}"}}}}"#)
    };
    for (code, state) in [
        (-32603, "idle idle"),
        (-32000, "idle idle"),
        (429, "idle idle"),
        (-32601, "working responding"),
        (-32602, "working responding"),
        (-32700, "working responding"),
        (-32600, "working responding"),
    ] {
        assert_eq!(last_state(Some(Dialect::Acp), &[&text, &error(code, "no")]), state, "{code}");
    }
    let quota = error(-32603, "You've hit your usage limit");
    let found = reports(Some(Dialect::Acp), &[&text, &quota, &text, &quota]);
    assert_eq!(events_of(&found, "quota").len(), 2, "each turn has its own");
}

/// The dialect of a recording, and the states after a stream of recordings.
fn replay_all(dialect: Option<Dialect>, paths: &[&Path]) -> (Option<Dialect>, String) {
    let mut replay = Replay::new(dialect);
    let mut detected = None;
    for recorded in paths.iter().flat_map(|path| recording(path)) {
        match recorded.pipe {
            Pipe::Stdout => detected = replay.read(&recorded.line, 0).dialect,
            Pipe::Stdin => drop(replay.push_input(&recorded.line, 0)),
            Pipe::Stderr | Pipe::Exit => {}
        }
    }
    (detected, format!("{} {:?}", replay.lifecycle_and_activity(), replay.machine().waiting()))
}

/// Many of the recordings are cut off in a call: whatever the process before has left open, the next one is not affected.
#[test]
fn a_recording_ends_the_same_after_another_one_of_its_cli() {
    let mut paths = files(&fixtures().join("streams"), "jsonl");
    paths.retain(|path| !name(path).ends_with(".stdin"));
    let recordings: Vec<_> = paths.iter().map(|path| (path, replay_all(None, &[path]))).collect();
    for dialect in Dialect::ALL {
        let of_dialect = || recordings.iter().filter(|(_, (detected, _))| *detected == Some(dialect));
        for (follower, (_, alone)) in of_dialect() {
            for (before, _) in of_dialect() {
                let (_, both) = replay_all(Some(dialect), &[before, follower]);
                assert_eq!(both, *alone, "{} after {}", follower.display(), before.display());
            }
        }
    }
}
