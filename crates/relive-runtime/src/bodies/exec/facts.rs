//! What the journal and the directory of sessions tell about a program.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::Isolated;
use relive_core::{Program, Uuid};
use relive_journal::{DataDirectory, History};
use relive_session::spec;

/// The properties of a program from its creation.
#[derive(Debug)]
pub(crate) struct ProgramFacts {
    pub(super) program: Arc<Program>,
    pub(super) cwd: String,
    pub(super) isolated: Isolated,
    /// Whether a client is about to read its output as it arrives.
    pub(super) pace: spec::Pace,
    /// The session of the current run, if it was launched before.
    pub(super) before: Option<PathBuf>,
    /// The directory of a session launched now.
    pub(super) next: PathBuf,
    /// How the names of its files come onto the disk.
    pub(super) names: spec::Names,
    /// Why it may have run although nothing is left of that.
    pub(super) trace: Trace,
    /// Whether an earlier daemon may have launched it.
    pub(super) is_recovered: bool,
}

/// What is known of a run without a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trace {
    /// It was not launched.
    None,
    /// It may have been, in another boot.
    OtherBoot,
    /// It was, and its session's directory was removed.
    Removed,
}

impl ProgramFacts {
    /// Reads what the journal and the directory of sessions tell about a program.
    pub(super) fn read(data: &DataDirectory, uuid: Uuid, boot_id: &str) -> io::Result<Self> {
        Self::of(data, &data.history(uuid)?.0, boot_id)
    }

    /// Returns what this journal and the directory of sessions tell about a program.
    pub(super) fn of(data: &DataDirectory, history: &History, boot_id: &str) -> io::Result<Self> {
        let untold = || io::Error::other("the journal does not say which program it is");
        let spawned = &history.identity.as_ref().ok_or_else(untold)?.spawned;
        let directory = data.directory(spawned.uuid);
        let sessions = directory.sessions();
        let program = Arc::new(spawned.program.clone().ok_or_else(untold)?);
        // A session of an ended incarnation belongs to an earlier run.
        let over = history.incarnations.iter().rev().find(|incarnation| incarnation.ended.is_some());
        let over = over.map_or(0, |incarnation| incarnation.generation.0);
        // A session is numbered by the generation that launched it. The programs that replace a crashed one in the same
        // generation have the numbers after it.
        let passed = history.cli.as_ref().map_or(over, |cli| cli.last_session_before(over));
        let next = history.epoch.0.max(passed.saturating_add(1));
        let is_of_run = |number: &u32| *number > passed && *number <= next;
        let before = relive_session::sessions::numbered(&sessions)?.into_iter().filter(is_of_run).max();
        let trace = match before {
            Some(_) => Trace::None,
            // Its name is on the disk only when it ends, so after another boot a missing session says nothing.
            None if run_began_in_other_boot(history, over, boot_id) => Trace::OtherBoot,
            None if relive_session::sessions::is_emptied(&sessions)? => Trace::Removed,
            None => Trace::None,
        };
        let together = data.io().disk.keeps_names_in_order(directory.path());
        let names = if together { spec::Names::InOrder } else { spec::Names::Apart };
        // The person who typed the command is present for its first run only.
        let first = history.incarnations.len() <= 1;
        let pace = if program.foreground && first { spec::Pace::Held } else { spec::Pace::Free };
        Ok(Self {
            pace,
            program,
            names,
            trace,
            is_recovered: history.epoch.0 > over + 1,
            cwd: spawned.cwd.clone(),
            isolated: spawned.isolated.clone().unwrap_or_default(),
            before: before.map(|number| sessions.join(number.to_string())),
            next: sessions.join(next.to_string()),
        })
    }
}

/// Tells whether an incarnation of the current run, which are those after the generation `over`, was of another boot. Those
/// that a fork has from its original are none of its own.
fn run_began_in_other_boot(history: &History, over: u32, boot_id: &str) -> bool {
    let created_at = history.identity.as_ref().map(|identity| identity.created_at);
    let all = &history.incarnations;
    let first = all.iter().rposition(|incarnation| Some(incarnation.at) == created_at).unwrap_or(0);
    all[first..].iter().any(|incarnation| incarnation.generation.0 > over && incarnation.boot_id != boot_id)
}

/// Returns the directory of the last session of a process, if it had one.
pub(crate) fn last_session(sessions: &Path) -> io::Result<Option<PathBuf>> {
    let last = relive_session::sessions::numbered(sessions)?.into_iter().max();
    Ok(last.map(|number| sessions.join(number.to_string())))
}
