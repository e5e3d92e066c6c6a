//! The data directory, and journals with parts from newer versions.

use relive_core::{Pid, Usd};
use relive_journal::conversation::Message;
use relive_journal::data::{ForkPoint, OpenError, SpaceRules, SpawnError, has_locked, holder};
use relive_journal::payload::{Blobs, Json, Text};
use relive_journal::record::{Body, Call, ModelEnded, OpenedBy, Usage};
use relive_journal::{DataDirectory, Disk, Health, Io, LINE_MAX, Problem, WriteError};

use crate::open_and_repair::reseal;
use crate::support::{
    Fixture, NO_SPACE_RULES, append, end, input, lines, model_ended, model_started, moment, open_journal, opening, put,
    put_after, spawn_request, step, temp, uuid, uuid_of,
};

#[test]
fn a_second_daemon_is_refused_with_the_pid_of_the_first() {
    let fixture = Fixture::new();
    for _ in 0..2 {
        let refused = DataDirectory::open(fixture.temp.path(), Io::default(), NO_SPACE_RULES).unwrap_err();
        assert!(matches!(refused, OpenError::Held { holder: Some(pid), .. } if pid == std::process::id()), "{refused}");
        assert!(refused.to_string().contains(&format!("OS pid {}", std::process::id())));
    }
    let fixture = fixture.reopen();
    drop(fixture.spawn());
}

#[test]
fn the_holder_of_the_data_directory_is_found_without_locking_it() {
    let fixture = Fixture::new();
    let root = fixture.temp.path().to_owned();
    assert_eq!(holder(&root), Some(std::process::id()));
    assert!(has_locked(&root, std::process::id()) && !has_locked(&root, 1));
    let Fixture { temp, data, .. } = fixture;
    drop(data);
    assert_eq!(holder(&root), None);
    assert!(!has_locked(&root, std::process::id()));
    drop(DataDirectory::open(temp.path(), Io::default(), NO_SPACE_RULES).unwrap());
    assert_eq!(holder(&root.join("nowhere")), None);
}

#[test]
fn a_journal_has_one_writer() {
    let fixture = Fixture::new();
    let writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    let refused = open_journal(&fixture.data, uuid, &opening(Pid(9), OpenedBy::Resume)).unwrap_err();
    assert!(matches!(refused, WriteError::Busy { .. }), "{refused}");
    drop(writer);
    let writer = fixture.resume(uuid);
    let refused = open_journal(&fixture.data, uuid, &opening(Pid(9), OpenedBy::Resume)).unwrap_err();
    assert!(matches!(refused, WriteError::Busy { .. }), "{refused}");
    drop(writer);
}

#[test]
fn a_uuid_is_used_once() {
    let fixture = Fixture::new();
    let writer = fixture.spawn();
    let before = crate::support::files(fixture.temp.path());
    let refused = fixture.data.spawn(spawn_request(uuid_of(&writer), Pid(9))).unwrap_err();
    assert!(matches!(refused, SpawnError::Exists(_)), "{refused}");
    assert!(crate::support::files(fixture.temp.path()) == before, "nothing of it remains");
    assert_eq!(fixture.data.live().unwrap().len(), 1);
}

#[test]
fn files_left_behind_by_a_crash_are_removed_at_the_start() {
    let fixture = Fixture::new();
    let known = uuid_of(&fixture.spawn());
    let elsewhere = temp();
    put(&elsewhere.path().join("mine"), b"precious");
    let root = fixture.temp.path().to_owned();
    for directory in [uuid(), uuid()] {
        let directory = root.join("tmp").join(directory.to_string());
        Disk::new().mkdir(&directory).unwrap();
        Disk::new().mkdir(&directory.join("blobs")).unwrap();
        put(&directory.join("steps.jsonl"), b"half");
        put(&directory.join("blobs/half.tmp"), b"half");
    }
    put(&root.join("tmp/file"), b"a file");
    std::os::unix::fs::symlink(elsewhere.path(), root.join("tmp/link")).unwrap();
    let directory = fixture.data.directory(known);
    put(&directory.path().join("checkpoint.json.tmp"), b"half");
    let marker_of_nobody = root.join("live").join(uuid().to_string());
    put(&marker_of_nobody, b"");

    let fixture = fixture.reopen();
    assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0);
    assert!(elsewhere.path().join("mine").exists(), "a link is removed, not what it leads to");
    assert_eq!(fixture.data.live().unwrap().len(), 1);
    assert!(!marker_of_nobody.exists());
    drop(fixture.resume(known));
    assert!(!directory.path().join("checkpoint.json.tmp").exists());
}

#[test]
fn an_interrupted_retirement_is_completed_at_the_start() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    append(&mut writer, vec![crate::support::completed()]);
    drop(writer);
    let fixture = fixture.reopen();
    assert!(fixture.temp.path().join("live").join(uuid.to_string()).exists());
    assert!(fixture.data.live().unwrap().is_empty());
    assert!(!fixture.temp.path().join("live").join(uuid.to_string()).exists());
    assert!(fixture.data.directory(uuid).proc_info().exists());
}

#[test]
fn the_reserve_is_allocated_released_and_allocated_again() {
    let place = temp();
    let rules = SpaceRules { reserve_bytes: 1 << 20, floor_bytes: 0 };
    let data = DataDirectory::open(place.path(), Io::default(), rules).unwrap();
    let reserve = place.path().join("reserve");
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&reserve.metadata().unwrap());
    assert!(blocks() * 512 >= 1 << 20, "real blocks, not a hole");
    data.release_reserve().unwrap();
    assert!(!reserve.exists());
    data.release_reserve().unwrap();
    assert!(data.restore_reserve().unwrap());
    assert!(data.restore_reserve().unwrap());
    assert!(blocks() * 512 >= 1 << 20);
}

#[test]
fn below_the_floor_no_process_is_created_and_the_error_says_why() {
    let place = temp();
    let rules = SpaceRules { reserve_bytes: 4096, floor_bytes: u64::MAX };
    let data = DataDirectory::open(place.path(), Io::default(), rules).unwrap();
    assert!(!place.path().join("reserve").exists(), "there is no room for it");
    assert!(!data.space().unwrap().above_floor);
    let refused = data.spawn(spawn_request(uuid(), Pid(1))).unwrap_err();
    assert!(matches!(refused, SpawnError::NoSpace { floor_bytes: u64::MAX, .. }), "{refused}");
    assert!(refused.to_string().contains("bytes are free, and a new process needs"));
    assert!(data.uuids().unwrap().is_empty() && data.live().unwrap().is_empty());
}

/// Changes the text of one line of a journal, with its checksum; lines count from 1.
fn edit(path: &std::path::Path, line: usize, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut split: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    assert!(split[line - 1].contains(from), "{}", split[line - 1]);
    split[line - 1] = split[line - 1].replacen(from, to, 1);
    put(path, &reseal(split.concat().as_bytes()));
}

#[test]
fn records_of_a_newer_relive_make_a_journal_read_only_with_the_reason() {
    let fixture = Fixture::new();
    let kind = |name: &str| Problem::Kind(name.to_owned());
    // The changes in line 5, `model_ended`, or in line 8, the `opened` of the second writer.
    let changes = [
        (5, "\"v\":1", "\"v\":2", Some(Problem::Version(2))),
        (5, "\"v\":1,\"seq\":5", "\"v\":9,\"seq\":18446744073709551615", Some(Problem::Version(9))),
        (5, "model_ended", "model_dreamt", Some(kind("model_dreamt"))),
        (5, "\"text\":\"one\"", "\"text\":[1]", None),
        (5, "\"epoch\":1", "\"epoch\":\"one\"", None),
        (8, "\"by\":\"resume\"", "\"by\":\"migration\"", None),
        (8, "\"kind\":\"opened\"", "\"kind\":\"taken\"", None),
    ];
    for (line, from, to, problem) in changes {
        for tail in [b"".as_slice(), b"{\"v\":1,\"torn", b"bad\n"] {
            let mut writer = fixture.spawn();
            let (uuid, path) = (uuid_of(&writer), writer.directory().steps());
            step(&mut writer, "one", "1");
            drop(writer);
            step(&mut fixture.resume(uuid), "two", "2");
            edit(&path, line, from, to);
            put_after(&path, tail);
            let bytes = std::fs::read(&path).unwrap();
            let (history, health) = fixture.data.history(uuid).unwrap();
            let refused = open_journal(&fixture.data, uuid, &opening(Pid(9), OpenedBy::Resume)).unwrap_err();
            assert!(std::fs::read(&path).unwrap() == bytes, "{to}: nothing is cut from it");
            if to.contains("taken") {
                assert!(matches!(health, Health::Damaged(_)), "a writer that did not open it is no newer one");
                continue;
            }
            let Health::ReadOnly(hole) = health else { panic!("{to}, then {tail:?}: {health:?}") };
            assert_eq!(hole.line, line as u64, "{to}");
            if line == 8 {
                assert_eq!(history.completed_step, 2, "{to}: what can be read after it is read");
            }
            assert!(problem.as_ref().is_none_or(|problem| *problem == hole.problem), "{hole}");
            assert!(refused.to_string().contains(&format!("newer Relive: line {line}")), "{refused}");
        }
    }
}

#[test]
fn an_unknown_kind_that_may_be_skipped_is_skipped_and_counted() {
    let fixture = Fixture::new();
    let (skip, no_skip) = ("\"step\":1,\"skip\":true,", "\"step\":1,\"tone\":\"skip\",\"skip\":true,");
    for (instead, skipped) in [(skip, true), (no_skip, false), ("\"step\":1,\"skip\":false,", false)] {
        let mut writer = fixture.spawn();
        let (uuid, path) = (uuid_of(&writer), writer.directory().steps());
        step(&mut writer, "one", "1");
        append(&mut writer, vec![input("tinted", "x")]);
        step(&mut writer, "two", "2");
        let before = writer.history().clone();
        drop(writer);
        let number = lines(&std::fs::read(&path).unwrap()).len() - 4;
        edit(&path, number, "\"kind\":\"input\"", "\"kind\":\"tinted\"");
        edit(&path, number, "\"step\":1,", instead);
        let bytes = std::fs::read(&path).unwrap();
        let (history, health) = fixture.data.history(uuid).unwrap();
        assert_eq!(health == Health::Good, skipped, "{instead}: {health:?}");
        if !skipped {
            assert!(matches!(health, Health::ReadOnly(hole) if hole.line == number as u64), "{instead}");
            continue;
        }
        assert_eq!((history.seq, history.completed_step, history.last_at), (before.seq, 2, before.last_at));
        assert!(!history.has_received("tinted"));
        let mut writer = fixture.resume(uuid);
        step(&mut writer, "three", "3");
        assert!(std::fs::read(&path).unwrap().starts_with(&bytes), "the record stays");
        let fork = fixture.fork(uuid, ForkPoint::End).unwrap();
        assert_eq!(fork.history().completed_step, 3, "a fork takes it along");
    }
}

#[test]
fn unknown_fields_are_kept_and_ignored() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let (uuid, path) = (uuid_of(&writer), writer.directory().steps());
    step(&mut writer, "one", "1");
    let plain = fixture.said(uuid);
    drop(writer);
    for line in 1..=7 {
        edit(&path, line, ",\"crc\"", ",\"colour\":{\"of\":[\"future\"]},\"crc\"");
    }
    let edited = std::fs::read(&path).unwrap();
    assert_eq!((fixture.health(uuid), fixture.said(uuid)), (Health::Good, plain));
    let mut writer = fixture.resume(uuid);
    step(&mut writer, "two", "2");
    assert!(std::fs::read(&path).unwrap().starts_with(&edited));
}

fn answer(args: impl IntoIterator<Item = String>) -> Body {
    let call = |(number, args): (usize, String)| Call {
        id: format!("id{number}"),
        name: "tool".to_owned(),
        args: Json::parse(&args).unwrap(),
    };
    let usage = Usage { tokens_in: 1, tokens_out: 1, cost_usd: Some(Usd::from_nanos(1)), ..Usage::default() };
    Body::ModelEnded(ModelEnded {
        calls: args.into_iter().enumerate().map(call).collect(),
        usage,
        ..ModelEnded::default()
    })
}

/// Writes an answer with these arguments, and reads them back from the disk.
fn round_trip(fixture: &Fixture, args: &[String]) -> Vec<String> {
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    append(&mut writer, vec![model_started(), answer(args.to_vec())]);
    append(&mut writer, vec![input("after", "it")]);
    drop(writer);
    let (history, health) = fixture.data.history(uuid).unwrap();
    assert_eq!(health, Health::Good);
    let directory = fixture.data.directory(uuid);
    let bytes = std::fs::read(directory.steps()).unwrap();
    assert!(lines(&bytes).iter().all(|line| line.len() <= LINE_MAX));
    let blobs = Blobs::new(Disk::new(), directory.path());
    let conversation = history.conversation(&std::fs::File::open(directory.steps()).unwrap()).unwrap();
    let Message::Model { calls, .. } = &conversation[1] else { panic!("no answer") };
    calls.iter().map(|call| blobs.json(&call.args).unwrap()).collect()
}

#[test]
fn many_large_arguments_fit_into_one_line() {
    let fixture = Fixture::new();
    let args: Vec<String> = (0..40).map(|number| format!("\"{number}{}\"", "x".repeat(60_000))).collect();
    assert!(round_trip(&fixture, &args) == args);
    let control: Vec<String> = (0..20).map(|_| format!("\"{}\"", "\\u0001".repeat(9_000))).collect();
    assert!(round_trip(&fixture, &control) == control);
}

#[test]
fn arguments_of_any_form_are_read_back_unchanged() {
    let fixture = Fixture::new();
    let hash = "0".repeat(64);
    let args = [
        "{\"$blob\":\"mine\"}".to_owned(),
        format!("{{\"$blob\":\"{hash}\",\"bytes\":1,\"head\":\"x\"}}"),
        "{ \"$blob\": 1}".to_owned(),
        "{\"a\":1.0,\"a\":2e400,\"b\":\"\\u2028\"}".to_owned(),
        "\"{\\\"v\\\":1}\"".to_owned(),
        "null".to_owned(),
    ];
    assert_eq!(round_trip(&fixture, &args), args);
}

#[test]
fn arguments_over_several_lines_stay_one_record() {
    let fixture = Fixture::new();
    let pretty = "{\n  \"a\": [\n    1,\r\n    \"x\\ny\"\n  ]\n}".to_owned();
    let found = round_trip(&fixture, std::slice::from_ref(&pretty));
    assert_eq!(found, [pretty.replace('\n', " ")]);
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&found[0]), value(&pretty));
}

#[test]
fn a_record_too_long_without_its_payloads_is_refused_and_leaves_nothing() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, vec![model_started()]);
    let before = writer.history().clone();
    let mut name = model_ended("text", 1);
    if let Body::ModelEnded(answer) = &mut name {
        answer.calls[0].name = "x".repeat(LINE_MAX);
    }
    let refused = writer.append(moment(), vec![name], relive_journal::Durability::Synced).unwrap_err();
    assert!(matches!(refused, WriteError::TooLong { kind: "model_ended" }), "{refused}");
    assert_eq!(*writer.history(), before);
    append(&mut writer, vec![model_ended("text", 0)]);
    let uuid = end(&fixture, writer);
    assert_eq!(fixture.health(uuid), Health::Good);
}

#[test]
fn a_blob_that_does_not_match_its_name_is_not_returned() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", &"large ".repeat(12_000));
    let (path, bytes) = crate::support::files(&writer.directory().path().join("blobs")).into_iter().next().unwrap();
    let hash = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
    put(&path, &bytes[1..]);
    let text = Text::Blob(relive_journal::payload::BlobRef { hash, bytes: 72_000, head: String::new() });
    assert!(writer.blobs().text(&text).unwrap_err().to_string().contains("does not match the name"));
}
