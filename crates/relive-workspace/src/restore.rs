//! Going back to a snapshot.

use crate::apply::Applied;
use crate::control::Control;
use crate::diff::{Change, View};
use crate::error::{Error, Result};
use crate::path::FilePath;
use crate::plan::{Plan, PlanKind};
use crate::rules::Rules;
use crate::snapshot::{Grade, Snapshot, Taken};
use crate::workspace::Workspace;

/// Whether the caller insists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Force {
    /// Refuse where something may be lost or wrong.
    #[default]
    No,
    /// Do it all the same. What no snapshot has is still never overwritten.
    Yes,
}

/// What to restore.
#[derive(Debug, Clone)]
pub struct RestoreRequest<'a> {
    /// Where to go.
    pub target: &'a Snapshot,
    /// The state that the caller knows of. Files that changed since belong to somebody else.
    pub expected: Option<&'a Snapshot>,
    /// Only these paths and what is below them; all of them where there are none.
    pub paths: &'a [FilePath],
    /// Go to a snapshot that is not exact, and over changes since `expected`.
    pub force: Force,
}

/// A plan, and the snapshot that was taken before.
#[derive(Debug)]
pub struct Prepared {
    /// The workspace as it is. Record it: it is the way back.
    pub before: Taken,
    /// What would be changed. Nothing is, before it is applied.
    pub plan: Plan,
    /// Files that the target does not have because its own rules ignore them. They stay.
    pub spared: Vec<FilePath>,
}

/// A restore that was carried out.
#[derive(Debug)]
pub struct Restored {
    /// The workspace as it was. Restoring it undoes this.
    pub before: Taken,
    /// What was done.
    pub applied: Applied,
    /// Files that the target does not have because its own rules ignore them. They stayed.
    pub spared: Vec<FilePath>,
}

impl Workspace {
    /// Takes a snapshot and plans how to get from it to another one.
    pub fn plan_restore(&mut self, request: &RestoreRequest<'_>, control: &Control) -> Result<Prepared> {
        self.check_not_interrupted()?;
        if request.target.grade != Grade::Exact && request.force == Force::No {
            return Err(Error::NotExact { grade: request.target.grade });
        }
        let before = self.snapshot(control)?;
        let store = self.store();
        let is_meant = |change: &Change| is_meant(change, request.paths);
        for path in request.paths {
            let snapshots = [&before.snapshot, request.target];
            let is_known = snapshots.into_iter().try_fold(false, |found, snapshot| {
                Ok::<_, Error>(found || path.is_root() || store.state(snapshot, path)?.is_some())
            });
            if !is_known? {
                return Err(Error::NoSuchPath { path: path.clone() });
            }
        }
        if let (Some(expected), Force::No) = (request.expected, request.force) {
            let changes = store.diff(expected, &before.snapshot)?;
            let paths: Vec<_> = changes.into_iter().filter(is_meant).map(|change| change.path).collect();
            if !paths.is_empty() {
                return Err(Error::ChangedSince { paths });
            }
        }
        let mut changes = store.diff(&before.snapshot, request.target)?;
        changes.retain(is_meant);
        let spared = self.spare_ignored(&mut changes, request.target)?;
        Ok(Prepared { before, plan: Plan { kind: PlanKind::Restore, changes }, spared })
    }

    /// Takes a snapshot, then makes the files what they were in another one.
    pub fn restore(&mut self, request: &RestoreRequest<'_>, control: &Control) -> Result<Restored> {
        let Prepared { before, plan, spared } = self.plan_restore(request, control)?;
        let applied = self.apply(&plan, control)?;
        Ok(Restored { before, applied, spared })
    }

    /// Takes out the removal of files that the target's rules ignore: they may have been there, only not in the snapshot.
    fn spare_ignored(&self, changes: &mut Vec<Change>, target: &Snapshot) -> Result<Vec<FilePath>> {
        let is_rules = |change: &Change| change.path.split().is_some_and(|(_, name)| name == b".gitignore");
        if !changes.iter().any(is_rules) {
            return Ok(Vec::new());
        }
        let rules = Rules::load(self.root(), self.settings(), self.tracked.as_ref())?;
        let mut view = View::new(self.store(), target)?;
        let mut spared = Vec::new();
        for change in changes.iter().filter(|change| change.after.is_none() && !change.is_directory()) {
            let ignore_file =
                |directory: &FilePath| Ok(view.state(&directory.join(b".gitignore"))?.and_then(|state| state.id));
            if rules.ignores(&change.path, self.store(), ignore_file)? {
                spared.push(change.path.clone());
            }
        }
        let is_needed = |path: &FilePath| spared.iter().any(|spared| spared.is_within(path));
        changes.retain(|change| change.after.is_some() || !is_needed(&change.path));
        Ok(spared)
    }
}

/// Whether a change is about one of the paths, or creates a directory that one of them needs.
fn is_meant(change: &Change, paths: &[FilePath]) -> bool {
    let is_needed = |path: &FilePath| path.is_within(&change.path) && change.before.is_none();
    paths.is_empty() || paths.iter().any(|path| change.path.is_within(path) || is_needed(path))
}
