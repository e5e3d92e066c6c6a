//! The wordings of a used-up quota, and the time of the reset in them.

use relive_cli_agent::Dialect;
use serde_json::{Value, json};

use crate::support::{events_of, reports};

fn quotas(dialect: Dialect, lines: &[&str]) -> Vec<Value> {
    events_of(&reports(Some(dialect), lines), "quota")
}

fn result(text: &str, is_error: bool) -> String {
    json!({ "type": "result", "subtype": "success", "is_error": is_error, "result": text, "session_id": "s" })
        .to_string()
}

fn assistant(text: &str, model: &str) -> String {
    let message = json!({ "role": "assistant", "model": model, "content": [{ "type": "text", "text": text }] });
    json!({ "type": "assistant", "message": message, "session_id": "s" }).to_string()
}

const CLAUDE_TEXTS: [&str; 15] = [
    "You've hit your session limit · resets 3pm",
    "You've hit your session limit · resets 8:30pm (Asia/Tokyo)\n/login to switch to an API usage-billed account.",
    "You've hit your weekly limit",
    "You’ve hit your weekly limit · resets Sep 15, 3am (Europe/Dublin)",
    "You've hit your Opus limit",
    "You've hit your limit · resets 5am (UTC)",
    "You've reached your weekly limit for Opus",
    "You have reached your monthly spend limit",
    "You've used up your usage limit for this week",
    "Claude usage limit reached|1794796313",
    "Claude AI usage limit reached|1794796313",
    "5-hour limit reached ∙ resets 3am",
    "Session limit reached ∙ resets 8pm",
    "Opus weekly limit reached ∙ resets Oct 9, 10am",
    "You're out of extra usage · resets 7pm",
];

#[test]
fn every_limit_text_from_claude_itself_is_a_quota() {
    for text in CLAUDE_TEXTS {
        assert_eq!(quotas(Dialect::Claude, &[&result(text, true)]).len(), 1, "{text}");
        assert_eq!(quotas(Dialect::Claude, &[&assistant(text, "<synthetic>")]).len(), 1, "{text}");
        let flagged = assistant(text, "m").replacen('{', r#"{"is_api_error_message":true,"#, 1);
        assert_eq!(quotas(Dialect::Claude, &[&flagged]).len(), 1, "{text}");
        let both = [assistant(text, "<synthetic>"), result(text, true)];
        assert_eq!(quotas(Dialect::Claude, &[&both[0], &both[1]]).len(), 1, "{text}");
    }
}

#[test]
fn text_of_the_agent_about_a_limit_is_not_a_quota() {
    for text in CLAUDE_TEXTS {
        let user = assistant(text, "m").replace("assistant", "user");
        for line in [assistant(text, "claude-opus-5-5"), result(text, false), user] {
            assert!(quotas(Dialect::Claude, &[&line]).is_empty(), "{line}");
        }
        let delta = json!({ "type": "stream_event", "event": { "type": "content_block_delta",
            "delta": { "type": "text_delta", "text": text } } });
        assert!(quotas(Dialect::Claude, &[&delta.to_string()]).is_empty());
        let codex = json!({ "type": "item.completed", "item": { "type": "agent_message", "text": text } });
        assert!(quotas(Dialect::CodexExec, &[&codex.to_string()]).is_empty());
    }
}

#[test]
fn claude_names_the_cause_of_a_failure_in_a_field_too() {
    let rate_limit = r#"{"hook_event_name":"StopFailure","session_id":"s","error":"rate_limit"}"#;
    assert_eq!(quotas(Dialect::Claude, &[rate_limit]).len(), 1);
    let with_text = r#"{"hook_event_name":"StopFailure","error":"rate_limit","last_assistant_message":"You've hit your session limit · resets 3pm"}"#;
    assert_eq!(quotas(Dialect::Claude, &[with_text])[0]["resets_clock"], json!({ "time": "15:00" }));
    let synthetic = |fields: &str| assistant("no", "<synthetic>").replacen('{', &format!("{{{fields},"), 1);
    assert_eq!(quotas(Dialect::Claude, &[&synthetic(r#""error":"billing_error""#)]).len(), 1);
    assert_eq!(quotas(Dialect::Claude, &[&synthetic(r#""error":"rate_limit""#)]).len(), 1);
    // The provider answered 429, probably because requests came too fast.
    assert_eq!(quotas(Dialect::Claude, &[&synthetic(r#""error":"rate_limit","api_error_status":429"#)]).len(), 0);
    assert_eq!(quotas(Dialect::Claude, &[&synthetic(r#""error":"server_error""#)]).len(), 0);
    // Older versions say so only in the text.
    let refused = assistant("API Error: Request rejected (429)", "<synthetic>");
    let refused = refused.replacen('{', r#"{"error":"rate_limit","#, 1);
    assert_eq!(quotas(Dialect::Claude, &[&refused]).len(), 0);
    // The field alone shows that the message is not the agent's, and so does the flag of a transcript.
    let limit = assistant("You've hit your session limit", "claude-opus-5-5");
    for field in [r#"{"error":"unknown","#, r#"{"isApiErrorMessage":true,"#] {
        assert_eq!(quotas(Dialect::Claude, &[&limit.replacen('{', field, 1)]).len(), 1, "{field}");
    }
}

fn failed(dialect: Dialect, text: &str) -> Vec<Value> {
    let line = match dialect {
        Dialect::CodexExec => json!({ "type": "turn.failed", "error": { "message": text } }),
        Dialect::Gemini => json!({ "type": "result", "status": "error", "error": { "message": text } }),
        Dialect::Opencode => json!({ "type": "error", "sessionID": "s", "error": { "data": { "message": text } } }),
        Dialect::Qwen => json!({ "type": "result", "is_error": true, "error": { "message": text } }),
        Dialect::Claude | Dialect::CodexAppServer | Dialect::Acp => json!({ "id": 1, "error": { "message": text } }),
    };
    quotas(dialect, &[&line.to_string()])
}

#[test]
fn the_limit_texts_of_the_other_clis_are_quotas() {
    for (dialect, text) in [
        (Dialect::CodexExec, "You've hit your usage limit. To get more access now, send a request to your admin."),
        (Dialect::CodexExec, "You have reached your usage limit. Upgrade your plan or add credits to continue."),
        (Dialect::CodexExec, "You're out of Codex messages"),
        (Dialect::CodexExec, "Your workspace is out of credits. Add credits to continue."),
        (Dialect::Gemini, "You have exhausted your daily quota on this model."),
        (Dialect::Gemini, "Resource has been exhausted (e.g. check quota)."),
        (Dialect::Gemini, r#"{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34s"}]}"#),
        (Dialect::Gemini, r#"{"status":"RESOURCE_EXHAUSTED","details":[{"metadata":{"quota_limit":"ProPerDay"}}]}"#),
        (Dialect::Opencode, "Free usage exceeded, add credits https://opencode.ai/zen"),
        (Dialect::Opencode, "Insufficient balance. Manage your billing here."),
        (Dialect::Opencode, "Subscription quota exceeded. Retry in 5 hours."),
        (Dialect::Qwen, "Qwen OAuth quota exceeded: Your free daily quota has been reached."),
        (Dialect::Qwen, "[API Error: 429 Free allocated quota exceeded.]"),
        (Dialect::Qwen, "The free tier of the model has been exhausted. If you wish to continue access, pay."),
        (Dialect::Acp, "You have exceeded your monthly quota"),
        (Dialect::Acp, "You have used all your credits"),
        (Dialect::Acp, "Monthly spending cap reached"),
        (Dialect::Acp, "You have exceeded your premium request allowance. We recommend changing the model"),
        (Dialect::Opencode, "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 requests per day"),
        (Dialect::Acp, "You've used up your premium requests for this month"),
        (Dialect::Acp, "You have no credits left"),
        (Dialect::Acp, "You have no quota (Request ID: X)"),
    ] {
        assert_eq!(failed(dialect, text).len(), 1, "{text}");
    }
}

#[test]
fn failures_that_only_resemble_a_limit_are_not_a_quota() {
    for text in [
        "You are approaching your usage limit",
        "You've hit your rate limit: 50 requests per minute",
        "You've reached your maximum output tokens limit",
        "your prompt exceeded the context limit",
        "You have exceeded your context window limit",
        "the command hit the time limit of your session",
        "memory limit exceeded in session container",
        "max_turns limit reached",
        "Resource exhausted. Please try again later.",
        "file limit of this session: 10. The upload reached 11",
        "quota of retries",
        "this request used 3 credits",
        "100 credits used by the tool",
        "Claude API rate limit reached",
        "This request would exceed your account's rate limit. Please try again later.",
        "out of memory: limit 2 GB",
        "disk quota exceeded",
        "Session token limit exceeded: 5000 tokens > 4000 limit. Please start a new session or increase the limit",
        "You've reached the session limit of 50 turns",
        "workspace size limit exceeded",
        "You haven't hit your usage limit yet",
        "The plan's weekly limit isn't reached",
        "account creation limit hit",
        "Agent stopped: plan mode step limit reached",
    ] {
        assert!(failed(Dialect::CodexExec, text).is_empty(), "{text}");
    }
}

#[test]
fn the_time_of_day_of_a_reset_is_reported_as_written() {
    for (text, clock) in [
        ("resets 3pm", json!({ "time": "15:00" })),
        ("resets 12am", json!({ "time": "00:00" })),
        ("resets 12:05pm", json!({ "time": "12:05" })),
        ("resets at 15:00 UTC", json!({ "time": "15:00", "zone": "UTC" })),
        ("Access resets at 11:59 PM PST.", json!({ "time": "23:59", "zone": "PST" })),
        ("resets tomorrow at 3pm", json!({ "date": "tomorrow", "time": "15:00" })),
        ("resets 8:30pm (Asia/Tokyo)", json!({ "time": "20:30", "zone": "Asia/Tokyo" })),
        ("resets 5am (UTC)", json!({ "time": "05:00", "zone": "UTC" })),
        ("resets Sep 15, 3am (Europe/Dublin)", json!({ "date": "09-15", "time": "03:00", "zone": "Europe/Dublin" })),
        ("resets Mon 12:00 AM", json!({ "date": "monday", "time": "00:00" })),
        ("try again at 3:28 PM.", json!({ "time": "15:28" })),
        ("try again at Jul 5th, 2026 8:19 PM.", json!({ "date": "2026-07-05", "time": "20:19" })),
        ("try again after July 3, 2026 at 2:45 PM.", json!({ "date": "2026-07-03", "time": "14:45" })),
        ("Try again Aug 18.", json!({ "date": "08-18" })),
        ("regain access on 2026-12-01 at 00:00 UTC.", json!({ "date": "2026-12-01", "time": "00:00", "zone": "UTC" })),
        (
            r#"regain access on 2026-12-01 at 00:00 UTC."}}"#,
            json!({ "date": "2026-12-01", "time": "00:00", "zone": "UTC" }),
        ),
        ("limit will reset at 2026-11-17 15:04:05", json!({ "date": "2026-11-17", "time": "15:04" })),
        ("limit will reset at 2026-11-17T15:04:05", json!({ "date": "2026-11-17", "time": "15:04" })),
        (
            "resets at 2026-11-17T15:04 (Asia/Tokyo)",
            json!({ "date": "2026-11-17", "time": "15:04", "zone": "Asia/Tokyo" }),
        ),
        ("reset at 2026-09-11 14:37:39][20260911]", json!({ "date": "2026-09-11", "time": "14:37" })),
        ("reset at 2026-02-22 15:00:00 +0800 CST.", json!({ "date": "2026-02-22", "time": "15:00", "zone": "+0800" })),
        ("resets 3pm -05:00", json!({ "time": "15:00", "zone": "-05:00" })),
        ("resets 3pm +5", json!({ "time": "15:00" })),
        ("resets 15:04:99", Value::Null),
        ("resets 15:04:05:06", Value::Null),
        ("resets 25pm", Value::Null),
        ("resets 99:99", Value::Null),
        ("resets 3", Value::Null),
        ("resets Foo 40", Value::Null),
        ("resets marvelous 5", Value::Null),
        ("resets mon", json!({ "date": "monday" })),
        ("resets mo", Value::Null),
        ("resets Feb 31, 2026", Value::Null),
        ("resets soon", Value::Null),
        ("resets", Value::Null),
    ] {
        let text = format!("You've hit your usage limit · {text}");
        assert_eq!(failed(Dialect::CodexExec, &text)[0]["resets_clock"], clock, "{text}");
    }
}

#[test]
fn a_moment_or_a_duration_until_the_reset_is_read() {
    for (text, field, expected) in [
        ("resets at 2026-11-17T03:00:00Z", "resets_at", json!("2026-11-17T03:00:00Z")),
        ("|1794796313000", "resets_at", json!("2026-11-16T02:31:53Z")),
        ("|17947963130000000000", "resets_at", Value::Null),
        ("Expected quota reset within 24h.", "resets_in_ms", json!(86_400_000)),
        (r#""retryDelay": "34.5s""#, "resets_in_ms", json!(34_500)),
        (r#"{\"retryDelay\":\"34s\"}"#, "resets_in_ms", json!(34_000)),
        ("It will reset in 5 hours 23 minutes.", "resets_in_ms", json!(19_380_000)),
        ("try again after 30 minutes", "resets_in_ms", json!(1_800_000)),
        ("Retry in 1 week", "resets_in_ms", json!(604_800_000)),
        ("try again in 99999999999999999999 days", "resets_in_ms", Value::Null),
        ("try again in 9007199254740993 ms", "resets_in_ms", Value::Null),
        ("try again in 1e400 s", "resets_in_ms", Value::Null),
        ("try again in 1.2.3 s", "resets_in_ms", Value::Null),
    ] {
        let text = format!("usage limit reached {text}");
        assert_eq!(failed(Dialect::CodexExec, &text)[0][field], expected, "{text}");
    }
}

#[test]
fn a_quota_of_a_subagent_does_not_hide_the_agents_own() {
    let of = |parent: &str| assistant("You've hit your session limit", "<synthetic>").replacen('{', parent, 1);
    let (first, second) = (of(r#"{"parent_tool_use_id":"a","#), of(r#"{"parent_tool_use_id":"b","#));
    let own = result("You've hit your session limit", true);
    let found = quotas(Dialect::Claude, &[&first, &first, &second, &own, &own]);
    let of_whom: Vec<&Value> = found.iter().map(|quota| &quota["subagent"]).collect();
    assert_eq!(of_whom, [&json!("a"), &json!("b"), &Value::Null]);
}

/// Opencode's own message is only the name of the status.
#[test]
fn the_answer_of_the_provider_says_more_than_the_message_of_opencode() {
    let error = |body: &str| {
        let data = json!({ "message": "Too Many Requests", "statusCode": 429, "responseBody": body });
        json!({ "type": "error", "sessionID": "s", "error": { "name": "APIError", "data": data } }).to_string()
    };
    let quota = error(r#"{"error":{"code":"insufficient_quota","message":"Please retry in 30s."}}"#);
    assert_eq!(quotas(Dialect::Opencode, &[&quota])[0]["resets_in_ms"], json!(30_000));
    assert!(quotas(Dialect::Opencode, &[&error(r#"{"error":{"message":"slow down"}}"#)]).is_empty());
}

#[test]
fn a_turn_that_codex_refuses_because_of_the_quota_says_so() {
    let start = r#"<{"id":1,"method":"turn/start","params":{"threadId":"t"}}"#;
    let refused = r#"{"id":1,"error":{"code":-32600,"message":"You've hit your usage limit. Try again in 1 hour."}}"#;
    assert_eq!(quotas(Dialect::CodexAppServer, &[start, refused])[0]["resets_in_ms"], json!(3_600_000));
    assert_eq!(quotas(Dialect::CodexAppServer, &[start, refused, start, refused]).len(), 2);
    assert_eq!(quotas(Dialect::CodexAppServer, &[refused]).len(), 1);
}

/// Codex reports that a limit is reached before it reports the time of the reset.
#[test]
fn a_later_line_may_add_the_time_of_the_reset() {
    let limit = r#"{"method":"account/rateLimits/updated","params":{"rateLimits":{"rateLimitReachedType":"x"}}}"#;
    let text = "You've hit your usage limit. Try again in 1 hour.";
    let error = json!({ "method": "error", "params": { "error": { "message": text, "codexErrorInfo": "usageLimitExceeded" } } });
    let found = quotas(Dialect::CodexAppServer, &[limit, limit, &error.to_string(), &error.to_string(), limit]);
    let resets: Vec<&Value> = found.iter().map(|quota| &quota["resets_in_ms"]).collect();
    assert_eq!(resets, [&Value::Null, &json!(3_600_000)]);
}

/// Claude continues, and the account pays for it.
#[test]
fn a_limit_that_claude_may_exceed_is_not_a_quota() {
    let line = |overage: bool| {
        let info = json!({ "status": "rejected", "isUsingOverage": overage });
        json!({ "type": "rate_limit_event", "rate_limit_info": info }).to_string()
    };
    assert_eq!(quotas(Dialect::Claude, &[&line(true)]).len(), 0);
    assert_eq!(quotas(Dialect::Claude, &[&line(false)]).len(), 1);
}

#[test]
fn the_reset_of_a_codex_limit_is_a_time_or_nothing() {
    for (resets_at, expected) in [
        ("1794796313", json!("2026-11-16T02:31:53Z")),
        ("1794796313000", json!("2026-11-16T02:31:53Z")),
        ("5", Value::Null),
        ("99999999999999999999999", Value::Null),
        (r#""2026-11-16T02:31:53Z""#, json!("2026-11-16T02:31:53Z")),
    ] {
        let primary = format!(r#"{{"usedPercent":100,"resetsAt":{resets_at}}}"#);
        let limits = format!(r#"{{"rateLimitReachedType":"x","primary":{primary}}}"#);
        let line = format!(r#"{{"method":"account/rateLimits/updated","params":{{"rateLimits":{limits}}}}}"#);
        assert_eq!(quotas(Dialect::CodexAppServer, &[&line])[0]["resets_at"], expected, "{resets_at}");
        let info = format!(r#"{{"status":"rejected","resetsAt":{resets_at}}}"#);
        let line = format!(r#"{{"type":"rate_limit_event","rate_limit_info":{info}}}"#);
        assert_eq!(quotas(Dialect::Claude, &[&line])[0]["resets_at"], expected, "{resets_at}");
    }
}
