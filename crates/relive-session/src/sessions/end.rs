//! Ends sessions that nobody attends, and records the end of those whose shim is lost.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use relive_sandbox::GuardedDirectory;
use tokio::task::spawn_blocking;

use super::records::record_of_lost;
use super::{SessionStatus, Sessions};
use crate::directory::{SessionDirectory, State};
use crate::errno;
use crate::exit::{EndedBy, ExitRecord};
use crate::protocol::Verb;
use crate::stage::Failure;
use crate::tree::Tree;

/// How long a killed tree may take to be empty.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

impl Sessions {
    /// Ends every session in a directory of sessions. When this returns without an error, none of their processes runs.
    pub async fn end_all(&self, sessions: &Path) -> io::Result<()> {
        // A launch whose caller has given up may be about to create its directory.
        self.turns.pass_in(sessions).await;
        let path = sessions.to_owned();
        let open = spawn_blocking(move || without_exit_record(&path)).await.map_err(io::Error::other)?;
        for path in open.unwrap_or_else(|error| {
            eprintln!("{}: {error}; the kernel is asked instead", sessions.display());
            Vec::new()
        }) {
            if let Err(error) = self.end(&path).await {
                eprintln!("{}: {error}", path.display());
                self.end_without_shim(&path).await?;
            }
        }
        for path in self.running_in(sessions).await? {
            self.end_without_shim(&path).await?;
        }
        match self.running_in(sessions).await?.as_slice() {
            [] => Ok(()),
            [left, ..] => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} still runs", left.display()))),
        }
    }

    async fn end(&self, path: &Path) -> io::Result<()> {
        let status = match self.find(path).await {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.end_without_shim(path).await?;
                self.find(path).await?
            }
            found => found?,
        };
        if let SessionStatus::Alive(connection) = status {
            // If it exited in the meantime, the next look tells how.
            let _ = self.order(path, &connection, Verb::Kill).await;
            let mut seen = connection.seen();
            let _ = seen.wait_for(|seen| seen.ended.is_some() || seen.gone).await;
            self.find(path).await?;
        }
        Ok(())
    }
}

fn without_exit_record(sessions: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(sessions) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut open = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // A directory that was being created or removed when its owner was killed.
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        let Ok(directory) = SessionDirectory::open(path.clone()) else {
            // Its program may have put something else there.
            open.push(path);
            continue;
        };
        // A record does not count while the shim lives: the program may have written it.
        if !directory.lock_is_free().unwrap_or(false) || directory.read_exit().unwrap_or_default().is_none() {
            open.push(path);
        }
    }
    Ok(open)
}

/// Kills the processes that a lost shim left behind, and records the end on the disk.
pub(super) async fn lost(
    directory: SessionDirectory,
    state: Option<State>,
    tree: Tree,
    why: EndedBy,
    failure: Failure,
) -> io::Result<ExitRecord> {
    let ended = spawn_blocking(move || {
        if why == EndedBy::HostLost {
            // No process of another boot is alive: one with a matching pid is a different one.
            let _ = tree.remove();
        } else {
            empty(&tree);
        }
        let state = state.map(|state| disable_planted(&directory, state, why));
        let record = record_of_lost(state.as_ref(), why, failure);
        match directory.write_exit(&record) {
            Err(error) if !errno::is_of_disk(&error) => {
                // Its owner's own record of the end has to do.
                eprintln!("{}: the end cannot be recorded: {error}", directory.path().display());
            }
            written => written?,
        }
        Ok(record)
    });
    ended.await.map_err(io::Error::other)?
}

/// Disables a repository that the program planted in its working directory, which its shim can do no more. `info` shows under
/// DEGRADED if that is not possible.
fn disable_planted(directory: &SessionDirectory, mut state: State, why: EndedBy) -> State {
    if why == EndedBy::HostLost {
        state.guarded = state.guarded.map(GuardedDirectory::after_boot);
    }
    let Some(Err(error)) = state.guarded.as_ref().map(GuardedDirectory::disable) else { return state };
    state.rungs.degraded.push(error.to_string());
    if let Err(unwritten) = directory.write_state(&state) {
        eprintln!("{}: {error}; the state cannot be written: {unwritten}", directory.path().display());
    }
    state
}

/// Kills a tree until it is empty, with the processes that left it, and removes it.
pub(super) fn empty(tree: &Tree) {
    let deadline = Instant::now() + KILL_PATIENCE;
    while (!tree.is_empty() || tree.has_strays()) && Instant::now() < deadline {
        if let Err(error) = tree.kill().and_then(|()| tree.kill_escaped()) {
            eprintln!("a tree cannot be killed: {error}");
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // What is left is an empty cgroup.
    let _ = tree.remove();
}
