//! A full disk: blocks kept in reserve for the last records, and a floor below which nothing new is begun.

use std::io;
use std::path::Path;

use super::DataDirectory;
use crate::disk::{Disk, is_full};

/// How much room is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceRules {
    /// The size of the file that is given back when the disk is full.
    pub reserve_bytes: u64,
    /// With less free than this no process is begun.
    pub floor_bytes: u64,
}

impl Default for SpaceRules {
    fn default() -> Self {
        Self { reserve_bytes: 4 << 20, floor_bytes: 64 << 20 }
    }
}

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What this user may still write.
    pub free_bytes: u64,
    /// Whether a process may be begun.
    pub above_floor: bool,
}

impl DataDirectory {
    /// How much room there is.
    pub fn space(&self) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(&self.root)?;
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(Space { free_bytes, above_floor: free_bytes >= self.space.floor_bytes })
    }

    /// Gives the reserve back to the disk, so that what must be said can still be recorded.
    pub fn release_reserve(&self) -> io::Result<()> {
        self.io.disk.unlink(&self.root.join("reserve"))
    }

    /// Does something that makes room, or must not wait for room: if the disk is full, once more without the reserve.
    pub(super) fn relieved<T>(&self, act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        relieved(&self.io.disk, &self.root, act)
    }

    /// Takes the reserve again, if there is room for it; `false` if there is not.
    pub fn restore_reserve(&self) -> io::Result<bool> {
        let path = self.root.join("reserve");
        let size = self.space.reserve_bytes;
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() == size) {
            return Ok(true);
        }
        if size == 0 || self.space()?.free_bytes < self.space.floor_bytes.max(size) {
            return Ok(false);
        }
        let file = match self.io.disk.open_or_create(&path) {
            Err(error) if is_full(&error) => return Ok(false),
            other => other?,
        };
        match self.io.disk.allocate(&file, size) {
            Ok(()) => Ok(true),
            // A file system that cannot reserve is no reason not to run.
            Err(_) => self.io.disk.unlink(&path).map(|()| false),
        }
    }
}

/// Does it; if the disk is full and there is a reserve, gives that back and does it once more.
pub(super) fn relieved<T>(disk: &Disk, root: &Path, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let reserve = root.join("reserve");
    match act() {
        Err(error) if is_full(&error) && reserve.exists() => {
            disk.unlink(&reserve)?;
            act()
        }
        other => other,
    }
}
