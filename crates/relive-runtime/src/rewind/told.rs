//! What the model and the user are told.

use relive_journal::history::{Files, Untold};
use relive_journal::record::{Body, Input};
use relive_workspace::{Applied, OlderFiles};

use super::Goal;
use crate::workspaces::{Planned, count_files, named};

const READ_AGAIN: &str = "Read the files again before you rely on what you remember of them.";

/// What the model is told.
pub(super) fn told(goal: Goal, step: u32, files: &[relive_api::FileChange]) -> String {
    const SHOWN_MAX: usize = 20;
    let mut names: Vec<&str> = files.iter().take(SHOWN_MAX).map(|file| file.path.as_str()).collect();
    if files.len() > SHOWN_MAX {
        names.push("...");
    }
    if files.is_empty() {
        // It was done by a daemon that could not say which.
        return match goal {
            Goal::AfterStep(_) => format!("The user put files back to how they were after step {step}. {READ_AGAIN}"),
            Goal::BeforeLastVerb => format!("The user undid what was put back. {READ_AGAIN}"),
        };
    }
    let (count, names) = (count_files(files.len()), names.join(", "));
    let (they, were, are, them) = match files.len() {
        1 => ("it", "was", "is", "it"),
        _ => ("they", "were", "are", "them"),
    };
    match goal {
        Goal::AfterStep(_) => format!(
            "The user put {count} back to how {they} {were} after step {step}: {names}. What was done to {them} after that \
             step is undone. Read {them} again before you rely on what you remember of {them}."
        ),
        Goal::BeforeLastVerb => format!(
            "The user undid what was put back: {count} {are} as {they} {were} before it: {names}. Read {them} again \
             before you rely on what you remember of {them}."
        ),
    }
}

/// Tells whether a change was left undone because somebody else changed the file meanwhile.
pub(crate) fn is_left(applied: &Applied, file: &relive_api::FileChange) -> bool {
    let path = file.path.trim_end_matches('/');
    applied.left.iter().any(|left| left.to_string() == path)
}

/// Names the files that were not put back because somebody else changed them meanwhile.
pub(super) fn left_note(applied: &Applied) -> Option<String> {
    let left = || format!("somebody changed these meanwhile, and they were left alone: {}", named(&applied.left));
    (!applied.left.is_empty()).then(left)
}

/// Names the files that are not put back as they were, those that stay although the snapshot of the step does not have them, and those that are gone although they
/// may have been there. `command` is the command that removes the former too.
pub(super) fn unseen_note(planned: &Planned, command: &str) -> Option<String> {
    let Planned { spared, without_bits, older, .. } = planned;
    let mut notes = Vec::new();
    if !without_bits.is_empty() {
        notes.push(format!("put back without the set-user-id or set-group-id bit: {}", named(without_bits)));
    }
    if !spared.is_empty() {
        notes.push(format!("in no snapshot of that step, and left alone: {}", named(spared)));
    }
    let OlderFiles { kept, lost } = older;
    if !kept.is_empty() {
        let kept = named(kept);
        notes.push(format!("renamed from names that are in no snapshot, and kept: {kept} (to remove them: {command})"));
    }
    if !lost.is_empty() {
        let lost = named(lost);
        notes
            .push(format!("renamed from names that are in no snapshot, so that only an undo brings them back: {lost}"));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// What the model of a process that had ended is told when it continues, if there is something to tell.
pub(crate) fn untold(files: &Files, fresh: &str) -> Option<Body> {
    let step = files.untold?;
    let is_first = |at: usize| at == 0;
    let done = |(at, verb): (usize, &Untold)| match verb {
        Untold::Rewind(step) => format!("put your files back to how they were after step {step}"),
        Untold::Restore(step) => format!("put single files back to how they were after step {step}"),
        Untold::Undo if is_first(at) => "undid what had been put back before".to_owned(),
        Untold::Undo => "undid the last of that".to_owned(),
    };
    let mut all: Vec<String> = files.untold_verbs.iter().enumerate().map(done).collect();
    if all.is_empty() {
        // A checkpoint of an earlier version.
        all.push(format!("put files back to how they were after step {step}"));
    }
    let text = format!("While you were not running, the user {}. {READ_AGAIN}", all.join(", then "));
    Some(Body::Input(Input { id: format!("rewind:{fresh}"), from: None, text: text.into() }))
}
