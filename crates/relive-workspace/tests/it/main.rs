//! Workspaces on real files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "tests make and damage files as a person would")]

mod copies;
mod elsewhere;
mod git;
mod hostile;
#[cfg(feature = "faults")]
mod links;
mod merges;
mod partial;
#[cfg(feature = "faults")]
mod races;
mod random;
mod read_only;
mod restores;
mod rules;
mod skipped;
mod snapshots;
mod stores;
mod support;
#[cfg(feature = "faults")]
mod sweep;
