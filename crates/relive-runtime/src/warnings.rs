//! What a person should know about the daemon.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many of the last warnings are kept for `daemon status`.
const KEPT_MAX: usize = 100;

/// The warnings of a runtime, cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    kept: Arc<Mutex<VecDeque<String>>>,
}

impl Warnings {
    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a warning to the log, and keeps it.
    pub(crate) fn warn(&self, text: String) {
        tracing::warn!("{text}");
        let mut kept = self.lock();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(text);
    }

    /// Does the same for a warning that would come again and again.
    pub(crate) fn warn_once(&self, text: String) {
        let is_known = self.lock().contains(&text);
        if !is_known {
            self.warn(text);
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }
}
