//! The files that a process works on, as recorded in its journal.

use serde::{Deserialize, Serialize};

use crate::record::{FilesId, FilesVerb, NOT_KEPT_MAX, Rewound, Snapshot};

/// The files of a process, as far as its journal knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Files {
    /// The first snapshot: where its work began.
    pub first: Option<FilesId>,
    /// The state of the files when they were last looked at or put back.
    pub last: Option<FilesId>,
    /// A verb that began to change them and is not known to be done: the files may be this instead of `last`.
    pub unfinished: Option<FilesId>,
    /// The state that was merged last: the next merge starts from it.
    pub merged: Option<FilesId>,
    /// Whether a merge that was forced left a side of some files only in the own workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partly_merged: bool,
    /// Some of these files, at most [`NOT_KEPT_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_paths: Vec<String>,
    /// Whether a record says that nobody looked after some step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_unknown_step: bool,
    /// Whether a call with an effect has ended since `last`, so that changes since may be its.
    pub has_unseen_effect: bool,
    /// The step that the files were put back to while nobody could tell the model.
    pub untold: Option<u32>,
    /// The verbs that changed the files in that time, in order; the last [`UNTOLD_MAX`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold_verbs: Vec<Untold>,
}

/// The number of such verbs that are remembered.
const UNTOLD_MAX: usize = 8;

/// A change of files that the model has still to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Untold {
    /// All files were put back to a step.
    Rewind(u32),
    /// Some files were.
    Restore(u32),
    /// The one before was undone.
    Undo,
}

impl Untold {
    fn of(rewound: &Rewound) -> Option<Self> {
        let step = rewound.to_step.filter(|_| rewound.untold)?;
        match rewound.verb {
            _ if rewound.undo => Some(Self::Undo),
            FilesVerb::Rewind => Some(Self::Rewind(step)),
            FilesVerb::Restore => Some(Self::Restore(step)),
            FilesVerb::Merge => None,
        }
    }
}

impl Files {
    /// Notes that the model gets a message, and with it what was done to its files.
    pub(super) fn tell(&mut self) {
        self.untold = None;
        self.untold_verbs.clear();
    }

    pub(super) fn take(&mut self, snapshot: &Snapshot) {
        self.first.get_or_insert(snapshot.files);
        self.last = Some(snapshot.files);
        self.unfinished = None;
        self.has_unseen_effect = snapshot.is_unseen();
        self.has_unknown_step |= snapshot.is_unseen();
    }

    pub(super) fn rewind(&mut self, rewound: &Rewound) {
        match (rewound.verb, rewound.done) {
            (FilesVerb::Merge, true) => {
                self.merged = Some(rewound.files);
                self.is_partly_merged |= rewound.left > 0;
                let new: Vec<_> = rewound.left_paths.iter().filter(|path| !self.left_paths.contains(path)).collect();
                self.left_paths
                    .extend(new.into_iter().take(NOT_KEPT_MAX.saturating_sub(self.left_paths.len())).cloned());
            }
            // The files that a merge changes are another process's, or nobody's.
            (FilesVerb::Merge, false) => {}
            (FilesVerb::Rewind | FilesVerb::Restore, false) => self.unfinished = Some(rewound.files),
            (FilesVerb::Rewind | FilesVerb::Restore, true) => {
                self.last = Some(rewound.files);
                self.unfinished = None;
                self.has_unseen_effect = false;
                self.untold = rewound.to_step.filter(|_| rewound.untold).or(self.untold);
                self.untold_verbs.extend(Untold::of(rewound));
                let too_many = self.untold_verbs.len().saturating_sub(UNTOLD_MAX);
                self.untold_verbs.drain(..too_many);
            }
        }
    }
}
