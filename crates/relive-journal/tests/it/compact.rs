//! Bounds on tombstones and recorded PIDs.

use relive_core::{Pid, Timestamp, Uuid};
use relive_journal::data::{Collected, KEPT_MAX, Known, NOTED_MAX, Tombstone};
use relive_journal::{DataDirectory, Io};

use crate::open_and_repair::reseal;
use crate::support::{EVERY_ENDED, Fixture, NO_SPACE_RULES, clock, collect_all, end, put, remove, uuid, uuid_of};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn tombstone(uuid: Uuid, pid: u32, collected_at: Timestamp) -> Tombstone {
    let (name, origin, end) = (Some("worker".to_owned()), None, None);
    Tombstone {
        uuid,
        name,
        origin,
        parent_uuid: None,
        budget_uuid: None,
        spent: None,
        ledger: None,
        cwd: None,
        pids: vec![Pid(pid)],
        end,
        dead_at: collected_at,
        collected_at,
    }
}

fn days_before(day: i64, days: i64) -> Timestamp {
    Timestamp::from_millisecond(clock(day).wall.as_millisecond() - days * DAY_MS).unwrap()
}

/// Writes a tombstone file as many years of collecting would.
fn write_tombstones(fixture: &Fixture, tombstones: &[Tombstone]) -> u64 {
    let mut text = String::new();
    for tombstone in tombstones {
        let json = serde_json::to_string(tombstone).unwrap();
        text.push_str(&json[..json.len() - 1]);
        text.push_str(",\"crc\":\"00000000\"}\n");
    }
    let bytes = reseal(text.as_bytes());
    put(&fixture.temp.path().join("tombstones.jsonl"), &bytes);
    bytes.len() as u64
}

/// Collects one process on this day, and returns it.
fn collect_one(fixture: &Fixture, day: i64) -> Uuid {
    let uuid = end(fixture, fixture.spawn());
    let survey = fixture.data.survey(EVERY_ENDED, &clock(day)).unwrap();
    for candidate in &survey.candidates {
        assert_eq!(fixture.data.collect(candidate, clock(day).wall).unwrap(), Collected::Gone);
    }
    uuid
}

fn is_collected(data: &DataDirectory, uuid: Uuid) -> bool {
    matches!(data.known(uuid).unwrap(), Known::Collected(_))
}

#[test]
fn tombstones_older_than_a_year_are_dropped_and_no_pid_is_reused() {
    let fixture = Fixture::new();
    let old: Vec<Tombstone> =
        (0..6_000).map(|n| tombstone(uuid(), 1_000_000 + n, days_before(0, 366 + i64::from(n) % 50))).collect();
    let recent: Vec<Tombstone> = (0..6_000).map(|n| tombstone(uuid(), 1 + n, days_before(0, 300))).collect();
    let all: Vec<Tombstone> = old.iter().chain(&recent).cloned().collect();
    let before = write_tombstones(&fixture, &all);
    let newest = collect_one(&fixture, 0);
    let path = fixture.temp.path().join("tombstones.jsonl");
    let after = path.metadata().unwrap().len();
    assert!(after < before * 6 / 10, "{before} bytes became {after}");
    assert!(is_collected(&fixture.data, newest));
    for index in [0, 17, 5_999] {
        assert!(!is_collected(&fixture.data, old[index].uuid), "{index}");
        assert!(is_collected(&fixture.data, recent[index].uuid), "{index}");
    }
    assert_eq!(fixture.data.tombstones().unwrap().len(), 6_001);
    // The next one is only appended.
    let inode = || std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
    let compacted = inode();
    let next = collect_one(&fixture, 0);
    assert_eq!(inode(), compacted, "it is compacted when it has doubled, not each time");
    let Fixture { temp, data } = fixture;
    drop(data);
    remove(&temp.path().join("pids"));
    remove(&temp.path().join("pids.log"));
    let data = DataDirectory::open(temp.path(), Io::default(), NO_SPACE_RULES).unwrap();
    assert!(is_collected(&data, next) && is_collected(&data, newest));
    assert!(data.next_pid().unwrap() > Pid(1_005_999), "a PID of a forgotten process is given out again");
}

#[test]
fn only_the_newest_tombstones_are_kept() {
    let fixture = Fixture::new();
    let count = u32::try_from(KEPT_MAX).unwrap() + 500;
    let all: Vec<Tombstone> = (0..count).map(|n| tombstone(uuid(), 1 + n, days_before(0, 1))).collect();
    write_tombstones(&fixture, &all);
    let newest = collect_one(&fixture, 0);
    assert_eq!(fixture.data.tombstones().unwrap().len(), KEPT_MAX);
    assert!(is_collected(&fixture.data, newest));
    assert!(!is_collected(&fixture.data, all[500].uuid));
    assert!(is_collected(&fixture.data, all[501].uuid));
    let again = collect_one(&fixture, 0);
    let fixture = fixture.reopen();
    assert!(is_collected(&fixture.data, again) && is_collected(&fixture.data, newest));
}

#[test]
fn a_small_tombstone_file_is_not_compacted() {
    let fixture = Fixture::new();
    let old = uuid();
    write_tombstones(&fixture, &[tombstone(old, 5, days_before(0, 900))]);
    collect_one(&fixture, 0);
    assert!(is_collected(&fixture.data, old));
}

#[test]
fn the_pid_log_keeps_a_few_pids_per_process_and_none_of_collected_ones() {
    let fixture = Fixture::new();
    let [first, second] = [(); 2].map(|()| uuid_of(&fixture.spawn()));
    let gone = end(&fixture, fixture.spawn());
    let pid_of_gone = fixture.history(gone).incarnation().unwrap().pid;
    fixture.data.note_pid(pid_of_gone, gone);
    assert_eq!(collect_all(&fixture), [gone]);
    let path = fixture.temp.path().join("pids.log");
    let mut last = [Pid(0); 2];
    for _ in 0..20_000 {
        for (place, uuid) in [first, second].into_iter().enumerate() {
            last[place] = fixture.data.next_pid().unwrap();
            fixture.data.note_pid(last[place], uuid);
        }
        if last[0].0 % 1_000 < 2 {
            assert!(path.metadata().unwrap().len() <= 130 << 10, "it grows without bound");
        }
    }
    let noted = fixture.data.noted_pids();
    for pair in [(last[0], first), (last[1], second)] {
        assert!(noted.contains(&pair));
    }
    let tombstone = fixture.data.tombstones().unwrap().pop().unwrap();
    assert_eq!((tombstone.uuid, tombstone.pids), (gone, vec![pid_of_gone]));
    assert!(noted.iter().all(|(_, uuid)| *uuid != gone), "of what was collected its tombstone knows");
    assert!(noted.iter().filter(|(_, uuid)| *uuid == first).count() >= NOTED_MAX);
    let fixture = fixture.reopen();
    assert_eq!(fixture.data.noted_pids(), noted);
}

#[test]
fn a_torn_line_in_the_pid_log_corrupts_no_other_line() {
    let fixture = Fixture::new();
    let uuid = uuid_of(&fixture.spawn());
    put(&fixture.temp.path().join("pids.log"), format!("7 {uuid}\n8 0192").as_bytes());
    fixture.data.note_pid(Pid(9), uuid);
    assert_eq!(fixture.data.noted_pids(), [(Pid(7), uuid), (Pid(9), uuid)]);
}

/// After a kill or power cut at any change of a compaction, every tombstone that must be kept is there.
#[cfg(feature = "faults")]
#[test]
fn an_interrupted_compaction_loses_nothing() {
    use relive_journal::Disk;
    use relive_journal::faults::{Faults, Injection, PowerCut, Switches};
    use std::sync::Arc;
    let mut n = 0;
    loop {
        n += 1;
        let mut done = false;
        for injection in [Injection::Stop(n), Injection::StopHalfway(n), Injection::Fail(n, 28), Injection::Fail(n, 5)]
        {
            let fixture = Fixture::new();
            let old: Vec<Tombstone> = (0..3_000).map(|n| tombstone(uuid(), 1 + n, days_before(0, 400))).collect();
            let recent: Vec<Tombstone> = (0..3_000).map(|n| tombstone(uuid(), 1 + n, days_before(0, 3))).collect();
            let all: Vec<Tombstone> = old.iter().chain(&recent).cloned().collect();
            write_tombstones(&fixture, &all);
            let [one, two] = [(); 2].map(|()| end(&fixture, fixture.spawn()));
            let Fixture { temp, data } = fixture;
            let survey = data.survey(EVERY_ENDED, &clock(0)).unwrap();
            drop(data);
            let faults = Arc::new(Faults::new(temp.path(), Injection::None, Switches::default()).unwrap());
            let io = Io::new(Disk::with_faults(Arc::clone(&faults)));
            let data = DataDirectory::open(temp.path(), io, NO_SPACE_RULES).unwrap();
            faults.inject_from_here(injection);
            let mut collected = Vec::new();
            for uuid in [one, two] {
                let candidate = survey.candidates.iter().find(|candidate| candidate.uuid == uuid).unwrap();
                if let Ok(Collected::Gone) = data.collect(candidate, clock(0).wall) {
                    collected.push(uuid);
                }
            }
            done |= faults.injected().is_none();
            let cut = crate::support::temp();
            let root = cut.path().join("data");
            faults.power_cut(&root, PowerCut::Strict).unwrap();
            drop(data);
            for place in [temp.path(), &root] {
                let data = DataDirectory::open(place, Io::default(), NO_SPACE_RULES).unwrap();
                let known = data.tombstones().unwrap();
                for uuid in collected.iter().copied().chain([recent[0].uuid, recent[2_999].uuid]) {
                    let is_known = known.iter().any(|tombstone| tombstone.uuid == uuid);
                    assert!(is_known, "{injection:?} ({:?}): a tombstone is lost", faults.injected());
                }
            }
        }
        if done {
            assert!(n > 8, "nothing was tried");
            return;
        }
    }
}
