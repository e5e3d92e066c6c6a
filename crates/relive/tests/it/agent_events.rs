//! `relive agent-events` with the real binary.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Place, Ran};

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#;
const TEXT: &str = r#"{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"hi"}]},"session_id":"s","uuid":"u"}"#;

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../relive-cli-agent/tests/fixtures/streams").join(name)
}

/// Starts the command on its standard input.
fn start(place: &Place, args: &[&str]) -> (Child, ChildStdin) {
    let mut command = place.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

fn translate(place: &Place, input: &[u8]) -> Vec<Value> {
    let (child, mut stdin) = start(place, &["agent-events", "-"]);
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    objects(&String::from_utf8(output.stdout).unwrap())
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(object: &Value) -> Vec<&str> {
    object["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

#[test]
fn a_recording_gives_one_object_for_each_line() {
    let place = Place::new();
    for (name, dialect) in
        [("claude_tool.jsonl", "claude"), ("codex_tool.jsonl", "codex-exec"), ("gemini_tool.jsonl", "gemini")]
    {
        let path = recording(name);
        let path = path.to_str().unwrap();
        let detected = place.relive(&["agent-events", path]).exits(0);
        let objects = objects(&detected.stdout);
        let last = objects.last().unwrap();
        let keys: Vec<&String> = last.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["line", "dialect", "events", "activity", "lifecycle"], "{name}");
        assert_eq!(last["line"], objects.len());
        assert_eq!(last["dialect"], dialect);
        assert_eq!((&last["activity"], &last["lifecycle"]), (&json!("idle"), &json!("idle")), "{name}");
        assert!(objects.iter().any(|object| object["activity"] == "running_tool"), "{name}");
        let named = place.relive(&["agent-events", "--dialect", dialect, path, "--json"]).exits(0);
        assert_eq!(named.stdout, detected.stdout);
        assert_eq!(detected.stderr, "");
    }
    assert!(!place.data().exists(), "nothing was created for it");
}

#[test]
fn case_42_unknown_and_malformed_lines_are_events_and_the_exit_code_is_0() {
    let place = Place::new();
    let input = format!("npm warn\n{INIT}\n{{\"type\":\"new\"}}\n\n{TEXT}\nhalf {{\n{{\"type\":\"res");
    let objects = translate(&place, input.as_bytes());
    let found: Vec<Vec<&str>> = objects.iter().map(kinds).collect();
    let expected: [&[&str]; 7] = [
        &["malformed"],
        &["session_started", "turn_started"],
        &["unknown"],
        &[],
        &["text"],
        &["malformed"],
        &["malformed"],
    ];
    assert_eq!(found, expected);
    assert_eq!((&objects[0]["dialect"], &objects[0]["lifecycle"]), (&json!(null), &json!("spawning")));
    assert_eq!((&objects[6]["activity"], &objects[6]["lifecycle"]), (&json!("responding"), &json!("working")));
}

#[test]
fn a_line_that_asks_for_permission_says_that_somebody_has_to_answer() {
    let ask = r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash"}}"#;
    let objects = translate(&Place::new(), format!("{INIT}\n{ask}\n").as_bytes());
    assert_eq!((objects[0].get("waiting"), &objects[1]["waiting"]), (None, &json!("approval")));
}

#[test]
fn strange_bytes_are_read_as_far_as_they_can_be() {
    let place = Place::new();
    assert_eq!(translate(&place, b""), Vec::<Value>::new());
    let input = [b"\xef\xbb\xbf", INIT.as_bytes(), b"\r\n", TEXT.replace("hi", "h\u{e9}").as_bytes(), b"\n"].concat();
    assert_eq!(translate(&place, &input).iter().map(kinds).collect::<Vec<_>>()[1], ["text"]);
    let mut invalid = TEXT.replace("hi", "h_").into_bytes();
    let place_of_text = invalid.iter().position(|byte| *byte == b'_').unwrap();
    invalid[place_of_text] = 0xff;
    let objects = translate(&place, &invalid);
    assert_eq!(kinds(&objects[0]), ["text", "session_started", "malformed"]);
    assert_eq!(objects[0]["events"][0]["text"], "h\u{fffd}");
    let nested = format!("{{\"type\":\"x\",\"a\":{}1{}}}", "[".repeat(300_000), "]".repeat(300_000));
    assert_eq!(kinds(&translate(&place, nested.as_bytes())[0]), ["unknown"]);
}

/// Reads one line from a pipe that stays open, and then another one. Returns the report of the first, and the peak of the
/// command's memory in bytes.
fn peak_of(line: Vec<u8>) -> (Value, u64) {
    let (mut child, mut stdin) = start(&Place::new(), &["agent-events", "-"]);
    let writer = std::thread::spawn(move || {
        stdin.write_all(&line).unwrap();
        stdin.write_all(b"\n").unwrap();
        stdin
    });
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut read = || {
        let mut report = String::new();
        out.read_line(&mut report).unwrap();
        serde_json::from_str::<Value>(&report).unwrap()
    };
    let report = read();
    // The process still reads: its peak is known while it lives.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    let mut stdin = writer.join().unwrap();
    stdin.write_all(format!("{TEXT}\n").as_bytes()).unwrap();
    drop(stdin);
    assert_eq!(kinds(&read())[0], "text", "the next line is read as ever");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    (report, kilobytes * 1024)
}

#[test]
fn a_line_above_the_limit_takes_no_more_memory_than_the_limit() {
    let (report, peak) = peak_of(vec![b'x'; 64 << 20]);
    assert_eq!(kinds(&report), ["malformed"]);
    assert_eq!(report["events"][0]["reason"], "a line of 67108864 bytes is above the limit");
    assert!(peak < 40_000_000, "{peak} bytes");
}

/// The figures of `docs/cli-agents.md`.
#[test]
fn a_line_of_the_largest_size_takes_a_few_times_its_size() {
    let largest = |line: &str, byte: u8| {
        let (before, behind) = line.split_once("FILL").unwrap();
        let fill = vec![byte; (16 << 20) - before.len() - behind.len()];
        [before.as_bytes(), &fill, behind.as_bytes()].concat()
    };
    let text = r#"{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"\nFILL"}]},"session_id":"s","uuid":"u"}"#;
    let quota =
        r#"{"type":"result","subtype":"success","is_error":true,"result":"usage limit reached FILL","session_id":"s"}"#;
    let call = r#"{"hook_event_name":"PermissionRequest","session_id":"s","tool_name":"\nFILL"}"#;
    let status = r#"{"type":"system","subtype":"status","session_id":"s","padding":"FILL"}"#;
    for (line, byte, expected, limit) in [
        (status, b'x', &["other"][..], 90_000_000),
        (text, b'x', &["text", "session_started"], 90_000_000),
        (quota, b'x', &["quota", "turn_ended"], 90_000_000),
        (call, b'x', &["session_started", "approval_asked"], 90_000_000),
        (text, b'\xff', &["text", "session_started", "malformed"], 200_000_000),
    ] {
        let (report, peak) = peak_of(largest(line, byte));
        assert_eq!(kinds(&report), expected);
        assert!(peak < limit, "{expected:?}: {peak} bytes");
        let longest_report = if byte == b'x' { 17_000_000 } else { 51_000_000 };
        assert!(report.to_string().len() < longest_report, "{expected:?}: the text of the line is there twice");
    }
}

#[test]
fn a_pipe_is_translated_while_it_is_open() {
    let place = Place::new();
    let (mut child, mut stdin) = start(&place, &["agent-events", "-"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for (input, lifecycle) in [(INIT, "working"), (TEXT, "working")] {
        stdin.write_all(format!("{input}\n").as_bytes()).unwrap();
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(objects(&line)[0]["lifecycle"], lifecycle);
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let place = Place::new();
    let (mut child, mut stdin) = start(&place, &["agent-events", "-"]);
    drop(child.stdout.take());
    let block = format!("{INIT}\n").repeat(1000);
    // Once the command has left, writing to it fails in turn.
    while stdin.write_all(block.as_bytes()).is_ok() {}
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
}

#[test]
fn a_fifo_is_read_until_its_writer_leaves() {
    let place = Place::new();
    let fifo = place.dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut command = place.command(&["agent-events", "fifo"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    // Opening it waits for the reader.
    let mut writer = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    writer.write_all(format!("{INIT}\n{TEXT}").as_bytes()).unwrap();
    drop(writer);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(objects(&String::from_utf8(output.stdout).unwrap()).len(), 2);
}

#[test]
fn a_stream_that_cannot_be_read_or_written_is_named() {
    let place = Place::new();
    let mut command = place.command(&["agent-events", "-"]);
    let output = command.stdin(std::fs::File::open(place.dir.path()).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("error: cannot read standard input\n  is a directory"), "{error}");
    let mut full = place.command(&["agent-events", recording("claude_hi.jsonl").to_str().unwrap()]);
    let output = full.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("error: cannot write to stdout\n"), "{error}");
    assert_ne!(output.status.code(), Some(0));
}

/// It reads one file, and needs neither a home nor a data directory.
#[test]
fn agent_events_needs_no_environment() {
    let place = Place::new();
    let path = recording("claude_hi.jsonl");
    let mut command = place.command(&["agent-events", path.to_str().unwrap()]);
    let output = command.env_clear().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(objects(&String::from_utf8(output.stdout).unwrap()).len(), 3);
    let mut missing = place.command(&["agent-events", "nowhere.jsonl"]);
    let output = missing.env_clear().output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: cannot read nowhere.jsonl\n"));
}

#[test]
fn an_unreadable_recording_is_named() {
    let place = Place::new();
    let missing: Ran = place.relive(&["agent-events", "nowhere.jsonl"]).exits(2);
    missing.says("error: cannot read nowhere.jsonl").says("no such file or directory");
    place.relive(&["agent-events", "."]).exits(2).says("error: cannot read .").says("is a directory");
    place.relive(&["agent-events"]).exits(2).says("<FILE>");
    place
        .relive(&["agent-events", "--dialect", "codex", "x"])
        .exits(2)
        .says("hint: a similar value exists: 'codex-exec'");
    let error = place.relive(&["agent-events", "nowhere.jsonl", "--json"]).exits(2).json();
    assert_eq!(error["error"]["code"], "INVALID");
}
