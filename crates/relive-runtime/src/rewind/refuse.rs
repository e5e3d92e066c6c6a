//! Why a rewind is refused.

use relive_core::ErrorCode;
use relive_journal::files::{FileHistory, NoUndo};
use relive_journal::record::{PATHS_MAX, Snapshot as SnapshotRecord};
use relive_workspace::FilePath;

use crate::error::{Error, Result};
use crate::workspaces::{Planned, named};

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

/// Refuses to undo what others did after the step.
pub(super) fn check_foreign(history: &FileHistory, step: u32, planned: &Planned) -> Result<()> {
    // What was forced over is not there any more, unless that was undone.
    let is_there = |snapshot: &SnapshotRecord| !snapshot.before_verb || history.last() == Some(snapshot.files);
    let is_later = |snapshot: &SnapshotRecord| snapshot.after > step || snapshot.before_verb;
    let later = history.snapshots().filter(|found| found.foreign_count > 0 && is_later(found) && is_there(found));
    let mut touched: Vec<FilePath> = Vec::new();
    for snapshot in later {
        // Where not all are listed, each may be one of them.
        let is_foreign = |path: &FilePath| {
            snapshot.foreign_count > PATHS_MAX as u64
                || snapshot.foreign.iter().any(|foreign| *foreign == path.to_string())
        };
        for change in planned.files() {
            if is_foreign(&change.path) && !touched.contains(&change.path) {
                touched.push(change.path.clone());
            }
        }
    }
    if touched.is_empty() {
        return Ok(());
    }
    let message = format!("this would undo what others changed in the same directory: {}", named(&touched));
    Err(Error::new(ErrorCode::Conflict, message))
}
