//! Starting the daemon, and finding out why it did not start.
//!
//! Any number of clients may try at the same moment: one daemon gets the data folder's lock, the others leave, and
//! every client ends up connected to the one.

mod inside;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use relive_core::ErrorCode;

use inside::Started;

use super::http::{Failure, connect};
use crate::context::Context;
use crate::error::{CommandError, Outcome};

const START_WITHIN: Duration = Duration::from_secs(10);
const SAY_SO_AFTER: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How much of the log is looked at for the reason, and how much of that is shown.
const TAIL_BYTES: u64 = 16 << 10;
const TAIL_LINES: usize = 8;

/// Whether the data folder holds any history, so that there is something to ask a daemon about.
pub(crate) fn has_histories(data: &Path) -> bool {
    fs::read_dir(data.join("steps")).is_ok_and(|mut entries| entries.next().is_some())
}

/// Whether histories were collected, so that a daemon can tell what is gone from what never was.
pub(crate) fn has_tombstones(data: &Path) -> bool {
    data.join("tombstones.jsonl").exists()
}

/// Starts the daemon and returns when it answers.
pub(crate) async fn start(context: &Context) -> Outcome<()> {
    // The daemon would say the same, but only to its log.
    crate::commands::config::load(context)?;
    let mut log = open_log(context).map_err(|error| {
        let message = format!("{}: cannot be written to", context.paths.data.display());
        CommandError::unavailable("the daemon cannot be started")
            .because(CommandError::internal(message).because(error))
    })?;
    let log_start = log.seek(SeekFrom::End(0)).unwrap_or(0);
    let mut child = match inside::start(context).await {
        Started::ByShim => None,
        Started::No => Some(
            spawn(context, log)
                .map_err(|error| CommandError::unavailable("the daemon cannot be started").because(error))?,
        ),
    };
    let begun = Instant::now();
    let mut told = false;
    loop {
        let ended = child.as_mut().and_then(has_ended);
        match connect(&context.paths.socket).await {
            Ok(_) => return Ok(()),
            Err(Failure::Unusable(error)) => {
                let message = format!("{}: the daemon's socket cannot be used", context.paths.socket.display());
                return Err(CommandError::unavailable(message).because(error));
            }
            Err(_) => {}
        }
        let out_of_time = begun.elapsed() > START_WITHIN;
        // One that left because another has the lock is no failure: that other one is about to answer.
        let given_up = matches!(ended, Some(code) if code != Some(i32::from(ErrorCode::Conflict.exit_code())));
        if given_up || out_of_time {
            return Err(did_not_start(context, log_start, ended.is_some()));
        }
        if !told && begun.elapsed() > SAY_SO_AFTER && context.err.is_terminal {
            context.say("starting the daemon");
            told = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The code it ended with, if it did.
fn has_ended(child: &mut Child) -> Option<Option<i32>> {
    child.try_wait().ok().flatten().map(|status| status.code())
}

fn open_log(context: &Context) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(&context.paths.data)?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(&context.paths.log)
}

fn spawn(context: &Context, log: File) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["daemon", "serve"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // It outlives this folder and this terminal's Ctrl-C. Relative paths were made absolute by us, who know the folder.
    command.current_dir("/").process_group(0);
    // It outlives this shell as well, whose keys are for the processes that are begun from it.
    command.env_clear().envs(crate::environment::for_the_daemon());
    for (name, path) in [("RELIVE_DATA_DIR", &context.paths.data), ("RELIVE_SOCKET", &context.paths.socket)] {
        if std::env::var_os(name).is_some_and(|value| !value.is_empty()) {
            command.env(name, path);
        }
    }
    command.spawn()
}

fn did_not_start(context: &Context, log_start: u64, ended: bool) -> CommandError {
    let said = tail(&context.paths.log, log_start).unwrap_or_default();
    let message = if ended {
        "the daemon did not start".to_owned()
    } else {
        format!("the daemon does not answer after {} s", START_WITHIN.as_secs())
    };
    let error = CommandError::unavailable(message).with_hint(format!("less {}", context.paths.log.display()));
    if said.is_empty() { error } else { error.because(said) }
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
