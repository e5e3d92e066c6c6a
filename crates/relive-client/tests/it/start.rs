//! Starting the daemon, with commands that imitate one.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use relive_client::{BlockingClient, Cause, Client, Delegated, Error, Launcher, StartError};
use tempfile::TempDir;

const AT_MOST: Duration = Duration::from_secs(30);

/// Runs a shell script as the daemon. `$N` is the number of starts, including this one.
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

    /// Listens after this many starts.
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
        BlockingClient::new(client).unwrap().call(Client::start)
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
fn concurrent_clients_start_one_daemon() {
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
fn a_daemon_that_was_refused_or_stopped_is_started_again() {
    let root = tempfile::tempdir().unwrap();
    // 3: another daemon uses the data directory; 0: it was stopped.
    let shell = Shell::new(&root, "case $N in 1|2) exit 3;; 3) exit 0;; esac; exec sleep 3");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| shell.start());
        let _listener = shell.listen_after(4);
        client.join().unwrap().unwrap();
    });
    assert_eq!(shell.starts(), 4);
}

/// Lets another process start the daemon, and counts the requests.
#[derive(Debug)]
struct Elsewhere {
    shell: Shell,
    asked: Arc<AtomicUsize>,
}

impl Launcher for Elsewhere {
    fn data(&self) -> &Path {
        self.shell.data()
    }

    fn log(&self) -> &Path {
        self.shell.log()
    }

    fn command(&self) -> Result<Command, Cause> {
        self.shell.command()
    }

    fn delegate(&self) -> Delegated<'_> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(true))
    }
}

#[test]
fn a_delegated_start_is_awaited_and_repeated() {
    let root = tempfile::tempdir().unwrap();
    let (shell, asked) = (Shell::new(&root, "exec sleep 3"), Arc::new(AtomicUsize::new(0)));
    let launcher = Elsewhere { shell: shell.clone(), asked: Arc::clone(&asked) };
    let client = BlockingClient::new(Client::new(root.path().join("socket")).with_launcher(launcher)).unwrap();
    std::thread::scope(|scope| {
        let started = scope.spawn(|| client.call(Client::start));
        let begun = Instant::now();
        // The first was refused by a daemon that was stopping.
        while asked.load(Ordering::SeqCst) < 2 {
            assert!(begun.elapsed() < AT_MOST);
            std::thread::sleep(Duration::from_millis(1));
        }
        let _listener = UnixListener::bind(root.path().join("socket")).unwrap();
        started.join().unwrap().unwrap();
    });
    assert_eq!((asked.load(Ordering::SeqCst), shell.starts()), (2, 0));
}

#[test]
fn a_daemon_that_cannot_start_reports_the_reason() {
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
fn a_pipe_in_place_of_the_log_does_not_block() {
    let root = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(root.path().join("log")).status().unwrap();
    assert!(made.success());
    let shell = Shell::new(&root, "exit 1");
    let ended = shell.start();
    assert!(matches!(&ended, Err(Error::Start(StartError::Ended { said, .. })) if said.is_empty()), "{ended:?}");
    assert_eq!(shell.starts(), 1, "without a log");
}
