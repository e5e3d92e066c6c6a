//! The journal on the disk: damaged, padded, and large.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::recovery::steps_then_hang;
use crate::world::{Begun, World, begun, wait_until};

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

/// Where the first line begins that has these texts in it, and its number from 1.
fn line_with(journal: &[u8], texts: &[&str]) -> (usize, usize) {
    let mut offset = 0;
    for (place, line) in journal.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let text = String::from_utf8_lossy(line);
        if texts.iter().all(|part| text.contains(part)) {
            return (offset, place + 1);
        }
        offset += line.len();
    }
    panic!("no line with {texts:?}");
}

/// Flips a byte of the answer of a step; the number of its line.
fn flip(world: &World, process: &Begun, step: u32) -> usize {
    let path = world.steps_file(&process.uuid);
    let mut journal = fs::read(&path).unwrap();
    let (offset, number) = line_with(&journal, &["\"model_ended\"", &format!("\"step\":{step},")]);
    let word = b"working";
    let at = journal[offset..].windows(word.len()).position(|found| found == word).unwrap();
    journal[offset + at] ^= 1;
    fs::write(&path, journal).unwrap();
    number
}

#[test]
fn case_26_a_torn_last_line_is_repaired_and_the_process_resumes() {
    let check = |alive: bool, torn: &[u8]| {
        let world = World::new();
        let process = world.run(&steps_then_hang(3));
        world.await_step(&process, 4);
        if !alive {
            world.end(&process);
        }
        world.kill_daemon();
        let before = fs::read(world.steps_file(&process.uuid)).unwrap();
        append(&world.steps_file(&process.uuid), torn);
        if !alive {
            assert_eq!(world.info(&process.uuid)["display"], "dead", "its end counts");
            world.relive(&["resume", &process.uuid]).ok();
        }
        let info = world.info(&process.uuid);
        assert_eq!((&info["display"], &info["step"]), (&json!("running"), &json!(3)));
        world.await_records(&process, "model_started", 5);
        assert_eq!(world.records(&process.uuid, "repair")[0]["cut_bytes"], torn.len());
        assert!(fs::read(world.steps_file(&process.uuid)).unwrap().starts_with(&before), "nothing else was cut");
        let log = world.relive(&["logs", &process.uuid]).ok().stdout;
        assert!(log.contains(&format!("repaired: {} bytes of a torn record were cut off", torn.len())), "{log}");
    };
    check(true, b"{\"v\":1,\"seq\":99,\"epo");
    check(false, b"{\"v\":1,\"seq\":99,\"epo");
    check(true, b"\0\0\0\0\0\0\0\0\n\0\0");
}

#[test]
fn case_26_a_flipped_byte_in_the_middle_is_reported_with_its_line() {
    let world = World::new();
    let process = world.run(&steps_then_hang(6));
    world.await_step(&process, 7);
    world.end(&process);
    world.kill_daemon();
    let line = format!("line {}", flip(&world, &process, 4));
    let damaged = fs::read(world.steps_file(&process.uuid)).unwrap();
    let check = || {
        let refused = world.relive(&["resume", &process.uuid]).fails(3, &["damaged", &line, "hint: ", "--fork"]);
        assert!(refused.stdout.is_empty());
        assert_eq!(world.relive(&["resume", "--json", &process.uuid]).exits(3).json()["error"]["code"], "CONFLICT");
        world.relive(&["resume", "--fork", "--from-step", "5", &process.uuid]).fails(3, &[&line, "3"]);
        world.relive(&["resume", "--fork", &process.uuid]).fails(3, &[&line]);
        assert_eq!(fs::read(world.steps_file(&process.uuid)).unwrap(), damaged, "nothing is cut");
        let log = world.relive(&["logs", &process.uuid]).ok().stdout;
        assert!(log.contains("damaged"), "{log}");
        let shown = world.relive(&["logs", "--json", &process.uuid]).ok().json_lines();
        assert_eq!(shown.iter().filter(|line| line["kind"] == "damaged").count(), 1);
    };
    check();
    world.kill_daemon();
    check();
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "", "a resume that failed makes nothing live");
    let fork = begun(&world.relive(&["resume", "--fork", "--from-step", "3", "--json", &process.uuid]).ok().json());
    world.await_step(&fork, 4);
}

#[test]
fn case_26_a_damaged_journal_of_one_that_ran_is_suspended_and_said() {
    let world = World::new();
    let process = world.run(&steps_then_hang(6));
    world.await_step(&process, 7);
    world.kill_daemon();
    let line = format!("line {}", flip(&world, &process, 4));
    let info = world.info(&process.uuid);
    assert_eq!((&info["display"], &info["suspend_reason"]), (&json!("suspended"), &json!("io_error")));
    let status = world.relive(&["daemon", "status"]).ok().stdout;
    assert!(status.contains("warning: ") && status.contains(&line), "{status}");
    world.relive(&["resume", &process.uuid]).fails(3, &["damaged", &line]);
    let fork = begun(&world.relive(&["resume", "--fork", "--from-step", "3", "--json", &process.uuid]).ok().json());
    world.await_step(&fork, 4);
}

#[test]
fn case_27_what_is_recorded_twice_out_of_order_or_by_an_older_writer_is_never_replayed() {
    let world = World::new();
    let model = world.script(&steps_then_hang(3));
    let process = world.run_model(&model, &[]);
    world.await_step(&process, 4);
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    world.await_records(&process, "model_started", 5);
    world.end(&process);
    world.kill_daemon();
    let journal = fs::read(world.steps_file(&process.uuid)).unwrap();
    let lines: Vec<&[u8]> = journal.split_inclusive(|byte| *byte == b'\n').collect();
    let answer = lines.iter().position(|line| String::from_utf8_lossy(line).contains("\"model_ended\"")).unwrap();
    let path = world.steps_file(&process.uuid);
    // A whole step twice, the same backwards, and a late write of the first writer's.
    lines[answer..answer + 3].iter().for_each(|line| append(&path, line));
    lines[answer..answer + 3].iter().rev().for_each(|line| append(&path, line));
    let mut late: Value = serde_json::from_slice(lines[answer]).unwrap();
    late["seq"] = json!(lines.len() + 1);
    append(&path, &sealed(late));
    fs::write(
        model.strip_prefix("script/").unwrap(),
        "turns: [{text: x, repeat: 3}, {text: fourth}, {text: fifth}, {text: sixth}]",
    )
    .unwrap();
    let resumed = world.relive(&["resume", "--json", &process.uuid]).ok().json();
    assert_eq!(resumed["resumed_from_step"], 3);
    world.relive(&["wait", &process.uuid]).ok();
    let shown = world.relive(&["logs", "--json", &process.uuid]).ok().json_lines();
    let answers: Vec<&Value> = shown.iter().filter(|line| line["kind"] == "model_ended").collect();
    assert_eq!(answers.len(), 4, "three and the next");
    assert_eq!(answers[3]["text"], "fourth", "the model's turn is counted by what counts");
    assert_eq!(world.info(&process.uuid)["step"], 4);
    let steps = world.relive(&["steps", "--json", &process.uuid]).ok().json();
    let numbers: Vec<&Value> = steps["steps"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

/// A record as a line, with its checksum.
fn sealed(mut record: Value) -> Vec<u8> {
    record.as_object_mut().unwrap().remove("crc");
    let text = record.to_string();
    let crc = !text.bytes().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    });
    format!("{},\"crc\":\"{crc:08x}\"}}\n", text.strip_suffix('}').unwrap()).into_bytes()
}

#[test]
fn case_28_a_thousand_steps_take_space_in_proportion() {
    let world = World::new();
    let script = "turns: [{text: step, usage: {input: 1, output: 1}, calls: [{name: list, args: {path: nowhere}}], repeat: 1000}]";
    let process = world.run_with(script, &["--max-steps", "1000"]);
    world.relive(&["wait", "1"]).exits(1);
    let journal = fs::read(world.steps_file(&process.uuid)).unwrap();
    let place = |step: u32| line_with(&journal, &["\"model_started\"", &format!("\"step\":{step},")]).0;
    let (early, late) = (place(200) - place(100), place(1000) - place(900));
    assert!(late.abs_diff(early) * 20 < early, "a hundred steps at the beginning {early}, at the end {late}");
    assert_eq!(world.info(1)["step"], 1000);
    let resumed = world.relive(&["resume", "--max-steps", "1001", "--json", "1"]).ok().json();
    assert_eq!(resumed["resumed_from_step"], 1000);
    world.relive(&["wait", &process.uuid]).ok();
}

#[test]
fn case_28_five_megabytes_and_a_line_separator_come_back_whole() {
    let world = World::new();
    let unit = "five megabytes \u{2028}\u{2029}\u{0085} of \"text\"\\n, ";
    let text = unit.repeat((5 << 20) / unit.len() + 1);
    let child = world.script(&json!({"turns": [{"text": text}]}).to_string());
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "speak\u{2028}up", "name": "child", "model": child}});
    let wait = json!({"name": "wait_agent", "args": {"uuid": "{{child}}"}});
    let before = json!([{"calls": [spawn]}, {"text": "a\u{2028}b", "calls": [wait]}]);
    let with = |last: Value| {
        let mut turns = before.as_array().unwrap().clone();
        turns.push(last);
        json!({ "turns": turns }).to_string()
    };
    let model = world.script(&with(json!({"hang": true})));
    let parent = world.run_model(&model, &[]);
    world.await_step(&parent, 3);
    world.kill_daemon();
    let write = json!({"calls": [{"name": "write", "args": {"path": "out.json", "content": "{{result}}"}}]});
    fs::write(model.strip_prefix("script/").unwrap(), with(write)).unwrap();
    world.relive(&["wait", &parent.uuid]).ok();
    let result: Value = serde_json::from_slice(&fs::read(world.work().join("out.json")).unwrap()).unwrap();
    assert!(result["text"] == text, "every byte");
    let log = world.relive(&["logs", "--json", &parent.uuid]).ok();
    // Split as files are: at newlines and nowhere else.
    let lines: Vec<Value> = log.stdout.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["text"] == "a\u{2028}b"));
    assert_eq!(world.info("child")["intent"], "speak\u{2028}up");
    let events = world.relive(&["strace", "--json", "child"]).ok().json_lines();
    let said: String =
        events.iter().filter(|event| event["kind"] == "text").map(|event| event["text"].as_str().unwrap()).collect();
    assert!(said == text, "who watches sees all of it");
    let here = ["resume", "--fork", "--workspace", "here", "--from-step", "2", "--json", &parent.uuid];
    let fork = begun(&world.relive(&here).ok().json());
    fs::remove_file(world.work().join("out.json")).unwrap();
    wait_until("the fork has it too", || world.work().join("out.json").exists());
    world.relive(&["wait", &fork.uuid]).ok();
}

#[test]
fn case_28_five_megabytes_of_intent_are_kept_and_shown_by_their_beginning() {
    let world = World::new();
    world.run_hanging(&[]);
    let intent = "say it all again, ".repeat((5 << 20) / 18);
    let uuid = "01900000-0000-7000-8000-000000000001";
    let model = world.script("turns: [{text: done}]");
    let (status, body) = world.http("POST", "/v1/processes", "", &world.run_request(uuid, &model, &intent));
    assert_eq!(status, 200, "{body}");
    world.relive(&["wait", uuid]).ok();
    let shown = world.info(uuid)["intent"].as_str().unwrap().to_owned();
    assert!(shown.len() <= 200 && intent.starts_with(&shown), "{shown}");
    assert!(world.relive(&["ps", "-a"]).ok().stdout.len() < 2000);
    assert!(fs::metadata(world.steps_file(uuid)).unwrap().len() < 20_000, "it is in a blob, once");
    let prompt = world.work().join("prompt.md");
    fs::write(&prompt, &intent).unwrap();
    let process = world.run_model(&model, &["--system", &format!("@{}", prompt.display())]);
    world.relive(&["wait", &process.uuid]).ok();
}
