//! `tombstones.jsonl`: what stays of a history that was collected.

use std::fs;
use std::io;
use std::sync::PoisonError;

use relive_core::{End, Origin, Pid, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use super::DataFolder;
use crate::events::whole_lines;
use crate::info::ProcInfo;
use crate::line;

/// What stays of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of `ps --json`")]
pub struct Tombstone {
    pub uuid: Uuid,
    pub name: Option<String>,
    #[serde(flatten)]
    pub origin: Option<Origin>,
    pub pids: Vec<Pid>,
    #[serde(flatten)]
    pub end: Option<End>,
    pub dead_at: Timestamp,
    pub collected_at: Timestamp,
}

impl Tombstone {
    pub(super) fn of(info: ProcInfo, dead_at: Timestamp, collected_at: Timestamp) -> Self {
        let ProcInfo { uuid, name, origin, pids, end, .. } = info;
        Self { uuid, name, origin, pids, end, dead_at, collected_at }
    }
}

impl DataFolder {
    /// Every tombstone, oldest first. A process collected, resumed and collected again has two.
    pub(super) fn tombstones(&self) -> io::Result<Vec<Tombstone>> {
        let bytes = self.read_tombstones()?;
        Ok(lines(&bytes).filter_map(parse).collect())
    }

    /// The last tombstone of a process.
    pub(super) fn tombstone(&self, uuid: Uuid) -> io::Result<Option<Tombstone>> {
        let bytes = self.read_tombstones()?;
        let name = uuid.to_string();
        // Most lines are of others: looking for the name first spares parsing them.
        let named = lines(&bytes).filter(|line| memchr::memmem::find(line, name.as_bytes()).is_some());
        Ok(named.filter_map(parse).filter(|tombstone| tombstone.uuid == uuid).last())
    }

    fn read_tombstones(&self) -> io::Result<Vec<u8>> {
        match fs::read(self.root.join("tombstones.jsonl")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other,
        }
    }

    /// Adds tombstones; on return they are on the disk.
    pub(super) fn add_tombstones(&self, tombstones: &[Tombstone]) -> io::Result<()> {
        let disk = &self.io.disk;
        let path = self.root.join("tombstones.jsonl");
        let mut named = self.tombstones_named.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !path.exists();
        let file = disk.open_or_create(&path)?;
        let length = file.file().metadata()?.len();
        let whole = whole_lines(file.file(), length)?;
        if whole < length {
            disk.truncate(&file, whole)?;
        }
        let mut bytes = Vec::new();
        for tombstone in tombstones {
            let start = bytes.len();
            serde_json::to_writer(&mut bytes, tombstone)?;
            line::seal(&mut bytes, start);
        }
        let added = disk.append(&file, &bytes).and_then(|()| disk.sync(&file));
        let added = if *named { added } else { added.and_then(|()| disk.sync_dir(&self.root)) };
        *named |= added.is_ok();
        added.inspect_err(|_| {
            // What a failed sync gave up would be a hole before the next one.
            let _ = if is_new { disk.unlink(&path) } else { disk.truncate(&file, whole) };
        })
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

fn parse(line: &[u8]) -> Option<Tombstone> {
    if line::is_intact(line) { serde_json::from_slice(line).ok() } else { None }
}
