//! What the loop needs to keep the states of the files it works on.

use futures_util::future::BoxFuture;
use relive_journal::record::Snapshot;

/// Takes snapshots of the working directory of one process.
pub trait Snapshots: Send + Sync + std::fmt::Debug {
    /// Takes a snapshot of the files after a step. Dropping the future does not stop one that was begun.
    fn take(&self, occasion: Occasion, after: u32) -> BoxFuture<'static, Seen>;

    /// Returns the record that says that the files could not be seen; none where they never were.
    fn unseen(&self) -> Option<Box<Snapshot>>;

    /// Says that a call which may change files begins, or has ended.
    fn mark(&self, change: Change);
}

/// Why a snapshot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The process begins or continues: what is different now is somebody else's work.
    Start,
    /// Calls that may have changed files have ended.
    Step,
}

/// A call that may change files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each name says it")]
pub enum Change {
    Begins,
    Ended,
}

/// The outcome of a snapshot.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The record, without `after`; absent if nothing changed since the last snapshot.
    pub record: Option<Box<Snapshot>>,
    /// Why there are no snapshots here; said once.
    pub notice: Option<String>,
    /// Why there is no snapshot of this step.
    pub missing: Option<String>,
}
