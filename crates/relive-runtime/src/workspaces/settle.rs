//! What a daemon that was killed left half done: plans of restores and merges.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use relive_workspace::{Applied, Control, Direction};

use super::{Workspaces, lock};
use crate::error::Result;

/// A restore or merge that was interrupted, and what became of it.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) directory: PathBuf,
    pub(crate) applied: Result<Applied>,
}

impl Settled {
    /// One line for a person.
    pub(crate) fn text(&self) -> String {
        let directory = self.directory.display();
        match &self.applied {
            Ok(applied) if applied.is_verified() => {
                format!("a {} of {directory} was interrupted: it was rolled back, and verified", applied.kind.name())
            }
            Ok(applied) => format!(
                "a {} of {directory} was interrupted: it was rolled back, but for files that changed since: {}",
                applied.kind.name(),
                super::errors::named(&applied.left)
            ),
            Err(error) => format!("an interrupted change of {directory} cannot be rolled back: {error}"),
        }
    }
}

impl Workspaces {
    /// Rolls back what was interrupted: nobody was told that it is done.
    pub(crate) fn settle_interrupted(&self) -> Vec<Settled> {
        let Ok(entries) = std::fs::read_dir(self.0.options.store.join("workspaces")) else { return Vec::new() };
        let states = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let interrupted = states.filter(|state| state.join("plan").exists());
        let roots = interrupted.filter_map(|state| {
            let root = std::fs::read(state.join("root")).ok()?;
            Some(PathBuf::from(OsString::from_vec(root)))
        });
        roots.map(|directory| Settled { applied: self.roll_back(&directory), directory }).collect()
    }

    fn roll_back(&self, directory: &std::path::Path) -> Result<Applied> {
        let shared = self.directory(directory)?;
        Ok(lock(&shared).settle_interrupted(Direction::RollBack, &Control::default())?)
    }
}
