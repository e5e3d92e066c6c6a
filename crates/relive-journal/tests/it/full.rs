//! A full disk: the data directory opens, answers and collects.

use std::path::Path;
use std::sync::Arc;

use relive_core::Uuid;
use relive_journal::data::{CollectError, Collected, Known, SpaceRules};
use relive_journal::faults::{Faults, Full, Injection, Switches};
use relive_journal::record::OpenedBy;
use relive_journal::{DataDirectory, Disk, Io, ProcInfo, WriteError};

use crate::support::{
    EVERY_ENDED, Fixture, NO_SPACE_RULES, append, clock, completed, end, moment, now, open_journal, opening, remove,
    step, uuid_of,
};

const RULES: SpaceRules = SpaceRules { reserve_bytes: 4096, floor_bytes: 0 };

/// A data directory with a reserve, one ended process, one ended process that still has its marker, and one that has
/// not ended.
struct Before {
    temp: tempfile::TempDir,
    ended: Uuid,
    marked: Uuid,
    live: Uuid,
}

fn before() -> Before {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    let ended = end(&fixture, writer);
    let mut writer = fixture.spawn();
    append(&mut writer, vec![completed()]);
    let marked = uuid_of(&writer);
    drop(writer);
    let live = uuid_of(&fixture.spawn());
    let Fixture { temp, data } = fixture;
    drop(data);
    drop(DataDirectory::open(temp.path(), Io::default(), RULES).unwrap());
    assert!(temp.path().join("reserve").exists());
    Before { temp, ended, marked, live }
}

fn full(root: &Path, full: Full) -> (Arc<Faults>, Io) {
    let faults = Arc::new(Faults::new(root, Injection::None, Switches::default()).unwrap());
    faults.fill_up(full);
    let io = Io::new(Disk::with_faults(Arc::clone(&faults)));
    (faults, io)
}

/// Opens the full disk, checks that every process there answers, and returns it.
fn open_full(before: &Before, io: &Io, what: &str) -> DataDirectory {
    let data = DataDirectory::open(before.temp.path(), io.clone(), RULES)
        .unwrap_or_else(|error| panic!("{what}: a full disk keeps it from opening: {error}"));
    let live: Vec<Uuid> = data.live().unwrap().into_iter().map(|live| live.uuid).collect();
    assert_eq!(live, [before.live], "{what}");
    for uuid in [before.ended, before.marked, before.live] {
        assert!(matches!(data.known(uuid).unwrap(), Known::Here(_)), "{what}");
        assert_eq!(ProcInfo::read(&data.directory(uuid)).unwrap().unwrap().uuid, uuid, "{what}");
        assert!(data.history(uuid).is_ok(), "{what}");
    }
    data
}

/// Files that may be missing on a full disk.
const LOST: [&str; 6] = ["nothing", "live", "pids", "lock", "clock", "pids.log"];

#[test]
fn a_full_disk_opens_and_answers_and_refuses_new_processes() {
    for lost in LOST {
        let before = before();
        remove(&before.temp.path().join(lost));
        let (faults, io) = full(before.temp.path(), Full::Always);
        if lost == "lock" {
            // Without space for a lock, another daemon cannot be ruled out.
            assert!(DataDirectory::open(before.temp.path(), io, RULES).is_err());
            continue;
        }
        let data = open_full(&before, &io, lost);
        let survey = data.survey(EVERY_ENDED, &clock(0)).unwrap();
        assert_eq!(survey.candidates.len(), 2, "without {lost}: what has ended may go, marked or not");
        assert!(
            data.collect(&survey.candidates[0], now()).is_err(),
            "without {lost}: there is no room for a tombstone"
        );
        assert!(matches!(data.known(before.ended).unwrap(), Known::Here(_)));
        let refused = open_journal(&data, before.live, &opening(relive_core::Pid(99), OpenedBy::Resume));
        assert!(refused.is_err(), "without {lost}: nothing is acknowledged");
        // The disk has space again.
        faults.make_room();
        for candidate in &survey.candidates {
            assert_eq!(data.collect(candidate, now()).unwrap(), Collected::Gone, "without {lost}");
        }
        let pid = data.next_pid().unwrap();
        drop(open_journal(&data, before.live, &opening(pid, OpenedBy::Resume)).unwrap());
        drop(data);
        let data = DataDirectory::open(before.temp.path(), Io::default(), RULES).unwrap();
        assert_eq!(data.live().unwrap().len(), 1, "without {lost}");
        assert!(data.next_pid().unwrap() > pid);
    }
}

#[test]
fn a_full_disk_collects_with_the_reserve_and_allocates_it_again() {
    for lost in LOST {
        let before = before();
        remove(&before.temp.path().join(lost));
        let (_, io) = full(before.temp.path(), Full::UntilRelieved);
        let data = open_full(&before, &io, lost);
        if lost != "lock" {
            assert!(before.temp.path().join("reserve").exists(), "without {lost}: a start needs no room");
        }
        let survey = data.survey(EVERY_ENDED, &clock(0)).unwrap();
        for candidate in &survey.candidates {
            assert_eq!(data.collect(candidate, now()).unwrap(), Collected::Gone, "without {lost}");
            assert!(matches!(data.known(candidate.uuid).unwrap(), Known::Collected(_)), "without {lost}");
        }
        assert!(before.temp.path().join("reserve").exists(), "without {lost}: it is taken again");
        drop(data);
        let data = DataDirectory::open(before.temp.path(), Io::default(), RULES).unwrap();
        assert!(matches!(data.known(before.ended).unwrap(), Known::Collected(_)), "without {lost}");
        assert!(matches!(data.known(before.marked).unwrap(), Known::Collected(_)), "without {lost}");
        assert_eq!(data.live().unwrap().len(), 1, "without {lost}");
    }
}

#[test]
fn a_full_disk_without_a_reserve_collects_by_deleting_derived_files_first() {
    for removed in ["proc-info.json", "events.jsonl"] {
        let fixture = Fixture::new();
        let mut writer = fixture.spawn();
        step(&mut writer, "one", "1");
        writer.append_event(now(), 1, "open", &serde_json::json!({})).unwrap();
        let uuid = end(&fixture, writer);
        let Fixture { temp, data } = fixture;
        drop(data);
        let (_, io) = full(temp.path(), Full::UntilRemoved(removed));
        let data = DataDirectory::open(temp.path(), io, NO_SPACE_RULES).unwrap();
        let survey = data.survey(EVERY_ENDED, &clock(0)).unwrap();
        assert_eq!(data.collect(&survey.candidates[0], now()).unwrap(), Collected::Gone, "{removed}");
        assert!(matches!(data.known(uuid).unwrap(), Known::Collected(_)), "{removed}");
    }
}

#[test]
fn on_a_full_disk_an_end_recorded_with_the_reserve_can_be_collected() {
    let before = before();
    let (faults, io) = full(before.temp.path(), Full::Always);
    faults.make_room();
    let data = DataDirectory::open(before.temp.path(), io, RULES).unwrap();
    let mut writer = open_journal(&data, before.live, &opening(data.next_pid().unwrap(), OpenedBy::Resume)).unwrap();
    faults.fill_up(Full::UntilRelieved);
    let refused = writer.append(moment(), vec![completed()], relive_journal::Durability::Synced).unwrap_err();
    assert!(matches!(refused, WriteError::DiskFull { .. }), "{refused}");
    data.release_reserve().unwrap();
    append(&mut writer, vec![completed()]);
    // Other programs used up the rest.
    faults.fill_up(Full::Always);
    data.retire(before.live, writer.history()).unwrap();
    drop(writer);
    assert!(data.live().unwrap().is_empty(), "its marker is gone");
    assert!(data.survey(EVERY_ENDED, &clock(0)).unwrap().candidates.iter().any(|one| one.uuid == before.live));
}

#[test]
fn on_a_full_disk_the_first_survey_after_a_clock_jump_is_refused_too() {
    let before = before();
    let (_, io) = full(before.temp.path(), Full::Always);
    let data = open_full(&before, &io, "a clock");
    let jumped = relive_journal::data::ClockReading { since_boot_ms: 0, ..clock(40) };
    assert!(data.survey(EVERY_ENDED, &clock(0)).is_ok());
    assert!(matches!(data.survey(EVERY_ENDED, &jumped), Err(CollectError::ClockJumped { .. })));
    assert!(data.survey(EVERY_ENDED, &jumped).is_ok());
}

/// An existing data directory opens, whichever single change finds no space.
#[test]
fn a_start_succeeds_whichever_single_change_finds_no_space() {
    for lost in ["nothing", "live", "pids"] {
        for n in 1..40 {
            let before = before();
            remove(&before.temp.path().join(lost));
            let faults = Faults::new(before.temp.path(), Injection::Fail(n, 28), Switches::default()).unwrap();
            let faults = Arc::new(faults);
            let io = Io::new(Disk::with_faults(Arc::clone(&faults)));
            let data = open_full(&before, &io, &format!("without {lost}, change {n} ({:?})", faults.injected()));
            let survey = data.survey(EVERY_ENDED, &clock(0)).unwrap();
            for candidate in &survey.candidates {
                let collected = data.collect(candidate, now());
                assert!(collected.is_ok(), "without {lost}, change {n} ({:?}): {collected:?}", faults.injected());
            }
            if faults.injected().is_none() {
                break;
            }
        }
    }
}
