//! Events: written together, never synced, dropped with a visible gap.

use std::os::unix::fs::FileExt as _;

use relive_core::SuspendReason;
use relive_journal::Writer;
use relive_journal::events::Gap;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::{Body, OpenedBy};
use relive_journal::recovery::Recovery;

use crate::readers::drain;
use crate::support::{
    Fixture, append, call_ended, call_started, completed, lines, model_ended, model_started, now, open_journal,
    opening, paused, put, put_after, uuid_of,
};
use crate::unreadable::within_a_minute;

fn event(writer: &mut Writer) -> Cursor {
    writer.append_event(now(), 1, "open", &serde_json::json!({"path": "/some/file"})).unwrap()
}

#[test]
fn events_are_one_write_and_never_cost_a_sync() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    event(&mut writer);
    let count = |before| {
        let counts = fixture.disk().counts().since(before);
        (counts.writes, counts.syncs, counts.opens)
    };
    let before = fixture.disk().counts();
    for number in 0..3 {
        writer.push_event(now(), 1, "open", &serde_json::json!({"number": number})).unwrap();
    }
    assert_eq!(count(before), (0, 0, 0));
    writer.events().flush(now()).unwrap();
    assert_eq!(count(before), (1, 0, 0), "those of a moment together");
    let path = writer.directory().events();
    assert_eq!(lines(&std::fs::read(path).unwrap()).len(), 4);

    let mut check = |batch: Vec<Body>| {
        event(&mut writer);
        let kind = batch[0].kind();
        let before = fixture.disk().counts();
        append(&mut writer, batch);
        assert_eq!(count(before), (1, 1, 0), "{kind}");
    };
    check(vec![model_started()]);
    check(vec![model_ended("x", 1), call_started(0, Recovery::Rerun)]);
    check(vec![call_ended(0, "x"), model_started()]);
    check(vec![crate::support::partial("x")]);
    check(vec![paused(SuspendReason::User)]);
    check(vec![completed()]);
}

/// A file with two events followed by zeros, which must not be searched for a newline to the end.
#[test]
fn an_event_file_that_claims_terabytes_is_truncated_and_appended_to() {
    for end in [&b""[..], &b"\n"[..]] {
        let fixture = Fixture::new();
        let mut writer = fixture.spawn();
        let (uuid, path) = (uuid_of(&writer), writer.directory().events());
        event(&mut writer);
        event(&mut writer);
        drop(writer);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(end, 1 << 40).unwrap();
        file.set_len((1 << 40) + end.len() as u64).unwrap();
        let (took, length) = within_a_minute("events that claim terabytes", move || {
            let opening = opening(fixture.data.next_pid().unwrap(), OpenedBy::Resume);
            let mut writer = open_journal(&fixture.data, uuid, &opening).unwrap();
            let begun = std::time::Instant::now();
            event(&mut writer);
            (begun.elapsed(), lines(&std::fs::read(path).unwrap()).len())
        });
        assert_eq!(length, 3);
        assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn an_event_that_is_too_long_uses_no_number() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let first = event(&mut writer);
    let path = writer.directory().events();
    let refused = writer.push_event(now(), 1, "open", &serde_json::json!({"a": "x".repeat(1 << 20)}));
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(event(&mut writer).part, first.part + 1);
    assert_eq!(lines(&std::fs::read(path).unwrap()).len(), 2);
}

/// Appends events until older ones are dropped; returns the id of the last event.
fn until_dropped(writer: &mut Writer) -> Cursor {
    let path = writer.directory().events();
    event(writer);
    let mut length = path.metadata().unwrap().len();
    loop {
        let last = event(writer);
        let now = path.metadata().unwrap().len();
        if now < length {
            return last;
        }
        length = now;
    }
}

fn gaps(path: &std::path::Path) -> Vec<Gap> {
    let mut reader = Reader::new(path.to_owned(), Cursor::default());
    let items = std::iter::from_fn(|| reader.next_item().unwrap());
    let gap = |item| match item {
        Item::Record(entry) if entry.kind == "gap" => serde_json::from_str(&entry.line).ok(),
        Item::Record(_) | Item::Damaged { .. } => None,
    };
    items.filter_map(gap).collect()
}

#[test]
fn dropped_events_leave_a_gap_record() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let (uuid, path) = (uuid_of(&writer), writer.directory().events());
    writer.events().set_max(4000);
    let (mut eager, mut ahead) =
        (Reader::new(path.clone(), Cursor::default()), Reader::new(path.clone(), Cursor::default()));
    let mut seen = Vec::new();
    let first = event(&mut writer);
    seen.extend(drain(&mut eager));
    assert_eq!(drain(&mut ahead).len(), 1);
    for round in 1..=3 {
        let last = until_dropped(&mut writer);
        assert!(path.metadata().unwrap().len() <= 4000);
        let [gap] = gaps(&path).try_into().unwrap();
        assert_eq!(gap.first, first, "round {round}: one gap stands for all before it");
        assert_eq!(gap.dropped, gap.last.part);
        let fresh = drain(&mut Reader::new(path.clone(), Cursor::default()));
        assert_eq!(fresh[0], format!("{} gap", gap.last));
        assert_eq!(fresh.len() as u64, 1 + last.part - gap.last.part, "and every later one is there");
        seen.extend(drain(&mut eager));
    }
    // A reader with an open old file reads it to its end before the new one.
    let all: Vec<String> = (1..=seen.len()).map(|number| format!("1.{}.{number} open", first.seq)).collect();
    assert_eq!(seen, all);
    let behind = drain(&mut ahead);
    assert!(behind.iter().any(|item| item.ends_with("gap")), "one that was behind sees the gap");
    assert_eq!(seen.last(), behind.last());

    // A gap can span several writers.
    drop(writer);
    let mut writer = fixture.resume(uuid);
    writer.events().set_max(4000);
    until_dropped(&mut writer);
    let last = until_dropped(&mut writer);
    let [gap] = gaps(&path).try_into().unwrap();
    assert_eq!((gap.first, gap.last.epoch.0), (first, 2));
    let epoch_1: Cursor = seen.last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(gap.dropped, epoch_1.part + gap.last.part, "up to {last}");
}

#[test]
fn a_reader_that_keeps_up_misses_nothing_when_events_are_dropped() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    writer.events().set_max(2000);
    let mut reader = Reader::new(writer.directory().events(), Cursor::default());
    for number in 1..=200 {
        let id = event(&mut writer);
        assert_eq!(id.part, number);
        assert_eq!(drain(&mut reader), [format!("{id} open")]);
    }
}

#[test]
fn a_torn_event_is_removed_before_the_next_is_written() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let (uuid, path) = (uuid_of(&writer), writer.directory().events());
    event(&mut writer);
    event(&mut writer);
    drop(writer);
    let whole = std::fs::read(&path).unwrap();
    let cuts = [whole[..whole.len() - 1].to_vec(), [&whole[..], &[b'x'; 3 << 20]].concat(), b"x".to_vec()];
    for (cut, kept) in cuts.into_iter().zip([1, 2, 0]) {
        put(&path, &cut);
        let mut reader = Reader::new(path.clone(), Cursor::default());
        drain(&mut reader);
        let mut writer = fixture.resume(uuid);
        let id = event(&mut writer);
        assert_eq!(drain(&mut Reader::new(path.clone(), Cursor::default())).len(), kept + 1);
        assert_eq!(drain(&mut reader), [format!("{id} open")], "also one that had read the torn one");
    }
    put_after(&path, b"{\"v\":1,");
    let mut writer = fixture.resume(uuid);
    append(&mut writer, vec![model_started()]);
    assert!(std::fs::read(&path).unwrap().ends_with(b"{\"v\":1,"), "a writer without events leaves them alone");
}

#[test]
fn multi_line_and_oversized_events_do_no_harm() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
    writer.append_event(now(), 1, "open", &serde_json::json!({"args": raw("{\n  \"a\": 1\n}")})).unwrap();
    #[derive(serde::Serialize)]
    struct Args {
        args: Box<serde_json::value::RawValue>,
    }
    writer.append_event(now(), 1, "open", &Args { args: raw("{\n  \"a\": \"\\n\"\n}") }).unwrap();
    let refused = writer.append_event(now(), 1, "open", &serde_json::json!({"a": "x".repeat(1 << 20)})).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    let third = event(&mut writer);
    let mut reader = Reader::new(writer.directory().events(), Cursor::default());
    let seq = third.seq;
    assert_eq!(drain(&mut reader), [1, 2, 3].map(|part| format!("1.{seq}.{part} open")));
}
