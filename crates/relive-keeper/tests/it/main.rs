//! A keeper in its own process, and its clients.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use relive_keeper::{Error, Group, Keeper, Refusal};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tempfile::TempDir;

const SECRET: &[u8] = b"sk-planted-51";
/// The first frame of a daemon.
const HELLO: [u8; 9] = [5, 0, 0, 0, 1, 1, 0, 1, 0];
const NOT_HOLDER: [u8; 6] = [2, 0, 0, 0, 131, 1];

struct Place {
    data: TempDir,
    lock: File,
}

fn open_lock(data: &Path) -> File {
    File::options().create(true).truncate(false).read(true).write(true).open(data.join("lock")).unwrap()
}

impl Place {
    fn new() -> Self {
        let data = TempDir::new().unwrap();
        let lock = open_lock(data.path());
        lock.try_lock().unwrap();
        Self { data, lock }
    }

    fn start(&self) -> Keeper {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_keeper-test-process"));
        Keeper::start(&program, self.data.path(), self.lock.as_fd()).unwrap()
    }

    fn find(&self) -> Option<Keeper> {
        Keeper::find(self.data.path(), self.lock.as_fd()).unwrap()
    }

    /// Connects an unproved client.
    fn stranger(&self) -> UnixStream {
        let stream = UnixStream::connect(self.data.path().join("keeper")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }
}

fn sorted(mut groups: Vec<Group>) -> Vec<Group> {
    groups.iter_mut().for_each(|(keys, _)| keys.sort_unstable());
    groups.sort();
    groups
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_alive(os_pid: u32) -> bool {
    // A zombie has no command line.
    std::fs::read(format!("/proc/{os_pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn values_outlive_the_daemon_and_are_passed_to_the_next() {
    let place = Place::new();
    let mut keeper = place.start();
    keeper.put(&[1, 2], SECRET).unwrap();
    keeper.put(&[3], b"other").unwrap();
    keeper.put(&[2], b"new").unwrap();
    keeper.remove(&[3, 4]).unwrap();
    let kept = vec![(vec![1], SECRET.to_vec()), (vec![2], b"new".to_vec())];
    assert_eq!(sorted(keeper.list().unwrap()), kept);
    let os_pid = keeper.os_pid().unwrap();
    drop(keeper);
    let mut again = place.find().unwrap();
    assert_eq!((again.os_pid(), sorted(again.list().unwrap())), (Some(os_pid), kept));
    // More keys than fit into a frame, and the longest value.
    let keys: Vec<u128> = (0..16_000).collect();
    let long = vec![7; relive_keeper::VALUE_MAX_BYTES];
    again.put(&keys, &long).unwrap();
    let groups = again.list().unwrap();
    assert_eq!(groups.iter().map(|(keys, _)| keys.len()).sum::<usize>(), keys.len());
    assert!(groups.iter().all(|(_, value)| *value == long));
    again.end();
}

#[test]
fn a_client_without_the_lock_gets_nothing_and_blocks_nobody() {
    let place = Place::new();
    let mut keeper = place.start();
    keeper.put(&[1], SECRET).unwrap();
    let answer = |mut stream: UnixStream| {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    let greet = |descriptor: &File| {
        let stream = place.stranger();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let descriptors = [descriptor.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(&stream, &[IoSlice::new(&HELLO)], &mut control, SendFlags::NOSIGNAL).unwrap();
        answer(stream)
    };
    assert_eq!(greet(&open_lock(place.data.path())), NOT_HOLDER, "the file without its lock");
    assert_eq!(greet(&File::open("/dev/null").unwrap()), NOT_HOLDER);
    for said in [&HELLO[..], &[1, 0, 0, 0, 4], &[5, 0, 0, 0, 3, 0, 0, 0, 0]] {
        let mut stream = place.stranger();
        stream.write_all(said).unwrap();
        assert_eq!(answer(stream), NOT_HOLDER, "{said:?}");
    }
    let mut stream = place.stranger();
    stream.write_all(&[0xff; 4096]).unwrap();
    assert!(answer(stream).len() <= 6);
    let _silent: Vec<UnixStream> = (0..40).map(|_| place.stranger()).collect();
    let mut next = place.find().unwrap();
    assert_eq!(next.list().unwrap(), [(vec![1], SECRET.to_vec())]);
    // There is one holder: the previous daemon has lost the lock.
    assert!(matches!(keeper.list(), Err(Error::Io(_))));
    next.end();
}

#[test]
fn a_keeper_is_not_started_without_the_lock() {
    let place = Place::new();
    place.lock.unlock().unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_keeper-test-process"));
    let refused = Keeper::start(&program, place.data.path(), place.lock.as_fd()).unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::NotHolder)), "{refused}");
    assert!(!place.data.path().join("keeper").exists());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a file of the test's own")]
fn a_daemon_inside_of_a_process_gets_nothing_and_replaces_no_keeper() {
    let place = Place::new();
    let mut keeper = place.start();
    keeper.put(&[1], SECRET).unwrap();
    let os_pid = keeper.os_pid();
    drop(keeper);
    std::fs::write(place.data.path().join("inside"), "").unwrap();
    let inside = |refused: Error| matches!(refused, Error::Refused(Refusal::Inside));
    assert!(inside(Keeper::find(place.data.path(), place.lock.as_fd()).unwrap_err()));
    let program = PathBuf::from(env!("CARGO_BIN_EXE_keeper-test-process"));
    assert!(inside(Keeper::start(&program, place.data.path(), place.lock.as_fd()).unwrap_err()));
    std::fs::remove_file(place.data.path().join("inside")).unwrap();
    let mut next = place.find().unwrap();
    assert_eq!((next.os_pid(), next.list().unwrap()), (os_pid, vec![(vec![1], SECRET.to_vec())]));
    next.end();
}

#[test]
fn a_keeper_ends_when_it_is_unused_or_its_directory_is_gone() {
    let place = Place::new();
    let mut keeper = place.start();
    let os_pid = keeper.os_pid().unwrap();
    keeper.put(&[1], SECRET).unwrap();
    keeper.remove(&[1]).unwrap();
    assert!(is_alive(os_pid), "the daemon is there");
    drop(keeper);
    wait_until("the keeper that keeps nothing has gone", || !is_alive(os_pid));
    assert!(place.find().is_none());

    let mut keeper = place.start();
    keeper.put(&[1], SECRET).unwrap();
    let os_pid = keeper.os_pid().unwrap();
    drop(keeper);
    drop(place);
    wait_until("the keeper of a directory that is gone has gone", || !is_alive(os_pid));
}

#[test]
fn the_end_of_a_keeper_is_noticed_and_it_is_replaced() {
    let place = Place::new();
    let mut keeper = place.start();
    keeper.put(&[1], SECRET).unwrap();
    let os_pid = keeper.os_pid().unwrap();
    let hang_up = keeper.hang_up().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(os_pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    hang_up.wait();
    assert!(keeper.put(&[2], SECRET).is_err());
    keeper.end();
    assert!(place.find().is_none());
    let mut keeper = place.start();
    assert_eq!(keeper.list().unwrap(), []);
    keeper.put(&[2], SECRET).unwrap();
    assert_eq!(keeper.list().unwrap().len(), 1);
    keeper.end();
}

#[test]
fn a_keeper_that_was_stopped_is_continued_and_has_what_it_kept() {
    let place = Place::new();
    let mut keeper = place.start();
    keeper.put(&[1], SECRET).unwrap();
    let os_pid = keeper.os_pid().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(os_pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let mut found = Keeper::find(place.data.path(), place.lock.as_fd()).unwrap().expect("it is there");
    assert_eq!(found.list().unwrap().len(), 1);
    found.end();
}

#[test]
fn environment_and_values_are_invisible_from_outside() {
    let place = Place::new();
    let mut keeper = place.start();
    keeper.put(&[1], SECRET).unwrap();
    let os_pid = keeper.os_pid().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{os_pid}/limits")).unwrap();
    let core = status.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    for entry in std::fs::read_dir(place.data.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET));
    }
    let shown = format!("{keeper:?}");
    assert!(!shown.contains("planted"), "{shown}");
    keeper.end();
}

/// Root may read everything, so as root the test runs again as a user.
#[test]
fn other_programs_of_the_user_do_not_read_the_memory_of_a_keeper() {
    const USER: u32 = 65_534;
    if rustix::process::getuid().is_root() {
        let name = "other_programs_of_the_user_do_not_read_the_memory_of_a_keeper";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        std::os::unix::process::CommandExt::uid(&mut again, USER).env("TMPDIR", "/tmp").current_dir("/");
        let output = again.args([name, "--exact", "--nocapture"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        return;
    }
    let read = |os_pid: u32| std::fs::File::open(format!("/proc/{os_pid}/mem")).map_err(|error| error.kind());
    let mut open = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let other = read(open.id());
    open.kill().unwrap();
    open.wait().unwrap();
    assert!(other.is_ok(), "another program of the user can be read, so the check is worth something: {other:?}");
    let keeper = Place::new().start();
    let os_pid = keeper.os_pid().unwrap();
    assert_eq!(read(os_pid).unwrap_err(), std::io::ErrorKind::PermissionDenied);
    // The files of a process that is not dumpable belong to root, whoever runs it.
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{os_pid}/mem")).unwrap());
    assert_eq!(owner, 0);
    keeper.end();
}

/// A keeper holds a descriptor of its data directory, and so of its file system.
#[test]
#[expect(clippy::disallowed_methods, reason = "a directory of the test's own")]
fn a_keeper_ends_when_no_path_leads_to_its_data_any_more() {
    let mount =
        |args: &[&str], at: &Path| std::process::Command::new(args[0]).args(&args[1..]).arg(at).status().unwrap();
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root may mount a file system");
        return;
    }
    let disk = TempDir::new().unwrap();
    assert!(mount(&["mount", "-t", "tmpfs", "none"], disk.path()).success());
    let data = disk.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let lock = open_lock(&data);
    lock.try_lock().unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_keeper-test-process"));
    let mut keeper = Keeper::start(&program, &data, lock.as_fd()).unwrap();
    keeper.put(&[1], SECRET).unwrap();
    let os_pid = keeper.os_pid().unwrap();
    // Another name of the directory is still a way to it.
    std::fs::rename(&data, disk.path().join("renamed")).unwrap();
    drop((keeper, lock));
    let moved = disk.path().join("renamed");
    let lock = open_lock(&moved);
    wait_until("the lock is free", || lock.try_lock().is_ok());
    let keeper = Keeper::find(&moved, lock.as_fd()).unwrap().expect("it is there under the new name");
    assert_eq!(keeper.os_pid(), Some(os_pid));
    drop((keeper, lock));
    assert!(mount(&["umount", "-l"], disk.path()).success());
    wait_until("it ends", || !is_alive(os_pid));
}
