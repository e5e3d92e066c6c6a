use super::*;
use crate::exit::Used;
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
    }
}

fn exit_record() -> ExitRecord {
    ExitRecord {
        version: 1,
        result: SessionResult::Exited(3),
        why: None,
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
fn a_directory_whose_maker_died_before_it_had_its_name_was_never_made() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("session");
    rustix::fs::mkdir(outer.path().join(".session"), Mode::RWXU).unwrap();
    let (directory, lock) = SessionDirectory::create(path.clone()).unwrap();
    assert!(matches!(look(&directory), Found::Starting));
    drop(lock);
    assert!(matches!(look(&directory), Found::NeverRan));
    SessionDirectory::discard(&path).unwrap();
    assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_is_made_once_and_is_nobody_elses() {
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
fn what_is_written_is_read_and_what_is_not_there_is_none() {
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
fn a_record_that_cannot_be_read_does_not_mean_that_nothing_ran() {
    let (_outer, directory, lock) = make();
    drop(lock);
    let mut file = File::from(directory.open_file(EXIT, OFlags::CREATE | OFlags::WRONLY).unwrap());
    file.write_all(b"{\"version\":1").unwrap();
    assert!(matches!(look(&directory), Found::ShimLost(None)));
}

#[test]
fn a_copy_of_the_lock_keeps_it_and_the_last_one_frees_it() {
    let (_outer, directory, lock) = make();
    let inherited = rustix::io::dup(&lock).unwrap();
    drop(lock);
    assert!(!directory.lock_is_free().unwrap());
    drop(inherited);
    assert!(directory.lock_is_free().unwrap());
}

#[test]
fn an_exit_record_decides_when_the_shim_has_gone_whatever_else_is_there() {
    let (_outer, directory, lock) = make();
    let _listener = directory.ctl_bind().unwrap();
    directory.write_exit(&exit_record()).unwrap();
    assert!(matches!(look(&directory), Found::Alive(_)), "the program may have written it");
    drop(lock);
    assert!(matches!(look(&directory), Found::Ended(record) if record == exit_record()));
    assert!(matches!(directory.look(OTHER_BOOT).unwrap(), Found::Ended(_)));
}

#[test]
fn who_answers_is_alive_also_below_a_long_path() {
    let outer = tempfile::tempdir().unwrap();
    let long = outer.path().join("x".repeat(200));
    let (directory, _lock) = SessionDirectory::create(&long).unwrap();
    let _listener = directory.ctl_bind().unwrap();
    let found = look(&SessionDirectory::open(&long).unwrap());
    assert!(matches!(found, Found::Alive(_)), "{found:?}");
}

#[test]
fn a_held_lock_without_an_answer_means_ask_again() {
    let (_outer, directory, _lock) = make();
    assert!(matches!(look(&directory), Found::Starting));
    // Its socket is closed and it is just leaving.
    drop(directory.ctl_bind().unwrap());
    directory.write_state(&state(RecordedStage::Running)).unwrap();
    assert!(matches!(look(&directory), Found::Starting));
}

#[test]
fn too_many_that_wait_for_the_shim_do_not_make_it_dead() {
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
fn a_program_the_directory_does_not_speak_of_never_ran() {
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
    // The state may have been lost with the power: its absence shows nothing.
    assert!(matches!(directory.look(OTHER_BOOT).unwrap(), Found::OtherBoot(None)));
    directory.write_state(&state(RecordedStage::Ready)).unwrap();
    assert!(matches!(directory.look(OTHER_BOOT).unwrap(), Found::OtherBoot(Some(_))));
    // And so may what the lock file said.
    rustix::fs::ftruncate(directory.open_file(LOCK, OFlags::RDWR).unwrap(), 0).unwrap();
    assert!(matches!(look(&directory), Found::OtherBoot(Some(_))));
}

/// A shim that ends while somebody looks: every look says alive, ask again, or ended, and never lost.
#[test]
fn an_end_during_the_look_is_an_end() {
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
