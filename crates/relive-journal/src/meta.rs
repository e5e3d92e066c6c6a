//! `process-meta.json`: what an agent was told and given at its start. Written once, never changed, never made up.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::directory::ProcessDirectory;
use crate::disk::Disk;
use crate::line::{self, VERSION};
use crate::regular;

/// What an agent was told and given at its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessMeta {
    /// Format version.
    v: u32,
    /// Provider and model.
    pub model: String,
    /// The system prompt.
    pub system_prompt: String,
    /// The tools' definitions, exactly as the model gets them.
    pub tools: Box<RawValue>,
    /// The files its instructions were read from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<Instructions>,
}

/// A file that was read into the instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// Where it was.
    pub path: String,
    /// How long it was.
    pub bytes: u64,
    /// Whether only its beginning was taken.
    #[serde(default)]
    pub cut: bool,
}

impl ProcessMeta {
    /// For a new process.
    #[must_use]
    pub fn new(model: String, system_prompt: String, tools: Box<RawValue>) -> Self {
        Self { v: VERSION, model, system_prompt, tools, instructions: Vec::new() }
    }

    /// Writes it; the caller syncs the directory.
    pub(crate) fn write(&self, disk: &Disk, directory: &ProcessDirectory) -> io::Result<()> {
        disk.put(&directory.process_meta(), &line::encode_file(self)?)
    }

    /// Reads it back, checked.
    pub fn read(directory: &ProcessDirectory) -> io::Result<Self> {
        let path = directory.process_meta();
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{}: damaged", path.display()));
        line::decode_file(&regular::read(&path, regular::SMALL_MAX)?).ok_or_else(damaged)
    }
}
