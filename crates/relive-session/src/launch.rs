//! Starts shims.
//!
//! The daemon never forks: the shim is started as `posix_spawn` starts programs, so it costs the same however large the daemon
//! is, and nothing runs between the daemon and the shim but four system calls. All it is told comes by three descriptors;
//! nothing of it is to be seen by others.

mod start;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, WaitOptions};
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

/// The reason why there is no shim.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The session's directory could not be created.
    #[error("the session's directory cannot be created: {0}")]
    Directory(io::Error),
    #[error("cannot start the shim {}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    /// It was started, but does not answer correctly.
    #[error("the shim {} does not answer correctly: {source}", program.display())]
    Answer { program: PathBuf, source: AdoptError },
}

impl Default for Launcher {
    /// Uses this program itself, even if its file was replaced or removed in the meantime.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into() }
    }
}

impl Launcher {
    /// Uses another program that becomes a shim by its name.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Starts the shim of a session, which keeps running independently of this process, and waits for its hello.
    /// `create` makes the session's directory, whose path must be absolute, and its lock, which the shim holds from here
    /// on.
    pub async fn launch(
        &self,
        create: impl FnOnce() -> io::Result<(SessionDirectory, OwnedFd)> + Send + 'static,
        spec: &Spec,
    ) -> Result<Connection, LaunchError> {
        let program = self.program.clone();
        let failed = move |source| LaunchError::Start { program: program.clone(), source };
        let spec = serde_json::to_vec(spec).map_err(|error| failed(error.into()))?;
        let (program, not_started) = (self.program.clone(), failed.clone());
        // Starting reads the program from the disk. It is reaped from that thread: the caller may be gone before it is
        // started.
        let started = tokio::task::spawn_blocking(move || {
            let (directory, lock) = create().map_err(LaunchError::Directory)?;
            let (ours, pid) = start_shim(&program, directory.path(), lock, &spec).map_err(not_started)?;
            reap(pid);
            Ok(ours)
        });
        let ours = started.await.unwrap_or_else(|error| Err(failed(io::Error::other(error))))?;
        let answer = |source| LaunchError::Answer { program: self.program.clone(), source };
        Connection::adopt(ours).await.map_err(answer)
    }
}

fn start_shim(program: &Path, directory: &Path, lock: OwnedFd, spec: &[u8]) -> io::Result<(OwnedFd, Pid)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let written = File::from(rustix::fs::memfd_create("relive-spec", MemfdFlags::CLOEXEC)?);
    // The shim reads from the position where this leaves it.
    written.write_all_at(spec, 0)?;
    let word = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let argv = [word(SHIM.as_bytes())?, word(directory.as_os_str().as_bytes())?];
    let pid = start::start(&word(program.as_os_str().as_bytes())?, &argv, [theirs, lock, written.into()])?;
    Ok((ours, pid))
}

/// Waits for the shim's end in the background, so that no zombie stays. Without a runtime another process reaps it.
fn reap(pid: Pid) {
    tokio::spawn(async move {
        let watched = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(|pidfd| packet::watch(pidfd, Interest::READABLE));
        if let Ok(pidfd) = watched {
            let _ = pidfd.readable().await;
        }
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    });
}
