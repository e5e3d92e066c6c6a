//! Readers: each gets every record once, in order, whatever happens to the file in the meantime.

use std::path::PathBuf;

use relive_journal::reader::{Cursor, Item, NotACursor, Reader};
use relive_journal::recovery::Recovery;
use relive_journal::{Durability, Writer};

use crate::support::{
    Fixture, append, call_started, completed, input, lines, model_ended, model_started, moment, now, put, put_after,
    step, uuid_of,
};

fn reader(path: PathBuf) -> Reader {
    Reader::new(path, Cursor::default())
}

/// Returns everything that can be read now, as `epoch.seq kind`; damage as `damaged`.
pub(crate) fn drain(reader: &mut Reader) -> Vec<String> {
    std::iter::from_fn(|| reader.next_item().unwrap())
        .map(|item| match item {
            Item::Record(entry) => format!("{} {}", entry.id, entry.kind),
            Item::Damaged { .. } => "damaged".to_owned(),
        })
        .collect()
}

#[test]
fn case_10_readers_can_join_anywhere_and_none_misses_or_repeats_a_record() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let (uuid, path) = (uuid_of(&writer), writer.directory().steps());
    let mut readers: Vec<(Reader, Vec<String>)> = Vec::new();
    for number in 0..12 {
        readers.push((reader(path.clone()), Vec::new()));
        step(&mut writer, "text", &"result ".repeat(number * 700));
        if number % 4 == 3 {
            drop(writer);
            writer = fixture.resume(uuid);
        }
        for (place, (reader, seen)) in readers.iter_mut().enumerate() {
            // Some read at every turn, some rarely, and some start again from the last id they know.
            if number % (place + 1) == 0 {
                seen.extend(drain(reader));
            }
            if place % 3 == 2 {
                *reader = Reader::new(path.clone(), reader.last());
            }
        }
    }
    let all = drain(&mut reader(path));
    let records = lines(&std::fs::read(writer.directory().steps()).unwrap()).len();
    assert_eq!(all.len(), records);
    for (mut reader, mut seen) in readers {
        seen.extend(drain(&mut reader));
        assert_eq!(seen, all);
    }
}

#[test]
fn a_reader_returns_no_record_before_it_is_complete() {
    let fixture = Fixture::new();
    let writer = fixture.spawn();
    let path = writer.directory().steps();
    let bytes = std::fs::read(&path).unwrap();
    let first = lines(&bytes)[0].len();
    let mut reader = reader(path.clone());
    let mut seen = Vec::new();
    for end in 0..=bytes.len() {
        put(&path, &bytes[..end]);
        seen.extend(drain(&mut reader));
        assert_eq!(seen.is_empty(), end < first, "at {end}");
    }
    assert_eq!(seen, ["1.1 opened", "1.2 spawned", "1.3 input"]);
}

#[test]
fn a_reader_waits_for_a_file_that_does_not_exist_yet() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let mut reader = reader(writer.directory().events());
    assert_eq!(drain(&mut reader), [""; 0]);
    let id = writer.append_event(now(), 0, "open", &serde_json::json!({})).unwrap();
    assert_eq!(drain(&mut reader), [format!("{id} open")]);
    assert_eq!(drain(&mut reader), [""; 0]);
}

/// Creates a process whose last write was cut to `torn`, with a reader that has read all of it.
fn torn(fixture: &Fixture, torn: &[u8]) -> (Reader, Writer) {
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    let uuid = uuid_of(&writer);
    let path = writer.directory().steps();
    drop(writer);
    put_after(&path, torn);
    let mut reader = reader(path);
    let before = drain(&mut reader);
    assert_eq!(before.iter().filter(|item| *item != "damaged").count(), 7, "{before:?}");
    // The repair and the records after it are longer than the cut part: the file never looks shorter.
    (reader, fixture.resume(uuid))
}

#[test]
fn a_reader_continues_after_a_repair_that_replaced_bytes_it_had_read() {
    let fixture = Fixture::new();
    let cuts: [&[u8]; 5] = [b"{", b"{\"v\":1,\"seq\":9,", b"rubbish\n", b"rubbish\nmore\n{\"v\":", &[b'x'; 3000]];
    for cut in cuts {
        let (mut reader, mut writer) = torn(&fixture, cut);
        append(&mut writer, vec![input("a", &"long ".repeat(1000)), model_started()]);
        assert_eq!(drain(&mut reader), ["2.8 opened", "2.9 repair", "2.10 input", "2.11 model_started"], "{cut:?}");
        append(&mut writer, vec![completed()]);
        assert_eq!(drain(&mut reader), ["2.12 ended"]);
    }
}

#[test]
fn damage_is_reported_once_and_later_records_are_read() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    let path = writer.directory().steps();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = lines(&bytes)[..4].concat().len() + 10;
    bytes[at] ^= 1;
    put(&path, &bytes);
    let mut reader = reader(path.clone());
    let seen = drain(&mut reader);
    assert_eq!((seen[4].as_str(), seen.len()), ("damaged", 7));
    put_after(&path, b"rubbish\n");
    assert_eq!(drain(&mut reader), ["damaged"]);
    assert_eq!(drain(&mut reader), [""; 0]);
    put_after(&path, b"more rubbish\n");
    assert_eq!(drain(&mut reader), ["damaged"], "only what is new");
    put_after(&path, &vec![b'x'; 3 << 20]);
    assert!(drain(&mut reader).iter().all(|item| item == "damaged"));
}

#[test]
fn records_of_an_older_writer_are_skipped() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let (uuid, path) = (uuid_of(&writer), writer.directory().steps());
    step(&mut writer, "one", "1");
    let old = std::fs::read(&path).unwrap();
    drop(writer);
    let mut reader = reader(path.clone());
    let mut seen = drain(&mut reader);
    let mut writer = fixture.resume(uuid);
    seen.extend(drain(&mut reader));
    put_after(&path, lines(&old)[5]);
    put_after(&path, lines(&old)[6]);
    seen.extend(drain(&mut reader));
    append(&mut writer, vec![input("a", "b")]);
    seen.extend(drain(&mut reader));
    assert_eq!(&seen[7..], ["2.8 opened", "2.9 input"]);
}

#[test]
fn a_reader_continues_after_the_loss_of_unsynced_records() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let (uuid, path) = (uuid_of(&writer), writer.directory().steps());
    let synced = std::fs::read(&path).unwrap();
    writer.append(moment(), vec![model_started()], Durability::Written).unwrap();
    let event = |writer: &mut Writer| writer.append_event(now(), 1, "open", &serde_json::json!({})).unwrap();
    let events = writer.directory().events();
    let ids: Vec<Cursor> = (0..3).map(|_| event(&mut writer)).collect();
    let (mut steps, mut traced) = (reader(path.clone()), reader(events.clone()));
    assert_eq!((drain(&mut steps).len(), drain(&mut traced).len()), (4, 3));
    drop(writer);
    // The power fails; the readers' ids are what their clients remember.
    put(&path, &synced);
    put(&events, lines(&std::fs::read(&events).unwrap())[0]);
    let mut writer = fixture.resume(uuid);
    let later = event(&mut writer);
    assert!(later > ids[2], "{later} comes after everything that was ever shown");
    let mut again = Reader::new(events.clone(), traced.last());
    assert_eq!(drain(&mut again), [format!("{later} open")]);
    assert_eq!(drain(&mut Reader::new(events, ids[0])), [format!("{later} open")]);
    append(&mut writer, vec![model_started()]);
    let mut again = Reader::new(path, steps.last());
    assert_eq!(drain(&mut again), ["2.4 opened", "2.5 model_started"]);
}

#[test]
fn record_ids_are_parsed_and_other_texts_are_refused() {
    for text in ["1.1", "0.0", "1.2.3", "4294967295.18446744073709551615"] {
        assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
    }
    for text in ["", "1", "1.", ".1", "1.1.1.1", "1.1.", "-1.1", "1.x", "4294967296.1"] {
        assert_eq!(text.parse::<Cursor>(), Err(NotACursor), "{text}");
    }
    assert!("2.1".parse::<Cursor>().unwrap() > "1.999".parse().unwrap());
}

#[test]
fn an_entry_contains_the_unmodified_line() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, vec![model_started()]);
    append(&mut writer, vec![model_ended("one", 1), call_started(0, Recovery::Rerun)]);
    let bytes = std::fs::read(writer.directory().steps()).unwrap();
    let mut reader = reader(writer.directory().steps());
    for line in lines(&bytes) {
        let Some(Item::Record(entry)) = reader.next_item().unwrap() else { panic!("too few") };
        assert_eq!(entry.line.as_bytes(), &line[..line.len() - 1]);
        let value: serde_json::Value = serde_json::from_str(&entry.line).unwrap();
        assert_eq!((value["seq"].as_u64(), value["kind"].as_str()), (Some(entry.id.seq), Some(entry.kind.as_str())));
        assert_eq!(value["step"].as_u64(), Some(u64::from(entry.step)));
    }
    assert_eq!(reader.next_item().unwrap(), None);
}
