//! A daemon that runs, and that this command does not reach: it listens on another socket, or its socket file is gone.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use relive_api::{UnsafeDirectory, check_directory};
use relive_core::ErrorCode;
use relive_types::program::quote;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::meant_data;
use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// How long a daemon whose socket is gone may take to listen again. It checks every five seconds.
const LISTENS_AGAIN_WITHIN: Duration = Duration::from_secs(7);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The daemon that uses a data directory, and where it listens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreached {
    pub(crate) os_pid: u32,
    socket: PathBuf,
}

impl Unreached {
    /// Finds the daemon that uses a data directory, as it says itself.
    pub(crate) fn of(data: &Path) -> Option<Self> {
        let os_pid = relive_journal::data::holder(data)?;
        let socket = relive_journal::data::socket_of(data, os_pid)?;
        Some(Self { os_pid, socket })
    }

    /// Returns whether its socket was removed, or something else is in its place. What cannot be looked at is there.
    fn has_no_socket(&self) -> bool {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        match std::fs::symlink_metadata(&self.socket) {
            Ok(found) => !found.file_type().is_socket(),
            Err(error) => matches!(error.kind(), NotFound | NotADirectory),
        }
    }

    pub(super) fn is_meant_to_listen_on(&self, socket: &Path) -> bool {
        is_same_socket(&self.socket, socket)
    }

    /// Returns why a command that uses the socket `ours` does not reach it, and what to do.
    pub(crate) fn error(&self, ours: &Path) -> CommandError {
        let Self { os_pid, socket } = self;
        let daemon = format!("the daemon with OS pid {os_pid} is running, but its socket {}", socket.display());
        let error = |why: &str| CommandError::new(ErrorCode::Unavailable, format!("{daemon} {why}"));
        if self.has_no_socket() {
            return error("is gone").with_hint("relive daemon stop");
        }
        if is_same_socket(socket, ours) {
            return error("does not accept connections").with_hint("relive daemon stop");
        }
        let error = error(&format!("is not {}, which this command uses", ours.display()));
        match socket.parent().map(check_directory) {
            // Nobody would be let in by naming it.
            Some(Err(UnsafeDirectory::Mode { path, .. })) => {
                error.because("other users can replace it").with_hint(chmod(&path))
            }
            Some(_) | None => error.with_hint(format!("export RELIVE_SOCKET={}", quote(&socket.display().to_string()))),
        }
    }
}

/// Returns the command after which no other user can replace what is in a directory.
pub(crate) fn chmod(directory: &Path) -> String {
    format!("chmod go-w {}", quote(&directory.display().to_string()))
}

/// Refuses to say that no daemon runs if one uses the data directory and this command does not reach it, for commands that
/// start none.
pub(crate) fn refuse_unreached(context: &Context) -> Outcome<()> {
    let data = &context.paths.data;
    let Some(found) = Unreached::of(data) else { return refuse_unreadable(data) };
    let ours = &context.paths.socket;
    if found.is_meant_to_listen_on(ours) && !found.has_no_socket() {
        return Ok(());
    }
    let error = found.error(ours);
    // `RELIVE_SOCKET` alone may mean the daemon of any data directory: with it, none is stopped that does not listen there.
    let is_lost = meant_data(context).is_none() && found.has_no_socket();
    Err(if is_lost { error.with_hint("env -u RELIVE_SOCKET relive daemon stop") } else { error })
}

/// Refuses to say that no daemon runs where this user may not see whether one has locked the data directory.
fn refuse_unreadable(data: &Path) -> Outcome<()> {
    let Err(error @ Errno::ACCESS) = access(data.join("lock"), Access::READ_OK) else { return Ok(()) };
    let message = format!("{}: cannot find out whether a daemon uses this data directory", data.display());
    let error = CommandError::unavailable(message).because(std::io::Error::from(error));
    Err(error.with_hint(format!("ls -ld {}", quote(&data.display().to_string()))))
}

/// Returns the daemon that uses the data directory if its socket is gone.
pub(crate) fn holder_without_socket(context: &Context) -> Option<u32> {
    meant_data(context).and_then(Unreached::of).filter(Unreached::has_no_socket).map(|found| found.os_pid)
}

/// Returns the daemon that uses the data directory if it is the one that should be listening on our socket.
pub(crate) fn holder_of_socket(context: &Context) -> Option<u32> {
    let found = meant_data(context).and_then(Unreached::of);
    found.filter(|found| found.is_meant_to_listen_on(&context.paths.socket)).map(|found| found.os_pid)
}

/// Waits until a daemon whose socket is gone listens again; returns whether it does.
pub(super) async fn listens_again(context: &Context, daemon: &relive_client::Client) -> bool {
    let begun = Instant::now();
    while holder_without_socket(context).is_some() && begun.elapsed() < LISTENS_AGAIN_WITHIN {
        tokio::time::sleep(LOOK_EVERY).await;
        if daemon.connect().await.is_ok() {
            return true;
        }
    }
    false
}

/// Compares sockets by where they are, whatever links their paths have. One that is not there, because its daemon is stopping,
/// is known by its directory.
fn is_same_socket(one: &Path, other: &Path) -> bool {
    let place = |socket: &Path| {
        let in_directory = || Some(socket.parent()?.canonicalize().ok()?.join(socket.file_name()?));
        socket.canonicalize().ok().or_else(in_directory)
    };
    one == other || place(one).is_some_and(|one| Some(one) == place(other))
}

#[cfg(test)]
mod tests {
    use super::is_same_socket;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn sockets_are_compared_by_where_they_are() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("run")).unwrap();
        std::os::unix::fs::symlink("run", at("link")).unwrap();
        let is_same = |one: &str, other: &str| is_same_socket(&at(one), &at(other));
        assert!(is_same("run/socket", "link/socket") && is_same("none/socket", "none/socket"));
        assert!(!is_same("run/socket", "run/other") && !is_same("none/socket", "run/socket"));
        std::os::unix::fs::symlink("run/socket", at("socket")).unwrap();
        std::fs::write(at("run/socket"), "").unwrap();
        assert!(is_same("run/socket", "link/socket") && is_same("socket", "link/socket"));
    }
}
