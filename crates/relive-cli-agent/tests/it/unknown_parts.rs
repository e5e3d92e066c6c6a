//! Parts of known lines that only a newer CLI has are reported by name, not ignored.

use relive_cli_agent::Dialect;

use crate::support::Replay;

/// The events of a line, each as its kind and its name.
#[track_caller]
fn check(dialect: Dialect, line: &str, expected: &[&str]) {
    let report = Replay::new(Some(dialect)).read(line, 0);
    let events: Vec<String> = report
        .events
        .iter()
        .map(|event| {
            let json = serde_json::to_value(event).unwrap();
            [json["kind"].as_str(), json["name"].as_str()].into_iter().flatten().collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(events, expected, "{line}");
}

#[test]
fn an_unknown_block_of_a_claude_message_is_named() {
    let message = |kind: &str, blocks: &str| format!(r#"{{"type":"{kind}","message":{{"content":[{blocks}]}}}}"#);
    for (kind, blocks, expected) in [
        ("assistant", r#"{"type":"hologram","text":"x"}"#, &["unknown message/hologram"][..]),
        ("assistant", r#"{"type":"text","text":"x"},{"type":"hologram"}"#, &["text", "unknown message/hologram"]),
        (
            "user",
            r#"{"type":"hologram"},{"type":"hologram"}"#,
            &["unknown message/hologram", "unknown message/hologram"],
        ),
        ("user", r#"{"type":"image","source":{}}"#, &["other message/image"]),
        ("user", r#"{"type":"document","source":{}}"#, &["other message/document"]),
        ("user", "{}", &["unknown message/no type"]),
        ("user", "7", &["unknown message/no type"]),
        ("user", "", &["other message"]),
    ] {
        check(Dialect::Claude, &message(kind, blocks), expected);
    }
    for message in [r#""hi""#, "{}", r#"{"content":{"type":"text"}}"#, r#"{"content":7}"#] {
        let line = format!(r#"{{"type":"assistant","message":{message}}}"#);
        check(Dialect::Claude, &line, &["unknown message/content"]);
    }
}

#[test]
fn an_unknown_part_of_a_claude_stream_event_is_named() {
    let line = |event: &str| format!(r#"{{"type":"stream_event","event":{event}}}"#);
    for (event, expected) in [
        (r#"{"type":"message_start","message":{}}"#, "other message_start"),
        (r#"{"type":"ping"}"#, "other ping"),
        (r#"{"type":"invented"}"#, "unknown stream_event/invented"),
        (r#"{"type":"content_block_start","content_block":{"type":"text"}}"#, "other content_block_start"),
        (r#"{"type":"content_block_start","content_block":{"type":"server_tool_use"}}"#, "other content_block_start"),
        (
            r#"{"type":"content_block_start","content_block":{"type":"hologram"}}"#,
            "unknown content_block_start/hologram",
        ),
        (r#"{"type":"content_block_delta","delta":{"type":"input_json_delta"}}"#, "other content_block_delta"),
        (
            r#"{"type":"content_block_delta","delta":{"type":"hologram_delta"}}"#,
            "unknown content_block_delta/hologram_delta",
        ),
        ("{}", "unknown stream_event/no type"),
    ] {
        check(Dialect::Claude, &line(event), &[expected]);
    }
}

#[test]
fn an_unknown_control_request_of_claude_is_named() {
    for (subtype, expected) in
        [("hook_callback", "other control_request/hook_callback"), ("invented", "unknown control_request/invented")]
    {
        let request = format!(r#"{{"subtype":"{subtype}"}}"#);
        check(
            Dialect::Claude,
            &format!(r#"{{"type":"control_request","request_id":"r","request":{request}}}"#),
            &[expected],
        );
    }
}

#[test]
fn an_unknown_method_or_content_of_acp_is_named() {
    let update = |update: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#)
    };
    let chunk = |content: &str| update(&format!(r#"{{"sessionUpdate":"agent_message_chunk","content":{content}}}"#));
    for (line, expected) in [
        (chunk(r#"{"type":"text","text":"x"}"#), "text"),
        (chunk(r#"{"type":"image","data":"x"}"#), "other agent_message_chunk/image"),
        (chunk(r#"{"type":"resource_link","uri":"x"}"#), "other agent_message_chunk/resource_link"),
        (chunk(r#"{"type":"hologram"}"#), "unknown agent_message_chunk/hologram"),
        (update(r#"{"sessionUpdate":"invented"}"#), "unknown session/update/invented"),
        (r#"{"jsonrpc":"2.0","method":"invented"}"#.into(), "unknown invented"),
        (r#"{"jsonrpc":"2.0","method":"_vendor/thing"}"#.into(), "other _vendor/thing"),
    ] {
        check(Dialect::Acp, &line, &[expected]);
    }
    // A request waits for a reply.
    let request = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    check(Dialect::Acp, &request("invented"), &["unknown invented", "unsupported_request"]);
    check(Dialect::Acp, &request("terminal/create"), &["other terminal/create", "unsupported_request"]);
}

#[test]
fn an_unknown_method_of_codex_and_content_of_gemini_is_named() {
    check(Dialect::CodexAppServer, r#"{"method":"thread/invented","params":{}}"#, &["unknown thread/invented"]);
    check(Dialect::CodexAppServer, r#"{"method":"thread/closed","params":{}}"#, &["other thread/closed"]);
    check(Dialect::Gemini, r#"{"type":"message","role":"assistant","content":[{}]}"#, &["unknown message/content"]);
}
