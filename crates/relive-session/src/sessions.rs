//! The owner's side: launching sessions, finding what became of them, and ending what nobody owns any more.
//!
//! Whatever is found is settled by looking at the directory. A session whose shim is lost, or whose machine went down, gets
//! its exit record here, after its tree is empty: from then on it has ended like any other, and is never asked about again.

mod overrule;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::Mode;
use rustix::io::Errno;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::connection::{AdoptError, Connection};
use crate::directory::{Found, SessionDirectory, State};
use crate::exit::{self, EndedBy, ExitRecord, Used};
use crate::launch::{LaunchError, Launcher};
use crate::protocol::Verb;
use crate::spec::{DaemonStart, Spec};
use crate::stage::{Failure, SessionResult};
use crate::tree::{Ladder, Tree};

/// Between two looks at a session that is about to begin, or to end.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a shim may neither answer nor go before it is continued,
const SILENT_PATIENCE: Duration = Duration::from_secs(5);
/// and how long after that before its session is ended without it.
const ROUSED_PATIENCE: Duration = Duration::from_secs(10);
/// How long a tree may take to be empty once it was killed.
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

/// What became of a session.
#[derive(Debug)]
pub enum SessionStatus {
    /// Its program never ran, and never will.
    NeverRan,
    /// Its shim answers.
    Alive(Connection),
    /// It ended.
    Ended(ExitRecord),
}

/// Until when a session has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    /// It still does.
    StillRuns,
    /// It ended then.
    Until {
        /// The boot it was in.
        boot_id: String,
        /// Milliseconds since that boot.
        up_ms: u64,
    },
}

impl Sessions {
    /// With this program as the shim, in this boot; the leaves of its trees have names that begin with `prefix`.
    #[must_use]
    pub fn new(shim: PathBuf, boot_id: String, prefix: String) -> Self {
        Self { launcher: Launcher::new(shim), boot_id, prefix, ladder: OnceCell::new(), daemon: None }
    }

    /// With a daemon that the programs can have started again.
    #[must_use]
    pub fn with_daemon(self, daemon: DaemonStart) -> Self {
        Self { daemon: Some(daemon), ..self }
    }

    /// The boot it is in.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// What this machine gives, found out by the first who asks.
    pub async fn ladder(&self) -> io::Result<&Ladder> {
        let probe = || async {
            let prefix = self.prefix.clone();
            spawn_blocking(move || Ladder::probe(&prefix)).await.map_err(io::Error::other)
        };
        self.ladder.get_or_try_init(probe).await
    }

    /// Launches a session in a directory that must not exist yet.
    pub async fn launch(&self, path: &Path, spec: &Spec) -> Result<Connection, LaunchError> {
        let (path, boot_id) = (path.to_owned(), self.boot_id.clone());
        let created = spawn_blocking(move || create(&path, &boot_id)).await.map_err(io::Error::other);
        let (directory, lock) = created.and_then(|created| created).map_err(LaunchError::Directory)?;
        let spec = Spec { daemon: self.daemon.clone(), ..spec.clone() };
        self.launcher.launch(&directory, lock, &spec).await
    }

    /// Finds out what became of the session in this directory: `NeverRan` if there is none. Fails with `Unsupported` if its
    /// shim lives and speaks no version of the protocol that we do.
    pub async fn find(&self, path: &Path) -> io::Result<SessionStatus> {
        let mut silence = Silence::default();
        let status = self.settle(path, &mut silence).await;
        if let Some(held) = silence.held {
            held.release();
        }
        status
    }

    async fn settle(&self, path: &Path, silence: &mut Silence) -> io::Result<SessionStatus> {
        loop {
            let (directory, found) = match self.look(path).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SessionStatus::NeverRan),
                looked => looked?,
            };
            match found {
                Found::Ended(record) => {
                    self.check_end(path, &record).await?;
                    return Ok(SessionStatus::Ended(record));
                }
                Found::NeverRan => {
                    self.clear(&directory).await?;
                    return Ok(SessionStatus::NeverRan);
                }
                Found::Starting => self.wait(path, silence).await?,
                Found::Alive(socket) => match Connection::adopt(socket).await {
                    Ok(connection) => return Ok(SessionStatus::Alive(connection)),
                    // Its program is left running: another version of Relive may know how to talk to it.
                    Err(error @ AdoptError::Version { .. }) => {
                        return Err(io::Error::new(io::ErrorKind::Unsupported, error));
                    }
                    Err(error @ AdoptError::NotAShim) => {
                        eprintln!("{}: {error}", path.display());
                        let failure = failure("hello", "EPROTONOSUPPORT", libc::EPROTONOSUPPORT);
                        let state = self.state_of(&directory)?;
                        let tree = self.tree_of(path).await?;
                        return lost(directory, state, tree, EndedBy::Version, failure).await.map(SessionStatus::Ended);
                    }
                    // It went between the connection and the greeting, or has too much to do: it is looked for again.
                    Err(AdoptError::HungUp | AdoptError::Silent) => self.wait(path, silence).await?,
                    Err(AdoptError::Io(error)) => return Err(error),
                },
                Found::ShimLost(state) => {
                    let failure = failure("shim", "ESRCH", libc::ESRCH);
                    let tree = self.tree_of(path).await?;
                    return lost(directory, state, tree, EndedBy::ShimLost, failure).await.map(SessionStatus::Ended);
                }
                Found::OtherBoot(state) => {
                    let failure = failure("boot", "EHOSTDOWN", libc::EHOSTDOWN);
                    let tree = Tree::reopen(&state.as_ref().map(|state| state.tree.clone()).unwrap_or_default());
                    return lost(directory, state, tree, EndedBy::HostLost, failure).await.map(SessionStatus::Ended);
                }
            }
        }
    }

    /// Waits before the next look at a shim that neither answers nor goes. One that does so for too long is continued; at last
    /// its session is ended without it.
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

    /// A record that the program wrote itself says nothing of those who run on.
    async fn check_end(&self, path: &Path, record: &ExitRecord) -> io::Result<()> {
        let tree = self.tree_of(path).await?;
        let has_run_on = spawn_blocking(move || tree.has_leaf() && !tree.is_empty());
        if record.left.is_empty() && has_run_on.await.map_err(io::Error::other)? {
            self.end_without_shim(path).await?;
        }
        Ok(())
    }

    /// Tells until when the session in this directory has run, as far as can be known by looking. Settles nothing.
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

    /// Ends every session in a directory of sessions. When this returns, nothing of them runs.
    pub async fn end_all(&self, sessions: &Path) -> io::Result<()> {
        let path = sessions.to_owned();
        let open = spawn_blocking(move || without_exit_record(&path)).await.map_err(io::Error::other)??;
        for path in open {
            let status = match self.find(&path).await {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    self.end_without_shim(&path).await?;
                    self.find(&path).await?
                }
                found => found?,
            };
            if let SessionStatus::Alive(connection) = status {
                // If it has gone meanwhile, looking again tells how.
                let _ = self.order(&path, &connection, Verb::Kill).await;
                let mut seen = connection.seen();
                let _ = seen.wait_for(|seen| seen.ended.is_some() || seen.gone).await;
                self.find(&path).await?;
            }
        }
        Ok(())
    }

    async fn look(&self, path: &Path) -> io::Result<(SessionDirectory, Found)> {
        let (path, boot_id) = (path.to_owned(), self.boot_id.clone());
        let looked = spawn_blocking(move || {
            let directory = SessionDirectory::open(path)?;
            let found = directory.look(&boot_id)?;
            Ok((directory, found))
        });
        looked.await.map_err(io::Error::other)?
    }

    /// Removes what is left of a session that never ran, whose shim was lost on the way: its leaves, and after its first
    /// word perhaps a child at the gate.
    async fn clear(&self, directory: &SessionDirectory) -> io::Result<()> {
        let tree = self.tree_of(directory.path()).await?;
        let cleared = spawn_blocking(move || empty(&tree));
        cleared.await.map_err(io::Error::other)
    }

    /// What the shim said of itself, if it was in this boot.
    fn state_of(&self, directory: &SessionDirectory) -> io::Result<Option<State>> {
        Ok(directory.read_state()?.filter(|state| state.boot_id == self.boot_id))
    }
}

/// How long a shim has neither answered nor gone, and what was done about it.
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

/// The sessions in a directory of sessions whose names are numbers.
pub fn numbered(path: &Path) -> io::Result<Vec<u32>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(numbers)
}

fn without_exit_record(sessions: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(sessions) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut open = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // One that was being made, or removed, when its owner was killed.
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        let directory = SessionDirectory::open(path.clone())?;
        // A record does not count while the shim lives: the program may have written it.
        if !directory.lock_is_free()? || directory.read_exit().unwrap_or_default().is_none() {
            open.push(path);
        }
    }
    Ok(open)
}

/// The directory, with its name on the disk: that it is not there means that nothing was launched. One whose program never
/// ran makes room.
fn create(path: &Path, boot_id: &str) -> io::Result<(SessionDirectory, OwnedFd)> {
    let parent = path.parent().unwrap_or(path);
    match rustix::fs::mkdir(parent, Mode::RWXU) {
        Ok(()) => sync_dir(parent.parent().unwrap_or(parent))?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let created = match SessionDirectory::create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !matches!(SessionDirectory::open(path)?.look(boot_id)?, Found::NeverRan) {
                return Err(error);
            }
            SessionDirectory::discard(path)?;
            SessionDirectory::create(path)?
        }
        created => created?,
    };
    sync_dir(parent)?;
    Ok(created)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    std::fs::File::open(path)?.sync_all()
}

/// Ends what a shim left behind, and says on the disk that it has ended.
async fn lost(
    directory: SessionDirectory,
    state: Option<State>,
    tree: Tree,
    why: EndedBy,
    failure: Failure,
) -> io::Result<ExitRecord> {
    let (host_pid, child_pid) = match &state {
        Some(state) => (state.snapshot.host_pid, state.snapshot.child_pid),
        None => (None, None),
    };
    let ended = spawn_blocking(move || {
        if why == EndedBy::HostLost {
            // Nobody of another boot is alive: a pid that matches is somebody else's.
            let _ = tree.remove();
        } else {
            empty(&tree);
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let record = ExitRecord {
            version: exit::VERSION,
            result: SessionResult::Error(failure),
            why: Some(why),
            host_pid,
            child_pid,
            at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            up_ms: None,
            log_end: 0,
            used: Used::default(),
            output_lost: false,
            timed_out: false,
            oom_kills: 0,
            left: Vec::new(),
        };
        directory.write_exit(&record)?;
        Ok(record)
    });
    ended.await.map_err(io::Error::other)?
}

/// Kills a tree until nothing is left of it, and removes it.
fn empty(tree: &Tree) {
    let deadline = std::time::Instant::now() + KILL_PATIENCE;
    while !tree.is_empty() && std::time::Instant::now() < deadline {
        if let Err(error) = tree.kill() {
            eprintln!("a tree cannot be killed: {error}");
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // What is left is an empty directory of the kernel.
    let _ = tree.remove();
}

fn failure(stage: &str, errno: &str, code: i32) -> Failure {
    Failure { stage: stage.to_owned(), errno: errno.to_owned(), code }
}
