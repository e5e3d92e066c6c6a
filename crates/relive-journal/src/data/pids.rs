//! PIDs: small integers, never given out twice.
//!
//! The file `pids` holds the highest PID that may have been given out. It is raised by [`BLOCK`] at a time, so most
//! PIDs cost no sync; after a crash the rest of the block is skipped, never reused.

use std::fs;
use std::io;
use std::path::Path;

use relive_core::Pid;

use crate::disk::Disk;

const BLOCK: u32 = 16;

#[derive(Debug)]
pub(super) struct Pids {
    last: u32,
    /// What the file says; absent where there is no such file, or it does not say.
    reserved: Option<u32>,
}

impl Pids {
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let text = match fs::read(root.join("pids")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let reserved = String::from_utf8_lossy(&text).strip_suffix('\n').and_then(|number| number.parse().ok());
        Ok(Self { last: reserved.unwrap_or(0), reserved })
    }

    pub(super) fn is_missing(&self) -> bool {
        self.reserved.is_none()
    }

    pub(super) fn next(&mut self, disk: &Disk, root: &Path) -> io::Result<Pid> {
        let next = self.last.checked_add(1).ok_or_else(|| io::Error::other("there are no PIDs left"))?;
        if self.reserved.is_none_or(|reserved| next > reserved) {
            self.reserve(disk, root, next.saturating_add(BLOCK - 1))?;
        }
        self.last = next;
        Ok(Pid(next))
    }

    /// Makes sure that no PID up to `highest` is given out.
    pub(super) fn raise(&mut self, disk: &Disk, root: &Path, highest: Pid) -> io::Result<()> {
        self.last = self.last.max(highest.0);
        self.reserve(disk, root, self.last)
    }

    fn reserve(&mut self, disk: &Disk, root: &Path, reserved: u32) -> io::Result<()> {
        disk.replace(&root.join("pids"), format!("{reserved}\n").as_bytes())?;
        self.reserved = Some(reserved);
        Ok(())
    }
}
