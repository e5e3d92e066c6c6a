//! Sessions whose shim does not answer, because somebody stopped it or because it hangs.
//!
//! A program can send SIGSTOP to its own parent, or trace it. So nothing that an owner must be able to do depends on the shim alone:
//! the tree can be reached without it. The tree is frozen first, so that the program does not stop its shim again, and
//! the shim is sent SIGCONT. If that does not help, tree and shim are killed from here.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::end::empty;
use super::remains::{Remains, remains, shims_of};
use super::turns::Turn;
use super::{LOOK_EVERY, Sessions};
use crate::connection::{Connection, Gone};
use crate::directory::{self, RecordedStage, SessionDirectory, State};
use crate::errno;
use crate::proc::{self, Identity, Stat};
use crate::protocol::{Outcome, Verb};
use crate::tree::{self, Tree};

/// How long a shim may take to answer. A freeze takes it two seconds at most.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// How often a shim that does not answer has to be found stopped by a tracer, and the time between two looks. A tracer that
/// only watches stops it for a moment at each system call.
const TRACED_LOOKS: u32 = 3;
const TRACED_AGAIN: Duration = Duration::from_millis(200);
/// How long a tree may take to freeze before its shim is sent SIGCONT anyway.
const HOLD_PATIENCE: Duration = Duration::from_secs(1);
/// How long a shim whose tree was killed may take to write its record.
const RECORD_PATIENCE: Duration = Duration::from_secs(3);
/// How long a killed shim may take to be gone.
const GONE_PATIENCE: Duration = Duration::from_secs(10);

/// A tree that was frozen to reach its shim.
pub(super) struct Held {
    tree: Option<Tree>,
}

impl Held {
    fn is_swept(&self) -> bool {
        self.tree.as_ref().is_some_and(Tree::is_swept)
    }

    /// Thaws it. A tree that was frozen before stays frozen.
    pub(super) fn release(self) {
        if let Some(tree) = self.tree {
            // A tree that has ended in the meantime needs nothing.
            let _ = tree.thaw();
        }
    }
}

impl Sessions {
    /// Sends a request to the shim of a session without relying on it: a shim that does not answer is sent SIGCONT, and
    /// a session that has to be killed ends even without it.
    pub async fn order(&self, path: &Path, connection: &Connection, verb: Verb) -> Result<Outcome, Gone> {
        let call = verb.name();
        let stays_still = matches!(verb, Verb::Freeze | Verb::Kill);
        let (freezes, thaws, ends) = (verb == Verb::Freeze, verb == Verb::Thaw, verb == Verb::Kill);
        let mut asked = pin!(connection.request(verb));
        tokio::select! {
            answer = timeout(ANSWER_PATIENCE, &mut asked) => if let Ok(answer) = answer {
                return answer;
            },
            // Nobody but its tracer can let it continue.
            () = traced(path, connection) => {
                if ends {
                    return self.killed_without_shim(path, call).await;
                }
                let is_done = freezes && self.freeze_without_shim(path).await
                    || thaws && self.thaw_without_shim(path).await.is_ok();
                return Ok(if is_done { Outcome::Done } else { silent(call) });
            }
        }
        let Ok(held) = self.rouse(path).await else { return Ok(silent(call)) };
        let answer = timeout(ANSWER_PATIENCE, &mut asked).await;
        if freezes && answer.is_ok() && held.is_swept() {
            // The shim continues only processes that it stopped itself: it has to find them running.
            held.release();
            let again = timeout(ANSWER_PATIENCE, connection.request(Verb::Freeze)).await;
            return again.unwrap_or_else(|_| Ok(silent(call)));
        }
        if !(stays_still && answer.is_ok()) {
            held.release();
        }
        match answer {
            Ok(answer) => answer,
            Err(_) if ends => self.killed_without_shim(path, call).await,
            Err(_) => Ok(silent(call)),
        }
    }

    /// Freezes the tree of a session. Returns whether all of it stands still until it is thawed: without a cgroup the shim
    /// would not know which processes to continue.
    async fn freeze_without_shim(&self, path: &Path) -> bool {
        let Ok(held) = self.rouse(path).await else { return false };
        if held.is_swept() {
            held.release();
            return false;
        }
        let Ok(tree) = self.tree_of(path).await else { return false };
        spawn_blocking(move || tree.is_frozen()).await.unwrap_or(false)
    }

    async fn killed_without_shim(&self, path: &Path, call: &str) -> Result<Outcome, Gone> {
        match self.end_without_shim(path).await {
            Ok(()) => Err(Gone),
            Err(_) => Ok(silent(call)),
        }
    }

    /// Freezes the tree of a session and sends its shim SIGCONT.
    pub(super) async fn rouse(&self, path: &Path) -> io::Result<Held> {
        let (tree, path) = (self.tree_of(path).await?, path.to_owned());
        let roused = spawn_blocking(move || {
            let moves = !tree.is_frozen();
            // A tree that cannot be frozen may stop its shim again; most do not.
            let held = moves && tree.freeze(HOLD_PATIENCE).is_ok();
            if moves && !held {
                let _ = tree.thaw();
            }
            tree::signal_all(&shims_of(&path)?, Signal::CONT)?;
            Ok(Held { tree: held.then_some(tree) })
        });
        roused.await.map_err(io::Error::other)?
    }

    /// Thaws the tree of a session whose shim cannot be asked. Without a cgroup every stopped process continues, also one that
    /// had stopped itself: only the shim knows which it has stopped, and a program that stays stopped would be worse.
    pub async fn thaw_without_shim(&self, path: &Path) -> io::Result<()> {
        let tree = self.tree_of(path).await?;
        spawn_blocking(move || tree.thaw_all()).await.map_err(io::Error::other)?
    }

    /// Kills the tree of a session, and, if it does not exit then, its shim; at once if its program has not run yet, so that
    /// it never does. When this returns, the shim is gone and the directory's lock, if there is one, is free.
    pub async fn end_without_shim(&self, path: &Path) -> io::Result<()> {
        self.end_in_turn(path, None).await
    }

    /// The same during a turn, which lasts until it is done even if the caller is gone.
    pub(super) async fn end_in_turn(&self, path: &Path, turn: Option<Turn>) -> io::Result<()> {
        let state = state_in(path.to_owned()).await?.filter(|state| state.boot_id == self.boot_id);
        let says_it_ran = state.is_some_and(|state| state.stage == RecordedStage::Running);
        let (tree, path) = (self.tree_of(path).await?, path.to_owned());
        let ended = spawn_blocking(move || {
            let _turn = turn;
            let may_have_run = says_it_ran || remains(&tree, &path)? == Remains::Program;
            let shims = shims_of(&path)?;
            if may_have_run {
                empty(&tree);
                tree::signal_all(&shims, Signal::CONT)?;
            }
            if !may_have_run || !wait_for_end(&shims, RECORD_PATIENCE) {
                let pids: Vec<i32> = shims.iter().map(|shim| shim.pid).collect();
                let below = proc::descendants(&proc::all()?, &pids);
                tree::signal_all(&shims, Signal::KILL)?;
                // Those that left the tree have nobody else who would.
                tree::signal_all(&below, Signal::KILL)?;
                let gone = wait_for_end(&shims, GONE_PATIENCE);
                // Its child may have been on its way into the tree.
                empty(&tree);
                if !gone {
                    return Err(rustix::io::Errno::TIMEDOUT.into());
                }
            }
            wait_for_lock(&path)
        });
        ended.await.map_err(io::Error::other)?
    }

    /// Returns the process tree of a session. A state that the program wrote itself cannot redirect it to another tree, and
    /// cannot hide the session's own cgroup.
    pub(super) async fn tree_of(&self, path: &Path) -> io::Result<Tree> {
        let name = directory::name_of(path);
        let planned = Tree::planned(&self.ladder().await?.plan, &name);
        if planned.has_leaf() {
            return Ok(planned);
        }
        let state = state_in(path.to_owned()).await?;
        let state = state.filter(|state| state.boot_id == self.boot_id && state.tree.is_of(&name));
        Ok(state.map_or(planned, |state| Tree::reopen(&state.tree)))
    }
}

/// Waits until a tracer, such as the program itself if it is root, has stopped the shim of a session for a while.
async fn traced(path: &Path, connection: &Connection) {
    let (pid, path) = (connection.shim_pid(), path.to_owned());
    let mut looks = 0;
    while looks < TRACED_LOOKS {
        tokio::time::sleep(TRACED_AGAIN).await;
        let path = path.clone();
        // A program that answers in the place of its shim names any process.
        let is_traced = move || Stat::of(pid).is_ok_and(|stat| stat.state == b't') && is_shim_of(pid, &path);
        looks = if spawn_blocking(is_traced).await.unwrap_or(false) { looks + 1 } else { 0 };
    }
}

fn is_shim_of(pid: i32, path: &Path) -> bool {
    proc::shim_directory(pid).as_deref() == Some(path)
}

async fn state_in(path: PathBuf) -> io::Result<Option<State>> {
    let read = spawn_blocking(move || match SessionDirectory::open(path) {
        Err(error) if directory::is_missing_or_replaced(&error) => Ok(None),
        opened => Ok(opened?.read_state().unwrap_or_default()),
    });
    read.await.map_err(io::Error::other)?
}

/// Waits until none of these lives, and returns whether that is so.
fn wait_for_end(processes: &[Identity], at_most: Duration) -> bool {
    let until = Instant::now() + at_most;
    while processes.iter().any(|process| process.lives()) {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

fn wait_for_lock(path: &Path) -> io::Result<()> {
    let directory = match SessionDirectory::open(path) {
        Err(error) if directory::is_missing_or_replaced(&error) => return Ok(()),
        opened => opened?,
    };
    let until = Instant::now() + GONE_PATIENCE;
    while !directory.lock_is_free()? {
        if Instant::now() > until {
            return Err(rustix::io::Errno::TIMEDOUT.into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn silent(call: &str) -> Outcome {
    Outcome::Failed { call: call.to_owned(), errno: errno::name(libc::ETIMEDOUT) }
}
