//! `tombstones.jsonl`: what stays of a history that was collected.

use std::fs;
use std::io;

use relive_core::{Origin, Pid, ProcessStatus, Timestamp, Uuid, Why};
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
    pub status: Option<ProcessStatus>,
    pub why: Option<Why>,
    pub dead_at: Timestamp,
    pub collected_at: Timestamp,
}

impl Tombstone {
    pub(super) fn of(info: ProcInfo, dead_at: Timestamp, collected_at: Timestamp) -> Self {
        let ProcInfo { uuid, name, origin, pids, status, why, .. } = info;
        Self { uuid, name, origin, pids, status, why, dead_at, collected_at }
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
        disk.append(&file, &bytes)?;
        disk.sync(&file)?;
        if is_new { disk.sync_dir(&self.root) } else { Ok(()) }
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

fn parse(line: &[u8]) -> Option<Tombstone> {
    if line::is_intact(line) { serde_json::from_slice(line).ok() } else { None }
}
