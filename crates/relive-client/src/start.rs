//! Starting the daemon, and finding out why it did not start.
//!
//! Any number of clients may try at the same moment: one daemon gets the data folder's lock, the others leave, and
//! every client ends up connected to the one.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use relive_types::ErrorCode;

use super::connection::Connection;
use super::error::{Cause, Error};

const START_WITHIN: Duration = Duration::from_secs(10);
const SAY_SO_AFTER: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How much of the log is looked at for the reason, and how much of that is shown.
const TAIL_BYTES: u64 = 16 << 10;
const TAIL_LINES: usize = 8;

/// How the daemon of one data directory is started.
pub trait Launcher: fmt::Debug + Send + Sync {
    /// The data directory.
    fn data(&self) -> &Path;

    /// The file in which the daemon says why it cannot start.
    fn log(&self) -> &Path;

    /// Returns the command that becomes the daemon; its stderr is the log.
    fn command(&self) -> Result<Command, Cause>;

    /// Has another process start the daemon, where a child of this one would end too early. Tells whether it does.
    fn delegate(&self) -> Delegated<'_>;

    /// Called once where a start takes so long that somebody may wonder.
    fn is_slow(&self) {}
}

/// Whether somebody else starts the daemon.
pub type Delegated<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Why the daemon could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The launcher refused.
    #[error("the daemon cannot be started")]
    Refused(#[source] Cause),
    /// The data directory, or the log in it, cannot be made.
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
}

/// A data directory that cannot be written to.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written to", data.display())]
pub struct Unwritable {
    data: PathBuf,
    source: io::Error,
}

/// Starts the daemon and returns when it answers.
pub(super) async fn start(socket: &Path, launcher: &dyn Launcher) -> Result<Connection, Error> {
    let mut command = launcher.command().map_err(StartError::Refused)?;
    let mut log = open_log(launcher)
        .map_err(|source| StartError::Unwritable(Unwritable { data: launcher.data().to_owned(), source }))?;
    let log_start = log.seek(SeekFrom::End(0)).unwrap_or(0);
    let mut child =
        if launcher.delegate().await { None } else { Some(command.stderr(log).spawn().map_err(StartError::Spawn)?) };
    let begun = Instant::now();
    let mut told = false;
    loop {
        let ended = child.as_mut().and_then(has_ended);
        match Connection::open(socket).await {
            Ok(connection) => return Ok(connection),
            Err(error @ (Error::CannotConnect { .. } | Error::Unsafe(_))) => return Err(error),
            Err(_) => {}
        }
        let out_of_time = begun.elapsed() > START_WITHIN;
        // One that left because another has the lock is no failure: that other one is about to answer.
        let given_up = matches!(ended, Some(code) if code != Some(i32::from(ErrorCode::Conflict.exit_code())));
        if given_up || out_of_time {
            let (log, said) = (launcher.log().to_owned(), tail(launcher.log(), log_start).unwrap_or_default());
            let error = match ended {
                Some(_) => StartError::Ended { log, said },
                None => StartError::Silent { log, said },
            };
            return Err(error.into());
        }
        if !told && begun.elapsed() > SAY_SO_AFTER {
            launcher.is_slow();
            told = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The code it ended with, if it did.
fn has_ended(child: &mut Child) -> Option<Option<i32>> {
    child.try_wait().ok().flatten().map(|status| status.code())
}

fn open_log(launcher: &dyn Launcher) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(launcher.data())?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(launcher.log())
}

/// The last lines written to the log since `from`.
fn tail(log: &Path, from: u64) -> io::Result<String> {
    let mut file = File::open(log)?;
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
