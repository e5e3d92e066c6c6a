//! The whole intent of one process. The table and the summaries keep the beginning, so that their size does not depend on
//! what people type.

use relive_api::Process;
use relive_journal::INTENT_MAX;
use relive_journal::payload::Text;

use crate::runtime::Runtime;

/// The beginning of a longer intent is at least this long: it ends with a whole character.
const CUT_LENGTH_MIN: usize = INTENT_MAX - 3;

impl Runtime {
    /// Adds the rest of a long intent, from the journal. One that is too large for a line of the journal stays marked as
    /// cut: every command about the process would carry megabytes. So does one that cannot be read.
    pub(super) async fn with_whole_intent(&self, process: Process) -> Process {
        // A summary of an earlier version does not say whether it was cut.
        if process.intent.len() < CUT_LENGTH_MIN {
            return process;
        }
        let uuid = process.uuid;
        let read = self.on_disk(move |data| Some(data.history(uuid).ok()?.0.identity?.spawned.intent));
        match read.await.ok().flatten() {
            Some(Text::Inline(intent)) => Process { intent, intent_cut: false, ..process },
            Some(Text::Blob(_)) => Process { intent_cut: true, ..process },
            None => process,
        }
    }
}
