//! Which line decides the dialect of a stream.

use relive_cli_agent::{Dialect, Line, Parser};

use crate::support::{Pipe, Replay, files, fixtures, name, recording, word};

#[track_caller]
fn check(line: &str, expected: Option<Dialect>) {
    let mut parser = Parser::new(None);
    parser.read(Line::Whole(line.as_bytes()));
    assert_eq!(parser.dialect(), expected, "{line}");
}

#[test]
fn a_line_that_only_looks_like_a_dialect_decides_nothing() {
    for line in [
        // JSON-RPC of somebody else: a language server, an MCP server, a reply that could be anybody's.
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
        // Names that other CLIs use too, without what makes them a dialect's own.
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

#[test]
fn a_line_that_only_one_dialect_has_decides() {
    for (line, dialect) in [
        (r#"{"type":"system","subtype":"new_subtype"}"#, Dialect::Claude),
        (r#"{"type":"system","subtype":"init","qwen_code_version":"1"}"#, Dialect::Qwen),
        (r#"{"hook_event_name":"SessionStart","session_id":"s"}"#, Dialect::Claude),
        (r#"{"type":"control_request","request_id":"r","request":{}}"#, Dialect::Claude),
        (r#"{"type":"thread.started","thread_id":"t"}"#, Dialect::CodexExec),
        (r#"{"type":"control_response","response":{"subtype":"success","request_id":"r"}}"#, Dialect::Claude),
        (r#"{"type":"control_cancel_request","request_id":"r"}"#, Dialect::Claude),
        (r#"{"type":"turn.completed","usage":{}}"#, Dialect::CodexExec),
        (r#"{"type":"turn.failed","error":{"message":"no"}}"#, Dialect::CodexExec),
        (r#"{"id":1,"method":"mcpServer/elicitation/request","params":{}}"#, Dialect::CodexAppServer),
        (r#"{"id":1,"method":"item/tool/call","params":{}}"#, Dialect::CodexAppServer),
        (r#"{"method":"remoteControl/status/changed","params":{}}"#, Dialect::CodexAppServer),
        (r#"{"id":1,"result":{"userAgent":"x"}}"#, Dialect::CodexAppServer),
        (r#"{"id":1,"result":{"thread":{"id":"t"}}}"#, Dialect::CodexAppServer),
        (r#"{"type":"init","session_id":"s","model":"m"}"#, Dialect::Gemini),
        (r#"{"type":"step_start","sessionID":"s","part":{}}"#, Dialect::Opencode),
        (r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}"#, Dialect::Acp),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#, Dialect::Acp),
        (r#"{"jsonrpc":"2.0","method":"session/update","params":{}}"#, Dialect::Acp),
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

/// Every recorded line alone is of its own dialect, or undecided.
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
