//! The owner's side: launches sessions, finds out what happened to them, and ends those without an owner.
//!
//! Every session is settled by looking at its directory. A session whose shim is lost, or whose machine went down, gets
//! its exit record here, after its tree is empty: from then on it has ended like any other, and is never looked at
//! again.

mod overrule;
mod remains;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::connection::{AdoptError, Connection};
use crate::directory::{self, Found, SessionDirectory, State};
use crate::errno;
use crate::exit::{self, EndedBy, ExitRecord, Used};
use crate::launch::{LaunchError, Launcher};
use crate::probe::probe_apart;
use crate::protocol::Verb;
use crate::spec::{DaemonStart, Names, Spec};
use crate::stage::{Failure, SessionResult};
use crate::tree::{Ladder, Tree};
use remains::Remains;

/// The time between two looks at a session that is starting or ending.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a shim may neither answer nor exit before it is sent SIGCONT,
const SILENT_PATIENCE: Duration = Duration::from_secs(5);
/// and how long after that before its session is ended without it.
const ROUSED_PATIENCE: Duration = Duration::from_secs(10);
/// How long a killed tree may take to be empty.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Launches and finds sessions.
#[derive(Debug)]
pub struct Sessions {
    launcher: Launcher,
    boot_id: String,
    prefix: String,
    ladder: OnceCell<Ladder>,
    daemon: Option<DaemonStart>,
}

/// The state of a session.
#[derive(Debug)]
pub enum SessionStatus {
    /// Its program never ran, and never will.
    NeverRan,
    /// Its shim answers.
    Alive(Connection),
    Ended(ExitRecord),
}

/// Until when a session has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    StillRuns,
    Until {
        /// The id of its boot.
        boot_id: String,
        /// Milliseconds since that boot.
        up_ms: u64,
    },
}

impl Sessions {
    /// Uses this program as the shim, in this boot; the names of the cgroup leaves begin with `prefix`.
    #[must_use]
    pub fn new(shim: PathBuf, boot_id: String, prefix: String) -> Self {
        Self { launcher: Launcher::new(shim), boot_id, prefix, ladder: OnceCell::new(), daemon: None }
    }

    /// Sets the daemon that the programs can have started again.
    #[must_use]
    pub fn with_daemon(self, daemon: DaemonStart) -> Self {
        Self { daemon: Some(daemon), ..self }
    }

    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Returns what this machine supports, found out at the first call.
    pub async fn ladder(&self) -> io::Result<&Ladder> {
        let probe = || async {
            let (program, prefix) = (self.launcher.program().to_owned(), self.prefix.clone());
            spawn_blocking(move || probe_apart(&program, &prefix)).await.map_err(io::Error::other)
        };
        self.ladder.get_or_try_init(probe).await
    }

    /// Launches a session in a directory that must not exist yet. If its names come with its files, a directory that is
    /// missing means that nothing ran only as long as the machine is up.
    pub async fn launch(&self, path: &Path, spec: &Spec) -> Result<Connection, LaunchError> {
        let (path, boot_id, names) = (path.to_owned(), self.boot_id.clone(), spec.names);
        let spec = Spec { daemon: self.daemon.clone(), ..spec.clone() };
        self.launcher.launch(move || create(&path, &boot_id, names), &spec).await
    }

    /// Finds out what happened to the session in this directory: `NeverRan` if there is none. Fails with `Unsupported`
    /// if its shim lives and no common version of the protocol exists.
    pub async fn find(&self, path: &Path) -> io::Result<SessionStatus> {
        let mut silence = Silence::default();
        let status = self.settle(path, &mut silence).await;
        if let Some(held) = silence.held {
            held.release();
        }
        status
    }

    async fn settle(&self, path: &Path, silence: &mut Silence) -> io::Result<SessionStatus> {
        let (mut doubt, mut is_replaced) = (Doubt::None, false);
        loop {
            let looked = match self.look(path).await {
                Err(error) if directory::is_replaced(&error) => {
                    is_replaced = true;
                    None
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Ok((_, Found::Starting)) => {
                    self.wait(path, silence).await?;
                    continue;
                }
                Ok((directory, Found::Alive(socket))) => match self.adopt(directory, socket).await? {
                    Some(status) => return Ok(status),
                    None => {
                        self.wait(path, silence).await?;
                        continue;
                    }
                },
                looked => Some(looked?),
            };
            match (self.remains(path).await?, &doubt) {
                (Remains::Nothing, _) | (Remains::Program, Doubt::Proved(_)) => {}
                (Remains::Shim, _) => {
                    self.wait(path, silence).await?;
                    continue;
                }
                // Somebody else may have launched it since the look.
                (Remains::Program, Doubt::None) => {
                    doubt = Doubt::Suspected;
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                }
                (Remains::Program, Doubt::Suspected) => {
                    doubt = Doubt::Proved(looked.and_then(|(_, found)| found.into_record()));
                    self.end_without_shim(path).await?;
                    continue;
                }
            }
            if looked.is_none() && is_replaced {
                // Only its program can have done that, so it has run.
                return self.replace_directory(path).await.map(SessionStatus::Ended);
            }
            return self.conclude(path, looked, doubt).await;
        }
    }

    /// Begins to use a shim; `None` if its directory has to be looked at again.
    async fn adopt(&self, directory: SessionDirectory, socket: OwnedFd) -> io::Result<Option<SessionStatus>> {
        match Connection::adopt(socket).await {
            Ok(connection) => Ok(Some(SessionStatus::Alive(connection))),
            // Its program keeps running: another version of Relive may be able to use its shim.
            Err(error @ AdoptError::Version { .. }) => Err(io::Error::new(io::ErrorKind::Unsupported, error)),
            Err(error @ AdoptError::NotAShim) => {
                eprintln!("{}: {error}", directory.path().display());
                let failure = failure("hello", "EPROTONOSUPPORT", libc::EPROTONOSUPPORT);
                let state = self.state_of(&directory)?;
                self.end_without_shim(directory.path()).await?;
                let tree = self.tree_of(directory.path()).await?;
                lost(directory, state, tree, EndedBy::Version, failure).await.map(SessionStatus::Ended).map(Some)
            }
            // It exited between the connection and the hello, or is overloaded.
            Err(AdoptError::HungUp | AdoptError::Silent) => Ok(None),
            Err(AdoptError::Io(error)) => Err(error),
        }
    }

    /// Returns what happened to a session of which nothing runs any more.
    async fn conclude(
        &self,
        path: &Path,
        looked: Option<(SessionDirectory, Found)>,
        doubt: Doubt,
    ) -> io::Result<SessionStatus> {
        let ran_on = matches!(doubt, Doubt::Proved(_));
        let Some((directory, found)) = looked else {
            let lost = if ran_on { Some(self.replace_directory(path).await?) } else { None };
            return Ok(lost.map_or(SessionStatus::NeverRan, SessionStatus::Ended));
        };
        let shim_lost = failure("shim", "ESRCH", libc::ESRCH);
        let (state, why, failure) = match found {
            // Its program ran after it, and no shim has replaced it: it was the program's own.
            Found::Ended(record) if doubt == Doubt::Proved(Some(record.clone())) && record.left.is_empty() => {
                (self.state_of(&directory)?, EndedBy::ShimLost, shim_lost)
            }
            Found::Ended(record) => return Ok(SessionStatus::Ended(record)),
            Found::ShimLost(state) => (state, EndedBy::ShimLost, shim_lost),
            Found::NeverRan | Found::OtherBoot(_) if ran_on => (None, EndedBy::ShimLost, shim_lost),
            Found::OtherBoot(state) => (state, EndedBy::HostLost, failure("boot", "EHOSTDOWN", libc::EHOSTDOWN)),
            // The last two were handled before.
            Found::NeverRan | Found::Starting | Found::Alive(_) => {
                self.clear(&directory).await?;
                return Ok(SessionStatus::NeverRan);
            }
        };
        let tree = match (why, &state) {
            (EndedBy::HostLost, Some(state)) => Tree::reopen(&state.tree),
            _ => self.tree_of(path).await?,
        };
        lost(directory, state, tree, why, failure).await.map(SessionStatus::Ended)
    }

    /// Waits before the next look at a shim that neither answers nor exits. After too long it is sent SIGCONT; in the
    /// end its session is ended without it.
    async fn wait(&self, path: &Path, silence: &mut Silence) -> io::Result<()> {
        let lasted = silence.since.elapsed();
        if lasted > SILENT_PATIENCE && !silence.roused {
            silence.roused = true;
            silence.held = Some(self.rouse(path).await?);
        } else if lasted > SILENT_PATIENCE + ROUSED_PATIENCE {
            self.end_without_shim(path).await?;
            silence.since = Instant::now();
        }
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }

    /// Returns until when the session in this directory has run, as far as its directory tells. Settles nothing.
    pub async fn ran(&self, path: &Path) -> io::Result<Option<Ran>> {
        let (path, boot_id) = (path.to_owned(), self.boot_id.clone());
        let looked = spawn_blocking(move || {
            let directory = match SessionDirectory::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            let made_in = directory.made_in_boot()?;
            // A record does not count while the shim lives: the program may have written it.
            if !directory.lock_is_free()? {
                return Ok((made_in == Some(boot_id)).then_some(Ran::StillRuns));
            }
            let ended = directory.read_exit()?.and_then(|record| record.up_ms);
            Ok(ended.zip(made_in).map(|(up_ms, boot_id)| Ran::Until { boot_id, up_ms }))
        });
        looked.await.map_err(io::Error::other)?
    }

    /// Ends every session in a directory of sessions. When this returns without an error, none of their processes runs.
    pub async fn end_all(&self, sessions: &Path) -> io::Result<()> {
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
    /// possibly a child at the gate.
    async fn clear(&self, directory: &SessionDirectory) -> io::Result<()> {
        let tree = self.tree_of(directory.path()).await?;
        let cleared = spawn_blocking(move || empty(&tree));
        cleared.await.map_err(io::Error::other)
    }

    /// Returns the last state of the shim, if it is from this boot.
    fn state_of(&self, directory: &SessionDirectory) -> io::Result<Option<State>> {
        Ok(directory.read_state()?.filter(|state| state.boot_id == self.boot_id))
    }
}

/// Whether a program runs of which its directory says otherwise.
#[derive(Debug, PartialEq)]
enum Doubt {
    None,
    Suspected,
    /// It did, and was killed; with the exit record that was there before.
    Proved(Option<ExitRecord>),
}

/// How long a shim has neither answered nor exited, and what was done about it.
struct Silence {
    since: Instant,
    roused: bool,
    held: Option<overrule::Held>,
}

impl Default for Silence {
    fn default() -> Self {
        Self { since: Instant::now(), roused: false, held: None }
    }
}

/// Returns the sessions in a directory of sessions whose names are numbers.
pub fn numbered(path: &Path) -> io::Result<Vec<u32>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if directory::is_missing_or_replaced(&error) => return Ok(Vec::new()),
        other => other?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(numbers)
}

/// Returns whether sessions were removed from a directory of sessions: it is never empty by itself.
pub fn is_emptied(path: &Path) -> io::Result<bool> {
    match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if directory::is_replaced(&error) => Ok(true),
        entries => Ok(entries?.next().is_none()),
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

/// The directory, with its name on the disk if names need that: that it is not there means that nothing was launched, in this
/// boot or at all. One whose program never ran makes room.
fn create(path: &Path, boot_id: &str, names: Names) -> io::Result<(SessionDirectory, OwnedFd)> {
    let parent = path.parent().unwrap_or(path);
    let created = match SessionDirectory::create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let created = SessionDirectory::create_first(path)?;
            if names == Names::Apart {
                sync_dir(parent.parent().unwrap_or(parent))?;
            }
            created
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !matches!(SessionDirectory::open(path)?.look(boot_id)?, Found::NeverRan) {
                return Err(error);
            }
            SessionDirectory::create_again(path)?
        }
        created => created?,
    };
    if names == Names::Apart {
        sync_dir(parent)?;
    }
    Ok(created)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    std::fs::File::open(path)?.sync_all()
}

/// The record of a session whose machine went down.
#[must_use]
pub fn host_lost() -> ExitRecord {
    record_of_lost(None, EndedBy::HostLost, failure("boot", "EHOSTDOWN", libc::EHOSTDOWN))
}

/// Returns the record of a session whose directory was removed, with its record.
#[must_use]
pub fn shim_lost() -> ExitRecord {
    record_of_lost(None, EndedBy::ShimLost, failure("shim", "ESRCH", libc::ESRCH))
}

fn record_of_lost(state: Option<&State>, why: EndedBy, failure: Failure) -> ExitRecord {
    let snapshot = state.map(|state| &state.snapshot);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    ExitRecord {
        version: exit::VERSION,
        result: SessionResult::Error(failure),
        why: Some(why),
        by: None,
        last_signal: None,
        host_pid: snapshot.and_then(|snapshot| snapshot.host_pid),
        child_pid: snapshot.and_then(|snapshot| snapshot.child_pid),
        at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        up_ms: None,
        log_end: 0,
        used: Used::default(),
        output_lost: false,
        timed_out: false,
        oom_kills: 0,
        left: Vec::new(),
    }
}

/// Kills the processes that a lost shim left behind, and records the end on the disk.
async fn lost(
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

/// Kills a tree until it is empty, and removes it.
fn empty(tree: &Tree) {
    let deadline = std::time::Instant::now() + KILL_PATIENCE;
    while !tree.is_empty() && std::time::Instant::now() < deadline {
        if let Err(error) = tree.kill() {
            eprintln!("a tree cannot be killed: {error}");
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // What is left is an empty cgroup.
    let _ = tree.remove();
}

fn failure(stage: &str, errno: &str, code: i32) -> Failure {
    Failure { stage: stage.to_owned(), errno: errno.to_owned(), code }
}
