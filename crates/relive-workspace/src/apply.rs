//! Carries out a plan so that a kill at any point leaves a state that can be finished or rolled back.
//!
//! Every path is compared before it is changed, and a replaced file is compared again afterwards: a change that another
//! program makes in between is kept. Files are never written in place.

mod check;
mod disk_state;
mod replace;
mod sweep;
mod unlock;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use serde::Serialize;

use crate::control::{Control, Progress};
use crate::diff::{Change, FileState};
use crate::disk::Disk;
use crate::error::{Context as _, Error, Result};
use crate::object::EntryKind;
use crate::path::FilePath;
use crate::plan::{Plan, PlanKind};
use crate::stat::{open_beneath, stat_of};
use crate::workspace::Workspace;
pub(crate) use check::check_in_the_way;
use disk_state::DiskState;

/// Files that are written before they are synced together and renamed.
const BATCH: usize = 1_024;
/// Up to this many files or directories are synced one by one; more of them with one sync of the whole file system.
const SYNCED_ONE_BY_ONE: usize = 8;
const TEMPORARY_START: &str = ".relive-";
const TEMPORARY_END: &str = ".tmp";

/// The number of hexadecimal digits of a plan's id in the names of its temporary files.
const TEMPORARY_DIGITS: usize = 16;

/// Returns whether a name is that of a temporary file of a restore or merge: `.relive-`, the id of the plan, `-`, a
/// number, `.tmp`. Those of the tools that write files have no number. A file of the user with a similar name is an
/// ordinary file.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    let between =
        name.strip_prefix(TEMPORARY_START.as_bytes()).and_then(|rest| rest.strip_suffix(TEMPORARY_END.as_bytes()));
    let Some((id, rest)) = between.and_then(|between| between.split_at_checked(TEMPORARY_DIGITS)) else { return false };
    let is_hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let number = rest.strip_prefix(b"-").filter(|number| !number.is_empty());
    let is_number = number.is_some_and(|number| number.iter().all(u8::is_ascii_digit));
    id.iter().all(is_hexadecimal) && (rest.is_empty() || is_number)
}

/// The direction in which an interrupted plan is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Finish,
    RollBack,
}

/// The result of carrying out a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    pub kind: PlanKind,
    pub direction: Direction,
    /// Files written, linked, or given other permissions.
    pub written: u64,
    pub removed: u64,
    /// Paths that another program changed in the meantime. They were not touched.
    pub left: Vec<FilePath>,
    /// Directories that should have been removed and still hold files that are in no snapshot.
    pub kept: Vec<FilePath>,
}

impl Applied {
    /// Returns whether every path of the plan was read again and is as planned.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.left.is_empty()
    }
}

impl Workspace {
    /// Carries out a plan. After an error, for example a full disk, the changes are rolled back; if that fails too, the
    /// plan stays interrupted.
    pub fn apply(&mut self, plan: &Plan, control: &Control) -> Result<Applied> {
        let _lock = self.lock()?;
        self.check_not_interrupted()?;
        control.check()?;
        let pin = self.store().pin()?;
        self.reopen_if_replaced()?;
        let max_bytes = check::check(self, plan)?;
        self.write_plan(plan)?;
        let applied = Applier::new(self, (plan, max_bytes), Direction::Finish, control).run();
        let applied = applied.map_err(|source| {
            // Also if the caller does not want to wait any longer: files that are half changed help nobody.
            let control = Control::default();
            let mut back = Applier::new(self, (plan, max_bytes), Direction::RollBack, &control);
            match back.sweep().and_then(|()| back.run()) {
                Ok(_) => source,
                // Both were the removal of the plan: nothing of it is left.
                Err(_) if matches!(self.interrupted(), Ok(None)) => source,
                Err(rollback) => Error::HalfApplied { source: Box::new(source), rollback: Box::new(rollback) },
            }
        });
        drop(pin);
        applied
    }

    /// Settles an interrupted plan. Paths that another program changed since are not touched, and reported.
    pub fn settle_interrupted(&mut self, direction: Direction, control: &Control) -> Result<Applied> {
        let _lock = self.lock()?;
        let _pin = self.store().pin()?;
        self.reopen_if_replaced()?;
        let plan = self.interrupted_here()?.ok_or_else(|| Error::NoPlan { path: self.root().to_owned() })?;
        let max_bytes = check::max_bytes(self, &plan.changes);
        let mut applier = Applier::new(self, (&plan, max_bytes), direction, control);
        applier.sweep()?;
        applier.run()
    }
}

/// One run over a plan.
struct Applier<'a> {
    workspace: &'a Workspace,
    disk: &'a Disk,
    control: &'a Control,
    /// In the direction of the run.
    plan: Plan,
    /// No planned file is larger.
    max_bytes: u64,
    temporaries: String,
    applied: Applied,
    left: BTreeSet<FilePath>,
    touched: BTreeSet<FilePath>,
    /// The directory used last: changes are sorted by path.
    open: Option<(FilePath, OwnedFd)>,
}

impl<'a> Applier<'a> {
    fn new(
        workspace: &'a Workspace,
        (plan, max_bytes): (&Plan, u64),
        direction: Direction,
        control: &'a Control,
    ) -> Self {
        let id = plan.id().to_string();
        let applied =
            Applied { kind: plan.kind, direction, written: 0, removed: 0, left: Vec::new(), kept: Vec::new() };
        Self {
            workspace,
            disk: workspace.store().disk(),
            control,
            plan: if direction == Direction::Finish { plan.clone() } else { plan.reversed() },
            max_bytes,
            temporaries: format!("{TEMPORARY_START}{}", &id[..TEMPORARY_DIGITS]),
            applied,
            left: BTreeSet::new(),
            touched: BTreeSet::new(),
            open: None,
        }
    }

    fn temporary(&self, at: usize) -> String {
        format!("{}-{at}{TEMPORARY_END}", self.temporaries)
    }

    fn run(mut self) -> Result<Applied> {
        let changes = std::mem::take(&mut self.plan.changes);
        self.unlock_directories(&changes)?;
        let goes = |change: &&(usize, &Change)| is_file(change.1.before.as_ref()) && !is_file(change.1.after.as_ref());
        let numbered: Vec<(usize, &Change)> = changes.iter().enumerate().collect();
        for &(at, change) in numbered.iter().filter(goes) {
            self.remove_file(at, change)?;
        }
        // The deepest first.
        for change in changes.iter().rev().filter(|change| is_directory(change.before.as_ref())) {
            if !is_directory(change.after.as_ref()) {
                self.remove_directory(change)?;
            }
        }
        for change in changes.iter().filter(|change| is_directory(change.after.as_ref())) {
            self.create_directory(change)?;
        }
        let (links, files): (Vec<_>, Vec<_>) = numbered
            .iter()
            .filter(|(_, change)| is_file(change.after.as_ref()))
            .partition(|(_, change)| change.after.as_ref().is_some_and(|after| after.same_as.is_some()));
        let of = (files.len() + links.len()) as u64;
        for batch in files.chunks(BATCH) {
            self.write_files(batch)?;
            self.control.report(Progress::Written { files: self.applied.written, of });
        }
        for (at, change) in links {
            self.link(at, change)?;
        }
        for change in changes.iter().rev().filter(|change| is_directory(change.after.as_ref())) {
            self.set_directory_mode(change)?;
        }
        self.sync_directories()?;
        self.verify(&changes)?;
        self.workspace.remove_plan()?;
        self.applied.left = self.left.into_iter().collect();
        Ok(self.applied)
    }

    /// Returns the directory of a path; `None` if there is none, or if something else is in its place.
    fn parent<'b>(&mut self, path: &'b FilePath) -> Result<Option<(&OwnedFd, &'b [u8])>> {
        let Some((directory, name)) = path.split() else { return Ok(None) };
        if self.open.as_ref().is_none_or(|(open, _)| *open != directory) {
            self.open = None;
            match open_beneath(self.workspace.root_descriptor(), &directory) {
                Ok(opened) => self.open = Some((directory, opened)),
                Err(error) if disk_state::is_absent(error) => {}
                Err(error) => return Err(error).context("open", directory.as_path()),
            }
        }
        Ok(self.open.as_ref().map(|(_, opened)| (opened, name)))
    }

    fn state(&mut self, path: &FilePath) -> Result<DiskState> {
        let max_bytes = self.max_bytes;
        match self.parent(path)? {
            Some((directory, name)) => DiskState::read(directory, name, path, max_bytes),
            None => Ok(DiskState::Absent),
        }
    }

    fn touch(&mut self, path: &FilePath) {
        self.touched.extend(path.split().map(|(directory, _)| directory));
    }

    fn leave(&mut self, path: &FilePath) {
        self.left.insert(path.clone());
    }

    fn remove_directory(&mut self, change: &Change) -> Result<()> {
        let disk = self.disk;
        self.open = None;
        let Some((directory, name)) = self.parent(&change.path)? else { return Ok(()) };
        match disk.remove_directory(directory, name) {
            Ok(()) => {
                self.touch(&change.path);
                Ok(())
            }
            Err(error) if is_not_empty(&error) => {
                self.applied.kept.push(change.path.clone());
                Ok(())
            }
            // Something else has taken its place.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(()),
            Err(error) => Err(error).context("remove", change.path.as_path()),
        }
    }

    fn create_directory(&mut self, change: &Change) -> Result<()> {
        let disk = self.disk;
        let Some((directory, name)) = self.parent(&change.path)? else {
            self.leave(&change.path);
            return Ok(());
        };
        match disk.create_directory(directory, name) {
            Ok(()) => {
                self.touch(&change.path);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error).context("create", change.path.as_path()),
        }
    }

    fn set_directory_mode(&mut self, change: &Change) -> Result<()> {
        let Some(after) = &change.after else { return Ok(()) };
        let path = change.path.as_path();
        let Ok(directory) = open_beneath(self.workspace.root_descriptor(), &change.path) else { return Ok(()) };
        if stat_of(&directory).context("look at", path)?.key.permissions() != after.mode {
            self.disk.set_mode(&directory, after.mode).context("set permissions of", path)?;
            self.touched.insert(change.path.clone());
        }
        Ok(())
    }

    fn sync_directories(&mut self) -> Result<()> {
        if self.touched.len() > SYNCED_ONE_BY_ONE {
            let root = self.workspace.root_descriptor();
            return self.disk.sync_file_system(root).context("sync", self.workspace.root());
        }
        for path in std::mem::take(&mut self.touched) {
            if let Ok(directory) = open_beneath(self.workspace.root_descriptor(), &path) {
                self.disk.sync_directory(&directory).context("sync", path.as_path())?;
            }
        }
        Ok(())
    }

    /// Reads every path again.
    fn verify(&mut self, changes: &[Change]) -> Result<()> {
        self.open = None;
        for change in changes {
            let state = self.state(&change.path)?;
            let is_kept = change.after.is_none() && state.is_directory() && self.applied.kept.contains(&change.path);
            let is_as_planned = state.has_directory_mode(change.after.as_ref()) && self.is_done(change, &state)?;
            if !is_kept && !is_as_planned {
                self.leave(&change.path);
            }
        }
        Ok(())
    }

    /// Returns whether a path is as planned, including whether it is the same file as another one.
    fn is_done(&mut self, change: &Change, state: &DiskState) -> Result<bool> {
        if !state.matches(change.after.as_ref()) {
            return Ok(false);
        }
        let same_as = |state: &Option<FileState>| state.as_ref().and_then(|state| state.same_as.clone());
        match (same_as(&change.after), same_as(&change.before)) {
            (Some(first), _) => Ok(self.state(&first)?.inode() == state.inode()),
            (None, Some(first)) if is_file(change.after.as_ref()) => Ok(self.state(&first)?.inode() != state.inode()),
            (None, _) => Ok(true),
        }
    }
}

fn is_directory(state: Option<&FileState>) -> bool {
    state.is_some_and(|state| state.kind == EntryKind::Directory)
}

fn is_file(state: Option<&FileState>) -> bool {
    state.is_some_and(|state| state.kind != EntryKind::Directory)
}

fn is_not_empty(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::ResourceBusy)
}

#[cfg(test)]
mod tests {
    use super::is_temporary;

    #[test]
    fn only_names_that_relive_makes_are_temporary() {
        for name in ["-0", "-917", ""].map(|number| format!(".relive-0123456789abcdef{number}.tmp")) {
            assert!(is_temporary(name.as_bytes()), "{name}");
        }
        for name in [
            ".relive-.tmp",
            ".relive-notes.tmp",
            ".relive-0123456789abcde.tmp",
            ".relive-0123456789abcdef-.tmp",
            ".relive-0123456789abcdeg-1.tmp",
            ".relive-0123456789abcdef-1x.tmp",
            ".relive-0123456789abcdef-1.tmpx",
        ] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }
}
