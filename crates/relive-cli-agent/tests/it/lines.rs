//! Lines that are cut or cannot be read.

use relive_cli_agent::{Dialect, EventKind};

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
