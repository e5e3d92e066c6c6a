//! `proc-info.json`: a summary of a process, derived from its journal.
//!
//! A snapshot contains the length of the journal it was made from, and the checksum of its last line. If the journal
//! differs, or that line is not whole, the snapshot is stale and is derived again. The length alone is not enough:
//! after a power cut a file may have the length but not the bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use relive_core::{End, Generation, Limits, Origin, Pid, SuspendReason, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::directory::ProcessDirectory;
use crate::disk::Disk;
use crate::history::{History, LedgerEntry, Spent, ran_by_wall_clock};
use crate::line::{self, LINE_MAX, VERSION};
use crate::record::FilesId;
use crate::regular;

/// The number of bytes at a journal's end that are read first: most last lines fit.
const TAIL: u64 = 4096;

/// How many bytes of an intent a summary contains. A list of many processes stays small.
pub const INTENT_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcInfo {
    v: u32,
    /// The length of the journal that this was made from.
    journal_bytes: u64,
    /// The checksum in its last line.
    journal_crc: u32,
    pub uuid: Uuid,
    pub name: Option<String>,
    pub parent_uuid: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_uuid: Option<Uuid>,
    #[serde(flatten)]
    pub origin: Option<Origin>,
    pub body: String,
    /// The beginning of the intent.
    pub intent: String,
    /// Whether the intent is longer; absent where an older Relive made the snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub intent_cut: bool,
    pub cwd: String,
    /// The model it was run on last; absent where none was asked yet, or an older Relive made the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The files it works on, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<KnownFiles>,
    pub state: JournalState,
    pub suspend_reason: Option<SuspendReason>,
    pub paused_at: Option<Timestamp>,
    pub paused_total_ms: u64,
    /// The execution time; absent if only the wall clock was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    #[serde(flatten)]
    pub end: Option<End>,
    pub step: u32,
    pub limits: Limits,
    #[serde(flatten)]
    pub spent: Spent,
    /// The same by day and model; absent where an older Relive made the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Vec<LedgerEntry>>,
    pub created_at: Timestamp,
    pub started_at: Timestamp,
    pub last_active: Timestamp,
    pub dead_at: Option<Timestamp>,
    /// Whether a person has to be told of its end; absent where an older Relive made the snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    pub generation: Generation,
    /// The PIDs of all incarnations, first to last.
    pub pids: Vec<Pid>,
}

/// The files of a process at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFiles {
    /// Whether it works on a copy.
    #[serde(default)]
    pub own: bool,
    /// The state of the files at its start.
    pub first: FilesId,
    /// The last known state of the files.
    pub last: FilesId,
    /// Whether the files after some step are not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_unknown_step: bool,
    /// Whether that is so of the last step that may have changed them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unknown_now: bool,
}

impl KnownFiles {
    fn of(history: &History) -> Option<Self> {
        let own = history.identity.as_ref()?.spawned.workspace.is_some();
        let files = &history.files;
        // Of a process that runs, the snapshot may still come.
        let is_unknown_now = files.has_unknown_step && files.has_unseen_effect;
        let (first, last, has_unknown_step) = (files.first?, files.last?, files.has_unknown_step);
        Some(Self { own, first, last, has_unknown_step, is_unknown_now })
    }
}

/// The state of a process as far as its journal knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalState {
    /// Not ended: it runs, is suspended, or was interrupted.
    Running,
    Dead,
}

impl ProcInfo {
    /// Summarizes a history; `None` if it does not describe a process.
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
            journal_crc: history.last_crc,
            uuid: spawned.uuid,
            name: spawned.name.clone(),
            parent_uuid: spawned.parent_uuid,
            budget_uuid: spawned.budget_uuid,
            origin: spawned.origin,
            body: spawned.body.clone(),
            intent: intent.to_owned(),
            intent_cut: spawned.intent.is_longer_than(INTENT_MAX),
            cwd: spawned.cwd.clone(),
            model: history.last_model().map(str::to_owned),
            files: KnownFiles::of(history),
            state: if ended.is_some() { JournalState::Dead } else { JournalState::Running },
            suspend_reason: paused.map(|paused| paused.reason),
            paused_at: paused.map(|paused| paused.asked_at),
            paused_total_ms: history.paused_total_ms,
            ran_ms: history.stopwatch.map(|_| history.ran_ms()),
            end: ended.map(|(_, end)| end.clone()),
            step: history.completed_step,
            limits: history.limits,
            spent: history.spent,
            ledger: Some(history.ledger.clone()),
            created_at: identity.created_at,
            started_at: incarnation.at,
            last_active: history.last_at.unwrap_or(identity.created_at),
            dead_at: ended.map(|(at, _)| *at),
            unseen: history.unseen,
            generation: history.epoch,
            pids: history.incarnations.iter().map(|incarnation| incarnation.pid).collect(),
        })
    }

    /// Returns the process whose budget this one draws from, besides its own.
    #[must_use]
    pub fn payer(&self) -> Option<Uuid> {
        self.parent_uuid.or(self.budget_uuid)
    }

    /// Returns the execution time when its last record was written.
    #[must_use]
    pub fn elapsed_ms(&self) -> u64 {
        let until = self.dead_at.or(self.paused_at).unwrap_or(self.last_active);
        self.ran_ms.unwrap_or_else(|| ran_by_wall_clock(self.created_at, until, self.paused_total_ms))
    }

    /// Returns the length of the journal that this was made from. A journal of another length has other content.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        self.journal_bytes
    }

    /// Returns the checksum in the last line of that journal.
    #[must_use]
    pub fn journal_crc(&self) -> u32 {
        self.journal_crc
    }

    pub fn write(&self, disk: &Disk, directory: &ProcessDirectory) -> io::Result<()> {
        disk.replace(&directory.proc_info(), &line::encode_file(self)?)
    }

    /// Replaces the snapshot, for readers of the files of a running process. A snapshot damaged by a power cut is
    /// derived again.
    pub fn write_unsynced(&self, disk: &Disk, directory: &ProcessDirectory) -> io::Result<()> {
        disk.put_unsynced(&directory.proc_info(), &line::encode_file(self)?)
    }

    /// Returns the summary of a process: its snapshot if that is up to date, else derived from its journal. `None` if
    /// neither describes it.
    pub fn read(directory: &ProcessDirectory) -> io::Result<Option<Self>> {
        Self::read_from(&Disk::new(), directory)
    }

    pub(crate) fn read_from(disk: &Disk, directory: &ProcessDirectory) -> io::Result<Option<Self>> {
        let journal = disk.open_read(&directory.steps())?;
        let length = journal.metadata()?.len();
        let snapshot = regular::read(&directory.proc_info(), regular::SMALL_MAX).ok();
        let snapshot: Option<Self> = snapshot.and_then(|bytes| line::decode_file(&bytes));
        if let Some(snapshot) = snapshot
            && snapshot.journal_bytes == length
            && ends_in(&journal, length, snapshot.journal_crc)?
        {
            return Ok(Some(snapshot));
        }
        let (history, _) = checkpoint::load(directory, &journal)?;
        Ok(Self::of(&history))
    }
}

/// Returns whether the journal's last line is whole and has this checksum. Its end alone is not enough: after a power
/// cut a page may be there without the one before it.
fn ends_in(journal: &File, length: u64, crc: u32) -> io::Result<bool> {
    for reach in [TAIL, LINE_MAX as u64 + 1] {
        let from = length.saturating_sub(reach);
        let mut tail = vec![0; usize::try_from(length - from).unwrap_or(0)];
        journal.read_exact_at(&mut tail, from)?;
        let Some(line) = tail.strip_suffix(b"\n") else { return Ok(false) };
        let begins = memchr::memrchr(b'\n', line).map(|newline| newline + 1).or((from == 0).then_some(0));
        if let Some(begins) = begins {
            return Ok(line::named_crc(&tail) == Some(crc) && line::is_intact(&line[begins..]));
        }
    }
    Ok(false)
}
