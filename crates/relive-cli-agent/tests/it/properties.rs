//! Any bytes, in any pieces.

use proptest::collection::vec;
use proptest::prelude::*;
use relive_cli_agent::{Dialect, Parser};

use crate::any_bytes;
use crate::support::{Pipe, Replay, files, fixtures, recording};

/// Pieces of real lines, so that a random stream reaches the parsers behind the JSON.
fn recorded_lines(pipe: Pipe) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for directory in ["streams", "written"] {
        for path in files(&fixtures().join(directory), "jsonl") {
            let recorded = recording(&path).into_iter().filter(|line| line.pipe == pipe);
            lines.extend(recorded.filter(|line| line.line.len() < 2000).map(|line| line.line.into_bytes()));
        }
    }
    assert!(lines.len() > 30);
    lines
}

fn dialect() -> impl Strategy<Value = Option<Dialect>> {
    prop_oneof![Just(None), proptest::sample::select(Dialect::ALL.to_vec()).prop_map(Some)]
}

/// Lines of recordings, some cut, some with a byte changed, joined by line endings or by nothing.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let recorded = proptest::sample::select(recorded_lines(Pipe::Stdout));
    let damaged = (recorded.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut line, place, byte)| {
        let place = place.index(line.len());
        line[place] = byte;
        line
    });
    let cut = (recorded.clone(), any::<prop::sample::Index>()).prop_map(|(mut line, place)| {
        line.truncate(place.index(line.len()));
        line
    });
    let noise = vec(any::<u8>(), 0..40);
    let line = prop_oneof![4 => recorded, 2 => damaged, 1 => cut, 1 => noise];
    let ending = prop_oneof![6 => Just(&b"\n"[..]), 1 => Just(&b"\r\n"[..]), 1 => Just(&b""[..])];
    vec((line, ending), 0..30)
        .prop_map(|lines| lines.into_iter().flat_map(|(line, ending)| [line, ending.to_vec()].concat()).collect())
}

/// Recorded lines of all CLIs in any order, in both directions.
fn duplex_stream() -> impl Strategy<Value = Vec<u8>> {
    let output = proptest::sample::select(recorded_lines(Pipe::Stdout));
    let input = proptest::sample::select(recorded_lines(Pipe::Stdin)).prop_map(|line| [b"<", &line[..]].concat());
    vec(prop_oneof![3 => output, 1 => input], 0..40).prop_map(|lines| lines.join(&b'\n'))
}

fn cut<'a>(bytes: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn any_bytes_give_one_report_for_each_line_and_no_panic(bytes in vec(any::<u8>(), 0..2000), dialect in dialect()) {
        any_bytes::check(dialect, &bytes);
    }

    #[test]
    fn any_damaged_stream_gives_one_report_for_each_line_and_no_panic(bytes in stream(), dialect in dialect()) {
        any_bytes::check(dialect, &bytes);
    }

    #[test]
    fn any_split_into_chunks_gives_the_same_events(
        bytes in stream(), dialect in dialect(), places in vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let whole = any_bytes::read(dialect, &[&bytes]);
        prop_assert_eq!(&any_bytes::read(dialect, &cut(&bytes, &places)), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&any_bytes::read(dialect, &single), &whole);
    }

    #[test]
    fn any_lines_in_both_directions_keep_the_rules_of_the_state(bytes in duplex_stream(), dialect in dialect()) {
        any_bytes::check_duplex(dialect, &bytes);
    }

    #[test]
    fn any_bytes_written_to_a_cli_give_no_panic(line in vec(any::<u8>(), 0..200), dialect in dialect()) {
        Parser::new(dialect).read_input(relive_cli_agent::Line::Whole(&line));
    }
}

/// Everything that a stream remembers is in its `Debug` output, so its length stands for the memory.
#[test]
fn a_flood_of_ids_does_not_fill_the_memory() {
    let long = "x".repeat(1000);
    let floods: [(&str, &str); 13] = [
        ("claude", r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"ID","name":"Task"}]}}"#),
        ("claude", r#"{"type":"control_request","request_id":"ID","request":{"subtype":"can_use_tool"}}"#),
        ("claude", r#"{"type":"system","subtype":"task_started","task_id":"ID","is_backgrounded":true}"#),
        ("claude", r#"{"hook_event_name":"PreToolUse","session_id":"ID","tool_use_id":"ID","tool_name":"ID"}"#),
        (
            "claude",
            r#"{"hook_event_name":"PermissionRequest","tool_name":"ID","tool_input":{"a":"ID"},"agent_id":"ID"}"#,
        ),
        (
            "claude",
            r#"{"type":"control_request","request_id":"ID","request":{"subtype":"can_use_tool","agent_id":"ID"}}"#,
        ),
        ("codex-app-server", r#"{"method":"turn/started","params":{"threadId":"ID","turn":{"id":"ID"}}}"#),
        (
            "codex-app-server",
            r#"{"id":"ID","method":"item/a/requestApproval","params":{"threadId":"ID","itemId":"ID"}}"#,
        ),
        ("codex-exec", r#"{"type":"item.started","item":{"id":"ID","type":"command_execution"}}"#),
        ("codex-app-server", r#"{"method":"thread/started","params":{"thread":{"id":"ID","parentThreadId":"p"}}}"#),
        ("gemini", r#"{"type":"tool_use","tool_id":"ID","tool_name":"ID"}"#),
        ("opencode", r#"{"type":"tool_use","sessionID":"ID","part":{"callID":"ID","tool":"ID","state":{}}}"#),
        ("acp", r#"{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"ID"}}}"#),
    ];
    for (dialect, line) in floods {
        let mut replay = Replay::new(Some(dialect.parse().unwrap()));
        for number in 0..5000 {
            replay.read(&line.replace("ID", &format!("{number} {long}")), 0);
        }
        let remembered = format!("{:?}", replay.stream).len();
        assert!(remembered < 1_000_000, "{dialect}: {remembered} bytes");
    }
    for (dialect, method) in [("acp", "session/prompt"), ("codex-app-server", "turn/start")] {
        let mut replay = Replay::new(Some(dialect.parse().unwrap()));
        for number in 0..5000 {
            replay.push_input(&format!(r#"{{"id":"{number} {long}","method":"{method}"}}"#), 0);
        }
        assert!(format!("{:?}", replay.stream).len() < 1_000_000, "{dialect}");
    }
}

/// Every event of a line names its subagent, so a long name could fill the memory a thousand times over.
#[test]
fn the_long_name_of_a_subagent_is_cut() {
    let name = "x".repeat(100_000);
    let blocks = vec![r#"{"type":"text","text":"a"}"#; 1000].join(",");
    let line = format!(r#"{{"type":"assistant","parent_tool_use_id":"{name}","message":{{"content":[{blocks}]}}}}"#);
    let report = Replay::new(Some(Dialect::Claude)).read(&line, 0);
    let bytes = serde_json::to_string(&report).unwrap().len();
    assert!(bytes < 4 * line.len(), "{bytes} bytes from {}", line.len());
}
