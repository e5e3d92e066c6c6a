//! PIDs: small integers, never given out twice.
//!
//! The file `pids` holds the highest PID that may have been given out. It is raised by [`BLOCK`] at a time, so most
//! PIDs cost no sync; after a crash the rest of the block is skipped, never reused. `pids.log` says whose each one is, so
//! that an old PID can be asked for; it is not synced, and what it has lost the journals still know.

use std::fs;
use std::io;
use std::path::Path;

use relive_core::{Pid, Uuid};

use super::DataFolder;
use crate::disk::Disk;
use crate::info::ProcInfo;

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

    pub(super) fn last(&self) -> Pid {
        Pid(self.last)
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

    /// Makes room for so many at once.
    fn reserve_next(&mut self, disk: &Disk, root: &Path, count: usize) -> io::Result<()> {
        let wanted = self.last.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.reserved.is_some_and(|reserved| wanted <= reserved) { Ok(()) } else { self.reserve(disk, root, wanted) }
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

impl DataFolder {
    /// The highest PID that may have been given out.
    #[must_use]
    pub fn last_pid(&self) -> Pid {
        self.lock_pids().last()
    }

    /// Makes the next so many PIDs cost one sync together, for whoever is about to need them.
    pub fn reserve_pids(&self, count: usize) -> io::Result<()> {
        self.lock_pids().reserve_next(&self.io.disk, &self.root, count)
    }

    /// Remembers whose a PID is. Losing it costs a search.
    pub fn note_pid(&self, pid: Pid, uuid: Uuid) {
        self.note_pids([(pid, uuid)]);
    }

    /// Remembers whose each PID is.
    pub fn note_pids(&self, pids: impl IntoIterator<Item = (Pid, Uuid)>) {
        let disk = &self.io.disk;
        let noted = disk.open_or_create(&self.root.join("pids.log"));
        let lines: String = pids.into_iter().map(|(pid, uuid)| format!("{pid} {uuid}\n")).collect();
        let _ = noted.and_then(|file| disk.append(&file, lines.as_bytes()));
    }

    /// Whose a PID is, or was.
    pub fn uuid_of_pid(&self, pid: Pid) -> io::Result<Option<Uuid>> {
        if pid > self.last_pid() {
            return Ok(None);
        }
        let text = fs::read_to_string(self.root.join("pids.log")).unwrap_or_default();
        let wanted = format!("{pid} ");
        let noted = text.lines().rev().find_map(|line| line.strip_prefix(&wanted)?.parse().ok());
        if noted.is_some() {
            return Ok(noted);
        }
        for uuid in self.uuids()? {
            let info = ProcInfo::read(&self.folder(uuid))?;
            if info.is_some_and(|info| info.pids.contains(&pid)) {
                return Ok(Some(uuid));
            }
        }
        Ok(None)
    }
}
