//! `process-meta.json`: the prompt and tools of an agent at its start. Written once, never changed or reconstructed.

use std::io;

use relive_types::{Isolated, Isolation, Network};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::directory::ProcessDirectory;
use crate::disk::Disk;
use crate::line::{self, VERSION};
use crate::regular;

/// The prompt and tools of an agent at its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessMeta {
    v: u32,
    /// `provider/model`.
    pub model: String,
    pub system_prompt: String,
    /// The definitions of the tools, exactly as the model gets them.
    pub tools: Box<RawValue>,
    /// The files with instructions that were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<Instructions>,
    /// What its commands may reach, for `info`; the journal's `spawned` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Which part of the network they reach, if that was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// A file with instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    pub path: String,
    pub bytes: u64,
    /// Whether only its beginning was used.
    #[serde(default)]
    pub cut: bool,
}

impl ProcessMeta {
    /// Creates the metadata of a new process.
    #[must_use]
    pub fn new(model: String, system_prompt: String, tools: Box<RawValue>) -> Self {
        Self { v: VERSION, model, system_prompt, tools, instructions: Vec::new(), isolation: None, network: None }
    }

    /// Notes what the commands of the process may reach.
    pub fn note_isolation(&mut self, isolated: Option<&Isolated>) {
        self.isolation = isolated.map(|isolated| isolated.isolation);
        self.network = isolated.and_then(|isolated| isolated.network.clone());
    }

    /// Writes it; the caller syncs the directory.
    pub(crate) fn write(&self, disk: &Disk, directory: &ProcessDirectory) -> io::Result<()> {
        disk.put(&directory.process_meta(), &line::encode_file(self)?)
    }

    /// Reads the file and checks it.
    pub fn read(directory: &ProcessDirectory) -> io::Result<Self> {
        let path = directory.process_meta();
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{}: damaged", path.display()));
        line::decode_file(&regular::read(&path, regular::SMALL_MAX)?).ok_or_else(damaged)
    }
}
