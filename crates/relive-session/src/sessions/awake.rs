//! Shims that somebody has stopped while their session is attended.
//!
//! A program can send SIGSTOP to its own parent, and a stopped shim tells nobody that its program has ended. Whoever sends a
//! request notices that by the answer that is missing; whoever waits for the end would wait for ever. So a stopped shim is
//! looked for now and then, and sent SIGCONT.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use crate::connection::Connection;
use crate::proc::{self, Identity, Stat};
use crate::tree;

/// The time between two looks, of all sessions at the same moment.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How many looks there are at a time: each takes a thread, and all sessions are due at once.
const LOOKS_MAX: usize = 2;

/// Lets the shim of a session continue whenever it was stopped, as long as somebody uses this connection to it.
pub(super) fn keep(path: &Path, connection: &Connection) {
    let (pid, path) = (connection.shim_pid(), path.to_owned());
    let mut seen = connection.seen();
    tokio::spawn(async move {
        let Ok(Some(shim)) = spawn_blocking(move || shim_of(pid, &path)).await else { return };
        while timeout_at(next_look(), seen.wait_for(|seen| seen.ended.is_some() || seen.gone)).await.is_err() {
            look(shim).await;
        }
    });
}

/// Returns the process with this pid if it is the shim of the session in this directory. A program that answers in the
/// place of its shim names any process.
fn shim_of(pid: i32, path: &Path) -> Option<Identity> {
    let shim = Identity::of(pid).ok()?;
    (proc::shim_directory(pid).as_deref() == Some(path)).then_some(shim)
}

/// Lets a shim continue if it is stopped.
async fn look(shim: Identity) {
    static LOOKS: Semaphore = Semaphore::const_new(LOOKS_MAX);
    let Ok(_permit) = LOOKS.acquire().await else { return };
    let looked = spawn_blocking(move || {
        if Stat::of(shim.pid).is_ok_and(|stat| stat.identity == shim && stat.state == b'T') {
            // One that has ended meanwhile is noticed by its connection.
            let _ = tree::signal_all(&[shim], Signal::CONT);
        }
    });
    // It fails only while the daemon stops.
    let _ = looked.await;
}

fn next_look() -> Instant {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let first = *FIRST.get_or_init(Instant::now);
    let passed = first.elapsed().as_millis() / LOOK_EVERY.as_millis();
    let next = u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
    first + LOOK_EVERY.saturating_mul(next)
}
