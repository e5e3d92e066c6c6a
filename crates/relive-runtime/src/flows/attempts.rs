//! Processes of a tree that cannot be started yet, because there is no room for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use relive_core::Uuid;

/// The attempts to start processes, of one tree.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<HashMap<Uuid, Arc<Attempt>>>);

/// The start of one process, which is tried again until there is room.
#[derive(Debug, Default)]
pub(crate) struct Attempt(Mutex<AttemptState>);

#[derive(Debug, Default)]
enum AttemptState {
    /// It is being tried, or has succeeded.
    #[default]
    UnderWay,
    /// It was refused for this reason, and is tried again.
    Refused(String),
    /// It is not tried again.
    Stopped,
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Attempt>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, uuid: Uuid) -> Arc<Attempt> {
        let attempt = Arc::default();
        self.lock().insert(uuid, Arc::clone(&attempt));
        attempt
    }

    pub(crate) fn forget(&self, uuid: Uuid) {
        self.lock().remove(&uuid);
    }

    /// Gives up the start of a process that waits for room; `false` if it does not wait.
    pub(crate) fn stop(&self, uuid: Uuid) -> bool {
        let attempt = self.lock().get(&uuid).cloned();
        attempt.is_some_and(|attempt| attempt.stop())
    }

    /// Returns why a process could not be started yet.
    pub(crate) fn refusal(&self, uuid: Uuid) -> Option<String> {
        match &*self.lock().get(&uuid)?.lock() {
            AttemptState::Refused(why) => Some(why.clone()),
            AttemptState::UnderWay | AttemptState::Stopped => None,
        }
    }
}

impl Attempt {
    fn lock(&self) -> MutexGuard<'_, AttemptState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries once more; `false` if it was stopped.
    pub(crate) fn again(&self) -> bool {
        let mut state = self.lock();
        match *state {
            AttemptState::Stopped => false,
            AttemptState::UnderWay | AttemptState::Refused(_) => {
                *state = AttemptState::UnderWay;
                true
            }
        }
    }

    pub(crate) fn refused(&self, why: String) {
        *self.lock() = AttemptState::Refused(why);
    }

    fn stop(&self) -> bool {
        let mut state = self.lock();
        match *state {
            AttemptState::UnderWay => false,
            AttemptState::Refused(_) | AttemptState::Stopped => {
                *state = AttemptState::Stopped;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_start_that_waits_is_stopped_and_then_it_is_not_tried_again() {
        let (attempts, uuid) = (Attempts::default(), Uuid::from_u128(7));
        assert!(!attempts.stop(uuid), "nobody starts it");
        let attempt = attempts.begin(uuid);
        assert!(attempt.again() && !attempts.stop(uuid), "it may be there the next moment");
        attempt.refused("no room".to_owned());
        assert_eq!(attempts.refusal(uuid).as_deref(), Some("no room"));
        assert!(attempt.again() && attempts.refusal(uuid).is_none());
        attempt.refused("no room".to_owned());
        assert!(attempts.stop(uuid) && attempts.stop(uuid) && !attempt.again());
        attempts.forget(uuid);
        assert!(!attempts.stop(uuid));
    }
}
