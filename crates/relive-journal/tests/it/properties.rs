//! Properties of every journal, wherever it is cut and whichever byte is wrong.

use proptest::prelude::*;
use relive_core::Uuid;
use relive_journal::record::OpenedBy;
use relive_journal::{Health, History, Problem, WriteError};

use crate::open_and_repair::{open_and_repair, reseal};
use crate::support::{Fixture, append, lines, open_journal, opening, put, step, uuid_of, varied};

/// Returns the starts of the lines of a journal, and its length.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    starts.extend(lines(bytes).iter().scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    }));
    starts
}

fn journal_of(fixture: &Fixture, uuid: Uuid) -> Vec<u8> {
    std::fs::read(fixture.data.directory(uuid).steps()).unwrap()
}

#[test]
fn a_journal_cut_at_any_byte_opens_with_every_whole_record_and_is_repaired() {
    let fixture = Fixture::new();
    let uuid = varied(&fixture);
    let bytes = journal_of(&fixture, uuid);
    let starts = starts(&bytes);
    let path = fixture.data.directory(uuid).steps();
    let read = |bytes: &[u8]| {
        put(&path, bytes);
        fixture.data.history(uuid).unwrap()
    };
    let mut whole = History::default();
    for cut in 0..=bytes.len() {
        let (found, health) = read(&bytes[..cut]);
        let records = starts.partition_point(|start| *start <= cut) - 1;
        let torn = cut - starts[records];
        if torn == 0 {
            assert_eq!((found.seq, &health), (records as u64, &Health::Good), "cut at {cut}");
            whole = found;
        } else {
            let (offset, bytes) = (starts[records] as u64, torn as u64);
            assert_eq!((&found, health), (&whole, Health::Torn { offset, bytes }), "cut at {cut}");
        }
        // Both ends of every line, and enough of the rest to reach every field.
        if torn < 3 || cut + 2 >= starts[records + usize::from(records + 1 < starts.len())] || cut % 17 == 0 {
            open_and_repair(&fixture.data, uuid, &bytes[..cut]);
        }
    }
}

/// Returns whether one of these lines declares record `seq` to be on the disk.
fn claimed_later(bytes: &[u8], seq: u64) -> bool {
    lines(bytes).iter().any(|line| {
        let line: serde_json::Value = serde_json::from_slice(line).unwrap();
        line["synced"].as_u64().unwrap() >= seq
    })
}

/// Flips a bit, and checks the reported damage.
fn check_flip(fixture: &Fixture, uuid: Uuid, bytes: &[u8], starts: &[usize], (at, bit): (usize, u32)) {
    let mut bad = bytes.to_vec();
    bad[at] ^= 1 << bit;
    put(&fixture.data.directory(uuid).steps(), &bad);
    let (found, health) = fixture.data.history(uuid).unwrap();
    let before = starts.partition_point(|start| *start <= at) - 1;
    assert_eq!(found.seq, before as u64, "bit {bit} of byte {at}: the records before it");
    let start = starts[before];
    if !claimed_later(&bytes[starts[before + 1]..], before as u64 + 1) {
        let (offset, bytes) = (start as u64, (bytes.len() - start) as u64);
        assert_eq!(health, Health::Torn { offset, bytes }, "bit {bit} of byte {at}, which nothing says was synced");
        return;
    }
    let Health::Damaged(hole) = &health else { panic!("bit {bit} of byte {at}: {health:?}") };
    assert_eq!((hole.line, hole.offset), (before as u64 + 1, start as u64), "bit {bit} of byte {at}");
    assert_eq!(hole.problem, Problem::Checksum);
    if at % 8 != 0 && bytes[at] != b'\n' {
        return;
    }
    let refused = open_journal(&fixture.data, uuid, &opening(relive_core::Pid(1), OpenedBy::Resume)).unwrap_err();
    assert!(matches!(&refused, WriteError::Damaged { hole: named, .. } if named == hole), "{refused}");
    assert!(journal_of(fixture, uuid) == bad, "nothing is cut");
}

#[test]
fn every_flipped_byte_is_reported_with_its_line() {
    let fixture = Fixture::new();
    let uuid = varied(&fixture);
    let bytes = journal_of(&fixture, uuid);
    let starts = starts(&bytes);
    for at in 0..bytes.len() {
        check_flip(&fixture, uuid, &bytes, &starts, (at, (at as u32).wrapping_mul(2_654_435_761) >> 29));
    }
    // Each newline, and each byte that becomes one.
    for at in 0..bytes.len() {
        for bit in (0..8).filter(|bit| bytes[at] == b'\n' || bytes[at] ^ (1 << bit) == b'\n') {
            check_flip(&fixture, uuid, &bytes, &starts, (at, bit));
        }
    }
}

#[test]
fn a_flipped_byte_in_a_large_journal_is_reported_with_its_line() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    for number in 0..300 {
        step(&mut writer, &format!("text {number}"), &"result ".repeat(100));
    }
    writer.checkpoint().unwrap();
    append(&mut writer, vec![crate::support::completed()]);
    drop(writer);
    let bytes = journal_of(&fixture, uuid);
    let starts = starts(&bytes);
    proptest!(crate::support::cases(64), |(at in 0..bytes.len(), bit in 0_u32..8)| {
        check_flip(&fixture, uuid, &bytes, &starts, (at, bit));
    });
}

/// A change of a journal's bytes; positions are in thousandths of it.
#[derive(Debug, Clone)]
enum Mutation {
    Cut(usize),
    Flip(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    RepeatLine(usize, usize),
    SwapLines(usize, usize),
    /// Replaces a number of the n-th line's head.
    Field(usize, usize, u64),
    Rename(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let place = || 0..1000_usize;
    let number = prop_oneof![0..40_u64, Just(u64::from(u32::MAX)), Just(u64::MAX)];
    prop_oneof![
        place().prop_map(Mutation::Cut),
        (place(), any::<u8>()).prop_map(|(at, mask)| Mutation::Flip(at, mask)),
        (place(), proptest::collection::vec(any::<u8>(), 0..40)).prop_map(|(at, new)| Mutation::Insert(at, new)),
        (place(), 0..200_usize).prop_map(|(at, len)| Mutation::Remove(at, len)),
        (place(), place()).prop_map(|(from, to)| Mutation::RepeatLine(from, to)),
        (place(), place()).prop_map(|(one, other)| Mutation::SwapLines(one, other)),
        (place(), 0..4_usize, number).prop_map(|(line, field, value)| Mutation::Field(line, field, value)),
        place().prop_map(Mutation::Rename),
    ]
}

fn mutate(bytes: &[u8], mutation: &Mutation) -> Vec<u8> {
    let place = |thousandths: usize, of: usize| thousandths * of / 1000;
    let mut bytes = bytes.to_vec();
    let len = bytes.len();
    let mut lines: Vec<Vec<u8>> = lines(&bytes).into_iter().map(<[u8]>::to_vec).collect();
    let count = lines.len();
    if count == 0 {
        return bytes;
    }
    match mutation {
        Mutation::Cut(at) => bytes.truncate(place(*at, len)),
        Mutation::Flip(at, mask) => bytes[place(*at, len)] ^= mask,
        Mutation::Insert(at, new) => drop(bytes.splice(place(*at, len)..place(*at, len), new.iter().copied())),
        Mutation::Remove(at, much) => drop(bytes.drain(place(*at, len)..(place(*at, len) + much).min(len))),
        Mutation::RepeatLine(from, to) => {
            let line = lines[place(*from, count)].clone();
            lines.insert(place(*to, count), line);
            bytes = lines.concat();
        }
        Mutation::SwapLines(one, other) => {
            lines.swap(place(*one, count), place(*other, count));
            bytes = lines.concat();
        }
        Mutation::Field(line, field, value) => {
            let line = &mut lines[place(*line, count)];
            let name = [r#""v":"#, r#""seq":"#, r#""epoch":"#, r#""step":"#][*field];
            if let Some(at) = memchr::memmem::find(line, name.as_bytes()).map(|at| at + name.len()) {
                let digits = line[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                line.splice(at..at + digits, value.to_string().into_bytes());
            }
            bytes = lines.concat();
        }
        Mutation::Rename(line) => {
            let line = &mut lines[place(*line, count)];
            // The line may have been cut at this point.
            if let Some(at) = memchr::memmem::find(line, br#""kind":""#)
                && let Some(letter) = line.get_mut(at + 8)
            {
                *letter ^= 1;
            }
            bytes = lines.concat();
        }
    }
    bytes
}

#[test]
fn arbitrary_bytes_cause_no_panic_and_no_lost_record() {
    let fixture = Fixture::new();
    let corpus = crate::golden::journals();
    let uuid = crate::support::uuid();
    for bytes in &corpus {
        open_and_repair(&fixture.data, uuid, bytes);
    }
    let strategy = (0..corpus.len(), proptest::collection::vec(mutation(), 1..4), any::<bool>());
    proptest!(crate::support::cases(600), |((which, mutations, sealed) in strategy)| {
        let mutated = mutations.iter().fold(corpus[which].clone(), |bytes, mutation| mutate(&bytes, mutation));
        open_and_repair(&fixture.data, uuid, &if sealed { reseal(&mutated) } else { mutated });
    });
}
