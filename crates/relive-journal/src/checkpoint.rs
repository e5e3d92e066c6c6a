//! Checkpoints: the [`History`] of a journal up to some record, so that a reader need not parse the records before it.
//!
//! A checkpoint is optional and never overrides the journal: it is used only if the journal's first bytes have the
//! checksum it names, and the rest is read as always. Every result is the same with and without one.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::directory::ProcessDirectory;
use crate::disk::Disk;
use crate::history::History;
use crate::line;
use crate::regular;
use crate::scan::{Health, Until, scan_until};

/// The version of checkpoints, separate from that of records.
///
/// It increases with every record kind that affects what may run: a reader that does not know the kind would trust a
/// checkpoint made after such a record, and never see the record that makes the journal read-only. Only the same
/// version is used; any other costs a scan.
const CHECKPOINT_VERSION: u32 = 6;

#[derive(Debug, Serialize, Deserialize)]
struct Checkpoint<H> {
    v: u32,
    history: H,
}

/// Writes `checkpoint.json`, and keeps the previous one.
pub(crate) fn write(disk: &Disk, directory: &ProcessDirectory, history: &History) -> io::Result<()> {
    let bytes = line::encode_file(&Checkpoint { v: CHECKPOINT_VERSION, history })?;
    let path = directory.checkpoint();
    if path.exists() {
        disk.rename(&path, &directory.previous_checkpoint())?;
    }
    // Not synced: a checkpoint torn by a power cut does not match its checksum, and costs a scan.
    disk.put_unsynced(&path, &bytes)
}

/// Reads a journal, from its newest valid checkpoint or from its beginning.
pub(crate) fn load(directory: &ProcessDirectory, journal: &File) -> io::Result<(History, Health)> {
    load_until(directory, journal, Until::End)
}

/// Reads a journal up to `until`, from its newest earlier checkpoint or from its beginning.
pub(crate) fn load_until(directory: &ProcessDirectory, journal: &File, until: Until) -> io::Result<(History, Health)> {
    scan_until(journal, newest_before(directory, journal, until), until)
}

/// Returns the newest checkpoint before `until`, if there is one.
pub(crate) fn newest_before(directory: &ProcessDirectory, journal: &File, until: Until) -> History {
    let fitting = [directory.checkpoint(), directory.previous_checkpoint()]
        .iter()
        .filter_map(|path| read(path))
        .find(|history| is_before(history, until) && covers(journal, history).unwrap_or(false));
    fitting.unwrap_or_default()
}

/// Returns whether this checkpoint is before `until`.
pub(crate) fn is_before(history: &History, until: Until) -> bool {
    match until {
        Until::End => true,
        // A checkpoint that contains the step may also contain more than the step.
        Until::EndOfStep(step) => history.completed_step < step,
        Until::Offset(offset) => history.end <= offset,
    }
}

fn read(path: &Path) -> Option<History> {
    let bytes = regular::read(path, regular::SMALL_MAX).ok()?;
    let checkpoint: Checkpoint<History> = line::decode_file(&bytes)?;
    (checkpoint.v == CHECKPOINT_VERSION).then_some(checkpoint.history)
}

/// Returns whether the journal begins with exactly the bytes that the checkpoint was made from.
fn covers(mut journal: &File, history: &History) -> io::Result<bool> {
    use std::io::Seek as _;
    journal.rewind()?;
    let mut buffer = vec![0; usize::try_from(history.end).unwrap_or(usize::MAX).min(256 * 1024)];
    let (mut left, mut crc) = (history.end, 0);
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let taken = journal.read(&mut buffer[..want])?;
        if taken == 0 {
            return Ok(false);
        }
        crc = crc32c::crc32c_append(crc, &buffer[..taken]);
        left -= taken as u64;
    }
    Ok(crc == history.crc)
}
