//! Sessions whose shim does not answer, because somebody stopped it, or because it hangs.
//!
//! A program can send SIGSTOP to its own parent. So nothing that an owner has to be able to do depends on the shim alone: the
//! tree can be reached without it. It is held still first, so that the program does not stop its shim again, and the shim is
//! continued. Where that does not help, tree and shim are killed from here.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{LOOK_EVERY, Sessions, empty};
use crate::connection::{Connection, Gone};
use crate::directory::SessionDirectory;
use crate::errno;
use crate::proc::{self, Identity};
use crate::protocol::{Outcome, Verb};
use crate::tree::{self, Tree};

/// How long a shim may take to answer. A freeze takes it two seconds at most.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// How long a tree may take to stand still before its shim is continued all the same.
const HOLD_PATIENCE: Duration = Duration::from_secs(1);
/// How long a shim whose tree was killed may take to leave its record.
const RECORD_PATIENCE: Duration = Duration::from_secs(3);
/// How long a killed shim may take to be gone.
const GONE_PATIENCE: Duration = Duration::from_secs(10);

/// A tree that was held still to reach its shim.
pub(super) struct Held {
    tree: Option<Tree>,
}

impl Held {
    fn is_swept(&self) -> bool {
        self.tree.as_ref().is_some_and(Tree::is_swept)
    }

    /// Thaws it. A tree that stood still before stays as it was.
    pub(super) fn release(self) {
        if let Some(tree) = self.tree {
            // One that has ended meanwhile needs nothing.
            let _ = tree.thaw();
        }
    }
}

impl Sessions {
    /// Asks the shim of a session for something, and does not rely on it: one that does not answer is continued, and a session
    /// that is to be killed ends even without it.
    pub async fn order(&self, path: &Path, connection: &Connection, verb: Verb) -> Result<Outcome, Gone> {
        let call = verb.name();
        let stays_still = matches!(verb, Verb::Freeze | Verb::Kill);
        let (freezes, ends) = (verb == Verb::Freeze, verb == Verb::Kill);
        let mut asked = pin!(connection.request(verb));
        if let Ok(answer) = timeout(ANSWER_PATIENCE, &mut asked).await {
            return answer;
        }
        let Ok(held) = self.rouse(path).await else { return Ok(silent(call)) };
        let answer = timeout(ANSWER_PATIENCE, &mut asked).await;
        if freezes && answer.is_ok() && held.is_swept() {
            // The shim continues only those that it stopped itself: it has to find them running.
            held.release();
            let again = timeout(ANSWER_PATIENCE, connection.request(Verb::Freeze)).await;
            return again.unwrap_or_else(|_| Ok(silent(call)));
        }
        if !(stays_still && answer.is_ok()) {
            held.release();
        }
        match answer {
            Ok(answer) => answer,
            Err(_) if ends => match self.end_without_shim(path).await {
                Ok(()) => Err(Gone),
                Err(_) => Ok(silent(call)),
            },
            Err(_) => Ok(silent(call)),
        }
    }

    /// Holds the tree of a session still and continues its shim.
    pub(super) async fn rouse(&self, path: &Path) -> io::Result<Held> {
        let (tree, path) = (self.tree_of(path).await?, path.to_owned());
        let roused = spawn_blocking(move || {
            let moves = !tree.is_frozen();
            // A tree that cannot be held still may stop its shim again; most do not.
            let held = moves && tree.freeze(HOLD_PATIENCE).is_ok();
            if moves && !held {
                let _ = tree.thaw();
            }
            signal_shims(&path, Signal::CONT)?;
            Ok(Held { tree: held.then_some(tree) })
        });
        roused.await.map_err(io::Error::other)?
    }

    /// Kills the tree of a session, and, if it does not leave by itself then, its shim. The directory's lock is free afterwards.
    pub async fn end_without_shim(&self, path: &Path) -> io::Result<()> {
        let (tree, path) = (self.tree_of(path).await?, path.to_owned());
        let ended = spawn_blocking(move || {
            let directory = SessionDirectory::open(&path)?;
            empty(&tree);
            signal_shims(&path, Signal::CONT)?;
            if wait_for_lock(&directory, RECORD_PATIENCE)? {
                return Ok(());
            }
            signal_shims(&path, Signal::KILL)?;
            let gone = wait_for_lock(&directory, GONE_PATIENCE)?;
            // Its child may have been on the way into the tree.
            empty(&tree);
            if gone { Ok(()) } else { Err(rustix::io::Errno::TIMEDOUT.into()) }
        });
        ended.await.map_err(io::Error::other)?
    }

    /// What holds the processes of a session. A state that the program wrote itself is not believed to be of another tree.
    pub(super) async fn tree_of(&self, path: &Path) -> io::Result<Tree> {
        let opened = open(path.to_owned()).await?;
        let (directory, state) = opened;
        match state.filter(|state| state.boot_id == self.boot_id && state.tree.is_of(&directory.name())) {
            Some(state) => Ok(Tree::reopen(&state.tree)),
            None => Ok(Tree::planned(&self.ladder().await?.plan, &directory.name())),
        }
    }
}

async fn open(path: PathBuf) -> io::Result<(SessionDirectory, Option<crate::directory::State>)> {
    let opened = spawn_blocking(move || {
        let directory = SessionDirectory::open(path)?;
        let state = directory.read_state().unwrap_or_default();
        Ok((directory, state))
    });
    opened.await.map_err(io::Error::other)?
}

/// The shims of a session: found by what they were started with, because all that is in the directory may be the program's.
fn signal_shims(path: &Path, signal: Signal) -> io::Result<()> {
    let shims: Vec<Identity> =
        proc::all()?.into_iter().map(|stat| stat.identity).filter(|shim| proc::is_shim_of(shim.pid, path)).collect();
    tree::signal_all(&shims, signal)
}

fn wait_for_lock(directory: &SessionDirectory, at_most: Duration) -> io::Result<bool> {
    let until = Instant::now() + at_most;
    while !directory.lock_is_free()? {
        if Instant::now() > until {
            return Ok(false);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(true)
}

fn silent(call: &str) -> Outcome {
    Outcome::Failed { call: call.to_owned(), errno: errno::name(libc::ETIMEDOUT) }
}
