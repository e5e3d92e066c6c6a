//! Starts the daemon, and finds out why it did not start.
//!
//! Several clients may try at the same moment. They take turns, so that there is never a second daemon that waits for
//! the first to end: it would start running when the first is stopped, long after the command that started it.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use relive_types::ErrorCode;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::connection::Connection;
use super::error::{Cause, Error};

/// How long a daemon may take until it accepts connections.
const START_WITHIN: Duration = Duration::from_secs(10);
/// How long a start may take in total, including the time that an earlier daemon takes to stop.
const IN_ALL_WITHIN: Duration = Duration::from_secs(60);
/// How long a delegated daemon may take to bind its socket; one that was refused has ended by then.
const DELEGATE_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// How long a daemon that listens elsewhere may take to stop.
const ELSEWHERE_WITHIN: Duration = Duration::from_secs(2);
const SAY_SO_AFTER: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How much of the log is searched for the reason, and how much of that is shown.
const TAIL_BYTES: u64 = 16 << 10;
const TAIL_LINES: usize = 8;

/// How the daemon of one data directory is started.
pub trait Launcher: fmt::Debug + Send + Sync {
    fn data(&self) -> &Path;

    /// Returns the file in which the daemon writes why it cannot start.
    fn log(&self) -> &Path;

    /// Returns the command that becomes the daemon; its stderr is the log.
    ///
    /// It exits with the code of [`ErrorCode::Conflict`] if another daemon uses the data directory.
    fn command(&self) -> Result<Command, Cause>;

    /// Lets another process start the daemon, if a child of this one would end too early. Returns whether it does.
    fn delegate(&self) -> Delegated<'_> {
        Box::pin(std::future::ready(false))
    }

    /// Returns whether only others can start the daemon, because this program does not see its files.
    fn cannot_start(&self) -> bool {
        false
    }

    /// Returns the OS pid of the daemon that uses the data directory, if there is one.
    fn holder(&self) -> Option<u32> {
        None
    }

    /// Returns whether the daemon that uses the data directory listens on another socket than this one.
    fn listens_elsewhere(&self, _socket: &Path) -> bool {
        false
    }

    /// Called once if a start takes so long that the user may wonder.
    fn is_slow(&self) {}
}

/// Whether another process starts the daemon.
pub type Delegated<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// The reason why the daemon could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The launcher refused.
    #[error("the daemon cannot be started")]
    Refused(#[source] Cause),
    /// The data directory, or the log in it, cannot be created.
    #[error("the daemon cannot be started")]
    Unwritable(#[source] Unwritable),
    /// The command cannot be run.
    #[error("the daemon cannot be started")]
    Spawn(#[source] io::Error),
    /// The daemon ended before it answered.
    #[error("the daemon did not start")]
    Ended { log: PathBuf, said: String },
    /// The daemon runs and does not answer.
    #[error("the daemon does not answer after {} s", START_WITHIN.as_secs())]
    Silent { log: PathBuf, said: String },
    /// Another daemon uses the data directory, and does not listen on this socket.
    #[error("{}: another daemon uses this data directory, but does not answer on {}", data.display(), socket.display())]
    Held { data: PathBuf, socket: PathBuf, log: PathBuf, said: String },
    /// Nobody has started it for an isolated program.
    #[error("no daemon has been running for {} s, and an isolated program cannot start one", .0.as_secs())]
    Hidden(Duration),
    /// Another client has been starting the daemon all the time.
    #[error("another command has been starting the daemon for {} s", .0.as_secs())]
    Busy(Duration),
}

/// A data directory that is not writable.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written to", data.display())]
pub struct Unwritable {
    data: PathBuf,
    source: io::Error,
}

impl Unwritable {
    /// Returns whether this user may not write to it.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }
}

/// Starts the daemon and returns when it accepts connections.
pub(super) async fn start(socket: &Path, launcher: &dyn Launcher) -> Result<Connection, Error> {
    if launcher.cannot_start() {
        return wait(socket, launcher).await;
    }
    let mut start = Start::new(socket, launcher)?;
    loop {
        match Connection::open(socket).await {
            Ok(connection) => {
                start.has_connected = true;
                return Ok(connection);
            }
            Err(error @ (Error::CannotConnect { .. } | Error::Unsafe(_))) => return Err(error),
            // A daemon listens, and has no room for another connection now.
            Err(Error::Full { .. } | Error::Lost(_)) => {}
            Err(_) => start.look().await?,
        }
        start.be_patient()?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits for a daemon that somebody else starts.
async fn wait(socket: &Path, launcher: &dyn Launcher) -> Result<Connection, Error> {
    let begun = Instant::now();
    let mut has_told = false;
    loop {
        match Connection::open(socket).await {
            Ok(connection) => return Ok(connection),
            Err(error @ (Error::CannotConnect { .. } | Error::Unsafe(_))) => return Err(error),
            Err(_) if begun.elapsed() > IN_ALL_WITHIN => return Err(StartError::Hidden(IN_ALL_WITHIN).into()),
            Err(_) => {}
        }
        if !has_told && begun.elapsed() > SAY_SO_AFTER {
            has_told = true;
            launcher.is_slow();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// One client's attempt to start a daemon.
struct Start<'a> {
    socket: &'a Path,
    launcher: &'a dyn Launcher,
    command: Command,
    /// Locked by the client that starts the daemon.
    directory: File,
    log_start: u64,
    begun: Instant,
    /// When the stage last changed.
    since: Instant,
    stage: Stage,
    /// Whether another daemon uses the data directory, as was last found.
    is_held: bool,
    has_told: bool,
    has_connected: bool,
}

enum Stage {
    /// Another client is starting the daemon.
    Waiting,
    /// This client has to start it.
    Turn,
    /// It was started, and does not listen yet.
    Started(Child),
    /// Another process was told to start it, at this moment.
    Delegated(Instant),
}

impl<'a> Start<'a> {
    fn new(socket: &'a Path, launcher: &'a dyn Launcher) -> Result<Self, StartError> {
        let mut command = launcher.command().map_err(StartError::Refused)?;
        let unwritable = |source| StartError::Unwritable(Unwritable { data: launcher.data().to_owned(), source });
        DirBuilder::new().recursive(true).mode(0o700).create(launcher.data()).map_err(unwritable)?;
        let directory = File::open(launcher.data()).map_err(unwritable)?;
        let log_start = match open_log(launcher.log()).map_err(unwritable)? {
            Some(mut log) => {
                let log_start = log.seek(SeekFrom::End(0)).unwrap_or(0);
                command.stderr(log);
                log_start
            }
            None => {
                command.stderr(Stdio::null());
                0
            }
        };
        let (now, stage) = (Instant::now(), Stage::Waiting);
        let (begun, since) = (now, now);
        let (is_held, has_told, has_connected) = (false, false, false);
        let start = Self {
            socket,
            launcher,
            command,
            directory,
            log_start,
            begun,
            since,
            stage,
            is_held,
            has_told,
            has_connected,
        };
        Ok(start)
    }

    /// Takes the next step, while nothing listens.
    async fn look(&mut self) -> Result<(), StartError> {
        match &mut self.stage {
            Stage::Waiting => {
                if self.is_our_turn() {
                    self.enter(Stage::Turn);
                }
            }
            // One that is started now would wait for the lock, and take it when that daemon is stopped, after this command was
            // refused.
            Stage::Turn if self.launcher.holder().is_some() => {
                self.is_held = true;
                self.turn_again();
            }
            Stage::Turn => {
                self.is_held = false;
                self.stage = match self.launcher.delegate().await {
                    true => Stage::Delegated(Instant::now()),
                    false => Stage::Started(self.command.spawn().map_err(StartError::Spawn)?),
                };
            }
            Stage::Delegated(at) if at.elapsed() > DELEGATE_AGAIN_AFTER => self.turn_again(),
            Stage::Delegated(_) => {}
            Stage::Started(child) => {
                let Some(status) = child.try_wait().map_err(StartError::Spawn)? else { return Ok(()) };
                self.is_held = status.code() == Some(i32::from(ErrorCode::Conflict.exit_code()));
                if self.is_held {
                    self.turn_again();
                } else if status.success() {
                    // It was stopped.
                    self.enter(Stage::Turn);
                } else {
                    return Err(StartError::Ended { log: self.launcher.log().to_owned(), said: self.said() });
                }
            }
        }
        Ok(())
    }

    /// Starts it again after another daemon used the data directory. A stopping daemon removes its socket last, and the
    /// client waits for that; one without a socket listens elsewhere, or not yet.
    fn turn_again(&mut self) {
        if std::fs::symlink_metadata(self.socket).is_ok_and(|found| found.file_type().is_socket()) {
            self.enter(Stage::Turn);
        } else {
            self.stage = Stage::Turn;
        }
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, Instant::now());
    }

    /// Returns whether this client has the lock for starting the daemon.
    fn is_our_turn(&self) -> bool {
        match flock(&self.directory, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => false,
            // If a directory cannot be locked, several clients may start it: one daemon gets the data directory.
            Ok(()) | Err(_) => true,
        }
    }

    /// Fails if the start takes too long, and reports one that takes long.
    fn be_patient(&mut self) -> Result<(), StartError> {
        let in_all = self.begun.elapsed();
        if !self.has_told && in_all > SAY_SO_AFTER {
            self.launcher.is_slow();
            self.has_told = true;
        }
        // No wait brings it to this socket.
        let is_elsewhere = self.is_held && in_all > ELSEWHERE_WITHIN && self.launcher.listens_elsewhere(self.socket);
        let is_in_time = match self.stage {
            Stage::Waiting => in_all <= IN_ALL_WITHIN,
            Stage::Turn | Stage::Started(_) | Stage::Delegated(_) if is_elsewhere => false,
            Stage::Turn | Stage::Started(_) | Stage::Delegated(_) => {
                in_all <= IN_ALL_WITHIN && self.since.elapsed() <= START_WITHIN
            }
        };
        if is_in_time {
            return Ok(());
        }
        let (log, said) = (self.launcher.log().to_owned(), self.said());
        Err(match self.stage {
            Stage::Waiting => StartError::Busy(IN_ALL_WITHIN),
            Stage::Turn | Stage::Started(_) | Stage::Delegated(_) if self.is_held => {
                let (data, socket) = (self.launcher.data().to_owned(), self.socket.to_owned());
                StartError::Held { data, socket, log, said }
            }
            Stage::Turn | Stage::Started(_) | Stage::Delegated(_) => StartError::Silent { log, said },
        })
    }

    /// Returns the last lines of the log since the start.
    fn said(&self) -> String {
        tail(self.launcher.log(), self.log_start).unwrap_or_default()
    }
}

/// Ends a daemon that was started and only waits for another one to end. It would take that one's place when the person who
/// stops it has been told that none is running.
impl Drop for Start<'_> {
    fn drop(&mut self) {
        let Stage::Started(child) = &mut self.stage else { return };
        let is_the_daemon = self.launcher.holder().map_or(self.has_connected, |os_pid| os_pid == child.id());
        if !is_the_daemon {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Opens the log; `None` if something else than a file has its name. The daemon then runs without one, and reports it.
fn open_log(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    // Does not block on a pipe in its place.
    options.append(true).create(true).mode(0o600).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    match options.open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(_) if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the last lines written to the log since `from`.
fn tail(log: &Path, from: u64) -> io::Result<String> {
    let mut file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(log)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(from.max(len.saturating_sub(TAIL_BYTES))))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}
