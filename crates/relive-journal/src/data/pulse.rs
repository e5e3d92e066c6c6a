//! `pulse`: the last moment at which a daemon was known to run bodies.
//!
//! It is written in place each second while a body runs, and never synced: it tells how long a process executed after
//! its last record, which matters only to a daemon of the same boot, and that one reads the cached content.

use std::io;
use std::path::Path;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use super::DataDirectory;
use crate::disk::DiskFile;
use crate::history::History;
use crate::line;
use crate::opening::Seen;
use crate::regular;

const PULSE_MAX: u64 = 4096;

/// A sign of life of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    pub boot_id: String,
    /// When the daemon started, in milliseconds since the boot. It does not concern processes that the daemon never
    /// had.
    #[serde(rename = "from")]
    pub from_ms: u64,
    /// When it ran bodies, in milliseconds since the boot.
    #[serde(rename = "up")]
    pub up_ms: u64,
}

/// The pulse of a data directory.
#[derive(Debug, Default)]
pub(super) struct PulseFile {
    /// The pulse of the previous daemon.
    last: Option<Beat>,
    /// Open from the first pulse on.
    file: std::sync::Mutex<Option<DiskFile>>,
}

impl PulseFile {
    /// Reads the pulse of the previous daemon. An unreadable one counts as absent.
    pub(super) fn read(root: &Path) -> Self {
        let bytes = regular::read(&root.join("pulse"), PULSE_MAX).unwrap_or_default();
        // A shorter pulse leaves the end of a longer one after it.
        let first = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        Self { last: line::decode_file(first), ..Self::default() }
    }

    /// Returns the execution time of a process, including the time after its last record, for a daemon of this boot.
    pub(super) fn ran_ms(&self, history: &History, boot_id: &str, seen: Option<&Seen>) -> u64 {
        let last_boot = history.incarnation().map(|last| last.boot_id.as_str());
        let until = match (seen, &self.last) {
            (Some(Seen { boot_id: boot, up_ms }), _) if Some(boot.as_str()) == last_boot => *up_ms,
            (None, Some(beat))
                if [Some(boot_id), last_boot] == [Some(beat.boot_id.as_str()); 2] && history.is_since(beat.from_ms) =>
            {
                beat.up_ms
            }
            (Some(_), _) | (None, Some(_) | None) => 0,
        };
        history.ran_until_ms(until)
    }
}

impl DataDirectory {
    /// Returns the execution time of a recovered process, including the time after its last record, for a daemon of
    /// this boot.
    #[must_use]
    pub fn ran_ms(&self, history: &History, boot_id: &str) -> u64 {
        self.pulse.ran_ms(history, boot_id, None)
    }

    /// Records that bodies are running. A failure costs only precision.
    pub fn beat(&self, beat: &Beat) -> io::Result<()> {
        let bytes = line::encode_file(beat)?;
        let mut file = self.pulse.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(self.io.disk.open_in_place(&self.root.join("pulse"))?),
        };
        self.io.disk.overwrite(file, &bytes)
    }
}
