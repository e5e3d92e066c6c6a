//! Starting the daemon, with commands that only look like one.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use relive_client::{Cause, Client, Error, Launcher, StartError};
use tempfile::TempDir;

const AT_MOST: Duration = Duration::from_secs(30);

/// Runs a line of shell as the daemon. `$N` is how often it was started, this time included.
#[derive(Debug, Clone)]
struct Shell {
    root: PathBuf,
    log: PathBuf,
    line: &'static str,
}

impl Shell {
    fn new(root: &TempDir, line: &'static str) -> Self {
        Self { root: root.path().to_owned(), log: root.path().join("log"), line }
    }

    fn starts(&self) -> usize {
        fs::read_to_string(self.root.join("starts")).unwrap_or_default().lines().count()
    }

    /// Listens as soon as it was started so often.
    fn listen_after(&self, starts: usize) -> UnixListener {
        let begun = Instant::now();
        while self.starts() < starts {
            assert!(begun.elapsed() < AT_MOST, "it was started {} times", self.starts());
            std::thread::sleep(Duration::from_millis(1));
        }
        UnixListener::bind(self.root.join("socket")).unwrap()
    }

    fn start(&self) -> Result<(), Error> {
        let client = Client::new(self.root.join("socket")).with_launcher(self.clone());
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        executor.block_on(client.start())
    }
}

impl Launcher for Shell {
    fn data(&self) -> &Path {
        &self.root
    }

    fn log(&self) -> &Path {
        &self.log
    }

    fn command(&self) -> Result<Command, Cause> {
        let script = format!("echo >> starts; N=$(wc -l < starts); {}", self.line);
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(&self.root).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

#[test]
fn clients_that_start_it_at_the_same_moment_start_one() {
    let root = tempfile::tempdir().unwrap();
    let shell = Shell::new(&root, "exec sleep 3");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| shell.start())).collect();
        let _listener = shell.listen_after(1);
        clients.into_iter().for_each(|client| client.join().unwrap().unwrap());
    });
    assert_eq!(shell.starts(), 1);
}

#[test]
fn one_that_another_daemon_kept_out_or_that_was_stopped_is_started_again() {
    let root = tempfile::tempdir().unwrap();
    // 3: another daemon has the data directory; 0: it was told to stop.
    let shell = Shell::new(&root, "case $N in 1|2) exit 3;; 3) exit 0;; esac; exec sleep 3");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| shell.start());
        let _listener = shell.listen_after(4);
        client.join().unwrap().unwrap();
    });
    assert_eq!(shell.starts(), 4);
}

#[test]
fn one_that_cannot_start_says_why() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("log"), "error: of yesterday\n").unwrap();
    let shell = Shell::new(&root, "echo 'error: no room' >&2; exit 1");
    match shell.start() {
        Err(Error::Start(StartError::Ended { log, said })) => {
            assert_eq!((log, said.as_str()), (root.path().join("log"), "no room"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(shell.starts(), 1);
}

#[test]
fn a_pipe_in_the_place_of_the_log_is_not_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(root.path().join("log")).status().unwrap();
    assert!(made.success());
    let refused = Shell::new(&root, "exec sleep 3").start();
    assert!(matches!(refused, Err(Error::Start(StartError::Unwritable(_)))), "{refused:?}");
}
