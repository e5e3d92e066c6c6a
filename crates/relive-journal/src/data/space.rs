//! A full disk: blocks reserved for the last records, and a floor below which no process is started.

use std::io;
use std::path::Path;

use super::DataDirectory;
use crate::disk::{Disk, is_full};

/// The rules for free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceRules {
    /// The size of the file that is released when the disk is full.
    pub reserve_bytes: u64,
    /// No process is created with less free space than this.
    pub floor_bytes: u64,
}

impl Default for SpaceRules {
    fn default() -> Self {
        Self { reserve_bytes: 4 << 20, floor_bytes: 64 << 20 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// The bytes that this user may still write.
    pub free_bytes: u64,
    /// Whether a process may be created.
    pub above_floor: bool,
}

impl DataDirectory {
    pub fn space(&self) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(&self.root)?;
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(Space { free_bytes, above_floor: free_bytes >= self.space.floor_bytes })
    }

    /// Releases the reserve, so that the last records can still be written.
    pub fn release_reserve(&self) -> io::Result<()> {
        self.io.disk.unlink(&self.root.join("reserve"))
    }

    /// Runs an action that frees space, or must not fail for lack of it: if the disk is full, again without the
    /// reserve.
    pub(super) fn relieved<T>(&self, act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        relieved(&self.io.disk, &self.root, act)
    }

    /// Allocates the reserve again; returns `false` if there is not enough space.
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
            // A file system that cannot allocate blocks does not prevent running.
            Err(_) => self.io.disk.unlink(&path).map(|()| false),
        }
    }
}

/// Runs an action; if the disk is full and there is a reserve, releases the reserve and runs it again.
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
