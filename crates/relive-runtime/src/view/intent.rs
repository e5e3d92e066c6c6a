//! The whole intent of one process. The table and the summaries keep the beginning, so that their size does not depend on
//! what people type.

use relive_api::Process;
use relive_journal::INTENT_MAX;
use relive_journal::payload::Blobs;

use crate::runtime::Runtime;

/// The beginning of a longer intent is at least this long: it ends with a whole character.
const CUT_LENGTH_MIN: usize = INTENT_MAX - 3;

impl Runtime {
    /// Adds the rest of a long intent, from the journal. It stays marked as cut if that cannot be read.
    pub(super) async fn with_whole_intent(&self, process: Process) -> Process {
        // A summary of an earlier version does not say whether it was cut.
        if process.intent.len() < CUT_LENGTH_MIN {
            return process;
        }
        let uuid = process.uuid;
        let read = self.on_disk(move |data| {
            let intent = data.history(uuid).ok()?.0.identity?.spawned.intent;
            Blobs::new(data.io().disk.clone(), data.directory(uuid).path()).text(&intent).ok()
        });
        match read.await.ok().flatten() {
            Some(intent) => Process { intent, intent_cut: false, ..process },
            None => process,
        }
    }
}
