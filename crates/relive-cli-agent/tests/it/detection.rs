//! Detection of the dialect of a stream.

use relive_cli_agent::{Dialect, Line, Parser};
use serde_json::Value;

use crate::support::{Pipe, Replay, files, fixtures, name, recording, reports, word};

#[track_caller]
fn check(line: &str, expected: Option<Dialect>) {
    let mut parser = Parser::new(None);
    parser.read(Line::Whole(line.as_bytes()));
    assert_eq!(parser.dialect(), expected, "{line}");
}

#[test]
fn a_line_that_only_resembles_a_dialect_is_not_detected() {
    for line in [
        // JSON-RPC of other programs: a language server, an MCP server, a reply that fits any program.
        r#"{"method":"ping"}"#,
        r#"{"method":"error","params":{"message":"no"}}"#,
        r#"{"method":"warning","params":{"message":"no"}}"#,
        r#"{"method":"thread/invented","params":{}}"#,
        r#"{"method":"textDocument/didOpen","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"session/invented","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"message":"no"}}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"id":1,"error":{"message":"no"}}"#,
        // Names that other CLIs use too, without the fields that identify a dialect.
        r#"{"type":"system","text":"hello"}"#,
        r#"{"type":"assistant","text":"hello"}"#,
        r#"{"type":"user","text":"hello"}"#,
        r#"{"type":"stream_event"}"#,
        r#"{"type":"result"}"#,
        r#"{"type":"init"}"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text"}]}"#,
        r#"{"type":"item.started"}"#,
        r#"{"type":"thread.started"}"#,
        r#"{"type":"turn.started"}"#,
        r#"{"type":"turn.completed"}"#,
        r#"{"type":"turn.failed"}"#,
        r#"{"type":"control_request","text":"hello"}"#,
        r#"{"type":"control_response","text":"hello"}"#,
        r#"{"type":"control_cancel_request","text":"hello"}"#,
        r#"{"type":"invented","sessionID":"s"}"#,
        r#"{"hook_event_name":"BeforeTool","session_id":"s"}"#,
        r#"{"hook_event_name":7}"#,
        r#"{"type":"error","message":"no"}"#,
        "{}",
    ] {
        check(line, None);
    }
}

/// Structured logs of servers, chats, games and build tools, and JSON-RPC of other programs.
const LOGS: [&str; 57] = [
    r#"{"type":"error","severity":"error","message":"no","timestamp":"2026-11-16T02:12:10Z"}"#,
    r#"{"type":"message","role":"user","content":"hello","timestamp":"2026-11-16T02:12:10Z"}"#,
    r#"{"type":"result","status":"success","timestamp":"2026-11-16T02:12:10Z"}"#,
    r#"{"type":"result","status":"ok","stats":{"passed":3}}"#,
    r#"{"type":"result","subtype":"success"}"#,
    r#"{"type":"result","subtype":"success","is_error":false}"#,
    r#"{"type":"init","session_id":"s"}"#,
    r#"{"type":"init","session_id":"s","model":"m"}"#,
    r#"{"type":"system","subtype":"boot"}"#,
    r#"{"type":"system","subtype":"init"}"#,
    r#"{"type":"system","subtype":"status"}"#,
    r#"{"type":"system","subtype":"boot","session_id":"s"}"#,
    r#"{"type":"user","message":{"text":"hello"}}"#,
    r#"{"type":"user","message":{"text":"hello"},"session_id":"s"}"#,
    r#"{"type":"assistant","message":{"content":"hello"}}"#,
    r#"{"type":"stream_event","event":{"name":"x"}}"#,
    r#"{"type":"stream_event","event":{"type":"x"},"session_id":"s"}"#,
    r#"{"type":"user","message":{"role":"user","content":"hello"},"session_id":"s"}"#,
    r#"{"type":"stream_event","event":{"type":"message_stop"},"session_id":"s"}"#,
    r#"{"type":"result","subtype":"done","is_error":false,"session_id":"s"}"#,
    r#"{"type":"control_response","response":{"subtype":"ok","request_id":"r"}}"#,
    r#"{"type":"rate_limit_event","rate_limit_info":{"status":"ok"}}"#,
    r#"{"type":"item.completed","item":{"id":"i","type":"error"}}"#,
    r#"{"type":"error","sessionID":"ses_1","error":{}}"#,
    r#"{"type":"rate_limit_event","rate_limit_info":{}}"#,
    r#"{"type":"control_request","request_id":"r","request":{}}"#,
    r#"{"type":"control_request","request_id":"r","request":{"subtype":"restart"}}"#,
    r#"{"type":"control_response","response":{}}"#,
    r#"{"type":"control_cancel_request","request_id":7}"#,
    r#"{"type":"tool_use","tool_id":"t"}"#,
    r#"{"type":"tool_result","tool_id":"t"}"#,
    r#"{"type":"turn.completed","usage":{}}"#,
    r#"{"type":"turn.completed","usage":{"cpu":3}}"#,
    r#"{"type":"turn.failed","error":{"message":"no"}}"#,
    r#"{"type":"item.started","item":{"id":"i","type":"order"}}"#,
    r#"{"type":"item.completed","item":{"type":"reasoning"}}"#,
    r#"{"type":"thread.started","thread_id":7}"#,
    r#"{"type":"thread.started","thread_id":"worker-3"}"#,
    r#"{"type":"text","sessionID":"s","part":{}}"#,
    r#"{"type":"error","sessionID":"ses_1","message":"no"}"#,
    r#"{"type":"text","sessionID":"ses_1","text":"hello"}"#,
    r#"{"hook_event_name":"SessionStart"}"#,
    r#"{"hook_event_name":"SessionStart","session_id":"s","timestamp":"2026-11-16T02:12:10Z"}"#,
    r#"{"method":"turn/started","params":{}}"#,
    r#"{"method":"fs/changed","params":{}}"#,
    r#"{"method":"process/exited","params":{"code":1}}"#,
    r#"{"method":"configWarning","params":{"summary":"no"}}"#,
    r#"{"jsonrpc":"2.0","method":"thread/started","params":{"threadId":"t"}}"#,
    r#"{"id":1,"result":{"userAgent":"x"}}"#,
    r#"{"id":1,"result":{"thread":{"id":"t"}}}"#,
    r#"{"id":1,"result":{"turn":{"id":"t"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"breakpoint"}}"#,
    r#"{"jsonrpc":"2.0","method":"terminal/output","params":{}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{}}"#,
    r#"{"method":"session/update","params":{"sessionId":"s","update":{}}}"#,
];

#[test]
fn a_line_that_could_be_a_log_is_not_detected() {
    for line in LOGS {
        check(line, None);
    }
}

/// A wrapper may print its own logs before the CLI prints its first line.
#[test]
fn logs_before_a_recording_change_nothing() {
    for path in files(&fixtures().join("streams"), "jsonl").iter().filter(|path| !name(path).ends_with(".stdin")) {
        let [mut logged, mut alone] = [Replay::new(None), Replay::new(None)];
        for log in LOGS {
            assert_eq!(logged.read(log, 0).dialect, None, "{log}");
        }
        for recorded in recording(path).into_iter().filter(|recorded| recorded.pipe == Pipe::Stdout) {
            let [logged, alone] = [&mut logged, &mut alone].map(|replay| replay.read(&recorded.line, 0));
            assert_eq!((logged.dialect, logged.events), (alone.dialect, alone.events), "{}", path.display());
        }
    }
}

#[test]
fn a_line_that_only_one_dialect_prints_is_detected() {
    for (line, dialect) in [
        (r#"{"type":"system","subtype":"init","session_id":"s"}"#, Dialect::Claude),
        (r#"{"type":"system","subtype":"new_subtype","session_id":"s","uuid":"u"}"#, Dialect::Claude),
        (r#"{"type":"system","subtype":"init","qwen_code_version":"1","session_id":"s"}"#, Dialect::Qwen),
        (
            r#"{"type":"assistant","message":{"role":"assistant","content":[]},"session_id":"s","uuid":"u"}"#,
            Dialect::Claude,
        ),
        (r#"{"type":"user","message":{"role":"user","content":"hi"},"session_id":"s","uuid":"u"}"#, Dialect::Claude),
        (r#"{"type":"stream_event","event":{"type":"message_start"},"session_id":"s","uuid":"u"}"#, Dialect::Claude),
        (r#"{"type":"result","subtype":"success","is_error":false,"session_id":"s"}"#, Dialect::Claude),
        (r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed"}}"#, Dialect::Claude),
        (r#"{"hook_event_name":"SessionStart","session_id":"s"}"#, Dialect::Claude),
        (r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool"}}"#, Dialect::Claude),
        (r#"{"type":"control_response","response":{"subtype":"success","request_id":"r"}}"#, Dialect::Claude),
        (r#"{"type":"control_cancel_request","request_id":"r"}"#, Dialect::Claude),
        (r#"{"type":"thread.started","thread_id":"01a1e064-e6e9-7740-b898-29d4e7339d96"}"#, Dialect::CodexExec),
        (r#"{"type":"turn.completed","usage":{"input_tokens":3}}"#, Dialect::CodexExec),
        (r#"{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"x"}}"#, Dialect::CodexExec),
        (r#"{"id":1,"method":"item/tool/call","params":{"threadId":"t"}}"#, Dialect::CodexAppServer),
        (r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}"#, Dialect::CodexAppServer),
        (r#"{"method":"thread/started","params":{"thread":{"id":"t"}}}"#, Dialect::CodexAppServer),
        (r#"{"method":"fs/changed","params":{},"emittedAtMs":1794766071524}"#, Dialect::CodexAppServer),
        (r#"{"id":1,"result":{"userAgent":"x","codexHome":"/h"}}"#, Dialect::CodexAppServer),
        (r#"{"id":1,"result":{"userAgent":"codex_cli_rs/0.20.0 (Linux)"}}"#, Dialect::CodexAppServer),
        (r#"{"id":1,"result":{"thread":{"id":"t"},"modelProvider":"p"}}"#, Dialect::CodexAppServer),
        (r#"{"type":"init","session_id":"s","model":"m","timestamp":"2026-11-16T02:12:10Z"}"#, Dialect::Gemini),
        (r#"{"type":"tool_use","tool_id":"t","tool_name":"n","parameters":{}}"#, Dialect::Gemini),
        (r#"{"type":"result","status":"success","stats":{"total_tokens":1}}"#, Dialect::Gemini),
        (r#"{"type":"step_start","sessionID":"ses_1","part":{}}"#, Dialect::Opencode),
        (r#"{"type":"error","sessionID":"ses_1","error":{"name":"x"}}"#, Dialect::Opencode),
        (r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}"#, Dialect::Acp),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#, Dialect::Acp),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s","modes":{}}}"#, Dialect::Acp),
        (
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan"}}}"#,
            Dialect::Acp,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"terminal/create","params":{"sessionId":"s"}}"#, Dialect::Acp),
    ] {
        check(line, Some(dialect));
    }
}

#[test]
fn a_foreign_line_before_the_first_known_one_does_not_lock_the_stream() {
    let mut replay = Replay::new(None);
    let report = replay.read(r#"{"method":"notifications/ready","params":{}}"#, 0);
    assert_eq!((report.dialect, word(report.lifecycle)), (None, "spawning".into()));
    let report = replay.read(r#"{"type":"system","subtype":"init","session_id":"s"}"#, 1);
    assert_eq!((report.dialect, word(report.lifecycle)), (Some(Dialect::Claude), "working".into()));
}

/// Every recorded line alone is detected as its own dialect or not at all.
#[test]
fn no_recorded_line_is_taken_for_another_dialect() {
    for directory in ["streams", "streams/timed"] {
        for path in files(&fixtures().join(directory), "jsonl") {
            if name(&path).ends_with(".stdin") {
                continue;
            }
            let mut of_stream = Parser::new(None);
            let lines: Vec<String> = recording(&path)
                .into_iter()
                .filter(|recorded| recorded.pipe == Pipe::Stdout)
                .map(|recorded| recorded.line)
                .collect();
            for line in &lines {
                of_stream.read(Line::Whole(line.as_bytes()));
            }
            // Only the first line of a turn tells qwen from claude.
            let family = |dialect| if dialect == Dialect::Qwen { Dialect::Claude } else { dialect };
            for line in &lines {
                let mut alone = Parser::new(None);
                alone.read(Line::Whole(line.as_bytes()));
                assert!(
                    alone.dialect().is_none() || alone.dialect().map(family) == of_stream.dialect().map(family),
                    "{}: {line}",
                    path.display()
                );
            }
        }
    }
}

/// A program that prints only JSON logs is no CLI agent: it stays undecided, and its lines are unknown.
#[test]
fn a_stream_of_logs_stays_undecided() {
    let lines = [
        r#"{"type":"system","subtype":"boot"}"#,
        r#"{"type":"message","role":"user","content":"hello"}"#,
        r#"{"type":"error","severity":"error","message":"no"}"#,
        r#"{"type":"result","status":"ok"}"#,
    ];
    for report in reports(None, &lines) {
        assert_eq!((&report["dialect"], &report["lifecycle"]), (&Value::Null, &Value::from("spawning")), "{report}");
        assert_eq!(report["events"][0]["kind"], "unknown", "{report}");
    }
}

/// Every recording is recognized by its first line, or by its second if the first says nothing.
#[test]
fn every_recording_is_recognized_early() {
    for directory in ["streams", "streams/timed"] {
        for path in files(&fixtures().join(directory), "jsonl") {
            if name(&path).ends_with(".stdin") {
                continue;
            }
            let mut parser = Parser::new(None);
            let lines = recording(&path).into_iter().filter(|recorded| recorded.pipe == Pipe::Stdout);
            for recorded in lines.take(2) {
                parser.read(Line::Whole(recorded.line.as_bytes()));
            }
            assert!(parser.dialect().is_some(), "{}", path.display());
        }
    }
}
