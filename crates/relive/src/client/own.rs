//! The socket of the process that a command runs in, which `RELIVE_SELF` names.
//!
//! A command with a `RELIVE_SELF` acts as that process or is refused: whoever copied the variable from a process must not
//! become the person when that process has ended.

use std::path::{Path, PathBuf};

use relive_api::{FOREIGN_SELF, FOREIGN_SELF_HINT, OWN_SOCKET, Paths};
use relive_client::{Client, Error};
use relive_core::{ErrorCode, Uuid};
use relive_session::peer::{self, Peer, Place};
use relive_session::proc;
use relive_session::tree::MARKER;

use super::launch::is_set;
use crate::error::{CommandError, Outcome};

/// The socket that `RELIVE_SELF` names.
#[derive(Debug)]
pub(crate) struct OwnSocket {
    path: PathBuf,
}

impl OwnSocket {
    /// Returns the socket that the environment names.
    pub(crate) fn from_env() -> Option<Self> {
        let mut path = PathBuf::from(std::env::var_os("RELIVE_SELF").filter(|path| !path.is_empty())?);
        if path.is_dir() {
            // A program that an earlier version has started: it had the socket in this place.
            path.push(OWN_SOCKET);
        }
        Some(Self { path })
    }

    /// Returns the socket, if it is one of this daemon.
    pub(crate) fn of(&self, paths: &Paths) -> Option<&Path> {
        self.path.starts_with(paths.own_sockets()).then_some(&self.path)
    }

    /// Returns whether it is the socket of this process.
    fn is_that_of(&self, uuid: Uuid, paths: &Paths) -> bool {
        let directory = self.path.parent().and_then(|directory| directory.file_name()?.to_str());
        let entered = directory.and_then(|name| Uuid::try_parse(name).ok());
        // Also where a daemon has another directory for them, since its data was moved.
        let names = [Some(paths.own_socket(uuid)), entered.map(|entered| paths.entered_socket(uuid, entered))];
        let end = |path: &Path| path.iter().rev().take(2).map(ToOwned::to_owned).collect::<Vec<_>>();
        names.iter().flatten().any(|name| end(name) == end(&self.path))
    }

    /// Returns whether this command runs inside of a process from which the data directory is hidden: it has one of its
    /// own in it, and the directory of its socket.
    pub(super) fn is_isolated(&self, paths: &Paths) -> bool {
        let is_here = self.of(paths).and_then(Path::parent).is_some_and(Path::is_dir);
        is_here && !paths.data.join("steps").exists()
    }

    /// Checks that the daemon, on its own socket, takes this command for a program of the process that is named.
    pub(super) async fn check(&self, daemon: &Client, paths: &Paths) -> Outcome<()> {
        match daemon.self_info().await {
            Ok(info) if self.is_that_of(info.uuid, paths) => Ok(()),
            Ok(_) => Err(foreign()),
            // Inside of a process that has ended, or of an unknown one.
            Err(Error::Refused(detail)) if detail.code == ErrorCode::Permission => Err(detail.into()),
            Err(Error::Refused(_)) => Err(foreign()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the answer to a `RELIVE_SELF` that is of no use: the same for a process that has ended and one that never was.
pub(super) fn foreign() -> CommandError {
    CommandError::new(ErrorCode::Permission, FOREIGN_SELF).with_hint(FOREIGN_SELF_HINT)
}

/// Refuses a command inside of a process that is isolated from Relive and does not reach it by its own socket. It sees
/// neither the processes nor the daemon, and would start one that nobody else sees.
pub(crate) fn refuse_isolated(paths: &Paths, own: Option<&OwnSocket>) -> Outcome<()> {
    let Some(uuid) = hidden_process(paths) else { return Ok(()) };
    if own.is_some() {
        return Err(foreign());
    }
    let message = "this command runs inside a Relive process that is isolated, and RELIVE_SELF is not set";
    let error = CommandError::new(ErrorCode::Permission, message);
    let own = Uuid::try_parse(&uuid).ok().map(|uuid| paths.own_socket(uuid)).filter(|own| own.exists());
    Err(match own {
        Some(own) => error.with_hint(format!("export RELIVE_SELF={}", own.display())),
        None => error.with_hint("run it with the environment that the program was started with"),
    })
}

/// Refuses to show the output of a program inside of a process from which the data directory is hidden, with the logs.
pub(crate) fn refuse_output(paths: &Paths, whose: &str) -> Outcome<()> {
    if !OwnSocket::from_env().is_some_and(|own| own.is_isolated(paths)) {
        return Ok(());
    }
    let message =
        format!("the output of {whose} cannot be shown here: the process that this command runs in is isolated");
    let hint = "relive exec -d -- sh -c 'COMMAND > output 2>&1'";
    Err(CommandError::new(ErrorCode::Permission, message).with_hint(hint))
}

/// Returns the process that this command runs inside of, if its data directory is hidden from it. Whoever names another
/// data directory means that one.
fn hidden_process(paths: &Paths) -> Option<String> {
    let steps = paths.data.join("steps");
    if let Some(directory) = proc::shim_above(rustix::process::getpid().as_raw_nonzero().get()) {
        let is_other = is_set("RELIVE_DATA_DIR") && !directory.starts_with(&paths.data);
        let process = directory.parent()?.parent()?.file_name()?.to_str()?;
        return (!is_other && !directory.exists()).then(|| process.to_owned());
    }
    // Without an init of ours, no shim is seen from inside of a PID namespace.
    let marked = std::env::var(MARKER).ok().and_then(|name| peer::uuid_at_end(&name).map(str::to_owned));
    let in_leaf = || match Peer::this_process().place(&steps, &paths.short_name()) {
        Place::Session(uuid) => Some(uuid),
        Place::Outside | Place::Unknown => None,
    };
    marked.or_else(in_leaf).filter(|uuid| !steps.join(uuid).exists())
}
