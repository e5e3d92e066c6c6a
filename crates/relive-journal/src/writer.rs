//! The one writer of a journal.
//!
//! Every batch of records is one `write(2)`; what must be acknowledged is synced before [`Writer::append`] returns, or
//! by [`Writer::sync`]. After an error nothing half-written stays: the file is cut back to the last whole batch, or,
//! where even that fails or a sync failed, the writer is poisoned and takes nothing more.
//!
//! It blocks. It is meant to be moved to a thread of [`crate::Pool`] for each batch and back; that there is one
//! writer follows from ownership.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use relive_core::{Generation, Timestamp};

use crate::checkpoint;
use crate::directory::ProcessDirectory;
use crate::disk::{Disk, DiskFile, is_full, temporary_beside};
use crate::events::EventLog;
use crate::history::{History, Place};
use crate::line::{self, Head, LINE_MAX, VERSION};
use crate::payload::{Blobs, INLINE_MAX};
use crate::record::{Body, Record, Repair};
use crate::scan::{Health, Hole, scan};

/// When a line would be too long, payloads above this go to `blobs/` as well.
const SMALL_INLINE_MAX: usize = 1024;

/// How much of a torn end is kept. A batch is never that long; a file full of rubbish may be.
const CUT_KEPT_MAX: usize = 64 << 20;

/// Whether a batch is on the disk when [`Writer::append`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is: it may be acknowledged.
    Synced,
    /// It is with the next batch that is.
    Written,
}

/// Why a journal could not be opened or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says it")]
pub enum WriteError {
    #[error("{path}: another writer has this journal", path = path.display())]
    Busy { path: PathBuf },
    #[error("{path}: there is no journal", path = path.display())]
    Absent { path: PathBuf },
    #[error("{path}: damaged at {hole}", path = path.display())]
    Damaged { path: PathBuf, hole: Hole },
    #[error("{path}: written by a newer Relive: {hole}", path = path.display())]
    ReadOnly { path: PathBuf, hole: Hole },
    #[error("{path}: an earlier write failed and nothing more is written", path = path.display())]
    Poisoned { path: PathBuf },
    #[error("{path}: the disk is full", path = path.display())]
    DiskFull { path: PathBuf },
    #[error("a `{kind}` record does not fit here: {why}")]
    Misplaced { kind: &'static str, why: &'static str },
    #[error("a `{kind}` record has more than {LINE_MAX} bytes even without its payloads")]
    TooLong { kind: &'static str },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// What a writer works with.
#[derive(Debug, Clone, Default)]
pub struct Io {
    /// Where its files are.
    pub disk: Disk,
    /// The journals whose sync failed: what the cache says of them may not be on the disk, and never will be.
    poisoned: Poisoned,
}

type Poisoned = Arc<Mutex<HashSet<PathBuf>>>;

/// How a writer comes by its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// Nobody else knows of the file, and nothing of it is synced.
    Copied,
    /// An earlier writer wrote it; this one writes in this epoch.
    Found(Generation),
}

impl Io {
    /// Files on `disk`.
    #[must_use]
    pub fn new(disk: Disk) -> Self {
        Self { disk, poisoned: Poisoned::default() }
    }

    /// Nobody opens this directory's journal any more.
    pub(crate) fn poison(&self, directory: &Path) {
        self.poisoned.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.to_owned());
    }

    /// Refuses a journal whose sync failed.
    pub(crate) fn check_poison(&self, directory: &ProcessDirectory) -> Result<(), WriteError> {
        let all = self.poisoned.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains(directory.path()) { Err(WriteError::Poisoned { path: directory.steps() }) } else { Ok(()) }
    }
}

/// The writer of one journal.
#[derive(Debug)]
pub struct Writer {
    disk: Disk,
    directory: ProcessDirectory,
    file: DiskFile,
    blobs: Blobs,
    history: History,
    epoch: Generation,
    events: EventLog,
    buffer: Vec<u8>,
    /// Where the journal ended when this writer took it.
    taken_at: u64,
    /// How much of the journal was synced last; absent before this writer's first sync of a journal that an earlier
    /// writer wrote, because that one may have left records unsynced.
    synced: Option<u64>,
    /// The last record known to be on the disk.
    synced_seq: u64,
    poisoned: bool,
    all_poisoned: Poisoned,
}

impl Writer {
    /// The writer of a locked file of which `history` is all it holds.
    pub(crate) fn new(io: &Io, directory: ProcessDirectory, file: DiskFile, history: History, take: Take) -> Self {
        let (epoch, synced) = match take {
            Take::Copied => (history.epoch.next(), Some(0)),
            Take::Found(epoch) => (epoch, None),
        };
        Self {
            blobs: Blobs::new(io.disk.clone(), directory.path()),
            events: EventLog::new(io.disk.clone(), directory.events(), epoch),
            disk: io.disk.clone(),
            directory,
            file,
            epoch,
            taken_at: history.end,
            synced_seq: history.claimed,
            history,
            buffer: Vec::new(),
            synced,
            poisoned: false,
            all_poisoned: Arc::clone(&io.poisoned),
        }
    }

    /// The same writer, after its directory got its final name.
    pub(crate) fn renamed(mut self, io: &Io, directory: ProcessDirectory) -> Self {
        self.blobs = Blobs::new(io.disk.clone(), directory.path());
        self.events = EventLog::new(io.disk.clone(), directory.events(), self.epoch);
        self.directory = directory;
        self
    }

    /// What the journal amounts to, this writer's records included.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The journal's directory.
    #[must_use]
    pub fn directory(&self) -> &ProcessDirectory {
        &self.directory
    }

    /// The payloads too large for a line.
    #[must_use]
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// The events beside the journal.
    pub fn events(&mut self) -> &mut EventLog {
        &mut self.events
    }

    /// Appends records in one write. With [`Durability::Synced`] they, and all before them, are on the disk when this
    /// returns; on an error none of them counts.
    pub fn append(&mut self, at: Timestamp, batch: Vec<Body>, durability: Durability) -> Result<(), WriteError> {
        if self.poisoned {
            return Err(WriteError::Poisoned { path: self.directory.steps() });
        }
        let end = self.history.end;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let encoded = batch.into_iter().try_for_each(|body| self.encode(&mut buffer, at, body));
        let outcome = encoded.and_then(|()| self.write(&buffer, end));
        self.buffer = buffer;
        if let Err(error) = outcome {
            self.reload(end);
            return Err(error);
        }
        match durability {
            Durability::Written => Ok(()),
            Durability::Synced => self.sync(),
        }
    }

    fn encode(&mut self, buffer: &mut Vec<u8>, at: Timestamp, mut body: Body) -> Result<(), WriteError> {
        let kind = body.kind();
        self.history.admits(&body).map_err(|why| WriteError::Misplaced { kind, why })?;
        let step = self.history.step_of(&body);
        let (seq, epoch) = (self.history.seq + 1, self.epoch);
        let start = buffer.len();
        let claimed = self.synced_seq;
        let head = Head { v: VERSION, seq, epoch, synced: Some(claimed), at, kind: kind.into(), step };
        for inline_max in [INLINE_MAX, SMALL_INLINE_MAX] {
            body.for_each_payload(&mut |payload| payload.spill(inline_max, &mut self.blobs))
                .map_err(|source| self.failed(source))?;
            buffer.truncate(start);
            line::encode(buffer, &head, &body).map_err(|error| self.failed(error.into()))?;
            if buffer.len() - start <= LINE_MAX {
                break;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked against LINE_MAX here")]
        let len = match buffer.len() - start {
            len if len <= LINE_MAX => len as u32,
            _ => return Err(WriteError::TooLong { kind }),
        };
        let place = Place { seq, offset: self.history.end, len };
        self.history.apply(&Record { seq, epoch, at, step, body }, place);
        self.history.cover(&buffer[start..], claimed);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], end: u64) -> Result<(), WriteError> {
        let Err(error) = self.disk.append(&self.file, bytes) else { return Ok(()) };
        if self.disk.truncate(&self.file, end).is_err() {
            self.poison();
        }
        Err(self.failed(error))
    }

    /// Syncs what was appended with [`Durability::Written`]. Does nothing if all of it is on the disk.
    ///
    /// If the sync fails, the cache holds what the disk may never get, and no later sync would say so. None of it was
    /// acknowledged: it is cut off, so that no writer of another daemon builds on it, and this writer is poisoned. Where
    /// nobody knows how far back the loss goes, the journal becomes a new file, of which nothing was given up.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        if self.poisoned {
            return Err(WriteError::Poisoned { path: self.directory.steps() });
        }
        if !self.has_unsynced() {
            return Ok(());
        }
        if let Err(error) = self.disk.sync(&self.file) {
            self.poison();
            let _ = match self.synced {
                Some(synced) => self.disk.truncate(&self.file, synced),
                None => self.copy_anew(self.taken_at),
            };
            return Err(self.failed(error));
        }
        self.synced = Some(self.history.end);
        self.synced_seq = self.history.seq;
        Ok(())
    }

    /// The end of the records that this writer knows to be on the disk: nothing after it may be shown or forked.
    ///
    /// It is 0 for a writer that resumed an epoch and has not synced yet: an earlier writer may have left records
    /// unsynced, and [`Self::sync`] settles that.
    #[must_use]
    pub fn synced_end(&self) -> u64 {
        self.synced.unwrap_or(0)
    }

    /// Whether there are records after [`Self::synced_end`].
    #[must_use]
    pub fn has_unsynced(&self) -> bool {
        self.synced != Some(self.history.end)
    }

    fn copy_anew(&self, len: u64) -> io::Result<()> {
        let path = self.directory.steps();
        let temporary = temporary_beside(&path);
        let copy = self.disk.create(&temporary)?;
        self.disk.append_copy(self.file.file(), len, &copy)?;
        self.disk.sync(&copy)?;
        self.disk.rename(&temporary, &path)?;
        self.disk.sync_dir(self.directory.path())
    }

    fn poison(&mut self) {
        self.poisoned = true;
        let mut all = self.all_poisoned.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(self.directory.path().to_owned());
    }

    /// Makes the history again what the file holds, after records that did not get there were taken in.
    fn reload(&mut self, end: u64) {
        match scan(self.file.file(), History::default()) {
            Ok((history, Health::Good)) if history.end == end => self.history = history,
            Ok(_) | Err(_) => self.poison(),
        }
    }

    /// Cuts a torn end off, and keeps it as a blob.
    pub(crate) fn cut(&mut self, offset: u64, bytes: u64) -> Result<Repair, WriteError> {
        let repaired = (|| {
            let mut tail = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(CUT_KEPT_MAX)];
            self.file.file().read_exact_at(&mut tail, offset)?;
            let blob = self.blobs.put_bytes(&tail)?;
            self.disk.truncate(&self.file, offset)?;
            Ok(Repair { cut_bytes: bytes, blob })
        })();
        repaired.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> WriteError {
        let path = self.directory.steps();
        if is_full(&source) && !self.poisoned { WriteError::DiskFull { path } } else { WriteError::Io { path, source } }
    }

    /// Writes `checkpoint.json`; the one before it stays beside it. A failure loses nothing but speed.
    pub fn checkpoint(&self) -> io::Result<()> {
        checkpoint::write(&self.disk, &self.directory, &self.history)
    }
}
