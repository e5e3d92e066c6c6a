//! When a turn is over, and when it is not.

use relive_cli_agent::{Dialect, Event, EventKind, TurnOutcome};

use crate::support::{Replay, word};

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
fn the_output_of_an_acp_agent_alone_ends_a_turn_only_where_it_says_so() {
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
fn a_loaded_acp_conversation_is_over_once() {
    let events = check(
        Dialect::Acp,
        &[
            (ACP_USER, "idle"),
            (ACP_TEXT, "working"),
            (r#"{"jsonrpc":"2.0","id":2,"result":{"modes":{}}}"#, "idle"),
            (ACP_USER, "idle"),
            (ACP_TEXT, "working"),
            (r#"{"jsonrpc":"2.0","id":3,"result":{"modes":{}}}"#, "working"),
            (r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}"#, "idle"),
        ],
    );
    assert_eq!(outcomes(&events), [TurnOutcome::Replayed, TurnOutcome::Completed]);
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
