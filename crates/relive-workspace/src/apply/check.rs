//! Before a plan is written down: whether it can be carried out.

use std::collections::BTreeSet;

use rustix::fs::{Access, AtFlags, Dir};

use super::disk_state::DiskState;
use super::{is_directory, is_file};
use crate::error::{Context as _, Error, Result};
use crate::path::FilePath;
use crate::plan::Plan;
use crate::stat::open_beneath;
use crate::workspace::Workspace;

/// Refuses a plan where a path is neither as before nor as planned, where something that no snapshot has is in the way,
/// or where a directory cannot be written to.
pub(super) fn check(workspace: &Workspace, plan: &Plan) -> Result<()> {
    let root = workspace.root_descriptor();
    let (mut changed, mut in_the_way, mut parents) = (Vec::new(), Vec::new(), BTreeSet::new());
    for change in &plan.changes {
        // A blob that cannot be read has to be known now, not when half of the plan is done.
        if let Some(id) = change.after.as_ref().and_then(|state| state.id) {
            workspace.store().blob(id)?;
        }
        let Some((directory, name)) = change.path.split() else { continue };
        let state = match open_beneath(root, &directory) {
            Ok(opened) => DiskState::read(&opened, name, &change.path)?,
            Err(error) if super::disk_state::is_absent(error) => DiskState::Absent,
            Err(error) => return Err(error).context("open", directory.as_path()),
        };
        if !state.matches(change.before.as_ref()) && !state.matches(change.after.as_ref()) {
            let list = if change.before.is_none() { &mut in_the_way } else { &mut changed };
            list.push(change.path.clone());
        }
        if is_directory(change.before.as_ref()) && is_replaced_by_file(plan, &change.path) {
            in_the_way.extend(unplanned_entries(workspace, plan, &change.path)?);
        }
        parents.insert(directory);
    }
    if !in_the_way.is_empty() {
        return Err(Error::InTheWay { paths: in_the_way });
    }
    if !changed.is_empty() {
        return Err(Error::ChangedSince { paths: changed });
    }
    for path in parents {
        let Ok(directory) = open_beneath(root, &path) else { continue };
        let access = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(&directory, ".", access, AtFlags::EACCESS).context("write to", path.as_path())?;
    }
    Ok(())
}

/// Whether this directory, or one above it, has to make room for a file.
fn is_replaced_by_file(plan: &Plan, directory: &FilePath) -> bool {
    let becomes_file = |path: &FilePath| {
        let found = plan.changes.binary_search_by(|change| change.path.cmp(path));
        found.is_ok_and(|at| is_file(plan.changes[at].after.as_ref()))
    };
    becomes_file(directory) || directory.parents().any(|above| becomes_file(&above))
}

/// Entries of a directory that the plan does not remove, because no snapshot has them.
fn unplanned_entries(workspace: &Workspace, plan: &Plan, directory: &FilePath) -> Result<Vec<FilePath>> {
    let Ok(opened) = open_beneath(workspace.root_descriptor(), directory) else { return Ok(Vec::new()) };
    let mut entries = Vec::new();
    for entry in Dir::read_from(&opened).context("read", directory.as_path())? {
        let entry = entry.context("read", directory.as_path())?;
        let name = entry.file_name().to_bytes();
        let path = directory.join(name);
        let is_planned = plan.changes.binary_search_by(|change| change.path.cmp(&path)).is_ok();
        if !is_planned && !matches!(name, b"." | b"..") {
            entries.push(path);
        }
    }
    Ok(entries)
}
