//! The calls that processes wait for an answer to, as they were read from their journals.
//!
//! A process that waits changes nothing, so its journal is read once and not for every look at the inbox.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use relive_api::PendingCall;
use relive_core::{SuspendReason, Timestamp, Uuid};

/// How many processes are remembered: more wait for no person.
const REMEMBERED_MAX: usize = 4_096;
/// How long the arguments of the calls of one process may be to be remembered.
const ARGS_MAX: usize = 16 << 10;

/// The call that a person was asked about, and those in doubt.
pub(crate) type Pending = (Option<PendingCall>, Vec<PendingCall>);

/// Tells the present question of a process from an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    /// The position of its last change in the feed: every record moves it.
    pub(crate) position: u64,
    pub(crate) reason: SuspendReason,
    pub(crate) paused_at: Timestamp,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct PendingCalls {
    known: Mutex<HashMap<Uuid, (Since, Pending)>>,
}

impl PendingCalls {
    /// Returns what a process waits for, if nothing has happened to it since that was read.
    pub(crate) fn get(&self, uuid: Uuid, since: Since) -> Option<Pending> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&uuid).filter(|(at, _)| *at == since).map(|(_, pending)| pending.clone())
    }

    /// Remembers what was read. `position` returns the last change of a process, by which others are forgotten that do not
    /// wait any more.
    pub(crate) fn insert(&self, uuid: Uuid, since: Since, pending: &Pending, position: impl Fn(Uuid) -> Option<u64>) {
        let (asked, open) = pending;
        let bytes: usize = asked.iter().chain(open).map(|call| call.args.to_string().len()).sum();
        if bytes > ARGS_MAX {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.retain(|uuid, (since, _)| position(*uuid) == Some(since.position));
        }
        if known.len() < REMEMBERED_MAX {
            known.insert(uuid, (since, pending.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pending(args: &str) -> Pending {
        let at = Timestamp::UNIX_EPOCH;
        (Some(PendingCall { id: 1, call: 0, tool: "shell".into(), args: json!(args), at, looked: None }), Vec::new())
    }

    fn since(position: u64) -> Since {
        Since { position, reason: SuspendReason::Approval, paused_at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn what_was_read_counts_until_anything_changes() {
        let calls = PendingCalls::default();
        let uuid = Uuid::from_u128(1);
        calls.insert(uuid, since(7), &pending("ls"), |_| None);
        assert_eq!(calls.get(uuid, since(7)), Some(pending("ls")));
        assert_eq!(calls.get(uuid, since(8)), None, "something was recorded");
        assert_eq!(calls.get(uuid, Since { reason: SuspendReason::Question, ..since(7) }), None);
        assert_eq!(calls.get(Uuid::from_u128(2), since(7)), None);
        calls.insert(uuid, since(8), &pending(&"x".repeat(ARGS_MAX)), |_| None);
        assert_eq!(calls.get(uuid, since(8)), None, "it is too long to be kept");
    }

    #[test]
    fn those_that_do_not_wait_any_more_make_room() {
        let calls = PendingCalls::default();
        for n in 0..REMEMBERED_MAX as u128 {
            calls.insert(Uuid::from_u128(n), since(1), &pending("ls"), |_| None);
        }
        let new = Uuid::from_u128(u128::MAX);
        calls.insert(new, since(1), &pending("ls"), |_| Some(1));
        assert_eq!(calls.get(new, since(1)), None, "all of them still wait");
        calls.insert(new, since(1), &pending("ls"), |uuid| Some(if uuid.as_u128() < 5 { 1 } else { 2 }));
        assert_eq!(calls.get(new, since(1)), Some(pending("ls")));
        assert_eq!(calls.known.lock().unwrap().len(), 6);
    }
}
