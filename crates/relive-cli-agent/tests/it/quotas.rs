//! Every dialect reports a used-up quota once, with the time of its reset if the CLI gives one.

use relive_cli_agent::{Dialect, EventKind};

use crate::support::Replay;

const LIMIT: &str = "You've hit your usage limit.";

/// The quota events of a stream, as JSON. A line that begins with `<` is written to the CLI.
fn quotas(dialect: Dialect, lines: &[&str]) -> Vec<serde_json::Value> {
    let mut replay = Replay::new(Some(dialect));
    let mut events = Vec::new();
    for line in lines {
        match line.strip_prefix('<') {
            Some(input) => events.extend(replay.push_input(input, 0)),
            None => events.extend(replay.read(&line.replace("LIMIT", LIMIT), 0).events),
        }
    }
    events.retain(|event| matches!(event.kind, EventKind::Quota { .. }));
    events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
}

#[test]
fn every_dialect_reports_a_used_up_quota_once() {
    let streams: [(Dialect, &[&str]); 13] = [
        (Dialect::Claude, &[r#"{"type":"result","subtype":"success","is_error":true,"result":"LIMIT"}"#]),
        (Dialect::Claude, &[r#"{"hook_event_name":"StopFailure","error":"billing_error"}"#]),
        (
            Dialect::Claude,
            &[
                r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794796313}}"#,
                r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794796313}}"#,
                r#"{"type":"result","subtype":"success","is_error":true,"result":"LIMIT"}"#,
            ],
        ),
        (
            Dialect::CodexAppServer,
            &[
                r#"{"method":"account/rateLimits/updated","params":{"rateLimits":{"rateLimitReachedType":"x"}}}"#,
                r#"{"method":"account/rateLimits/updated","params":{"rateLimits":{"rateLimitReachedType":"x"}}}"#,
            ],
        ),
        (Dialect::Qwen, &[r#"{"type":"result","subtype":"error","is_error":true,"error":{"message":"LIMIT"}}"#]),
        (Dialect::Claude, &[r#"{"hook_event_name":"StopFailure","error":"rate_limit","error_details":"LIMIT"}"#]),
        (Dialect::CodexExec, &[r#"{"type":"turn.failed","error":{"message":"LIMIT"}}"#]),
        (
            Dialect::CodexExec,
            &[r#"{"type":"error","message":"LIMIT"}"#, r#"{"type":"turn.failed","error":{"message":"LIMIT"}}"#],
        ),
        (
            Dialect::CodexAppServer,
            &[
                r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}"#,
                r#"{"method":"error","params":{"threadId":"t","turnId":"u","error":{"message":"LIMIT"}}}"#,
                r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"failed","error":{"message":"LIMIT"}}}}"#,
            ],
        ),
        (
            Dialect::CodexAppServer,
            &[
                r#"{"method":"turn/completed","params":{"turn":{"status":"failed","error":{"message":"no","codexErrorInfo":"usageLimitExceeded"}}}}"#,
            ],
        ),
        (
            Dialect::Gemini,
            &[
                r#"{"type":"error","severity":"error","message":"LIMIT"}"#,
                r#"{"type":"result","status":"error","error":{"message":"LIMIT"}}"#,
            ],
        ),
        (Dialect::Opencode, &[r#"{"type":"error","sessionID":"s","error":{"data":{"message":"LIMIT"}}}"#]),
        (
            Dialect::Acp,
            &[
                r#"<{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error","data":{"details":"LIMIT"}}}"#,
            ],
        ),
    ];
    for (dialect, lines) in streams {
        assert_eq!(quotas(dialect, lines).len(), 1, "{lines:?}");
    }
}

#[test]
fn every_turn_reports_its_own_quota() {
    let turn = [r#"{"type":"turn.started"}"#, r#"{"type":"turn.failed","error":{"message":"LIMIT"}}"#];
    assert_eq!(quotas(Dialect::CodexExec, &[turn, turn].concat()).len(), 2);
}

#[test]
fn an_acp_error_without_its_request_reports_the_quota_too() {
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"LIMIT"}}"#;
    assert_eq!(quotas(Dialect::Acp, &[error]).len(), 1);
}

#[test]
fn the_time_of_the_reset_is_read_from_the_message() {
    for (message, field, expected) in [
        ("Claude AI usage limit reached|1794796313", "resets_at", "\"2026-11-16T02:31:53Z\""),
        ("You've hit your usage limit, try again in 3 days 4 hours 5 minutes.", "resets_in_ms", "273900000"),
        ("Usage limit reached. Try again in 1 hour and 1 minute", "resets_in_ms", "3660000"),
        ("quota exceeded. Your quota will reset after 5h22m3s.", "resets_in_ms", "19323000"),
        ("Quota exceeded for metric: x. Please retry in 34.5s.", "resets_in_ms", "34500"),
        ("usage limit reached|5", "resets_at", "null"),
        ("hit your limit, try again in a while", "resets_in_ms", "null"),
        ("usage limit reached|soon", "resets_at", "null"),
    ] {
        let line = format!(r#"{{"type":"error","message":"{message}"}}"#);
        let quotas = quotas(Dialect::CodexExec, &[&line]);
        assert_eq!(quotas.len(), 1, "{message}");
        assert_eq!(quotas[0][field].to_string(), expected, "{message}");
    }
}

#[test]
fn a_limit_without_a_name_has_a_readable_message() {
    let line = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected"}}"#;
    assert_eq!(quotas(Dialect::Claude, &[line])[0]["message"], "limit reached");
}

#[test]
fn other_failures_are_not_a_quota() {
    for message in [
        "context length exceeded",
        "max turns reached",
        "the tool hit a time limit",
        "memory usage limit of the container",
        "exhausted your context window",
        "exceeded retry limit, last status: 429 Too Many Requests",
        "RESOURCE_EXHAUSTED: try again later. To increase your limits, request a quota increase through AI Studio",
        "",
    ] {
        let line = format!(r#"{{"type":"turn.failed","error":{{"message":"{message}"}}}}"#);
        assert_eq!(quotas(Dialect::CodexExec, &[&line]).len(), 0, "{message}");
    }
    let overloaded = r#""is_error":true,"api_error_status":429,"result":"API Error: Request rejected (429)""#;
    let line = format!(r#"{{"type":"result","subtype":"success",{overloaded}}}"#);
    assert_eq!(quotas(Dialect::Claude, &[&line]).len(), 0, "a provider also refuses who asks too fast");
}

/// The same message is in the event of the failure, at its full length.
#[test]
fn the_message_of_a_quota_is_cut() {
    let message = format!("usage limit reached {}", "x".repeat(100_000));
    let line = format!(r#"{{"type":"turn.failed","error":{{"message":"{message}"}}}}"#);
    let quotas = quotas(Dialect::CodexExec, &[&line]);
    assert_eq!(quotas[0]["message"].as_str().unwrap().chars().count(), 4096);
}
