//! Garbage collection: which processes are collected, which never are, and what is kept of them.

use relive_core::{End, Pid, ProcessStatus, SuspendReason, Uuid};
use relive_journal::data::{ClockReading, CollectError, Collected, GcReason, GcRules, Known};
use relive_journal::record::OpenedBy;
use relive_journal::{Health, Writer};

use crate::support::{
    EVERY_ENDED, Fixture, append, at_moment, clock, collect_all, completed, end, files, now, open_journal, opening,
    paused, put, put_after, remove, step, uuid_of,
};

const NEITHER: GcRules = GcRules { retention_days: None, max_entries: None, older_than_ms: None };

/// Ends a process this many days after the first moment of the tests.
fn ended_on(fixture: &Fixture, day: i64) -> Uuid {
    let mut writer = fixture.spawn();
    writer.append(at_moment(clock(day).wall), vec![completed()], relive_journal::Durability::Synced).unwrap();
    fixture.data.retire(uuid_of(&writer), writer.history()).unwrap();
    uuid_of(&writer)
}

#[test]
fn gc_applies_each_rule_by_itself_and_ignores_absent_ones() {
    let fixture = Fixture::new();
    let uuids: Vec<Uuid> = [5, 1, 3, 2, 4].into_iter().map(|day| ended_on(&fixture, day)).collect();
    let by_age = [uuids[1], uuids[3], uuids[2], uuids[4], uuids[0]];
    let check = |retention_days, max_entries, on_day, expect: &[GcReason]| {
        let survey =
            fixture.data.survey(GcRules { retention_days, max_entries, older_than_ms: None }, &clock(on_day)).unwrap();
        let found: Vec<_> = survey.candidates.iter().map(|one| (one.uuid, one.reason)).collect();
        let expect: Vec<_> = by_age.iter().copied().zip(expect.iter().copied()).collect();
        assert_eq!(found, expect, "{retention_days:?} days, {max_entries:?} entries, on day {on_day}");
        assert!(survey.warnings.is_empty());
    };
    let (old, many) = (GcReason::Retention, GcReason::MaxEntries);
    check(None, None, 9, &[]);
    check(Some(7), None, 9, &[old]);
    check(Some(8), None, 9, &[]);
    check(Some(6), Some(5), 9, &[old, old]);
    check(Some(7), Some(3), 9, &[old, many]);
    check(None, Some(0), 9, &[many; 5]);
    check(None, Some(4), 9, &[many]);
    check(Some(0), None, 9, &[old; 5]);
    assert_eq!(fixture.data.survey(NEITHER, &clock(9)).unwrap().candidates, []);
}

#[test]
fn case_29_a_survey_changes_no_journal_and_living_processes_are_never_candidates() {
    let fixture = Fixture::new();
    let dead = end(&fixture, fixture.spawn());
    let running = fixture.spawn();
    let mut suspended = fixture.spawn();
    append(&mut suspended, vec![paused(SuspendReason::User)]);
    let (interrupted, suspended) = (uuid_of(&fixture.spawn()), uuid_of(&suspended));
    let before = files(&fixture.temp.path().join("steps"));
    for _ in 0..2 {
        let survey = fixture.data.survey(EVERY_ENDED, &clock(0)).unwrap();
        assert_eq!(survey.candidates.iter().map(|one| one.uuid).collect::<Vec<_>>(), [dead]);
        let bytes: usize = files(fixture.data.directory(dead).path()).values().map(Vec::len).sum();
        assert_eq!(survey.candidates[0].bytes, bytes as u64);
    }
    assert!(files(&fixture.temp.path().join("steps")) == before);
    // Not even without their markers.
    for uuid in [uuid_of(&running), suspended, interrupted] {
        remove(&fixture.temp.path().join("live").join(uuid.to_string()));
    }
    let survey = fixture.data.survey(EVERY_ENDED, &clock(0)).unwrap();
    assert_eq!((survey.candidates.len(), survey.warnings.len()), (1, 3));
}

#[test]
fn case_29_corrupt_metadata_is_skipped_with_a_warning() {
    let fixture = Fixture::new();
    let [good, snapshot, both, journal] = [(); 4].map(|()| end(&fixture, fixture.spawn()));
    put(&fixture.data.directory(snapshot).proc_info(), b"rubbish");
    for uuid in [both, journal] {
        put(&fixture.data.directory(uuid).steps(), b"rubbish");
    }
    put(&fixture.data.directory(both).proc_info(), b"rubbish");
    let survey = fixture.data.survey(EVERY_ENDED, &clock(0)).unwrap();
    let mut found: Vec<Uuid> = survey.candidates.iter().map(|one| one.uuid).collect();
    let mut warned: Vec<Uuid> = survey.warnings.iter().map(|(uuid, _)| *uuid).collect();
    found.sort_unstable();
    warned.sort_unstable();
    assert_eq!(found, [good, snapshot], "a snapshot that is wrong is derived anew");
    assert_eq!(warned, [both, journal]);
    assert!(survey.warnings[0].1.contains("does not describe the process"), "{:?}", survey.warnings);
}

#[test]
fn case_29_a_process_that_was_resumed_after_the_survey_is_not_collected() {
    let fixture = Fixture::new();
    let resume: [fn(&Fixture, Uuid) -> Option<Writer>; 3] = [
        // It runs.
        |fixture, uuid| Some(fixture.resume(uuid)),
        // It ran, and was interrupted.
        |fixture, uuid| {
            drop(fixture.resume(uuid));
            None
        },
        // It ran, and ended again.
        |fixture, uuid| {
            end(fixture, fixture.resume(uuid));
            None
        },
    ];
    for resume in resume {
        let uuid = end(&fixture, fixture.spawn());
        let survey = fixture.data.survey(EVERY_ENDED, &clock(0)).unwrap();
        let candidate = survey.candidates.iter().find(|one| one.uuid == uuid).unwrap();
        let writer = resume(&fixture, uuid);
        assert_eq!(fixture.data.collect(candidate, now()).unwrap(), Collected::Spared);
        assert!(matches!(fixture.data.known(uuid).unwrap(), Known::Here(_)));
        drop(writer);
        assert_eq!(fixture.health(uuid), Health::Good);
    }
    let uuid = end(&fixture, fixture.spawn());
    let survey = fixture.data.survey(EVERY_ENDED, &clock(0)).unwrap();
    let candidate = survey.candidates.iter().find(|one| one.uuid == uuid).unwrap();
    assert_eq!(fixture.data.collect(candidate, now()).unwrap(), Collected::Gone);
    assert_eq!(fixture.data.collect(candidate, now()).unwrap(), Collected::Spared, "it is gone already");
}

#[test]
fn the_first_survey_after_a_clock_jump_is_refused() {
    let fixture = Fixture::new();
    ended_on(&fixture, 0);
    let at = |wall: i64, since_boot: i64, boot: &str| ClockReading {
        wall: clock(wall).wall,
        since_boot_ms: clock(since_boot).since_boot_ms,
        boot_id: boot.to_owned(),
    };
    let check = |reading: ClockReading, jumped_hours: Option<i64>| {
        let found = fixture.data.survey(EVERY_ENDED, &reading);
        match (found, jumped_hours) {
            (Ok(survey), None) => assert_eq!(survey.candidates.len(), 1),
            (Err(CollectError::ClockJumped { hours }), Some(expected)) => assert_eq!(hours, expected),
            (found, _) => panic!("{reading:?}: {found:?}"),
        }
    };
    check(at(100, 1, "a"), None);
    check(at(110, 11, "a"), None);
    check(at(111, 11, "a"), None); // a day is not more than a day
    check(at(140, 12, "a"), Some(28 * 24));
    check(at(141, 13, "a"), None);
    check(at(100, 14, "a"), Some(-42 * 24));
    check(at(101, 15, "a"), None);
    check(at(300, 0, "b"), None); // it was off for long
    check(at(298, 0, "c"), Some(-48));
    check(at(298, 1, "c"), None);
    put(&fixture.temp.path().join("clock"), b"rubbish");
    check(at(900, 1, "c"), None);
}

#[test]
fn a_tombstone_is_found_after_a_restart_even_if_its_file_was_torn() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    let first = end(&fixture, writer);
    let pid = fixture.history(first).incarnation().unwrap().pid;
    collect_all(&fixture);
    let path = fixture.temp.path().join("tombstones.jsonl");
    put_after(&path, b"{\"uuid\":\"torn");
    let fixture = fixture.reopen();
    let check = |fixture: &Fixture| {
        let Known::Collected(tombstone) = fixture.data.known(first).unwrap() else { panic!("it is forgotten") };
        assert_eq!((tombstone.uuid, tombstone.pids), (first, vec![pid]));
        assert_eq!(tombstone.end, Some(End::of(ProcessStatus::Exited { code: 0 })));
    };
    check(&fixture);
    let second = end(&fixture, fixture.spawn());
    assert_eq!(collect_all(&fixture), [second]);
    put_after(&path, &vec![b'x'; 3 << 20]);
    let third = end(&fixture, fixture.spawn());
    assert_eq!(collect_all(&fixture), [third]);
    let fixture = fixture.reopen();
    check(&fixture);
    for uuid in [second, third] {
        assert!(matches!(fixture.data.known(uuid).unwrap(), Known::Collected(_)), "what was torn was cut off first");
    }
    assert_eq!(std::fs::read_dir(fixture.temp.path().join("tmp")).unwrap().count(), 0);
    let refused = open_journal(&fixture.data, first, &opening(Pid(99), OpenedBy::Resume)).unwrap_err();
    assert!(matches!(refused, relive_journal::WriteError::Absent { .. }), "{refused}");
    assert!(fixture.data.live().unwrap().is_empty(), "no marker stays of the attempt");
}
