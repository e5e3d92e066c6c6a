//! Starts shims.
//!
//! The daemon never forks: the shim is started as `posix_spawn` starts programs, so it costs the same however large the daemon
//! is, and nothing runs between the daemon and the shim but four system calls. All it is told comes by three descriptors;
//! nothing of it is to be seen by others. A [`spare`] is started the same way, before there is a session for it.

mod attributes;
mod spare;
mod spare_backoff;
mod start;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::WaitOptions;
use tokio::io::Interest;
use tokio::sync::watch;

use spare::Spares;
pub(crate) use spare::{ORDER_MAX, Order, PATH_ROOM, READY, is_filler, rouse_stopped};
use start::Started;

use crate::connection::{AdoptError, Connection, Seen};
use crate::directory::SessionDirectory;
use crate::spec::Spec;
use crate::tree::{self, Ahead, Plan};
use crate::{SHIM, packet, shim};

/// How long after a launch the next shim is started at the latest: a program that ends sooner has the processors to itself.
const REFILL_WITHIN: Duration = Duration::from_millis(4);
/// Whoever waits for the end of a program comes before the next shim.
const AFTER_END: Duration = Duration::from_millis(1);
/// How long after that it prepares itself at the latest.
const QUIET: Duration = Duration::from_millis(200);

/// Starts shims.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    spares: Spares,
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
        Self::new("/proc/self/exe")
    }
}

impl Launcher {
    /// Uses another program that becomes a shim by its name.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), spares: Spares::default() }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the OS pid of the shim that waits for the next session, if there is one.
    #[must_use]
    pub fn waiting_shim(&self) -> Option<i32> {
        self.spares.waiting()
    }

    /// Starts the shim of a session, or uses the one that waits, which keeps running independently of this process, and waits for its hello.
    /// `create` makes the session's directory, whose path must be absolute, and its lock, which the shim holds from here
    /// on.
    pub async fn launch(
        &self,
        create: impl FnOnce() -> io::Result<(SessionDirectory, OwnedFd)> + Send + 'static,
        spec: &Spec,
    ) -> Result<Connection, LaunchError> {
        let program = self.program.clone();
        let failed = move |source| LaunchError::Start { program: program.clone(), source };
        let (program, not_started) = (self.program.clone(), failed.clone());
        let spares = takes_spare(spec).then(|| self.spares.clone());
        let plan = spec.tree.clone();
        let spec = serde_json::to_vec(spec).map_err(|error| failed(error.into()))?;
        // Starting reads the program from the disk. It is reaped from that thread: the caller may be gone before it is
        // started.
        let started = tokio::task::spawn_blocking(move || {
            let (directory, lock) = create().map_err(LaunchError::Directory)?;
            start_shim(&program, spares.as_ref(), directory.path(), lock, &spec).map_err(not_started)
        });
        let ours = started.await.unwrap_or_else(|error| Err(failed(io::Error::other(error))))?;
        let answer = |source| LaunchError::Answer { program: self.program.clone(), source };
        let adopted = Connection::adopt(ours).await.map_err(answer);
        self.refill(plan, adopted.as_ref().ok().map(Connection::seen));
        adopted
    }

    /// Starts the shim of the next session, which probably has a tree like the last one. It prepares itself when that has
    /// ended, or runs for a while.
    fn refill(&self, plan: Plan, mut last: Option<watch::Receiver<Seen>>) {
        let (program, spares) = (self.program.clone(), self.spares.clone());
        tokio::spawn(async move {
            ended_within(REFILL_WITHIN, last.as_mut()).await;
            tokio::time::sleep(AFTER_END).await;
            let (starting, of) = (spares.clone(), plan.clone());
            let refilled = tokio::task::spawn_blocking(move || {
                if let Some(started) = starting.refill(&program) {
                    let leaf = Ahead::leaf_of(&of, started.pid.as_raw_nonzero().get());
                    reap(started, leaf);
                }
            });
            let _ = refilled.await;
            ended_within(QUIET, last.as_mut()).await;
            spares.prepare(plan);
        });
    }
}

/// Waits until a session has ended, at most this long.
async fn ended_within(limit: Duration, session: Option<&mut watch::Receiver<Seen>>) {
    if let Some(session) = session {
        let _ = tokio::time::timeout(limit, session.wait_for(|seen| seen.ended.is_some() || seen.gone)).await;
    }
}

/// Returns whether a session can have a shim that has waited: its proxy is not to be limited like the program, and one that
/// enters another session has the limits of that.
fn takes_spare(spec: &Spec) -> bool {
    spec.enter.is_none() && !shim::needs_proxy(spec)
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Returns the connection to the shim of a session.
fn start_shim(
    program: &Path,
    spares: Option<&Spares>,
    directory: &Path,
    lock: OwnedFd,
    spec: &[u8],
) -> io::Result<OwnedFd> {
    let written = File::from(rustix::fs::memfd_create("relive-spec", MemfdFlags::CLOEXEC)?);
    written.write_all_at(spec, 0)?;
    let written = OwnedFd::from(written);
    if let Some(ours) = spares.and_then(|spares| spares.employ(directory, &lock, &written)) {
        return Ok(ours);
    }
    let (ours, theirs) = pair()?;
    let word = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let argv = [word(SHIM.as_bytes())?, word(directory.as_os_str().as_bytes())?];
    reap(start::start(&word(program.as_os_str().as_bytes())?, &argv, [theirs, lock, written])?, None);
    Ok(ours)
}

/// Waits for a shim's end in the background, so that no zombie stays, nor the leaf that it ended in. Without a runtime another
/// process reaps it.
fn reap(started: Started, leaf: Option<PathBuf>) {
    let Started { pid, pidfd } = started;
    tokio::spawn(async move {
        if let Ok(pidfd) = packet::watch(pidfd, Interest::READABLE) {
            let _ = pidfd.readable().await;
        }
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        if let Some(leaf) = leaf {
            tokio::task::spawn_blocking(move || tree::remove_leaf_of_shim(&leaf));
        }
    });
}
