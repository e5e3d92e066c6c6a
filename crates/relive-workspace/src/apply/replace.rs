//! Removes, writes and links files, each through a temporary name in the same directory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use super::disk_state::DiskState;
use super::{Applier, SYNCED_ONE_BY_ONE};
use crate::diff::{Change, FileState};
use crate::error::{Context as _, Result};
use crate::object::EntryKind;
use crate::stat::{Stat, open_beneath, open_file, stat_of};

/// A new version under its temporary name.
struct Prepared<'a> {
    at: usize,
    change: &'a Change,
    /// Set if the file is synced by itself.
    file: Option<File>,
}

impl Applier<'_> {
    /// Removes a file: first renames it, then deletes it if it is the expected one.
    pub(super) fn remove_file(&mut self, at: usize, change: &Change) -> Result<()> {
        let path = &change.path;
        let state = self.state(path)?;
        if matches!(state, DiskState::Absent | DiskState::Directory(_)) {
            return Ok(());
        }
        if !state.matches(change.before.as_ref()) {
            self.leave(path);
            return Ok(());
        }
        let (disk, temporary, max_bytes) = (self.disk, self.temporary(at), self.max_bytes);
        let Some((directory, name)) = self.parent(path)? else { return Ok(()) };
        // No other file has the temporary name.
        match disk.rename(directory, name, &*temporary) {
            // Removed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            moved => moved.context("move", path.as_path())?,
        }
        let is_expected = DiskState::read(directory, &*temporary, path, max_bytes)?.matches(change.before.as_ref());
        if is_expected {
            disk.unlink(directory, &*temporary).context("remove", path.as_path())?;
            self.applied.removed += 1;
        } else {
            put_back(disk.rename_new(directory, &*temporary, name)).context("put back", path.as_path())?;
            self.leave(path);
        }
        self.touch(path);
        Ok(())
    }

    /// Writes files under temporary names, syncs all of them, then renames each.
    pub(super) fn write_files(&mut self, batch: &[(usize, &Change)]) -> Result<()> {
        let mut prepared = Vec::with_capacity(batch.len());
        let mut changed_modes = Vec::new();
        for &(at, change) in batch {
            let state = self.state(&change.path)?;
            if self.is_done(change, &state)? {
                continue;
            }
            let is_free = matches!(state, DiskState::Absent) && !super::is_file(change.before.as_ref());
            if !is_free && !state.matches(change.before.as_ref()) {
                self.leave(&change.path);
            } else if let Some(compared) = state.only_name().filter(|_| is_mode_only(change)) {
                changed_modes.extend(self.set_mode(change, compared)?.filter(|_| batch.len() <= SYNCED_ONE_BY_ONE));
            } else {
                let file = self.prepare(at, change, &state)?.filter(|_| batch.len() <= SYNCED_ONE_BY_ONE);
                prepared.push(Prepared { at, change, file });
            }
        }
        // If a file were renamed before it is on the disk, it could be empty after a power cut, and nobody could tell
        // which version it is.
        if batch.len() > SYNCED_ONE_BY_ONE {
            self.disk.sync_file_system(self.workspace.root_descriptor()).context("sync", self.workspace.root())?;
        } else {
            for file in prepared.iter().filter_map(|prepared| prepared.file.as_ref()) {
                self.disk.sync(file).context("sync", self.workspace.root())?;
            }
            for file in &changed_modes {
                self.disk.sync_with_mode(file).context("sync", self.workspace.root())?;
            }
        }
        for Prepared { at, change, .. } in prepared {
            self.put_in_place(at, change)?;
        }
        Ok(())
    }

    fn prepare(&mut self, at: usize, change: &Change, state: &DiskState) -> Result<Option<File>> {
        let path = change.path.as_path();
        let Some(after @ FileState { kind, id: Some(id), .. }) = &change.after else { return Ok(None) };
        let bytes = self.workspace.store().blob(*id)?;
        let (disk, temporary) = (self.disk, self.temporary(at));
        let Some((directory, _)) = self.parent(&change.path)? else { return Ok(None) };
        if *kind == EntryKind::Symlink {
            disk.symlink(&bytes, directory, &*temporary).context("create", path)?;
            return Ok(None);
        }
        let file = disk.create(directory, &*temporary).context("create", path)?;
        disk.write(&file, &bytes).context("write", path)?;
        if let DiskState::File { stat: old, .. } = state {
            let new = stat_of(&file).context("look at", path)?;
            if (old.uid, old.gid) != (new.uid, new.gid) {
                // Only root can change owners; for other users the new version is their own.
                let _ = disk.set_owner(file.as_fd(), old.uid, old.gid);
            }
        }
        disk.set_mode(file.as_fd(), after.given_mode()).context("set permissions of", path)?;
        Ok(Some(file))
    }

    /// Renames the temporary file, and checks the file that it replaced.
    fn put_in_place(&mut self, at: usize, change: &Change) -> Result<()> {
        let (disk, temporary, path, max_bytes) = (self.disk, self.temporary(at), &change.path, self.max_bytes);
        let Some((directory, name)) = self.parent(path)? else {
            self.leave(path);
            return Ok(());
        };
        let replaces = super::is_file(change.before.as_ref());
        let is_placed = if replaces {
            match disk.exchange(directory, &*temporary, name) {
                Ok(true) => {
                    let is_expected =
                        DiskState::read(directory, &*temporary, path, max_bytes)?.matches(change.before.as_ref());
                    if !is_expected {
                        disk.exchange(directory, &*temporary, name).context("put back", path.as_path())?;
                    }
                    is_expected
                }
                Ok(false) => {
                    let is_expected =
                        DiskState::read(directory, name, path, max_bytes)?.matches(change.before.as_ref());
                    if is_expected {
                        disk.rename(directory, &*temporary, name).context("replace", path.as_path())?;
                    }
                    is_expected
                }
                // Removed in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(error).context("replace", path.as_path()),
            }
        } else {
            match disk.rename_new(directory, &*temporary, name) {
                Ok(()) => true,
                // Created in the meantime.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error).context("create", path.as_path()),
            }
        };
        disk.unlink(directory, &*temporary).context("remove", path.as_path())?;
        self.touch(path);
        if is_placed {
            self.applied.written += 1;
        } else {
            self.leave(path);
        }
        Ok(())
    }

    /// Sets the permissions of the file that was compared, and returns it.
    fn set_mode(&mut self, change: &Change, compared: &Stat) -> Result<Option<OwnedFd>> {
        let path = change.path.as_path();
        let disk = self.disk;
        let (Some(after), Some((directory, name))) = (&change.after, self.parent(&change.path)?) else {
            return Ok(None);
        };
        let file = open_file(directory, name).context("open", path)?;
        // Another file may have taken its place since it was compared, also one that has a name outside of the workspace.
        if stat_of(&file).context("look at", path)?.identity() != compared.identity() {
            self.leave(&change.path);
            return Ok(None);
        }
        disk.set_mode(&file, after.given_mode()).context("set permissions of", path)?;
        self.applied.written += 1;
        Ok(Some(file))
    }

    /// Makes a path another name of a file that was written before.
    pub(super) fn link(&mut self, at: usize, change: &Change) -> Result<()> {
        let Some(first) = change.after.as_ref().and_then(|after| after.same_as.clone()) else { return Ok(()) };
        let state = self.state(&change.path)?;
        if self.is_done(change, &state)? {
            return Ok(());
        }
        let is_free = matches!(state, DiskState::Absent) && !super::is_file(change.before.as_ref());
        let is_expected = is_free || state.matches(change.before.as_ref()) || state.matches(change.after.as_ref());
        if !is_expected || !self.state(&first)?.matches(change.after.as_ref()) {
            self.leave(&change.path);
            return Ok(());
        }
        let Some((first_directory, first_name)) = first.split() else { return Ok(()) };
        let from = open_beneath(self.workspace.root_descriptor(), &first_directory).context("open", first.as_path())?;
        let (disk, temporary) = (self.disk, self.temporary(at));
        let Some((directory, _)) = self.parent(&change.path)? else { return Ok(()) };
        disk.link((&from, first_name), (directory, &*temporary)).context("link", change.path.as_path())?;
        if state.matches(change.after.as_ref()) {
            // The replaced file has the planned content, but is a file of its own.
            let change = Change { before: change.after.clone(), ..change.clone() };
            return self.put_in_place(at, &change);
        }
        self.put_in_place(at, change)
    }
}

fn is_mode_only(change: &Change) -> bool {
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => {
            before.kind.is_regular()
                && after.kind.is_regular()
                && (before.id, &before.same_as) == (after.id, &after.same_as)
        }
        _ => false,
    }
}

/// Accepts that another program has created a new file in the meantime: then that one stays, and the old one stays
/// under its temporary name.
fn put_back(renamed: io::Result<()>) -> io::Result<()> {
    match renamed {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
