//! What the kernel goes by.

use std::time::Duration;

use relive_agent::Cadence;
use relive_journal::data::{GcRules, SpaceRules};
use relive_journal::recovery::OnInDoubt;

/// What the kernel goes by.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) table: relive_core::Settings,
    pub(crate) gc: GcRules,
    /// How often the collector looks; absent where it never does.
    pub(crate) gc_every: Option<Duration>,
    pub(crate) cadence: Cadence,
    pub(crate) recovery: RecoveryMode,
    pub(crate) stalled_after: Duration,
    pub(crate) stalled_policy: StalledPolicy,
    pub(crate) processes_max: usize,
    pub(crate) space: SpaceRules,
    pub(crate) default_model: Option<String>,
    pub(crate) on_in_doubt: OnInDoubt,
}

/// What becomes of a process that was running when the daemon was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecoveryMode {
    Auto,
    Manual,
}

/// What becomes of a process that makes no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StalledPolicy {
    Warn,
    Pause,
    Kill,
}
