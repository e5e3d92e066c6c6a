//! Lines that are cut or cannot be read.

use relive_cli_agent::{Dialect, EventKind, Line, Parser, TurnOutcome};

use crate::support::Replay;

#[test]
fn a_message_with_too_many_blocks_says_that_it_was_cut() {
    let block = r#"{"type":"text","text":"a"}"#;
    let line =
        format!(r#"{{"type":"assistant","message":{{"content":[{}{block}]}}}}"#, format!("{block},").repeat(3000));
    let report = Replay::new(Some(Dialect::Claude)).read(&line, 0);
    let last = report.events.last().unwrap();
    let message = "only the first 1024 blocks of a message were read".into();
    assert_eq!((report.events.len(), &last.kind), (1025, &EventKind::Warning { message }));
}

#[test]
fn a_json_fault_names_its_column_only() {
    let report = Replay::new(None).read("{\"half", 0);
    let reason = "EOF while parsing a string at column 6".into();
    assert_eq!(report.events[0].kind, EventKind::Malformed { reason, excerpt: "{\"half".into() });
}

#[test]
fn a_turn_ends_with_a_result_that_is_too_long_to_be_read() {
    let started = r#"{"type":"system","subtype":"init","session_id":"s","model":"m","uuid":"u"}"#;
    let cases = [
        (r#"{"type":"result","subtype":"success","is_error":false,"result":""#, Some(TurnOutcome::Completed)),
        (r#"{"type":"result","subtype":"success","is_error":true,"result":""#, Some(TurnOutcome::Failed)),
        (r#"{"type":"result","subtype":"error_during_execution","is_error":true,"#, Some(TurnOutcome::Failed)),
        (r#"{"duration_api_ms":1,"total_cost_usd":0.1,"is_error":false,"result":""#, Some(TurnOutcome::Completed)),
        (r#"{"duration_api_ms":1,"total_cost_usd":0.1,"is_error":true,"result":""#, Some(TurnOutcome::Failed)),
        (r#"{"type":"assistant","message":{"type":"result","subtype":"success","#, None),
        (r#"{"type":"user","input":{"duration_api_ms":1,"total_cost_usd":0.1,"#, None),
    ];
    for (head, expect) in cases {
        let mut parser = Parser::new(Some(Dialect::Claude));
        parser.read(Line::Whole(started.as_bytes()));
        let events = parser.read(Line::TooLong { head: head.as_bytes(), bytes: 17 << 20 });
        let ended = events.iter().find_map(|event| {
            if let EventKind::TurnEnded { outcome, .. } = &event.kind { Some(*outcome) } else { None }
        });
        assert_eq!(ended, expect, "{head}");
        assert!(events.iter().any(|event| matches!(event.kind, EventKind::Malformed { .. })), "{head}");
    }
}
