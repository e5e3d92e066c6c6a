//! What is asked for, as it is typed and as it is recorded.

use std::path::PathBuf;

use relive_core::ErrorCode;
use relive_journal::record::{Body, FilesId, FilesVerb, Rewound as Record};
use relive_workspace::{Force, Grade, Snapshot};

use crate::area::Area;
use crate::error::Error;
use crate::workspaces::from_record;

/// A rewind or a restore, understood.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) verb: FilesVerb,
    pub(super) to: Goal,
    pub(super) paths: Vec<String>,
    /// The directory of the one who asks.
    pub(super) cwd: PathBuf,
    pub(super) force: Force,
    pub(super) dry_run: bool,
    pub(super) tells_model: bool,
    /// What an isolated caller reaches; everything if absent.
    pub(super) caller: Option<Area>,
    pub(super) request: Option<String>,
}

/// Which state the files go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    AfterStep(u32),
    BeforeLastVerb,
}

/// A verb that is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) changed: u64,
    pub(super) untold: bool,
}

impl Goal {
    /// The state as it is planned for. What a partial state lacks is never touched, so it can be undone like an exact one.
    pub(super) fn as_wanted(self, files: FilesId) -> Snapshot {
        let target = from_record(files);
        match (self, target.grade) {
            (Self::BeforeLastVerb, Grade::Partial) => Snapshot { grade: Grade::Exact, ..target },
            (Self::BeforeLastVerb | Self::AfterStep(_), _) => target,
        }
    }

    /// As it is typed.
    pub(super) fn option(self) -> String {
        match self {
            Self::AfterStep(step) => format!("--to-step {step}"),
            Self::BeforeLastVerb => "--undo".to_owned(),
        }
    }
}

impl Order {
    /// Adds the command that does it all the same.
    pub(super) fn with_way_out(&self, id: &str, error: Error) -> Error {
        // Only a plan was asked for: the command itself rolls back what was interrupted.
        if matches!(error, Error::Interrupted(_)) {
            return error.with_hint(self.command(id, ("-y", "")));
        }
        if error.code() != ErrorCode::Conflict || self.force == Force::Yes || error.hint().is_some() {
            return error;
        }
        error.with_hint(self.by_force(id))
    }

    /// The command that overrides what can be overridden.
    pub(super) fn by_force(&self, id: &str) -> String {
        self.command(id, ("--force", " --force"))
    }

    /// The command, typed again.
    pub(super) fn again(&self, id: &str) -> String {
        let force = if self.force == Force::Yes { ("--force", " --force") } else { ("-y", "") };
        self.command(id, force)
    }

    /// The command, with an option for a rewind or a restore.
    fn command(&self, id: &str, (of_rewind, of_restore): (&str, &str)) -> String {
        match (self.verb, self.to) {
            (FilesVerb::Restore, Goal::AfterStep(step)) => {
                let paths: Vec<_> = self.paths.iter().map(|path| relive_types::program::quote(path)).collect();
                format!("relive restore {id} --step {step}{of_restore} {}", paths.join(" "))
            }
            (FilesVerb::Restore | FilesVerb::Rewind | FilesVerb::Merge, to) => {
                format!("relive rewind {id} {} {of_rewind}", to.option())
            }
        }
    }

    /// What is recorded: before the first file is changed, and when it is done.
    pub(super) fn record(&self, files: FilesId, (step, last_step): (u32, u32), done: Option<Done>) -> Body {
        Body::Rewound(Box::new(Record {
            verb: self.verb,
            done: done.is_some(),
            to_step: Some(step),
            after: Some(last_step),
            files,
            into: None,
            merged: None,
            changed: done.map_or(0, |done| done.changed),
            left: 0,
            left_paths: Vec::new(),
            untold: done.is_some_and(|done| done.untold),
            undo: self.to == Goal::BeforeLastVerb,
            req: self.request.clone().filter(|_| done.is_some()),
        }))
    }
}

pub(super) fn forced(force: bool) -> Force {
    if force { Force::Yes } else { Force::No }
}
