//! A daemon for the benchmark, with its own directory; dropping its value kills it.
//!
//! Every daemon and every command is started under one lock, and the cleanup after Ctrl-C keeps that lock: so nothing
//! is started that would not be ended.

mod usage;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use relive_client::{BlockingClient, Client, Retry};
use relive_core::Uuid;
use relive_journal::ProcessDirectory;

pub(crate) use usage::{Switches, anonymous_share, cpu_seconds, descriptors, memory, peak, switches};

use crate::{Error, Result};

const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// Turns garbage collection off during the benchmark.
const CONFIG: &str = "gc:\n  retention_days: 0\n  max_entries: 0\n";

static RUNNING: Mutex<Vec<Child>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<Child>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every daemon. While the returned guard is held, no daemon and no command is started.
pub(crate) fn kill_all() -> impl Drop {
    let mut running = running();
    for child in running.iter_mut() {
        end(child);
    }
    running.clear();
    running
}

fn end(child: &mut Child) {
    // A process that has already ended is fine.
    let _ = child.kill();
    let _ = child.wait();
}

/// Whether a daemon takes snapshots of files. A scripted model answers at once, so they would be on the path of each step
/// that writes; a row of their own measures them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshots {
    Taken,
    Off,
}

/// The directories of a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    root: PathBuf,
}

impl Home {
    pub(crate) fn new(root: PathBuf) -> Result<Self> {
        Self::with(root, Snapshots::Off)
    }

    pub(crate) fn with(root: PathBuf, snapshots: Snapshots) -> Result<Self> {
        fs::create_dir_all(root.join("config/relive"))?;
        // The client refuses a socket in a directory that others can write to, whatever the umask is.
        fs::set_permissions(&root, Permissions::from_mode(0o700))?;
        let snapshots = match snapshots {
            Snapshots::Taken => "auto",
            Snapshots::Off => "off",
        };
        let config = format!("{CONFIG}workspace:\n  snapshots: {snapshots}\n");
        fs::write(root.join("config/relive/config.yaml"), config)?;
        Ok(Self { root })
    }

    /// Adds lines to its configuration.
    pub(crate) fn configure(&self, more: &str) -> Result<()> {
        let path = self.root.join("config/relive/config.yaml");
        Ok(fs::write(&path, fs::read_to_string(&path)? + more)?)
    }

    /// Returns the data directory, which need not exist.
    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Returns the directory of a process.
    pub(crate) fn process(&self, uuid: Uuid) -> ProcessDirectory {
        ProcessDirectory::new(self.data().join("steps").join(uuid.to_string()))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join("socket")
    }

    fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("RELIVE_DATA_DIR", self.data()).env("RELIVE_SOCKET", self.socket());
        // Its memory and descriptors are counted from outside.
        command.env("RELIVE_DUMPABLE", "1");
        command.env("XDG_CONFIG_HOME", self.root.join("config"));
        command
    }
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running {
    os_pid: u32,
}

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let mut running = running();
        let child = command.spawn()?;
        let os_pid = child.id();
        running.push(child);
        Ok(Self { os_pid })
    }

    fn has_ended(&self) -> bool {
        let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        running().iter_mut().any(|child| child.id() == self.os_pid && has_ended(child))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = running();
        if let Some(place) = running.iter().position(|child| child.id() == self.os_pid) {
            end(&mut running.swap_remove(place));
        }
    }
}

/// A running daemon. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Daemon {
    home: Home,
    program: PathBuf,
    running: Running,
}

impl Daemon {
    /// Starts a daemon, and returns the seconds until its first answer.
    pub(crate) fn start(home: &Home) -> Result<(f64, Self)> {
        let program = program()?;
        let log = File::options().append(true).create(true).open(home.log())?;
        let mut command = home.command(&program, &["daemon", "serve"]);
        command.current_dir("/").process_group(0).stderr(log);
        let begun = Instant::now();
        let daemon = Self { home: home.clone(), program, running: Running::spawn(&mut command)? };
        let client = daemon.client()?;
        daemon.await_connection(&client, begun)?;
        client.call(Client::daemon)?;
        Ok((begun.elapsed().as_secs_f64(), daemon))
    }

    fn await_connection(&self, client: &BlockingClient, begun: Instant) -> Result<()> {
        loop {
            if client.call(Client::connect).is_ok() {
                return Ok(());
            }
            if self.running.has_ended() || begun.elapsed() > ANSWER_WITHIN {
                let said = fs::read_to_string(self.home.log()).unwrap_or_default();
                return Err(format!("the daemon does not answer: {}", said.trim()).into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns a client with its own connection. It asks once: a daemon that does not answer is an error.
    pub(crate) fn client(&self) -> Result<BlockingClient> {
        Ok(BlockingClient::new(Client::new(self.home.socket()).with_retry(Retry::NEVER))?)
    }

    /// Runs `work` for each item on several concurrent connections. The results are in no particular order.
    pub(crate) fn at_once<I: Sync, T: Send>(
        &self,
        connections: usize,
        items: &[I],
        work: impl Fn(&BlockingClient, &I) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        std::thread::scope(|scope| {
            let work = |share: &[I]| -> Result<Vec<T>> {
                let client = self.client()?;
                share.iter().map(|item| work(&client, item)).collect()
            };
            let share = items.len().div_ceil(connections).max(1);
            let started: Vec<_> = items.chunks(share).map(|share| scope.spawn(move || work(share))).collect();
            let mut answers = Vec::new();
            for thread in started {
                answers.extend(thread.join().map_err(|_| "a client panicked")??);
            }
            Ok(answers)
        })
    }

    pub(crate) fn os_pid(&self) -> u32 {
        self.running.os_pid
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Runs a command of the command line to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<()> {
        let _started_by_nobody_else = running();
        let status = self.home.command(&self.program, arguments).status()?;
        if status.success() { Ok(()) } else { Err(format!("relive {}: {status}", arguments.join(" ")).into()) }
    }
}

/// Returns the measured program: next to this one, or the path in `RELIVE_BIN`.
pub(crate) fn program() -> Result<PathBuf> {
    let program = match std::env::var_os("RELIVE_BIN") {
        Some(program) => PathBuf::from(program),
        None => std::env::current_exe()?.with_file_name("relive"),
    };
    if program.is_file() {
        return Ok(program.canonicalize()?);
    }
    let message =
        format!("{}: not there; build it (cargo build --release -p relive) or set RELIVE_BIN", program.display());
    Err(Error::from(message))
}
