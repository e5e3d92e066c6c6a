//! The directory of one process: its files and their names.

use std::path::{Path, PathBuf};

use relive_core::Uuid;

/// `<data>/steps/<uuid>`, or a directory that will be renamed to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessDirectory {
    path: PathBuf,
}

impl ProcessDirectory {
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the UUID in its name; `None` for a directory that does not have its name yet.
    #[must_use]
    pub fn uuid(&self) -> Option<Uuid> {
        uuid_of_name(self.path.file_name()?.to_str()?)
    }

    #[must_use]
    pub fn steps(&self) -> PathBuf {
        self.path.join("steps.jsonl")
    }

    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    #[must_use]
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint.json")
    }

    #[must_use]
    pub fn previous_checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint.prev.json")
    }

    #[must_use]
    pub fn process_meta(&self) -> PathBuf {
        self.path.join("process-meta.json")
    }

    /// Returns the directory of the sessions of its programs.
    #[must_use]
    pub fn sessions(&self) -> PathBuf {
        self.path.join("sessions")
    }

    #[must_use]
    pub fn ctx_profile(&self) -> PathBuf {
        self.path.join("ctx-profile.json")
    }

    #[must_use]
    pub fn proc_info(&self) -> PathBuf {
        self.path.join("proc-info.json")
    }
}

/// Parses the UUID in a file name. Only Relive's own spelling is accepted, so that one UUID never has two paths.
#[must_use]
pub(crate) fn uuid_of_name(name: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(name).ok()?;
    (uuid.to_string() == name).then_some(uuid)
}
