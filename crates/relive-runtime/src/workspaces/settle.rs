//! What a daemon that was killed left half done: plans of restores and merges.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use relive_workspace::{Applied, Control, Direction, Error as FilesError, Workspace};

use super::{OnInterrupted, Workspaces, check_no_link, lock};
use crate::error::{Error, Result};

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
            Err(error) => half_done(&self.directory, error),
        }
    }
}

/// A change that was interrupted and could not be rolled back.
#[derive(Debug, Clone)]
pub(super) struct HalfDone {
    text: String,
    place: Place,
}

/// Where the directory is that was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At its path.
    There,
    /// Not at its path: nothing can be opened there, or it is another directory.
    Elsewhere,
}

impl Place {
    fn of(error: &FilesError) -> Self {
        if matches!(error, FilesError::OtherDirectory { .. }) { Self::Elsewhere } else { Self::There }
    }
}

/// What is said of a directory whose files are half of one state and half of another.
fn half_done(directory: &Path, error: &Error) -> String {
    format!("{}: {error}; the next rewind, restore or merge of it tries again", not_rolled_back(directory))
}

fn not_rolled_back(directory: &Path) -> String {
    format!("an interrupted change of {} cannot be rolled back", directory.display())
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

    /// Rolls back a change of the same directory that was interrupted, and says so. A daemon may have been unable to do
    /// it when it started.
    pub(super) fn settle_first(&self, workspace: &mut Workspace, wanted: OnInterrupted) -> Result<Option<String>> {
        if wanted == OnInterrupted::Refuse {
            return Ok(None);
        }
        if workspace.interrupted()?.is_none() {
            // Its user may have given up the plan.
            lock(&self.0.half_done).remove(workspace.root());
            return Ok(None);
        }
        let directory = workspace.root().to_owned();
        self.touch(&directory);
        let applied = workspace.settle_interrupted(Direction::RollBack, &Control::default()).map_err(|error| {
            let place = Place::of(&error);
            let error = Error::from(super::errors::in_directory(&directory, error));
            self.note_half_done(&directory, &error, place);
            let said = Error::new(error.code(), format!("{}: {error}", not_rolled_back(&directory)));
            match error.hint() {
                Some(hint) => said.with_hint(hint),
                // No flag of a command overrides this.
                None => said.with_hint("try again in a moment"),
            }
        })?;
        lock(&self.0.half_done).remove(&directory);
        Ok(Some(Settled { directory, applied: Ok(applied) }.text()))
    }

    /// The same for a directory that is not open yet.
    pub(crate) fn settle_in(&self, directory: &Path, wanted: OnInterrupted) -> Result<Option<String>> {
        check_no_link(directory)?;
        let shared = self.directory(directory)?;
        self.settle_first(&mut lock(&shared), wanted)
    }

    fn roll_back(&self, directory: &Path) -> Result<Applied> {
        let not_opened = |error: &Error| self.note_half_done(directory, error, Place::Elsewhere);
        let shared = self.directory(directory).inspect_err(not_opened)?;
        let rolled_back = lock(&shared).settle_interrupted(Direction::RollBack, &Control::default());
        rolled_back.map_err(|error| {
            let place = Place::of(&error);
            let error = Error::from(error);
            self.note_half_done(directory, &error, place);
            error
        })
    }

    /// Notes that the files of a directory are half changed.
    pub(super) fn note_half_done(&self, directory: &Path, error: &Error, place: Place) {
        let text = half_done(directory, error);
        lock(&self.0.half_done).insert(directory.to_owned(), HalfDone { text, place });
    }

    /// Says in which directories changes are half done.
    pub(crate) fn half_done(&self) -> Vec<String> {
        lock(&self.0.half_done).values().map(|found| found.text.clone()).collect()
    }

    /// Returns the directories with a change that is half done and concerns a directory: itself, those above and those
    /// below it.
    pub(crate) fn half_done_around(&self, directory: &Path) -> Vec<PathBuf> {
        let half_done = lock(&self.0.half_done);
        let all = half_done.iter().filter(|(_, found)| found.place == Place::There).map(|(path, _)| path);
        all.filter(|found| found.starts_with(directory) || directory.starts_with(found)).cloned().collect()
    }
}
