//! A plan of changes to the files of a workspace, saved before the first change is made.

use std::path::Path;

use rustix::fs::CWD;
use serde::Serialize;

use crate::diff::{Change, FileState};
use crate::disk::Durability;
use crate::error::{Context as _, Error, Result};
use crate::object::{self, EntryKind, ObjectId};
use crate::path::FilePath;
use crate::stat::{read_small, stat_at, stat_of};
use crate::store::{Store, open_directory};
use crate::workspace::{STATES, Workspace};

const PLAN: &str = "plan";
/// The largest size of a plan file.
const PLAN_MAX: u64 = 1 << 30;
const MAGIC: &str = "relive plan 1";

/// Device and inode of a directory.
type Identity = (u64, u64);

/// The purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanKind {
    /// Restores files from a snapshot.
    Restore,
    /// Merges the changes of another workspace.
    Merge,
}

impl PlanKind {
    /// Returns the word that users see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Merge => "merge",
        }
    }
}

/// A list of changes. Until it is carried out it is only a proposal, for `--dry-run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub kind: PlanKind,
    /// The changes, sorted by path.
    pub changes: Vec<Change>,
}

impl Plan {
    /// Returns the id in the names of temporary files, by which they are found when the plan is settled.
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId::from_array(object::checksum(&self.encode()))
    }

    /// Returns the plan of these changes. A change that would only give a set-id bit back is none.
    pub(crate) fn new(kind: PlanKind, mut changes: Vec<Change>) -> Self {
        for change in &mut changes {
            let Some(after) = &mut change.after else { continue };
            let linked = |state: &Option<FileState>| state.as_ref().and_then(|state| state.same_as.clone());
            // A new name of a file is given nothing: it has the bits that the file has.
            let is_new_name = after.same_as.is_some() && after.same_as != linked(&change.before);
            if !is_new_name {
                after.mode = after.given_mode();
            }
        }
        changes.retain(|change| change.before != change.after);
        Self { kind, changes }
    }

    /// Returns the plan that undoes this one.
    pub(crate) fn reversed(&self) -> Self {
        let reverse = |change: &Change| {
            let Change { path, before, after } = change.clone();
            Change { path, before: after, after: before }
        };
        Self { kind: self.kind, changes: self.changes.iter().map(reverse).collect() }
    }

    fn encode(&self) -> Vec<u8> {
        self.encode_of(None)
    }

    fn encode_of(&self, root: Option<Identity>) -> Vec<u8> {
        let mut bytes = format!("{MAGIC} {}", self.kind.name()).into_bytes();
        if let Some((device, inode)) = root {
            bytes.extend_from_slice(format!(" {device} {inode}").as_bytes());
        }
        bytes.push(0);
        for change in &self.changes {
            bytes.extend_from_slice(change.path.as_bytes());
            bytes.push(0);
            for state in [&change.before, &change.after] {
                encode_state(&mut bytes, state.as_ref());
            }
        }
        bytes
    }

    /// Returns a saved plan and the directory that it is for, which earlier versions did not save.
    fn decode(bytes: &[u8]) -> Option<(Self, Option<Identity>)> {
        let (body, checksum) = bytes.split_last_chunk::<32>()?;
        if object::checksum(body) != *checksum {
            return None;
        }
        let mut fields = body.strip_suffix(b"\0")?.split(|&byte| byte == 0);
        let head = std::str::from_utf8(fields.next()?).ok()?.strip_prefix(MAGIC)?.strip_prefix(' ')?;
        let mut head = head.split(' ');
        let kind = match head.next()? {
            "restore" => PlanKind::Restore,
            "merge" => PlanKind::Merge,
            _ => return None,
        };
        let root = match head.next() {
            Some(device) => Some((device.parse().ok()?, head.next()?.parse().ok()?)),
            None => None,
        };
        let mut changes = Vec::new();
        while let Some(path) = fields.next() {
            let path = FilePath::from_bytes(path).ok()?;
            let (before, after) = (decode_state(&mut fields)?, decode_state(&mut fields)?);
            changes.push(Change { path, before, after });
        }
        Some((Self { kind, changes }, root))
    }
}

fn encode_state(bytes: &mut Vec<u8>, state: Option<&FileState>) {
    if let Some(FileState { kind, mode, id, same_as }) = state {
        let kind = match kind {
            EntryKind::File => "file",
            EntryKind::Executable => "executable",
            EntryKind::Symlink => "symlink",
            EntryKind::Directory => "directory",
        };
        let id = id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        bytes.extend_from_slice(format!("{kind} {mode:o} {id} ").as_bytes());
        bytes.extend_from_slice(same_as.as_ref().map_or(&[], FilePath::as_bytes));
    }
    bytes.push(0);
}

/// Returns `None` if the fields are not a state.
#[expect(clippy::option_option, reason = "a file that is not there is a state too")]
fn decode_state<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Option<Option<FileState>> {
    let field = fields.next()?;
    if field.is_empty() {
        return Some(None);
    }
    let mut parts = field.splitn(4, |&byte| byte == b' ');
    let kind = match parts.next()? {
        b"file" => EntryKind::File,
        b"executable" => EntryKind::Executable,
        b"symlink" => EntryKind::Symlink,
        b"directory" => EntryKind::Directory,
        _ => return None,
    };
    let mode = u32::from_str_radix(std::str::from_utf8(parts.next()?).ok()?, 8).ok()?;
    let id = match parts.next()? {
        b"-" => None,
        id => Some(std::str::from_utf8(id).ok()?.parse().ok()?),
    };
    let same_as = Some(parts.next()?).filter(|path| !path.is_empty());
    let same_as = same_as.map(|path| FilePath::from_bytes(path).ok()).map_or(Some(None), |path| path.map(Some))?;
    Some(Some(FileState { kind, mode, id, same_as }))
}

impl Store {
    /// Returns the changes of all interrupted plans. A plan that cannot be read is an error: what it needs is not known.
    pub(crate) fn interrupted_changes(&self) -> Result<Vec<Change>> {
        let states = self.path().join(STATES);
        let entries = match std::fs::read_dir(&states) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context("read", &states)?,
        };
        let mut changes = Vec::new();
        for entry in entries {
            let state = entry.context("read", &states)?.path();
            changes.extend(read_plan(&state)?.map(|(plan, _)| plan.changes).unwrap_or_default());
        }
        Ok(changes)
    }
}

/// Returns whether there is a plan, readable or not, in the state directory of a workspace.
pub(crate) fn has_plan(state: &Path) -> bool {
    !state.join(PLAN).symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Returns the plan in the state directory of a workspace, and the directory that it is for.
fn read_plan(state: &Path) -> Result<Option<(Plan, Option<Identity>)>> {
    let path = state.join(PLAN);
    if !has_plan(state) {
        return Ok(None);
    }
    let bytes = read_small(&path, PLAN_MAX);
    let plan = bytes.and_then(|bytes| Plan::decode(&bytes));
    plan.map(Some).ok_or(Error::DamagedFile { path, what: "not a plan" })
}

impl Workspace {
    /// Saves the plan, so that it can be finished or rolled back after an interruption.
    pub(crate) fn write_plan(&self, plan: &Plan) -> Result<()> {
        let root = stat_of(self.root_descriptor()).context("look at", self.root())?.identity();
        let mut bytes = plan.encode_of(Some(root));
        let checksum = object::checksum(&bytes);
        bytes.extend_from_slice(&checksum);
        let directory = open_directory(self.state())?;
        let written = self.store().disk().replace(&directory, PLAN, &bytes, Durability::Synced);
        written.context("write", &self.state().join(PLAN))
    }

    /// Returns the interrupted plan, if there is one.
    pub fn interrupted(&self) -> Result<Option<Plan>> {
        Ok(self.read_plan()?.map(|(plan, _)| plan))
    }

    fn read_plan(&self) -> Result<Option<(Plan, Option<Identity>)>> {
        read_plan(self.state())
    }

    /// Returns the interrupted plan, if there is one. Refuses one that is for a directory that was at this path before.
    pub(crate) fn interrupted_here(&self) -> Result<Option<Plan>> {
        let Some((plan, root)) = self.read_plan()? else { return Ok(None) };
        let now = stat_at(CWD, self.root()).context("look at", self.root())?.identity();
        if root.is_some_and(|root| root != now) {
            let (path, plan_file) = (self.root().to_owned(), self.state().join(PLAN));
            return Err(Error::OtherDirectory { path, kind: plan.kind, plan_file });
        }
        Ok(Some(plan))
    }

    pub(crate) fn remove_plan(&self) -> Result<()> {
        let path = self.state().join(PLAN);
        let directory = open_directory(self.state())?;
        let disk = self.store().disk();
        disk.unlink(&directory, PLAN).and_then(|()| disk.sync_directory(&directory)).context("remove", &path)
    }

    pub(crate) fn check_not_interrupted(&self) -> Result<()> {
        match self.interrupted_here()? {
            Some(plan) => Err(Error::PlanPending { path: self.root().to_owned(), kind: plan.kind }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_unchanged_after_saving_and_loading() {
        let state = |kind, same_as: Option<&str>| FileState {
            kind,
            mode: 0o640,
            id: (kind != EntryKind::Directory).then(|| object::hash(object::Kind::Blob, b"x")),
            same_as: same_as.map(|path| path.parse().unwrap()),
        };
        let path = |bytes: &[u8]| FilePath::from_bytes(bytes).unwrap();
        let (file, link) = (state(EntryKind::File, None), state(EntryKind::Executable, Some("a b")));
        let changes = vec![
            Change { path: path(b"a b\n\xff"), before: None, after: Some(file.clone()) },
            Change { path: path(b"d"), before: Some(state(EntryKind::Directory, None)), after: Some(link) },
            Change { path: path(b"last"), before: Some(file), after: None },
        ];
        let plan = Plan { kind: PlanKind::Merge, changes };
        let mut bytes = Vec::new();
        for root in [None, Some((7, u64::MAX))] {
            bytes = plan.encode_of(root);
            bytes.extend_from_slice(&object::checksum(&plan.encode_of(root)));
            assert_eq!(Plan::decode(&bytes), Some((plan.clone(), root)));
        }
        assert_eq!(plan.reversed().reversed(), plan);
        assert_eq!(Plan::decode(&bytes[1..]), None);
    }
}
