//! Changing files: restores and merges, planned first, so that the plan can be recorded before it is carried out.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use relive_core::Uuid;
use relive_workspace::{
    Applied, Change, Conflict, Control, Error as FilesError, FilePath, Force, Grade, MergeRequest, OlderFiles, Pin,
    Plan, RestoreRequest, Snapshot, shown,
};

use super::errors::in_directory;
use super::settle::Place;
use super::{Workspaces, check_no_link, lock};
use crate::error::{Error, Result};

/// Files that are to go back to a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct RestoreOrder {
    pub(crate) directory: PathBuf,
    pub(crate) target: Snapshot,
    /// States that the process knows of, one of which the files have to be in; any will do where there are none.
    pub(crate) expected: Vec<Snapshot>,
    pub(crate) paths: Vec<FilePath>,
    pub(crate) force: Force,
    /// The best grade of a snapshot of the directory.
    pub(crate) at_best: Grade,
    pub(crate) on_interrupted: OnInterrupted,
}

/// What is done first with a restore or merge of the same directory that was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnInterrupted {
    RollBack,
    Refuse,
}

/// What a copy has that is in no snapshot, so that a merge could lose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// Files with bytes, or nobody knows.
    Something,
    /// At most pipes, sockets and devices. What the directory had that was copied is still there.
    NoBytes,
}

/// What would be changed.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// The files as they are.
    pub(crate) before: Snapshot,
    pub(crate) conflicts: Vec<Conflict>,
    /// Files that stay because the rules of the target ignore them.
    pub(crate) spared: Vec<FilePath>,
    /// Files that lose the set-id bits that they had.
    pub(crate) without_bits: Vec<FilePath>,
    /// Files that may have been there under a name that is in no snapshot.
    pub(crate) older: OlderFiles,
    /// What became of an earlier change that was interrupted.
    pub(crate) settled: Option<String>,
    /// The state that the files are in afterwards, where that is known before they are looked at.
    target: Option<Snapshot>,
    at_best: Grade,
    _pin: Pin,
}

/// A plan that was carried out.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) applied: Applied,
    /// The files as they are then.
    pub(crate) now: Snapshot,
    /// What is to be said besides.
    pub(crate) note: Option<String>,
}

impl Planned {
    /// The files that are changed.
    pub(crate) fn files(&self) -> Vec<&Change> {
        shown(&self.plan.changes)
    }
}

impl Workspaces {
    /// Takes a snapshot and plans how to get from it to another one.
    pub(crate) fn plan_restore(&self, order: &RestoreOrder) -> Result<Planned> {
        check_no_link(&order.directory)?;
        let shared = self.directory(&order.directory)?;
        let mut workspace = lock(&shared);
        let _counted = self.0.collecting.read().unwrap_or_else(PoisonError::into_inner);
        let settled = self.settle_first(&mut workspace, order.on_interrupted)?;
        let RestoreOrder { target, paths, force, .. } = order;
        let mut refused = None;
        let states = order.expected.iter().map(Some).chain(order.expected.is_empty().then_some(None));
        for expected in states {
            let request = RestoreRequest { target, expected, paths, force: *force };
            match workspace.plan_restore(&request, &Control::default()) {
                Ok(prepared) => {
                    let at_best = order.at_best;
                    let before = prepared.before.snapshot.at_best(at_best);
                    self.remember(before);
                    let (plan, spared, older) = (prepared.plan, prepared.spared, prepared.older);
                    let without_bits = prepared.without_bits;
                    let target = order.paths.is_empty().then_some(order.target);
                    let (conflicts, _pin) = (Vec::new(), prepared.before.pin);
                    return Ok(Planned {
                        plan,
                        before,
                        conflicts,
                        spared,
                        without_bits,
                        older,
                        settled,
                        target,
                        at_best,
                        _pin,
                    });
                }
                // The first state is the one to compare with in the message.
                Err(error @ FilesError::ChangedSince { .. }) => refused = refused.or(Some(error)),
                Err(error @ (FilesError::TooLarge { .. } | FilesError::TimedOut { .. })) => {
                    return Err(Error::Outgrown(format!(
                        "{error}, the limit for snapshots, so nobody knows what is there"
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(refused.unwrap_or(FilesError::Cancelled).into())
    }

    /// Takes a snapshot and plans how to bring in what changed from `base` to `theirs`. With conflicts there is a plan only
    /// if the caller insists.
    pub(crate) fn plan_merge(
        &self,
        directory: &Path,
        (base, theirs): (&Snapshot, &Snapshot),
        force: Force,
        (on_interrupted, lacks, left_out): (OnInterrupted, Lacks, &[FilePath]),
    ) -> Result<Result<Planned, Vec<Conflict>>> {
        let shared = self.directory(directory)?;
        let mut workspace = lock(&shared);
        let _counted = self.0.collecting.read().unwrap_or_else(PoisonError::into_inner);
        let settled = self.settle_first(&mut workspace, on_interrupted)?;
        let (base, theirs) = match lacks {
            Lacks::Something => (*base, *theirs),
            // What a partial state lacks is named in it, and never taken for removed.
            Lacks::NoBytes => (as_exact(*base), as_exact(*theirs)),
        };
        match workspace.plan_merge(&MergeRequest { base: &base, theirs: &theirs, force }, &Control::default()) {
            Ok(prepared) => {
                let before = prepared.before.snapshot;
                self.remember(before);
                let (plan, conflicts, _pin) = (prepared.plan, prepared.conflicts, prepared.before.pin);
                let (spared, older, at_best) = (prepared.not_removed, OlderFiles::default(), Grade::Exact);
                let (target, without_bits) = (None, Vec::new());
                Ok(Ok(Planned { plan, before, conflicts, spared, without_bits, older, settled, target, at_best, _pin }))
            }
            Err(FilesError::Conflicts { conflicts }) => Ok(Err(conflicts)),
            Err(FilesError::NotExact { grade, .. }) => {
                Err(FilesError::NotExact { grade, left_out: left_out.to_vec() }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Carries out a plan, and returns what was done and what the files are then.
    pub(crate) fn apply(&self, directory: &Path, planned: &Planned) -> Result<Changed> {
        let shared = self.directory(directory)?;
        let mut workspace = lock(&shared);
        let _counted = self.0.collecting.read().unwrap_or_else(PoisonError::into_inner);
        self.touch(workspace.root());
        let applied = workspace.apply(&planned.plan, &Control::default());
        let applied = match applied.map_err(|error| in_directory(workspace.root(), error)) {
            Err(error @ FilesError::HalfApplied { .. }) => {
                let error = Error::from(error);
                self.note_half_done(workspace.root(), &error, Place::There);
                return Err(error);
            }
            applied => applied?,
        };
        self.0.activities.look(workspace.root());
        let (now, note) = match workspace.snapshot(&Control::default()) {
            Ok(taken) => (taken.snapshot.at_best(planned.at_best), None),
            Err(error) => {
                // It is done all the same, and can be undone; only nobody has looked at the files since.
                let known = planned.target.unwrap_or(planned.before).at_best(Grade::Moving);
                let why = Error::from(in_directory(workspace.root(), error));
                (known, Some(format!("no snapshot could be taken afterwards: {why}")))
            }
        };
        self.remember(now);
        // It may have been too large before.
        lock(&self.0.refused).remove(workspace.root());
        // What a process changes after this is its own again.
        self.0.activities.seen(workspace.root(), Uuid::nil(), None, now);
        Ok(Changed { applied, now, note })
    }
}

/// Returns a state to be merged like one that lacks nothing.
fn as_exact(snapshot: Snapshot) -> Snapshot {
    let grade = if snapshot.grade == Grade::Partial { Grade::Exact } else { snapshot.grade };
    Snapshot { grade, ..snapshot }
}
