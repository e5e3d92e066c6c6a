//! Why a rewind is refused.

use std::collections::HashSet;

use relive_core::ErrorCode;
use relive_journal::files::{FileHistory, FileState, NoUndo};
use relive_journal::record::{PATHS_MAX, Snapshot as SnapshotRecord};
use relive_workspace::{Change, FilePath, Force, Store};

use super::PlannedRestore;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::workspaces::{OnInterrupted, Planned, RestoreOrder, from_record, named};

pub(super) fn resumed_meanwhile(id: &str) -> Error {
    let message = format!("process {id} was resumed meanwhile");
    Error::new(ErrorCode::Conflict, message).with_hint(format!("relive pause {id}"))
}

pub(super) fn in_command(id: &str) -> Error {
    let message = format!("process {id} is in the middle of a command");
    let hint = format!("rewind when the command is over, or relive kill {id}");
    Error::new(ErrorCode::Conflict, message).with_hint(hint)
}

pub(super) fn no_undo(id: &str, why: NoUndo) -> Error {
    let message = match why {
        NoUndo::NothingToUndo => format!("the files of {id} were never put back, so there is nothing to undo"),
        NoUndo::ChangedSince => format!("{id} has changed files since they were put back"),
    };
    Error::new(ErrorCode::Conflict, message).with_hint(format!("relive steps {id}"))
}

impl Runtime {
    /// Refuses to undo what others did after the step.
    pub(super) async fn check_foreign(&self, history: &FileHistory, step: u32, planned: &Planned) -> Result<()> {
        let touched = self.foreign_in(history, step, planned).await?;
        if touched.is_empty() {
            return Ok(());
        }
        let message = format!("this would undo what others changed in the same directory: {}", named(&touched));
        Err(Error::new(ErrorCode::Conflict, message))
    }

    /// Adds to a refusal what `--force` would do to the files of others. The refusal itself names those that were found
    /// first, and there may be more that only the journal knows of.
    pub(super) async fn with_losses(
        &self,
        (history, step): (&FileHistory, u32),
        restore: RestoreOrder,
        error: Error,
    ) -> Error {
        // To look at a directory of any size has to be asked for.
        if matches!(error, Error::Outgrown(_)) {
            return error;
        }
        if error.code() != ErrorCode::Conflict || error.hint().is_some() || restore.force == Force::Yes {
            return error;
        }
        let forced = RestoreOrder { force: Force::Yes, on_interrupted: OnInterrupted::Refuse, ..restore };
        let Ok(PlannedRestore { planned, foreign, .. }) = self.plan_restore(forced, None).await else { return error };
        let recorded = self.foreign_in(history, step, &planned).await.unwrap_or_default();
        let mut changes = planned.files();
        changes.retain(|change| foreign.contains(&change.path) || recorded.contains(&change.path));
        match losses(&changes) {
            None => error,
            Some(losses) => Error::new(ErrorCode::Conflict, format!("{error}; --force would {losses}")),
        }
    }

    /// Returns the files of a plan that others changed after the step.
    async fn foreign_in(&self, history: &FileHistory, step: u32, planned: &Planned) -> Result<Vec<FilePath>> {
        let is_meant = |state: &&FileState| state.snapshot.as_ref().is_some_and(|found| is_of_others(found, step));
        let first = history.states.iter().position(|state| is_meant(&state)).unwrap_or(history.states.len());
        let later = history.states[first..].to_vec();
        let changes: Vec<Change> = planned.files().into_iter().cloned().collect();
        if later.is_empty() || changes.is_empty() {
            return Ok(Vec::new());
        }
        let workspaces = self.workspaces.clone();
        self.pools.bulk.run(move || foreign_among(&workspaces.store()?, (&later, step), &changes)).await?
    }
}

/// `delete a, and overwrite b, c`, the worst first; `None` if nothing is lost.
fn losses(changes: &[&Change]) -> Option<String> {
    let of = |is_meant: fn(&Change) -> bool| -> Vec<FilePath> {
        changes.iter().filter(|change| is_meant(change)).map(|change| change.path.clone()).collect()
    };
    let kinds = [
        ("delete", of(|change| change.after.is_none())),
        ("overwrite", of(|change| change.before.is_some() && change.after.is_some())),
        ("bring back", of(|change| change.before.is_none())),
    ];
    let said = kinds.iter().filter(|(_, paths)| !paths.is_empty());
    let said: Vec<String> = said.map(|(verb, paths)| format!("{verb} {}", named(paths))).collect();
    (!said.is_empty()).then(|| said.join(", and "))
}

/// Returns the paths of a plan that others changed after a step. `states` are those of the files since then.
fn foreign_among(store: &Store, (states, step): (&[FileState], u32), changes: &[Change]) -> Result<Vec<FilePath>> {
    let mut touched: Vec<FilePath> = Vec::new();
    for (at, state) in states.iter().enumerate() {
        let Some(snapshot) = state.snapshot.as_ref().filter(|snapshot| is_of_others(snapshot, step)) else { continue };
        let listed: HashSet<&str> = snapshot.foreign.iter().map(String::as_str).collect();
        // Where not all are listed, each may be one of them.
        let is_any = snapshot.foreign_count > PATHS_MAX as u64;
        for change in changes.iter().filter(|change| is_any || listed.contains(&*change.path.to_string())) {
            // What a verb was forced over is not there any more; what it did not touch, or what was undone, is.
            let is_there = !snapshot.before_verb || {
                let then = store.state(&from_record(snapshot.files), &change.path)?;
                then == change.before && (then.is_some() || is_still_removed(store, &states[at + 1..], &change.path)?)
            };
            if is_there && !touched.contains(&change.path) {
                touched.push(change.path.clone());
            }
        }
    }
    Ok(touched)
}

/// Tells whether a snapshot has the work of others that a rewind to this step would undo.
fn is_of_others(snapshot: &SnapshotRecord, step: u32) -> bool {
    snapshot.foreign_count > 0 && (snapshot.after > step || snapshot.before_verb)
}

/// Tells whether a file that others had removed, and that is not there now, is gone because of them: nothing brought it
/// back and removed it again, unless that was undone.
fn is_still_removed(store: &Store, since: &[FileState], path: &FilePath) -> Result<bool> {
    let (mut was_there, mut is_theirs) = (false, true);
    for state in since {
        let is_there = store.state(&from_record(state.files), path)?.is_some();
        if is_there != was_there {
            is_theirs = !is_there && state.is_undo;
        }
        was_there = is_there;
    }
    Ok(is_theirs)
}
