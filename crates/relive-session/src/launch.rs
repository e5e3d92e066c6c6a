//! Starting a shim.
//!
//! The daemon never forks: the shim is started by `posix_spawn`, so it costs the same however large the daemon is, and no code
//! of ours runs between the daemon and the shim. All it is told comes by three descriptors; nothing of it is to be seen by
//! others.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;

use crate::SHIM;
use crate::connection::{AdoptError, Connection};
use crate::directory::SessionDirectory;
use crate::packet;
use crate::spec::Spec;

/// Starts shims.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
}

/// Why there is no shim.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The session's directory could not be made.
    #[error("the session's directory cannot be made: {0}")]
    Directory(io::Error),
    /// It could not be started.
    #[error("cannot start the shim {}: {source}", program.display())]
    Start {
        /// What was started.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It was started, and cannot be talked to.
    #[error("the shim {} does not answer as it should: {source}", program.display())]
    Answer {
        /// What was started.
        program: PathBuf,
        /// What is wrong.
        source: AdoptError,
    },
}

impl Default for Launcher {
    /// This program itself, also when its file was replaced or removed meanwhile.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into() }
    }
}

impl Launcher {
    /// With another program that becomes a shim by its name.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Starts the shim of a session, which goes on whatever becomes of us, and greets it. The directory's path must be
    /// absolute; `lock` is its lock, held by the shim from here on.
    pub async fn launch(
        &self,
        directory: &SessionDirectory,
        lock: OwnedFd,
        spec: &Spec,
    ) -> Result<Connection, LaunchError> {
        let failed = |source| LaunchError::Start { program: self.program.clone(), source };
        let spec = serde_json::to_vec(spec).map_err(|error| failed(error.into()))?;
        let (program, path) = (self.program.clone(), directory.path().to_owned());
        // Starting reads the program from the disk.
        // Reaped from there: whoever waits here may be gone before it is started.
        let started = tokio::task::spawn_blocking(move || {
            let (ours, child) = start(&program, &path, lock, &spec)?;
            reap(child);
            Ok(ours)
        });
        let ours = started.await.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)?;
        let answer = |source| LaunchError::Answer { program: self.program.clone(), source };
        Connection::adopt(ours).await.map_err(answer)
    }
}

fn start(program: &Path, directory: &Path, lock: OwnedFd, spec: &[u8]) -> io::Result<(OwnedFd, Child)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut written = File::from(rustix::fs::memfd_create("relive-spec", MemfdFlags::CLOEXEC)?);
    written.write_all(spec)?;
    written.rewind()?;
    // No directory, no group, no closure: with any of them the standard library would fork.
    let mut command = Command::new(program);
    command.arg0(SHIM).arg(directory).env_clear().stdin(theirs).stdout(lock).stderr(written);
    Ok((ours, command.spawn()?))
}

/// Waits for the shim's end in the background, so that no zombie stays. Outside a runtime's life somebody else reaps it.
fn reap(mut child: Child) {
    let pid = Pid::from_child(&child);
    tokio::spawn(async move {
        let watched = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(|pidfd| packet::watch(pidfd, Interest::READABLE));
        if let Ok(pidfd) = watched {
            let _ = pidfd.readable().await;
        }
        let _ = child.try_wait();
    });
}
