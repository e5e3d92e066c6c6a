//! Makes read-only directories writable while their files are changed.
//!
//! The plan contains these directories with the permissions that they have afterwards, so an interrupted run sets them too.

use std::collections::BTreeSet;

use rustix::fs::{Access, AtFlags, FileType};
use rustix::process::geteuid;

use super::{Applier, is_directory};
use crate::diff::{Change, FileState, View};
use crate::error::{Context as _, Result};
use crate::object::EntryKind;
use crate::path::FilePath;
use crate::plan::Plan;
use crate::stat::{open_beneath, stat_at};

/// The permissions that Relive needs to change the files of a directory.
const NEEDED: u32 = 0o700;

impl Plan {
    /// Adds the read-only directories of the changed files, as they are.
    pub(crate) fn add_read_only_directories(&mut self, now: &mut View<'_>) -> Result<()> {
        let parents: BTreeSet<FilePath> =
            self.changes.iter().filter_map(|change| Some(change.path.split()?.0)).collect();
        let mut added = Vec::new();
        for directory in parents.into_iter().filter(|directory| !directory.is_root()) {
            if self.changes.binary_search_by(|change| change.path.cmp(&directory)).is_ok() {
                continue;
            }
            let is_read_only = |state: &FileState| state.kind == EntryKind::Directory && state.mode & NEEDED != NEEDED;
            if let Some(state) = now.state(&directory)?.filter(is_read_only) {
                added.push(Change { path: directory, before: Some(state.clone()), after: Some(state) });
            }
        }
        self.changes.extend(added);
        self.changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }

    /// Returns whether the run makes this directory writable, if it can.
    pub(super) fn unlocks(&self, directory: &FilePath) -> bool {
        let found = self.changes.binary_search_by(|change| change.path.cmp(directory));
        found.is_ok_and(|at| is_directory(self.changes[at].before.as_ref()))
    }
}

impl Applier<'_> {
    /// Makes the directories of the plan writable. They get their permissions when all files are in place.
    pub(super) fn unlock_directories(&mut self, changes: &[Change]) -> Result<()> {
        let (disk, user) = (self.disk, geteuid().as_raw());
        let states = |change: &Change| [is_directory(change.before.as_ref()), is_directory(change.after.as_ref())];
        for change in changes.iter().filter(|change| states(change).contains(&true)) {
            let Some((directory, name)) = self.parent(&change.path)? else { continue };
            let Ok(stat) = stat_at(directory, name) else { continue };
            let is_writable = || {
                let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
                rustix::fs::accessat(directory, name, access, AtFlags::EACCESS).is_ok()
            };
            if stat.file_type() == FileType::Directory && stat.uid == user && !is_writable() {
                let mode = stat.key.permissions() | NEEDED;
                disk.set_directory_mode(directory, name, mode).context("set permissions of", change.path.as_path())?;
            }
        }
        self.open = None;
        Ok(())
    }
}

/// Refuses a directory that cannot be written to.
pub(super) fn check_writable(workspace: &crate::workspace::Workspace, plan: &Plan, path: &FilePath) -> Result<()> {
    let Ok(directory) = open_beneath(workspace.root_descriptor(), path) else { return Ok(()) };
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let Err(error) = rustix::fs::accessat(&directory, ".", access, AtFlags::EACCESS) else { return Ok(()) };
    let is_ours = crate::stat::stat_of(&directory).is_ok_and(|stat| stat.uid == geteuid().as_raw());
    if is_ours && plan.unlocks(path) {
        Ok(())
    } else {
        Err(error).context("write to", &workspace.root().join(path.as_path()))
    }
}
