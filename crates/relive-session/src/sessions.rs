//! The owner's side: launches sessions, finds out what happened to them, and ends those without an owner.
//!
//! Every session is settled by looking at its directory. A session whose shim is lost, or whose machine went down, gets
//! its exit record here, after its tree is empty: from then on it has ended like any other, and is never looked at
//! again.

mod awake;
mod directories;
mod end;
mod overrule;
mod records;
mod remains;
mod settle;
mod turns;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

pub use directories::{is_emptied, numbered};
pub use records::{host_lost, shim_lost};

use crate::connection::Connection;
use crate::directory::SessionDirectory;
use crate::exit::ExitRecord;
use crate::launch::{LaunchError, Launcher, rouse_stopped};
use crate::probe::probe_apart;
use crate::spec::{DaemonStart, Spec};
use crate::tree::Ladder;
use directories::create;
use turns::Turns;

/// The time between two looks at a session that is starting or ending.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Launches and finds sessions.
#[derive(Debug)]
pub struct Sessions {
    launcher: Launcher,
    boot_id: String,
    prefix: String,
    ladder: OnceCell<Ladder>,
    turns: Turns,
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
        let (launcher, ladder, turns) = (Launcher::new(shim), OnceCell::new(), Turns::default());
        Self { launcher, boot_id, prefix, ladder, turns, daemon: None }
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
            let probed = spawn_blocking(move || {
                // Those of an owner that was killed may have been stopped, and could not notice it.
                let _ = rouse_stopped();
                probe_apart(&program, &prefix)
            });
            probed.await.map_err(io::Error::other)
        };
        self.ladder.get_or_try_init(probe).await
    }

    /// Launches a session in a directory that must not exist yet. If its names come with its files, a directory that is
    /// missing means that nothing ran only as long as the machine is up.
    pub async fn launch(&self, path: &Path, spec: &Spec) -> Result<Connection, LaunchError> {
        let (path, boot_id, names) = (path.to_owned(), self.boot_id.clone(), spec.names);
        let spec = Spec { daemon: self.daemon.clone(), ..spec.clone() };
        let turn = self.turns.of(&path).await.map_err(LaunchError::Directory)?;
        let of = path.clone();
        let create = move || {
            // Until there is a lock that tells of the launch: it continues even if its caller does not wait for it.
            let _turn = turn;
            create(&of, &boot_id, names)
        };
        let connection = self.launcher.launch(create, &spec).await?;
        awake::keep(&path, &connection);
        Ok(connection)
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
}
