//! Finds out what happened to a session: by looking at its directory, and by asking the kernel where that may be wrong.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use super::end::{empty, lost};
use super::records::failure;
use super::remains::{Remains, shims_of};
use super::{LOOK_EVERY, SessionStatus, Sessions, awake, overrule};
use crate::connection::{AdoptError, Connection};
use crate::directory::{self, Found, SessionDirectory, State};
use crate::errno;
use crate::exit::{EndedBy, ExitRecord};
use crate::proc::Identity;
use crate::stage::{Failure, SessionResult};
use crate::tree::Tree;

/// How long a shim whose socket is gone may take to exit before it is sent SIGCONT, which makes it create another one.
const LOST_SOCKET_PATIENCE: Duration = Duration::from_millis(200);
/// How long a shim may neither answer nor exit before it is sent SIGCONT,
const SILENT_PATIENCE: Duration = Duration::from_secs(5);
/// and how long after that before its session is ended without it.
const ROUSED_PATIENCE: Duration = Duration::from_secs(10);

impl Sessions {
    /// Finds out what happened to the session in this directory: `NeverRan` if there is none. Fails with `Unsupported`
    /// if its shim lives and no common version of the protocol exists.
    pub async fn find(&self, path: &Path) -> io::Result<SessionStatus> {
        let mut silence = Silence::default();
        let status = self.settle(path, &mut silence).await;
        if let Some(held) = silence.held {
            held.release();
        }
        match status? {
            SessionStatus::Ended(record) if silence.overruled => {
                attribute(path, record).await.map(SessionStatus::Ended)
            }
            other @ (SessionStatus::NeverRan | SessionStatus::Alive(_) | SessionStatus::Ended(_)) => Ok(other),
        }
    }

    async fn settle(&self, path: &Path, silence: &mut Silence) -> io::Result<SessionStatus> {
        let (mut doubt, mut is_replaced) = (Doubt::None, false);
        loop {
            // Nobody launches it between the look and what follows from that.
            let turn = self.turns.of(path).await?;
            let looked = match self.look(path).await {
                Err(error) if directory::is_replaced(&error) => {
                    is_replaced = true;
                    None
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Ok((_, Found::Starting)) => {
                    drop(turn);
                    doubt.dispel();
                    self.wait(path, silence).await?;
                    continue;
                }
                Ok((directory, Found::Alive(socket))) => {
                    drop(turn);
                    match self.adopt(directory, socket).await? {
                        Some(status) => return Ok(status),
                        None => {
                            doubt.dispel();
                            self.wait(path, silence).await?;
                            continue;
                        }
                    }
                }
                looked => Some(looked?),
            };
            match (self.remains(path).await?, &doubt) {
                (Remains::Nothing, _) | (Remains::Program, Doubt::Proved(_)) => {}
                (Remains::Shim, _) => {
                    drop(turn);
                    self.wait(path, silence).await?;
                    continue;
                }
                // Somebody else may have launched it since the look.
                (Remains::Program, Doubt::None) => {
                    doubt = Doubt::Suspected;
                    drop(turn);
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                }
                (Remains::Program, Doubt::Suspected) => {
                    doubt = Doubt::Proved(looked.and_then(|(_, found)| found.into_record()));
                    silence.overruled = true;
                    self.end_in_turn(path, Some(turn)).await?;
                    continue;
                }
            }
            if looked.is_none() && is_replaced {
                // Only its program can have done that, so it has run.
                return self.replace_directory(path).await.map(SessionStatus::Ended);
            }
            if let Some(status) = self.conclude(path, looked, &doubt).await? {
                return Ok(status);
            }
            drop(turn);
            self.wait(path, silence).await?;
        }
    }

    /// Begins to use a shim; `None` if its directory has to be looked at again.
    async fn adopt(&self, directory: SessionDirectory, socket: OwnedFd) -> io::Result<Option<SessionStatus>> {
        match Connection::adopt(socket).await {
            Ok(connection) => {
                awake::keep(directory.path(), &connection);
                Ok(Some(SessionStatus::Alive(connection)))
            }
            // Its program keeps running: another version of Relive may be able to use its shim.
            Err(error @ AdoptError::Version { .. }) => Err(io::Error::new(io::ErrorKind::Unsupported, error)),
            Err(error @ AdoptError::NotAShim) => {
                eprintln!("{}: {error}", directory.path().display());
                let failure = failure(Failure::HELLO, "EPROTONOSUPPORT", libc::EPROTONOSUPPORT);
                let state = self.state_of(&directory);
                self.end_without_shim(directory.path()).await?;
                let tree = self.tree_of(directory.path()).await?;
                lost(directory, state, tree, EndedBy::Version, failure).await.map(SessionStatus::Ended).map(Some)
            }
            // It exited between the connection and the hello, or is overloaded.
            Err(AdoptError::HungUp | AdoptError::Silent) => Ok(None),
            Err(AdoptError::Io(error)) => Err(error),
        }
    }

    /// Returns what happened to a session of which nothing runs any more; `None` if somebody launches it again.
    async fn conclude(
        &self,
        path: &Path,
        looked: Option<(SessionDirectory, Found)>,
        doubt: &Doubt,
    ) -> io::Result<Option<SessionStatus>> {
        let ran_on = matches!(doubt, Doubt::Proved(_));
        let Some((directory, found)) = looked else {
            let lost = if ran_on { Some(self.replace_directory(path).await?) } else { None };
            return Ok(Some(lost.map_or(SessionStatus::NeverRan, SessionStatus::Ended)));
        };
        let shim_lost = failure(Failure::SHIM, "ESRCH", libc::ESRCH);
        let (state, why, failure) = match found {
            // Its program ran after it, and no shim has replaced it: it was the program's own.
            Found::Ended(record) if *doubt == Doubt::Proved(Some(record.clone())) && record.left.is_empty() => {
                (self.state_of(&directory), EndedBy::ShimLost, shim_lost)
            }
            Found::Ended(record) => return Ok(Some(SessionStatus::Ended(record))),
            Found::ShimLost(state) => (state, EndedBy::ShimLost, shim_lost),
            Found::NeverRan | Found::OtherBoot(_) if ran_on => (None, EndedBy::ShimLost, shim_lost),
            Found::OtherBoot(state) => (state, EndedBy::HostLost, failure(Failure::BOOT, "EHOSTDOWN", libc::EHOSTDOWN)),
            // The last two were handled before.
            Found::NeverRan | Found::Starting | Found::Alive(_) => {
                return Ok(self.clear(directory).await?.then_some(SessionStatus::NeverRan));
            }
        };
        let tree = match (why, &state) {
            (EndedBy::HostLost, Some(state)) => Tree::reopen(&state.tree),
            _ => self.tree_of(path).await?,
        };
        lost(directory, state, tree, why, failure).await.map(SessionStatus::Ended).map(Some)
    }

    /// Waits before the next look at a shim that neither answers nor exits. After too long it is sent SIGCONT; in the
    /// end its session is ended without it.
    async fn wait(&self, path: &Path, silence: &mut Silence) -> io::Result<()> {
        let lasted = silence.since.elapsed();
        let is_sought = lasted > LOST_SOCKET_PATIENCE && !silence.roused && has_lost_its_socket(path).await?;
        if (is_sought || lasted > SILENT_PATIENCE) && !silence.roused {
            silence.roused = true;
            silence.shims = shims(path).await?;
            silence.held = Some(self.rouse(path).await?);
        } else if lasted > SILENT_PATIENCE + ROUSED_PATIENCE {
            let turn = self.turns.of(path).await?;
            if shims(path).await?.iter().all(|shim| silence.shims.contains(shim)) {
                silence.overruled = true;
                self.end_in_turn(path, Some(turn)).await?;
                silence.since = Instant::now();
            } else {
                // Somebody else has ended the silent one, and launched another.
                let (held, overruled) = (silence.held.take(), silence.overruled);
                *silence = Silence { held, overruled, ..Silence::default() };
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }

    async fn look(&self, path: &Path) -> io::Result<(SessionDirectory, Found)> {
        let (path, boot_id) = (path.to_owned(), self.boot_id.clone());
        let looked = spawn_blocking(move || {
            let directory = SessionDirectory::open(path)?;
            let found = directory.look(&boot_id)?;
            if let Found::Ended(record) = &found
                && !matches!(directory.read_exit(), Ok(Some(_)))
            {
                // It was at the end of the log only. Whoever looks next need not read that.
                directory.write_exit(record)?;
            }
            Ok((directory, found))
        });
        looked.await.map_err(io::Error::other)?
    }

    /// Removes the remains of a session that never ran, whose shim was lost during the launch: its cgroup leaves, and
    /// possibly a child at the gate. Returns false, and removes nothing, if it is being launched again: its next launch has
    /// leaves of the same names.
    async fn clear(&self, directory: SessionDirectory) -> io::Result<bool> {
        let tree = self.tree_of(directory.path()).await?;
        let cleared = spawn_blocking(move || {
            let Some(_lock) = directory.hold()? else { return Ok(false) };
            empty(&tree);
            Ok(true)
        });
        cleared.await.map_err(io::Error::other)?
    }

    /// Returns the last state of the shim, if it can be read and is from this boot.
    fn state_of(&self, directory: &SessionDirectory) -> Option<State> {
        directory.read_state().unwrap_or_default().filter(|state| state.boot_id == self.boot_id)
    }
}

/// Adds to the record why a program was killed without its shim, which only saw that it ended by SIGKILL.
async fn attribute(path: &Path, record: ExitRecord) -> io::Result<ExitRecord> {
    if record.why.is_some() || record.result != SessionResult::Signaled(libc::SIGKILL) {
        return Ok(record);
    }
    let (path, record) = (path.to_owned(), ExitRecord { why: Some(EndedBy::ShimLost), ..record });
    let written = spawn_blocking(move || {
        match SessionDirectory::open(path).and_then(|directory| directory.write_exit(&record)) {
            Err(error) if errno::is_of_disk(&error) => Err(error),
            // Its program has spoilt the directory: its owner's own record of the end has to do.
            Ok(()) | Err(_) => Ok(record),
        }
    });
    written.await.map_err(io::Error::other)?
}

async fn shims(path: &Path) -> io::Result<Vec<Identity>> {
    let path = path.to_owned();
    spawn_blocking(move || shims_of(&path)).await.map_err(io::Error::other)?
}

async fn has_lost_its_socket(path: &Path) -> io::Result<bool> {
    let path = path.to_owned();
    let looked = spawn_blocking(move || SessionDirectory::open(path).is_ok_and(|found| found.has_lost_its_socket()));
    looked.await.map_err(io::Error::other)
}

/// Whether a program runs of which its directory says otherwise.
#[derive(Debug, PartialEq)]
enum Doubt {
    None,
    Suspected,
    /// It did, and was killed; with the exit record that was there before.
    Proved(Option<ExitRecord>),
}

impl Doubt {
    /// Takes a suspicion back: a shim was seen.
    fn dispel(&mut self) {
        if *self == Self::Suspected {
            *self = Self::None;
        }
    }
}

/// How long a shim has neither answered nor exited, and what was done about it.
struct Silence {
    since: Instant,
    roused: bool,
    /// Those that were sent SIGCONT.
    shims: Vec<Identity>,
    held: Option<overrule::Held>,
    /// Whether the session was ended without it.
    overruled: bool,
}

impl Default for Silence {
    fn default() -> Self {
        Self { since: Instant::now(), roused: false, shims: Vec::new(), held: None, overruled: false }
    }
}
