//! What an agent's own files say: its task, and the prompt and tools of its start.

use std::io;

use relive_journal::payload::{Blobs, Text};
use relive_journal::{ProcessDirectory, ProcessMeta};

/// What is in the files of an agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentFiles {
    pub(super) meta: ProcessMeta,
    pub(super) intent: String,
}

impl AgentFiles {
    /// Reads the files. Blocks.
    pub(super) fn read(directory: &ProcessDirectory, blobs: &Blobs, intent: &Text) -> io::Result<Self> {
        let intent = blobs.text(intent).map_err(io::Error::other)?;
        let named = |error| io::Error::other(format!("process-meta.json cannot be read: {error}"));
        let meta = ProcessMeta::read(directory).map_err(named)?;
        Ok(Self { meta, intent })
    }
}
