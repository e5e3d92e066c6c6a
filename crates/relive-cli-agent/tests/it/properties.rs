//! Properties of any bytes, in any pieces.

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

/// A recorded line, or one with a byte changed, cut, or replaced by noise.
fn line(pipe: Pipe) -> impl Strategy<Value = Vec<u8>> {
    let recorded = proptest::sample::select(recorded_lines(pipe));
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
    prop_oneof![4 => recorded, 2 => damaged, 1 => cut, 1 => noise]
}

/// A line of about the largest size, or far above it.
fn long_line() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![Just(0), 0..4usize, 0..3000usize];
    size.prop_map(|size| {
        let line = r#"{"type":"system","subtype":"status","padding":""}"#;
        let padding = "x".repeat(any_bytes::MAX_LINE_BYTES - line.len() - 2 + size);
        line.replace("\"\"", &format!("\"{padding}\"")).into_bytes()
    })
}

/// Lines of recordings and of any length, joined by line endings or by nothing.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![8 => line(Pipe::Stdout), 1 => long_line()];
    let ending = prop_oneof![6 => Just(&b"\n"[..]), 1 => Just(&b"\r\n"[..]), 1 => Just(&b""[..])];
    vec((line, ending), 0..30)
        .prop_map(|lines| lines.into_iter().flat_map(|(line, ending)| [line, ending.to_vec()].concat()).collect())
}

/// Lines of all CLIs in any order, in both directions.
fn duplex_stream() -> impl Strategy<Value = Vec<u8>> {
    let input = line(Pipe::Stdin).prop_map(|line| [b"<", &line[..]].concat());
    vec(prop_oneof![3 => line(Pipe::Stdout), 1 => input], 0..40).prop_map(|lines| lines.join(&b'\n'))
}

fn cut<'a>(bytes: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// A hook of the agent or of a subagent, about one of a few calls, with or without the id of the call.
fn hook() -> impl Strategy<Value = String> {
    let name = proptest::sample::select(vec![
        "UserPromptSubmit",
        "PreToolUse",
        "PermissionRequest",
        "PostToolUse",
        "PostToolUseFailure",
        "PermissionDenied",
        "SubagentStart",
        "SubagentStop",
        "Elicitation",
        "ElicitationResult",
        "Stop",
        "StopFailure",
        "SessionStart",
    ]);
    let agent = proptest::sample::select(vec!["", r#","agent_id":"x""#, r#","agent_id":"y""#]);
    (name, agent, 0..3u8, 0..3u8, any::<bool>()).prop_map(|(name, agent, call, session, has_id)| {
        let id = if has_id { format!(r#","tool_use_id":"t{call}""#) } else { String::new() };
        let session = session / 2;
        let body = format!(r#""tool_name":"Bash","tool_input":{{"n":{}}}{id}{agent}"#, call / 2);
        format!(r#"{{"hook_event_name":"{name}","session_id":"s{session}","mcp_server_name":"m",{body}}}"#)
    })
}

proptest! {
    /// A claude that waits for input has no turn, and asks nothing.
    #[test]
    fn any_hooks_leave_nothing_open_when_claude_waits_for_input(hooks in vec(hook(), 0..30)) {
        let mut replay = Replay::new(Some(Dialect::Claude));
        for hook in &hooks {
            replay.read(hook, 0);
        }
        replay.read(r#"{"hook_event_name":"Notification","notification_type":"idle_prompt"}"#, 0);
        prop_assert_eq!(replay.lifecycle_and_activity(), "idle idle");
    }

    /// A session that was closed has no work, whatever lines and hooks came before.
    #[test]
    fn any_stream_leaves_nothing_open_when_its_session_ends(bytes in duplex_stream(), hooks in vec(hook(), 0..10)) {
        let mut replay = Replay::new(Some(Dialect::Claude));
        for line in bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()) {
            replay.read(line, 0);
        }
        for hook in &hooks {
            replay.read(hook, 0);
        }
        replay.read(r#"{"hook_event_name":"SessionEnd"}"#, 0);
        prop_assert_eq!(replay.lifecycle_and_activity(), "idle idle");
    }

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
    fn any_damaged_line_written_to_a_cli_is_understood_or_named(line in line(Pipe::Stdin), dialect in dialect()) {
        let events = Parser::new(dialect).read_input(relive_cli_agent::Line::Whole(&line));
        prop_assert_eq!(events.is_empty(), String::from_utf8_lossy(&line).trim().is_empty());
    }
}

/// Checks the memory of a stream by the length of its `Debug` output, which contains everything it remembers. It also
/// has to grow: a flood that is not remembered at all would test nothing.
#[track_caller]
fn check_remembered(replay: &Replay, flood: &str) {
    let remembered = format!("{:?}", replay.stream).len();
    assert!((10_000..1_000_000).contains(&remembered), "{flood}: {remembered} bytes");
}

/// Each flood: the dialect, a line before it, and its lines, where `<id>` is an id that no other line has.
const FLOODS: [(&str, &str, &str); 21] = [
    ("claude", "", r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"<id>","name":"Task"}]}}"#),
    ("claude", "", r#"{"type":"control_request","request_id":"<id>","request":{"subtype":"can_use_tool"}}"#),
    ("claude", "", r#"{"type":"system","subtype":"task_started","task_id":"<id>","is_backgrounded":true}"#),
    (
        "claude",
        "",
        r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"<id>","name":"Task"}]}}
{"type":"system","subtype":"task_started","task_id":"<id>","tool_use_id":"<id>","is_backgrounded":true}
{"type":"result","subtype":"success"}"#,
    ),
    ("claude", "", r#"{"hook_event_name":"PreToolUse","session_id":"s","tool_use_id":"<id>","tool_name":"<id>"}"#),
    (
        "claude",
        "",
        r#"{"hook_event_name":"PermissionRequest","tool_name":"<id>","tool_input":{"a":"<id>"},"agent_id":"<id>"}"#,
    ),
    ("claude", "", r#"{"hook_event_name":"Elicitation","mcp_server_name":"<id>"}"#),
    (
        "claude",
        "",
        r#"{"type":"control_request","request_id":"<id>","request":{"subtype":"can_use_tool","agent_id":"<id>"}}"#,
    ),
    ("codex-app-server", "", r#"{"method":"turn/started","params":{"threadId":"<id>","turn":{"id":"<id>"}}}"#),
    (
        "codex-app-server",
        "",
        r#"{"id":"<id>","method":"item/a/requestApproval","params":{"threadId":"<id>","itemId":"<id>"}}"#,
    ),
    (
        "codex-app-server",
        r#"{"method":"thread/started","params":{"thread":{"id":"p"}}}"#,
        r#"{"method":"thread/started","params":{"thread":{"id":"<id>","parentThreadId":"p"}}}
{"method":"turn/completed","params":{"threadId":"<id>","turn":{"id":"u","status":"completed"}}}"#,
    ),
    (
        "claude",
        "",
        r#"{"type":"assistant","parent_tool_use_id":"<id>","message":{"content":[{"type":"tool_use","id":"<id>"}]}}"#,
    ),
    (
        "claude",
        "",
        r#"{"type":"assistant","parent_tool_use_id":"<id>","message":{"model":"<synthetic>","content":"quota exceeded <id>"}}"#,
    ),
    ("codex-exec", "", r#"{"type":"item.started","item":{"id":"<id>","type":"command_execution"}}"#),
    ("gemini", "", r#"{"type":"tool_use","tool_id":"<id>","tool_name":"<id>"}"#),
    ("opencode", "", r#"{"type":"tool_use","sessionID":"s","part":{"callID":"<id>","tool":"<id>","state":{}}}"#),
    ("acp", "", r#"{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"<id>"}}}"#),
    (
        "acp",
        "",
        r#"{"id":1,"method":"session/request_permission","params":{"sessionId":"<id>","toolCall":{"toolCallId":"<id>"}}}"#,
    ),
    ("codex-app-server", "", r#"{"method":"thread/name/updated","params":{"threadId":"<id>"}}"#),
    (
        "codex-app-server",
        "",
        r#"{"method":"item/started","params":{"threadId":"<id>","turnId":"u","item":{"id":"<id>","type":"sleep"}}}"#,
    ),
    (
        "codex-app-server",
        r#"{"method":"thread/started","params":{"thread":{"id":"p"}}}"#,
        r#"{"method":"thread/started","params":{"thread":{"id":"<id>","parentThreadId":"p"}}}
{"method":"turn/started","params":{"threadId":"<id>","turn":{"id":"u"}}}"#,
    ),
];

#[test]
fn a_flood_of_ids_does_not_fill_the_memory() {
    let long = "x".repeat(1000);
    for (dialect, before, lines) in FLOODS {
        let mut replay = Replay::new(Some(dialect.parse().unwrap()));
        if !before.is_empty() {
            replay.read(before, 0);
        }
        for number in 0..5000 {
            for line in lines.lines() {
                replay.read(&line.replace("<id>", &format!("{number} {long}")), 0);
            }
        }
        check_remembered(&replay, lines);
    }
}

#[test]
fn a_flood_of_requests_to_a_cli_does_not_fill_the_memory() {
    let long = "x".repeat(1000);
    for (dialect, method) in [("acp", "session/prompt"), ("codex-app-server", "turn/start")] {
        let mut replay = Replay::new(Some(dialect.parse().unwrap()));
        for number in 0..5000 {
            replay.push_input(&format!(r#"{{"id":"{number} {long}","method":"{method}"}}"#), 0);
        }
        check_remembered(&replay, method);
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
