//! Checks whether a plan can be carried out, before it is saved.

use std::collections::BTreeSet;

use rustix::fs::Dir;

use super::disk_state::DiskState;
use super::unlock::check_writable;
use super::{is_directory, is_file};
use crate::diff::Change;
use crate::error::{Context as _, Error, Result};
use crate::path::FilePath;
use crate::plan::Plan;
use crate::stat::open_beneath;
use crate::workspace::Workspace;

/// Refuses a plan if a file that is in no snapshot is in the way: also one that is only shown has to be possible.
pub(crate) fn check_in_the_way(workspace: &Workspace, plan: &Plan) -> Result<()> {
    let mut in_the_way = Vec::new();
    for change in &plan.changes {
        if change.before.is_none() {
            let state = read_state(workspace, change)?;
            if !state.matches(None) && !state.matches(change.after.as_ref()) {
                in_the_way.push(change.path.clone());
            }
        }
        if is_directory(change.before.as_ref()) && is_replaced_by_file(plan, &change.path) {
            in_the_way.extend(unplanned_entries(workspace, plan, &change.path)?);
        }
    }
    if in_the_way.is_empty() { Ok(()) } else { Err(Error::InTheWay { paths: in_the_way }) }
}

fn read_state(workspace: &Workspace, change: &Change) -> Result<DiskState> {
    let path = &change.path;
    let Some((directory, name)) = path.split() else { return Ok(DiskState::Absent) };
    let opened = match open_beneath(workspace.root_descriptor(), &directory) {
        Ok(opened) => opened,
        Err(error) if super::disk_state::is_absent(error) => return Ok(DiskState::Absent),
        Err(error) => return Err(error).context("open", &workspace.root().join(directory.as_path())),
    };
    match DiskState::read(&opened, name, path, workspace.settings().max_file_bytes)? {
        // It may be larger than what is kept now, and have been kept.
        DiskState::Other => DiskState::read(&opened, name, path, max_bytes(workspace, [change])),
        state @ (DiskState::Absent | DiskState::Directory(_) | DiskState::File { .. }) => Ok(state),
    }
}

/// Returns the size of the largest file that these changes name, or that a snapshot has now.
pub(super) fn max_bytes<'a>(workspace: &Workspace, changes: impl IntoIterator<Item = &'a Change>) -> u64 {
    let states = changes.into_iter().flat_map(|change| [&change.before, &change.after]).flatten();
    let blobs = states.filter_map(|state| workspace.store().blob(state.id?).ok());
    blobs.map(|blob| blob.len() as u64).max().unwrap_or(0).max(workspace.settings().max_file_bytes)
}

/// Refuses a plan if a path is neither as before nor as planned, if a file that is in no snapshot is in the way, or if
/// a directory is not writable. Returns the size of the largest file that the plan reads or writes.
pub(super) fn check(workspace: &Workspace, plan: &Plan) -> Result<u64> {
    check_in_the_way(workspace, plan)?;
    let (mut changed, mut parents) = (Vec::new(), BTreeSet::new());
    let mut max_bytes = workspace.settings().max_file_bytes;
    for change in &plan.changes {
        // An unreadable blob has to be found now, not when half of the plan is done.
        if let Some(id) = change.after.as_ref().and_then(|state| state.id) {
            max_bytes = max_bytes.max(workspace.store().blob(id)?.len() as u64);
        }
        // A file that was kept may be larger than what is kept now, and is compared before it is replaced.
        let before = change.before.as_ref().and_then(|state| workspace.store().blob(state.id?).ok());
        max_bytes = max_bytes.max(before.map_or(0, |blob| blob.len() as u64));
        let Some((directory, _)) = change.path.split() else { continue };
        parents.insert(directory);
        if change.before.is_none() {
            continue;
        }
        let state = read_state(workspace, change)?;
        if !state.matches(change.before.as_ref()) && !state.matches(change.after.as_ref()) {
            changed.push(change.path.clone());
        }
    }
    if !changed.is_empty() {
        return Err(Error::ChangedSince { paths: changed });
    }
    parents.iter().try_for_each(|path| check_writable(workspace, plan, path))?;
    Ok(max_bytes)
}

/// Returns whether this directory, or one of its parents, is replaced by a file.
fn is_replaced_by_file(plan: &Plan, directory: &FilePath) -> bool {
    let becomes_file = |path: &FilePath| {
        let found = plan.changes.binary_search_by(|change| change.path.cmp(path));
        found.is_ok_and(|at| is_file(plan.changes[at].after.as_ref()))
    };
    becomes_file(directory) || directory.parents().any(|above| becomes_file(&above))
}

/// Returns the entries of a directory that the plan does not remove, because no snapshot contains them.
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
