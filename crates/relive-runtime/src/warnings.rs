//! Warnings that a person should know about.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many of the last warnings are kept for `daemon status`.
const KEPT_MAX: usize = 100;

/// The warnings of a runtime, cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    kept: Arc<Mutex<VecDeque<String>>>,
    /// What is wrong with the configuration as it is now.
    configuration: Arc<Mutex<Vec<String>>>,
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

    /// Reports a warning that would otherwise be repeated.
    pub(crate) fn warn_once(&self, text: String) {
        let is_known = self.lock().contains(&text);
        if !is_known {
            self.warn(text);
        }
    }

    /// Reports a warning that takes the place of an earlier one with the same beginning.
    pub(crate) fn warn_instead(&self, beginning: &str, text: String) {
        self.lock().retain(|kept| !kept.starts_with(beginning));
        self.warn(text);
    }

    /// Replaces the warnings about the configuration: those about an earlier state of the file no longer apply.
    pub(crate) fn set_configuration(&self, warnings: Vec<String>) {
        let mut current = self.configuration.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings.iter().filter(|warning| !current.contains(warning)) {
            tracing::warn!("{warning}");
        }
        *current = warnings;
    }

    pub(crate) fn all(&self) -> Vec<String> {
        let configuration = self.configuration.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.lock().iter().cloned().chain(configuration).collect()
    }
}
