//! The directory of one process: its files and their names.

use std::path::{Path, PathBuf};

use relive_core::Uuid;

/// `<data>/steps/<uuid>`, or a directory that is about to become that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessDirectory {
    path: PathBuf,
}

#[expect(missing_docs, reason = "each is the file's name")]
impl ProcessDirectory {
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The UUID its name says; absent for a directory that has not got its name yet.
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

    /// The sessions of its programs, a directory each.
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

/// The UUID that a file is named after: in the one spelling Relive writes, so that a name is never two paths.
#[must_use]
pub(crate) fn uuid_of_name(name: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(name).ok()?;
    (uuid.to_string() == name).then_some(uuid)
}
