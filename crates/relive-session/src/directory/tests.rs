use super::ctl::CTL;
use super::*;
use crate::exit::Used;
use crate::protocol::CONNECTIONS_MAX;
use crate::stage::{Mode as LaunchMode, SessionResult, Stage};

const OTHER_BOOT: &str = "00000000-0000-0000-0000-000000000000";

fn make() -> (tempfile::TempDir, SessionDirectory, OwnedFd) {
    let outer = tempfile::tempdir().unwrap();
    let (directory, lock) = SessionDirectory::create(outer.path().join("session")).unwrap();
    (outer, directory, lock)
}

fn state(stage: RecordedStage) -> State {
    let snapshot = Snapshot {
        mode: LaunchMode::Spawn,
        stage: Stage::Running,
        host_pid: Some(7),
        child_pid: Some(7),
        init_pid: None,
        pty: false,
        result: None,
    };
    State {
        version: STATE_VERSION,
        boot_id: boot_id().unwrap(),
        stage,
        shim_pid: 6,
        host_pid: Some(7),
        start_time: Some(1),
        snapshot,
        tree: Made::default(),
        rungs: Rungs::default(),
        guarded: None,
    }
}

fn exit_record() -> ExitRecord {
    ExitRecord {
        version: 1,
        result: SessionResult::Exited(3),
        why: None,
        by: None,
        last_signal: None,
        host_pid: Some(7),
        child_pid: Some(7),
        at_ms: 1,
        up_ms: None,
        log_end: 20,
        used: Used::default(),
        output_lost: false,
        timed_out: false,
        oom_kills: 0,
        left: Vec::new(),
    }
}

fn look(directory: &SessionDirectory) -> Found {
    directory.look(&boot_id().unwrap()).unwrap()
}

#[test]
fn a_directory_whose_creator_died_before_the_rename_does_not_exist() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("session");
    rustix::fs::mkdir(outer.path().join(".session"), Mode::RWXU).unwrap();
    let (directory, lock) = SessionDirectory::create(path.clone()).unwrap();
    assert!(matches!(look(&directory), Found::Starting));
    drop(lock);
    assert!(matches!(look(&directory), Found::NeverRan));
    drop(SessionDirectory::create_again(&path).unwrap());
    assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_is_created_once_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_outer, directory, _lock) = make();
    let again = SessionDirectory::create(directory.path()).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    directory.write_state(&state(RecordedStage::Ready)).unwrap();
    let _listener = directory.ctl_bind().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(directory.path()), 0o700);
    for name in [LOCK, STATE, CTL] {
        assert_eq!(mode(&directory.path().join(name)), 0o600, "{name}");
    }
}

#[test]
fn records_are_read_back_and_missing_ones_are_none() {
    let (_outer, directory, _lock) = make();
    assert_eq!(directory.read_state().unwrap(), None);
    assert_eq!(directory.read_exit().unwrap(), None);
    directory.write_state(&state(RecordedStage::Starting)).unwrap();
    directory.write_state(&state(RecordedStage::Running)).unwrap();
    directory.write_exit(&exit_record()).unwrap();
    assert_eq!(directory.read_state().unwrap(), Some(state(RecordedStage::Running)));
    assert_eq!(directory.read_exit().unwrap(), Some(exit_record()));
}

#[test]
fn an_unreadable_record_does_not_mean_that_nothing_ran() {
    let (_outer, directory, lock) = make();
    drop(lock);
    let mut file = File::from(directory.open_file(EXIT, OFlags::CREATE | OFlags::WRONLY).unwrap());
    file.write_all(b"{\"version\":1").unwrap();
    assert!(matches!(look(&directory), Found::ShimLost(None)));
}

#[test]
fn the_lock_is_free_when_its_last_copy_is_closed() {
    let (_outer, directory, lock) = make();
    let inherited = rustix::io::dup(&lock).unwrap();
    drop(lock);
    assert!(!directory.lock_is_free().unwrap());
    drop(inherited);
    assert!(directory.lock_is_free().unwrap());
}

#[test]
fn an_exit_record_decides_once_the_shim_is_gone() {
    let (_outer, directory, lock) = make();
    let _listener = directory.ctl_bind().unwrap();
    directory.write_exit(&exit_record()).unwrap();
    assert!(matches!(look(&directory), Found::Alive(_)), "the program may have written it");
    drop(lock);
    assert!(matches!(look(&directory), Found::Ended(record) if record == exit_record()));
    assert!(matches!(directory.look(OTHER_BOOT).unwrap(), Found::Ended(_)));
}

#[test]
fn a_shim_that_answers_is_alive_even_below_a_long_path() {
    let outer = tempfile::tempdir().unwrap();
    let long = outer.path().join("x".repeat(200));
    let (directory, _lock) = SessionDirectory::create(&long).unwrap();
    let _listener = directory.ctl_bind().unwrap();
    let found = look(&SessionDirectory::open(&long).unwrap());
    assert!(matches!(found, Found::Alive(_)), "{found:?}");
}

#[test]
fn a_held_lock_without_an_answer_means_look_again() {
    let (_outer, directory, _lock) = make();
    assert!(matches!(look(&directory), Found::Starting));
    // Its socket is closed and it is about to exit.
    drop(directory.ctl_bind().unwrap());
    directory.write_state(&state(RecordedStage::Running)).unwrap();
    assert!(matches!(look(&directory), Found::Starting));
}

#[test]
fn a_full_backlog_of_connections_does_not_mean_that_the_shim_is_dead() {
    let (_outer, directory, _lock) = make();
    let _listener = directory.ctl_bind().unwrap();
    let mut waiting = Vec::new();
    while let Found::Alive(connection) = look(&directory) {
        waiting.push(connection);
        assert!(waiting.len() < 10 * CONNECTIONS_MAX, "no bound");
    }
    assert!(matches!(look(&directory), Found::Starting));
}

#[test]
fn a_program_without_a_running_state_never_ran() {
    let (_outer, directory, lock) = make();
    drop(lock);
    assert!(matches!(look(&directory), Found::NeverRan));
    for stage in [RecordedStage::Starting, RecordedStage::Ready] {
        directory.write_state(&state(stage)).unwrap();
        assert!(matches!(look(&directory), Found::NeverRan));
    }
    directory.write_state(&state(RecordedStage::Running)).unwrap();
    assert!(matches!(look(&directory), Found::ShimLost(Some(state)) if state.shim_pid == 6));
}

#[test]
fn a_directory_of_another_boot_never_says_that_nothing_ran() {
    let (_outer, directory, lock) = make();
    drop(lock);
    // The state may have been lost with the power: its absence proves nothing.
    assert!(matches!(directory.look(OTHER_BOOT).unwrap(), Found::OtherBoot(None)));
    directory.write_state(&state(RecordedStage::Ready)).unwrap();
    assert!(matches!(directory.look(OTHER_BOOT).unwrap(), Found::OtherBoot(Some(_))));
    // And so may the content of the lock file.
    rustix::fs::ftruncate(directory.open_file(LOCK, OFlags::RDWR).unwrap(), 0).unwrap();
    assert!(matches!(directory.look(OTHER_BOOT).unwrap(), Found::OtherBoot(Some(_))));
}

#[test]
fn a_lock_that_was_replaced_in_this_boot_does_not_make_the_host_lost() {
    for stage in [RecordedStage::Ready, RecordedStage::Running] {
        let (_outer, directory, lock) = make();
        drop(lock);
        directory.write_state(&state(stage)).unwrap();
        rustix::fs::ftruncate(directory.open_file(LOCK, OFlags::RDWR).unwrap(), 0).unwrap();
        assert!(matches!(look(&directory), Found::ShimLost(Some(_))), "{stage:?}: something ran");
    }
}

#[test]
fn an_exit_record_at_the_end_of_the_log_counts_when_the_other_is_lost() {
    let (_outer, directory, lock) = make();
    directory.write_state(&state(RecordedStage::Running)).unwrap();
    let mut log = crate::log::Writer::open(&directory, 1 << 20).unwrap();
    log.append_exit(&serde_json::to_vec(&exit_record()).unwrap()).unwrap();
    assert!(matches!(look(&directory), Found::Starting), "the shim has not gone");
    drop(lock);
    assert!(matches!(look(&directory), Found::Ended(record) if record == exit_record()));
    // What a power cut may leave of a file that was not synced.
    directory.open_file(EXIT, OFlags::CREATE | OFlags::WRONLY).unwrap();
    let found = directory.look(OTHER_BOOT).unwrap();
    assert!(matches!(&found, Found::Ended(record) if *record == exit_record()), "{found:?}");
}

#[test]
fn a_file_that_another_boot_spoilt_says_nothing() {
    let (_outer, directory, lock) = make();
    drop(lock);
    for name in [EXIT, STATE] {
        directory.open_file(name, OFlags::CREATE | OFlags::WRONLY).unwrap();
    }
    assert!(matches!(directory.look(OTHER_BOOT).unwrap(), Found::OtherBoot(None)));
    assert!(matches!(look(&directory), Found::ShimLost(None)));
}

/// A shim ends during the looks: every look reports alive, starting or ended, and never lost.
#[test]
fn a_shim_that_ends_during_a_look_is_never_reported_as_lost() {
    for _ in 0..100 {
        let (_outer, directory, lock) = make();
        directory.write_state(&state(RecordedStage::Running)).unwrap();
        let listener = directory.ctl_bind().unwrap();
        let theirs = SessionDirectory::open(directory.path()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                theirs.write_exit(&exit_record()).unwrap();
                drop(listener);
                drop(lock);
            });
            loop {
                match look(&directory) {
                    Found::Ended(_) => break,
                    Found::Alive(_) | Found::Starting => {}
                    found @ (Found::NeverRan | Found::ShimLost(_) | Found::OtherBoot(_)) => panic!("{found:?}"),
                }
            }
        });
    }
}
