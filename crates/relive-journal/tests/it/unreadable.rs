//! A process with unreadable files does not prevent others from being found, and nothing blocks.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use relive_core::{Pid, Uuid};
use relive_journal::data::{ForkPoint, Known, Unreadable};
use relive_journal::payload::Blobs;
use relive_journal::reader::{Cursor, Reader};
use relive_journal::record::OpenedBy;
use relive_journal::{DataDirectory, Disk, Health, Io, Problem, ProcInfo, ProcessDirectory, ProcessMeta};
use rustix::fs::{CWD, FileType, Mode};

use crate::support::{
    EVERY_ENDED, Fixture, clock, end, now, open_journal, opening, put, remove, spawn_request, step, uuid, uuid_of,
};

fn fifo(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

fn directory(path: &Path) {
    Disk::new().mkdir(path).unwrap();
}

fn link_to_itself(path: &Path) {
    std::os::unix::fs::symlink(path, path).unwrap();
}

type PutInstead = fn(&Path);

/// The things that may be in a file's place.
const INSTEAD: [(&str, PutInstead); 3] = [("pipe", fifo), ("directory", directory), ("link", link_to_itself)];

/// Fails if the action blocks for ever.
pub(crate) fn within_a_minute<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(act()));
    receiver.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what}: it waits for ever"))
}

/// Opens the data directory and returns the readable and the unreadable processes of a start.
fn start(root: &Path, what: &str) -> (DataDirectory, Vec<Uuid>, Vec<Unreadable>) {
    let root = root.to_owned();
    within_a_minute(what, move || {
        let data = crate::support::open(&root, Io::default());
        let (mut live, mut unreadable) = (Vec::new(), Vec::new());
        data.for_each_live(|found| match found {
            Ok(found) => live.push(found.uuid),
            Err(error) => unreadable.push(error),
        })
        .unwrap();
        live.sort_unstable();
        (data, live, unreadable)
    })
}

#[test]
fn a_journal_that_cannot_be_read_is_reported_and_the_rest_is_found() {
    for (what, put_instead) in INSTEAD {
        for lost in [None, Some("live"), Some("pids")] {
            let Fixture { temp, data } = Fixture::new();
            let spawn = || data.spawn(spawn_request(uuid(), data.next_pid().unwrap())).unwrap();
            let (good, bad) = (uuid_of(&spawn()), uuid_of(&spawn()));
            let steps = data.directory(bad).steps();
            remove(&steps);
            put_instead(&steps);
            drop(data);
            if let Some(lost) = lost {
                remove(&temp.path().join(lost));
            }
            for _ in 0..2 {
                let (data, live, unreadable) = start(temp.path(), what);
                assert_eq!(live, [good], "{what}, without {lost:?}");
                assert_eq!(unreadable.len(), 1, "{what}, without {lost:?}");
                assert_eq!((unreadable[0].uuid, &unreadable[0].path), (bad, &steps));
                assert!(unreadable[0].to_string().starts_with(&format!("{}: ", steps.display())), "{unreadable:?}");
                assert_eq!(data.live().unwrap().len(), 1);
            }
        }
    }
}

#[test]
fn a_directory_of_a_process_without_its_journal_is_reported() {
    let Fixture { temp, data } = Fixture::new();
    let bad = uuid_of(&data.spawn(spawn_request(uuid(), Pid(1))).unwrap());
    remove(&data.directory(bad).steps());
    drop(data);
    let (_, live, unreadable) = start(temp.path(), "nothing");
    assert_eq!((live.len(), unreadable.len()), (0, 1));
    assert_eq!(unreadable[0].uuid, bad);
}

#[test]
fn a_file_in_place_of_the_directory_of_a_process_is_reported() {
    let Fixture { temp, data } = Fixture::new();
    let bad = uuid_of(&data.spawn(spawn_request(uuid(), Pid(1))).unwrap());
    remove(data.directory(bad).path());
    put(data.directory(bad).path(), b"not a directory");
    drop(data);
    for lost in ["nothing", "live"] {
        remove(&temp.path().join(lost));
        let (_, live, unreadable) = start(temp.path(), "a file");
        assert_eq!((live.len(), unreadable.len()), (0, 1));
        assert_eq!(unreadable[0].uuid, bad);
    }
}

#[test]
fn a_journal_without_permission_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let Fixture { temp, data } = Fixture::new();
    let bad = uuid_of(&data.spawn(spawn_request(uuid(), Pid(1))).unwrap());
    std::fs::set_permissions(data.directory(bad).steps(), PermissionsExt::from_mode(0o000)).unwrap();
    if std::fs::File::open(data.directory(bad).steps()).is_ok() {
        // This user may read everything.
        return;
    }
    drop(data);
    let (_, live, unreadable) = start(temp.path(), "permission");
    assert_eq!((live.len(), unreadable.len()), (0, 1));
    assert_eq!(unreadable[0].source.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_journal_that_may_be_good_is_not_discarded_without_its_lock() {
    use std::os::unix::fs::PermissionsExt;
    let Fixture { temp: _temp, data } = Fixture::new();
    let uuid = uuid_of(&data.spawn(spawn_request(uuid(), Pid(1))).unwrap());
    let steps = data.directory(uuid).steps();
    std::fs::set_permissions(&steps, PermissionsExt::from_mode(0o000)).unwrap();
    if std::fs::File::open(&steps).is_ok() {
        // This user may read everything.
        return;
    }
    let refused = data.discard(uuid, None, now()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    Disk::new().unlink(&steps).unwrap();
    std::os::unix::net::UnixListener::bind(&steps).unwrap();
    data.discard(uuid, None, now()).unwrap();
    assert!(!steps.exists());
}

#[cfg(feature = "faults")]
#[test]
fn a_journal_that_the_disk_cannot_read_is_reported() {
    use relive_journal::faults::{Faults, Injection, Switches};
    for lost in [None, Some("live"), Some("pids")] {
        let Fixture { temp, data } = Fixture::new();
        let spawn = || data.spawn(spawn_request(uuid(), data.next_pid().unwrap())).unwrap();
        let (good, bad) = (uuid_of(&spawn()), uuid_of(&spawn()));
        let steps = data.directory(bad).steps();
        drop(data);
        if let Some(lost) = lost {
            remove(&temp.path().join(lost));
        }
        let faults = Faults::new(temp.path(), Injection::None, Switches::default()).unwrap();
        faults.fail_reads(&steps, 5);
        let data = crate::support::open(temp.path(), Io::new(Disk::with_faults(faults.into())));
        let (mut live, mut unreadable) = (Vec::new(), Vec::new());
        data.for_each_live(|found| match found {
            Ok(found) => live.push(found.uuid),
            Err(error) => unreadable.push((error.uuid, error.source.raw_os_error())),
        })
        .unwrap();
        assert_eq!((live, unreadable), (vec![good], vec![(bad, Some(5))]), "without {lost:?}");
    }
}

/// Creates an unfinished process, with a checkpoint and a snapshot, with one file replaced.
fn with(place: fn(&ProcessDirectory) -> PathBuf, put_instead: fn(&Path)) -> (tempfile::TempDir, Uuid) {
    let Fixture { temp, data } = Fixture::new();
    let mut writer = data.spawn(spawn_request(uuid(), data.next_pid().unwrap())).unwrap();
    step(&mut writer, "one", "1");
    writer.checkpoint().unwrap();
    ProcInfo::of(writer.history()).unwrap().write(&data.io().disk, writer.directory()).unwrap();
    let path = place(writer.directory());
    remove(&path);
    put_instead(&path);
    (temp, uuid_of(&writer))
}

#[test]
fn unreadable_derived_files_change_no_answer() {
    let places: [fn(&ProcessDirectory) -> PathBuf; 3] =
        [ProcessDirectory::checkpoint, ProcessDirectory::previous_checkpoint, ProcessDirectory::proc_info];
    for place in places {
        for (what, put_instead) in INSTEAD {
            let (temp, uuid) = with(place, put_instead);
            for lost in ["nothing", "live", "pids"] {
                remove(&temp.path().join(lost));
                let (data, live, unreadable) = start(temp.path(), what);
                assert_eq!((live, unreadable.len()), (vec![uuid], 0), "{what}");
                let directory = data.directory(uuid);
                let info = within_a_minute(what, move || ProcInfo::read(&directory).unwrap().unwrap());
                assert_eq!((info.uuid, info.step), (uuid, 1), "{what}");
            }
        }
    }
}

#[test]
fn metadata_that_cannot_be_read_is_reported() {
    for (what, put_instead) in INSTEAD {
        let (temp, uuid) = with(ProcessDirectory::process_meta, put_instead);
        let (data, live, unreadable) = start(temp.path(), what);
        assert_eq!((live.len(), unreadable.len()), (0, 1), "{what}");
        assert_eq!((unreadable[0].uuid, &unreadable[0].path), (uuid, &data.directory(uuid).process_meta()));
        let directory = data.directory(uuid);
        assert!(within_a_minute(what, move || ProcessMeta::read(&directory).is_err()), "{what}");
    }
}

#[test]
fn a_pipe_in_place_of_any_file_blocks_nothing() {
    let Fixture { temp, data } = Fixture::new();
    let ended = uuid_of(&data.spawn(spawn_request(uuid(), data.next_pid().unwrap())).unwrap());
    let steps = data.directory(ended).steps();
    remove(&steps);
    fifo(&steps);
    let blobs = Blobs::new(Disk::new(), data.directory(ended).path());
    let hash = relive_journal::Hash::of(b"blob");
    directory(&data.directory(ended).path().join("blobs"));
    fifo(&blobs.path(hash));
    remove(&temp.path().join("pids.log"));
    for name in ["pids.log", "tombstones.jsonl", "clock"] {
        fifo(&temp.path().join(name));
    }
    remove(&temp.path().join("live").join(ended.to_string()));
    within_a_minute("a pipe", move || {
        assert!(matches!(data.known(ended).unwrap(), Known::Here(_)), "it is here, whatever it is");
        assert!(data.history(ended).is_err());
        assert!(data.git_after(ended, 1).is_err());
        assert!(data.write_profile(ended).is_err());
        assert!(data.lineage(ended).is_err());
        assert!(blobs.get(hash).is_err());
        assert!(Reader::new(steps, Cursor::default()).next_item().is_err());
        assert!(open_journal(&data, ended, &opening(Pid(9), OpenedBy::Resume)).is_err());
        let opening = opening(Pid(9), OpenedBy::Spawn);
        assert!(data.fork(crate::support::fork_request(uuid(), ended, ForkPoint::End, opening)).is_err());
        data.note_pid(Pid(9), ended);
        assert!(data.tombstones().unwrap().is_empty(), "what was in its place is set aside");
        assert!(matches!(data.known(uuid()).unwrap(), Known::Never));
        let survey = data.survey(EVERY_ENDED, &clock(0)).unwrap();
        assert_eq!(survey.warnings.len(), 1, "{survey:?}");
    });
    drop(temp);
}

fn terabytes(path: &Path) {
    put(path, b"");
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(1 << 40).unwrap();
}

fn link_to_a_device(path: &Path) {
    std::os::unix::fs::symlink("/dev/zero", path).unwrap();
}

#[test]
fn anything_in_place_of_the_tombstones_is_set_aside_and_collecting_continues() {
    let others: [(&str, PutInstead); 2] = [("terabytes", terabytes), ("device", link_to_a_device)];
    for (what, put_instead) in INSTEAD.into_iter().chain(others) {
        for reads_first in [true, false] {
            let fixture = Fixture::new();
            let gone = end(&fixture, fixture.spawn());
            let path = fixture.temp.path().join("tombstones.jsonl");
            put_instead(&path);
            let Fixture { temp, data } = fixture;
            let (known, set_aside) = within_a_minute(what, move || {
                if reads_first {
                    assert!(matches!(data.known(uuid()).unwrap(), Known::Never));
                }
                let survey = data.survey(EVERY_ENDED, &clock(0)).unwrap();
                data.collect(&survey.candidates[0], clock(0).wall).unwrap();
                (data.known(gone).unwrap(), data.take_set_aside())
            });
            assert!(matches!(known, Known::Collected(_)), "{what}");
            let set_aside = set_aside.unwrap();
            assert_eq!((&set_aside.path, std::fs::symlink_metadata(&set_aside.to).is_ok()), (&path, true), "{what}");
            drop(temp);
        }
    }
}

#[test]
fn an_unreadable_journal_does_not_prevent_collecting_others() {
    let fixture = Fixture::new();
    let [good, bad] = [(); 2].map(|()| end(&fixture, fixture.spawn()));
    remove(&fixture.data.directory(bad).steps());
    link_to_itself(&fixture.data.directory(bad).steps());
    let survey = fixture.data.survey(EVERY_ENDED, &clock(0)).unwrap();
    assert_eq!((survey.candidates[0].uuid, survey.warnings[0].0), (good, bad));
}

#[test]
fn an_endless_journal_is_reported_as_damaged_without_reading_all_of_it() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    let uuid = uuid_of(&writer);
    drop(writer);
    let file = std::fs::OpenOptions::new().write(true).open(fixture.data.directory(uuid).steps()).unwrap();
    file.set_len(1 << 40).unwrap();
    let data = fixture.data;
    let (history, health) = within_a_minute("a sparse journal", move || data.history(uuid).unwrap());
    assert!(matches!(&health, Health::Damaged(hole) if hole.problem == Problem::TooLong), "{health:?}");
    assert_eq!(history.completed_step, 1, "what is before the hole is read");
}
