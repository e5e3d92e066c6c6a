//! The files an agent works on: snapshots, diffs, restores, copies and merges.
//!
//! A [`Store`] holds Git objects (SHA-256) in packs. A [`Workspace`] is a directory of which snapshots are taken; a
//! journal records a [`Snapshot`]. This crate knows no processes and has no async runtime: its functions block, take a
//! [`Control`] for progress and cancellation, and belong on a thread for blocking work.
//!
//! It executes nothing that it finds in a directory, never opens a file in a way that can block, and never changes the
//! user's Git repository.

mod apply;
mod blame;
mod cache;
mod control;
mod copy;
mod diff;
mod disk;
mod error;
mod extras;
#[cfg(feature = "faults")]
mod faults;
mod merge;
mod object;
mod path;
mod plan;
mod remove;
mod repositories;
mod restore;
mod rules;
mod scan;
mod settings;
mod snapshot;
mod stat;
mod store;
mod usage;
mod workspace;

pub use apply::{Applied, Direction};
pub use blame::{BlameVersion, BlamedLine};
pub use control::{Clock, Control, Progress, SystemClock};
pub use copy::{Copied, REMOVED_END};
pub use diff::{Change, FileState, LineCounts, TextDiff, changed_lines, is_binary, shown};
pub use disk::Disk;
pub use error::{Error, Limit, RefusedRoot, Result};
#[cfg(feature = "faults")]
pub use faults::Faults;
pub use merge::{Conflict, ConflictKind, MergeRequest, Merged, PreparedMerge};
pub use object::{EntryKind, InvalidId, ObjectId};
pub use path::{FilePath, GIT_INDEX, InvalidPath};
pub use plan::{Plan, PlanKind};
pub use restore::{Force, OlderFiles, Prepared, RestoreRequest, Restored};
pub use rules::OuterRules;
pub use settings::Settings;
pub use snapshot::{Grade, LISTED_MAX, SkipReason, Skipped, Snapshot, Taken};
pub use store::{Collected, Pin, Removal, Store};
pub use usage::disk_usage;
pub use workspace::{CopyState, Workspace};
