//! Handles the temporary files of an interrupted plan.

use std::fs::File;
use std::io::Read as _;

use super::Applier;
use super::disk_state::DiskState;
use crate::diff::{Change, FileState};
use crate::error::{Context as _, Result};
use crate::stat::open_file;

impl Applier<'_> {
    /// Removes Relive's own temporary files, and puts back files that another program wrote.
    pub(super) fn sweep(&mut self) -> Result<()> {
        let changes = self.plan.changes.clone();
        for (at, change) in changes.iter().enumerate() {
            self.sweep_one(at, change)?;
        }
        self.open = None;
        Ok(())
    }

    fn sweep_one(&mut self, at: usize, change: &Change) -> Result<()> {
        let (disk, temporary, path, max_bytes) = (self.disk, self.temporary(at), &change.path, self.max_bytes);
        let Some((directory, name)) = self.parent(path)? else { return Ok(()) };
        let found = DiskState::read(directory, &*temporary, path, max_bytes)?;
        if matches!(found, DiskState::Absent) {
            return Ok(());
        }
        let is_planned = |state: &DiskState| {
            !matches!(state, DiskState::Absent)
                && (state.matches(change.before.as_ref()) || state.matches(change.after.as_ref()))
        };
        let is_ours = is_planned(&found) || self.is_part_of(change, &temporary)?;
        let Some((directory, _)) = self.parent(path)? else { return Ok(()) };
        if is_ours {
            disk.unlink(directory, &*temporary).context("remove", path.as_path())?;
            return Ok(());
        }
        // Another program changed the file between the comparison and the rename: this is its version.
        let place = DiskState::read(directory, name, path, max_bytes)?;
        if matches!(place, DiskState::Absent) {
            disk.rename_new(directory, &*temporary, name).context("put back", path.as_path())?;
        } else if is_planned(&place)
            && disk.exchange(directory, &*temporary, name).context("put back", path.as_path())?
        {
            disk.unlink(directory, &*temporary).context("remove", path.as_path())?;
        }
        self.touch(path);
        self.leave(path);
        Ok(())
    }

    /// Returns whether a temporary file is the beginning of one of the two versions, because its writer was killed.
    fn is_part_of(&mut self, change: &Change, temporary: &str) -> Result<bool> {
        let store = self.workspace.store().clone();
        let Some((directory, _)) = self.parent(&change.path)? else { return Ok(false) };
        let Ok(file) = open_file(directory, temporary) else { return Ok(false) };
        let ids = [&change.before, &change.after].into_iter().flatten().filter_map(|state: &FileState| state.id);
        let versions = ids.map(|id| store.blob(id)).collect::<Result<Vec<_>>>()?;
        // Another program may have made it longer than both.
        let longest = versions.iter().map(Vec::len).max().unwrap_or_default() as u64;
        let mut bytes = Vec::new();
        if File::from(file).take(longest.saturating_add(1)).read_to_end(&mut bytes).is_err() {
            return Ok(false);
        }
        Ok(versions.iter().any(|version| version.starts_with(&bytes)))
    }
}
