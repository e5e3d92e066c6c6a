//! Opening a journal in two phases: it is locked and read, and whoever asked decides on what it says; only then is
//! anything written. The new epoch and the records that were decided on are one write and one sync, so that neither is
//! acknowledged without the other.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use relive_core::{Cause, Generation, Moment, Pid};

use crate::checkpoint;
use crate::directory::ProcessDirectory;
use crate::disk::{Disk, DiskFile, TEMPORARY};
use crate::history::History;
use crate::record::{Body, Opened, OpenedBy};
use crate::recovery::Recovery;
use crate::scan::Health;
use crate::writer::{Durability, Io, Take, WriteError, Writer};

/// The facts about an incarnation that its writer records.
#[derive(Debug, Clone)]
pub struct Opening {
    pub pid: Pid,
    /// The cause of this incarnation.
    pub by: OpenedBy,
    pub boot_id: String,
    pub now: Moment,
    /// The id of the request that asked for it.
    pub req: Option<String>,
    /// When the process was last seen to execute, by somebody who looked. Without it the last pulse counts.
    pub seen: Option<Seen>,
    /// Who resumed the process after its end.
    pub cause: Option<Cause>,
}

/// A moment at which a process was seen to execute, by the clock of a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub boot_id: String,
    pub up_ms: u64,
}

impl Opening {
    /// The record of an incarnation of a process that has executed for so long, and is `held` at its gate or not.
    pub(crate) fn body(&self, ran_ms: u64, held: bool) -> Body {
        Body::Opened(Opened {
            pid: self.pid,
            by: self.by,
            boot_id: self.boot_id.clone(),
            relive: env!("CARGO_PKG_VERSION").to_owned(),
            req: self.req.clone(),
            ran_ms,
            derives_events: true,
            cause: self.cause,
            held,
        })
    }
}

/// Why a journal was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFailure<E> {
    /// Whoever asked did not want it, having seen what it says. Nothing was written.
    #[error("{0}")]
    Refused(E),
    /// The journal cannot be opened or written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl From<OpenFailure<Infallible>> for WriteError {
    fn from(failure: OpenFailure<Infallible>) -> Self {
        match failure {
            OpenFailure::Refused(never) => match never {},
            OpenFailure::Write(error) => error,
        }
    }
}

/// In which epoch a journal is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Epoch {
    /// In that of its last record: the incarnation continues.
    Same,
    /// In the next one: an incarnation begins.
    New,
}

/// A journal that is locked and read, and not written to yet.
#[derive(Debug)]
pub(crate) struct Acquired {
    directory: ProcessDirectory,
    file: DiskFile,
    history: History,
    /// The offset and the length of a torn end.
    torn: Option<(u64, u64)>,
}

impl Acquired {
    /// Locks and reads the journal of `directory`. Where it is as long as when `known` was read from it, and nothing was
    /// wrong with it, it is not read again.
    pub(crate) fn new(io: &Io, directory: ProcessDirectory, known: Option<History>) -> Result<Self, WriteError> {
        io.check_poison(&directory)?;
        let path = directory.steps();
        let file = lock(&io.disk, &path)?;
        let io_error = |source| WriteError::Io { path: path.clone(), source };
        remove_unfinished(&io.disk, &directory).map_err(io_error)?;
        let length = file.file().metadata().map_err(io_error)?.len();
        let (history, health) = match known.filter(|known| known.end == length) {
            Some(known) => (known, Health::Good),
            None => checkpoint::load(&directory, file.file()).map_err(io_error)?,
        };
        let torn = match health {
            Health::Good => None,
            Health::Torn { offset, bytes } => Some((offset, bytes)),
            Health::Damaged(hole) => return Err(WriteError::Damaged { path, hole }),
            Health::ReadOnly(hole) => return Err(WriteError::ReadOnly { path, hole }),
        };
        Ok(Self { directory, file, history, torn })
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The epoch in which this generation writes; without one, a new epoch.
    pub(crate) fn epoch_of(&self, generation: Option<Generation>) -> Result<Epoch, WriteError> {
        let last = self.history.epoch;
        match generation {
            None => Ok(Epoch::New),
            Some(generation) if generation == last.next() => Ok(Epoch::New),
            Some(generation) if generation == last && self.torn.is_none() && self.history.ended().is_none() => {
                Ok(Epoch::Same)
            }
            Some(_) => Err(WriteError::Misplaced { kind: "opened", why: "the journal is of another generation" }),
        }
    }

    /// Appends records to the journal of an incarnation that has ended. They are on the disk on return.
    pub(crate) fn note(self, io: &Io, now: Moment, records: Vec<Body>) -> Result<Writer, WriteError> {
        let Self { directory, file, history, torn } = self;
        if history.ended().is_none() || torn.is_some() {
            let kind = records.first().map_or("ended", Body::kind);
            return Err(WriteError::Misplaced { kind, why: "this incarnation has not ended" });
        }
        let epoch = history.epoch;
        let mut writer = Writer::new(io, directory, file, history, Take::Found(epoch));
        writer.append(now, records, Durability::Synced)?;
        Ok(writer)
    }

    /// Starts writing, with these records first. They, and with a new epoch `opened`, are on the disk on return, unless less
    /// is asked for and nothing depends on more. A repair does. So does an open call with an effect: to settle it may be to
    /// carry it out, and nobody knows whether its intent was synced before its writer died.
    pub(crate) fn open(
        self,
        io: &Io,
        opening: &Opening,
        epoch: Epoch,
        ran_ms: u64,
        records: Vec<Body>,
        durability: Durability,
    ) -> Result<Writer, WriteError> {
        let Self { directory, file, history, torn } = self;
        let needs_sync = torn.is_some() || history.open_calls().any(|open| open.recovery != Recovery::Rerun);
        let durability = if needs_sync { Durability::Synced } else { durability };
        let (last, held) = (history.epoch, history.begins_at_gate());
        let take = match epoch {
            Epoch::Same => Take::Found(last),
            Epoch::New => Take::Found(last.next()),
        };
        let mut writer = Writer::new(io, directory, file, history, take);
        let mut batch = Vec::new();
        if epoch == Epoch::New {
            batch.push(opening.body(ran_ms, held));
            if let Some((offset, bytes)) = torn
                && io.disk.repairs()
            {
                batch.push(Body::Repair(writer.cut(offset, bytes)?));
            }
        }
        batch.extend(records);
        if !batch.is_empty() {
            writer.append(opening.now, batch, durability)?;
        }
        Ok(writer)
    }
}

/// Opens a journal and takes its lock; it is still the file of that name when this returns.
pub(crate) fn lock(disk: &Disk, path: &Path) -> Result<DiskFile, WriteError> {
    let path_buf = || path.to_owned();
    let io_error = |source: io::Error| {
        if source.kind() == io::ErrorKind::NotFound {
            WriteError::Absent { path: path_buf() }
        } else {
            WriteError::Io { path: path_buf(), source }
        }
    };
    let file = disk.open_append(path).map_err(io_error)?;
    if !disk.try_lock(&file).map_err(io_error)? {
        return Err(WriteError::Busy { path: path_buf() });
    }
    // Collected between open and lock: the directory has moved away.
    let (here, there) = (file.file().metadata().map_err(io_error)?, std::fs::metadata(path));
    if here.ino() != there.map_err(io_error)?.ino() {
        return Err(WriteError::Absent { path: path_buf() });
    }
    Ok(file)
}

/// Removes what earlier writers left unfinished.
fn remove_unfinished(disk: &Disk, directory: &ProcessDirectory) -> io::Result<()> {
    for place in [directory.path().to_owned(), directory.path().join("blobs")] {
        let entries = match std::fs::read_dir(place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if path.as_os_str().as_encoded_bytes().ends_with(TEMPORARY.as_bytes()) {
                disk.unlink(&path)?;
            }
        }
    }
    Ok(())
}
