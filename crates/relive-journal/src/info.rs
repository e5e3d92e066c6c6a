//! `proc-info.json`: what a process is and how it stands, for a quick look. Derived; the journal is the truth.
//!
//! A snapshot names the length of the journal it was made from. If the journal is longer, the snapshot is stale and
//! what it says is derived anew.

use std::fs::{self, File};
use std::io;

use relive_core::{Generation, Limits, Origin, Pid, ProcessStatus, SuspendReason, Timestamp, Uuid, Why};
use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::disk::Disk;
use crate::folder::Folder;
use crate::history::{History, Spent};
use crate::line::{self, VERSION};

/// How much of an intent the snapshot shows.
const INTENT_MAX: usize = 200;

/// A process at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of `ps --json`")]
pub struct ProcInfo {
    v: u32,
    /// Length of the journal this was made from.
    journal_bytes: u64,
    pub uuid: Uuid,
    pub name: Option<String>,
    pub parent_uuid: Option<Uuid>,
    #[serde(flatten)]
    pub origin: Option<Origin>,
    pub body: String,
    /// Its beginning.
    pub intent: String,
    pub cwd: String,
    pub state: JournalState,
    pub suspend_reason: Option<SuspendReason>,
    pub paused_at: Option<Timestamp>,
    pub paused_total_ms: u64,
    pub status: Option<ProcessStatus>,
    pub why: Option<Why>,
    pub step: u32,
    pub limits: Limits,
    #[serde(flatten)]
    pub spent: Spent,
    pub created_at: Timestamp,
    pub started_at: Timestamp,
    pub last_active: Timestamp,
    pub dead_at: Option<Timestamp>,
    pub generation: Generation,
    /// Of each incarnation, first to last.
    pub pids: Vec<Pid>,
}

/// As much of a process's state as its journal knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalState {
    /// Not ended: it runs, or is suspended, or was interrupted.
    Running,
    /// Ended.
    Dead,
}

impl ProcInfo {
    /// What a history amounts to at a glance; `None` where it does not even say what it is.
    #[must_use]
    pub fn of(history: &History) -> Option<Self> {
        let identity = history.identity.as_ref()?;
        let spawned = &identity.spawned;
        let incarnation = history.incarnation()?;
        let ended = history.ended();
        let paused = history.paused.as_ref();
        let intent = spawned.intent.head(INTENT_MAX);
        Some(Self {
            v: VERSION,
            journal_bytes: history.end,
            uuid: spawned.uuid,
            name: spawned.name.clone(),
            parent_uuid: spawned.parent_uuid,
            origin: spawned.origin,
            body: spawned.body.clone(),
            intent: intent.to_owned(),
            cwd: spawned.cwd.clone(),
            state: if ended.is_some() { JournalState::Dead } else { JournalState::Running },
            suspend_reason: paused.map(|paused| paused.reason),
            paused_at: paused.map(|paused| paused.asked_at),
            paused_total_ms: history.paused_total_ms,
            status: ended.map(|(_, ended)| ended.status.clone()),
            why: ended.and_then(|(_, ended)| ended.why()),
            step: history.completed_step,
            limits: history.limits,
            spent: history.spent,
            created_at: identity.created_at,
            started_at: incarnation.at,
            last_active: history.last_at.unwrap_or(identity.created_at),
            dead_at: ended.map(|(at, _)| *at),
            generation: history.epoch,
            pids: history.incarnations.iter().map(|incarnation| incarnation.pid).collect(),
        })
    }

    /// Replaces the snapshot.
    pub fn write(&self, disk: &Disk, folder: &Folder) -> io::Result<()> {
        disk.replace(&folder.proc_info(), &line::encode_file(self)?)
    }

    /// A process at a glance: by its snapshot if that is current, else from its journal. `None` where neither says.
    pub fn read(folder: &Folder) -> io::Result<Option<Self>> {
        let journal = File::open(folder.steps())?;
        let length = journal.metadata()?.len();
        let snapshot: Option<Self> = fs::read(folder.proc_info()).ok().and_then(|bytes| line::decode_file(&bytes));
        if let Some(snapshot) = snapshot
            && snapshot.journal_bytes == length
        {
            return Ok(Some(snapshot));
        }
        let (history, _) = checkpoint::load(folder, &journal)?;
        Ok(Self::of(&history))
    }
}
