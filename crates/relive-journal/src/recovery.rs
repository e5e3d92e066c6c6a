//! Recovery of calls that a crash left open, by looking at their effects instead of guessing.
//!
//! A call's record names the action that finds out what happened to it. The recovery of a process carries the action
//! out and reports a [`Finding`]; [`Recovery::settle`] returns the consequence. Only a call that is still unknown after
//! that is in doubt, and [`OnInDoubt`] says what happens then. Nothing in this module looks outside the journal.

use std::path::PathBuf;

use relive_core::{Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use crate::hash::Hash;

/// Returns the name of the session in which the call runs whose intent is record `seq`.
#[must_use]
pub fn session_name(seq: impl std::fmt::Display) -> String {
    format!("call-{seq}")
}

/// The action that finds out what happened to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Recovery {
    /// It only reads: run it again.
    Rerun,
    /// A program in a session named by the call's key: join the session, or read its exit record.
    Join,
    /// A change of one file: compare the file with its content before and after.
    Check {
        path: PathBuf,
        /// The hash before; absent if the file did not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Hash>,
        /// The hash after; absent if the file was to be removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Hash>,
    },
    /// An operation of Relive itself: look it up.
    Lookup {
        #[serde(flatten)]
        what: Lookup,
    },
    /// The tool guarantees that a key takes effect once: run it again with the same key.
    SameKey,
    /// Nothing can be found out.
    Doubt,
}

/// An operation of Relive itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup {
    /// Spawning this process.
    Child(Uuid),
    /// Delivering the message with this id.
    Message(String),
    /// Waiting for this process.
    Wait(Uuid),
    /// Sleeping until then.
    Until(Timestamp),
}

/// The name of a recovery action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryName {
    Rerun,
    Join,
    Check,
    Lookup,
    SameKey,
    Doubt,
}

/// The result of looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// There is no trace of the call: for a join, the same boot and no session directory.
    Absent,
    /// It is still running.
    Running,
    /// It is over and its outcome is known: an exit record, a child, a delivered message.
    Finished,
    /// There are traces, but the outcome is not known: the shim is lost, or the machine was rebooted.
    Lost,
    /// The current hash of the file; absent if it does not exist.
    File(Option<Hash>),
}

/// The consequence of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It did not happen, or may happen again: run it.
    Run,
    /// It is still running: adopt it.
    Adopt,
    /// It happened: the finding is its result.
    Done,
    Doubt,
}

impl Recovery {
    #[must_use]
    pub fn name(&self) -> RecoveryName {
        match self {
            Self::Rerun => RecoveryName::Rerun,
            Self::Join => RecoveryName::Join,
            Self::Check { .. } => RecoveryName::Check,
            Self::Lookup { .. } => RecoveryName::Lookup,
            Self::SameKey => RecoveryName::SameKey,
            Self::Doubt => RecoveryName::Doubt,
        }
    }

    /// Returns the consequence of a finding. A finding that does not belong to the action settles nothing.
    #[must_use]
    pub fn settle(&self, finding: Finding) -> Settlement {
        match self {
            Self::Rerun | Self::SameKey => Settlement::Run,
            Self::Doubt => Settlement::Doubt,
            Self::Join => match finding {
                Finding::Absent => Settlement::Run,
                Finding::Running => Settlement::Adopt,
                Finding::Finished => Settlement::Done,
                Finding::Lost | Finding::File(_) => Settlement::Doubt,
            },
            Self::Check { before, after, .. } => match finding {
                // A change without an effect is done either way.
                Finding::File(now) if now == *after => Settlement::Done,
                Finding::File(now) if now == *before => Settlement::Run,
                Finding::File(_) | Finding::Absent | Finding::Running | Finding::Finished | Finding::Lost => {
                    Settlement::Doubt
                }
            },
            Self::Lookup { what } => match what {
                // Waiting again, and sleeping for the rest of the time, repeat no effect.
                Lookup::Wait(_) | Lookup::Until(_) => Settlement::Run,
                Lookup::Child(_) | Lookup::Message(_) => match finding {
                    Finding::Absent => Settlement::Run,
                    Finding::Running | Finding::Finished => Settlement::Done,
                    Finding::Lost | Finding::File(_) => Settlement::Doubt,
                },
            },
        }
    }
}

/// What to do with a call in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInDoubt {
    /// Tell the model that the outcome is unknown, and to check before it acts.
    #[default]
    TellModel,
    /// Wait for a person to resolve it.
    Park,
    /// Run it again: the user said that this is safe.
    Retry,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINDINGS: [Finding; 5] =
        [Finding::Absent, Finding::Running, Finding::Finished, Finding::Lost, Finding::File(None)];

    /// Checks the settlements in the order of `FINDINGS`; R run, A adopt, D done, ? doubt.
    fn check(recovery: &Recovery, expect: &str) {
        let found: String = FINDINGS
            .iter()
            .map(|finding| match recovery.settle(*finding) {
                Settlement::Run => 'R',
                Settlement::Adopt => 'A',
                Settlement::Done => 'D',
                Settlement::Doubt => '?',
            })
            .collect();
        assert_eq!(found, expect, "{recovery:?}");
    }

    #[test]
    fn every_action_settles_every_finding_as_documented() {
        let uuid = Uuid::nil();
        let hash = Some(Hash::of(b"x"));
        check(&Recovery::Rerun, "RRRRR");
        check(&Recovery::SameKey, "RRRRR");
        check(&Recovery::Doubt, "?????");
        check(&Recovery::Join, "RAD??");
        check(&Recovery::Check { path: "f".into(), before: None, after: hash }, "????R");
        check(&Recovery::Check { path: "f".into(), before: hash, after: None }, "????D");
        check(&Recovery::Check { path: "f".into(), before: hash, after: hash }, "?????");
        check(&Recovery::Lookup { what: Lookup::Child(uuid) }, "RDD??");
        check(&Recovery::Lookup { what: Lookup::Message("m".into()) }, "RDD??");
        check(&Recovery::Lookup { what: Lookup::Wait(uuid) }, "RRRRR");
        check(&Recovery::Lookup { what: Lookup::Until(Timestamp::UNIX_EPOCH) }, "RRRRR");
    }

    #[test]
    fn recovery_actions_have_the_documented_json() {
        let show = |recovery: &Recovery| serde_json::to_string(recovery).unwrap();
        assert_eq!(show(&Recovery::Join), r#"{"by":"join"}"#);
        let lookup = Recovery::Lookup { what: Lookup::Child(Uuid::nil()) };
        assert_eq!(show(&lookup), r#"{"by":"lookup","child":"00000000-0000-0000-0000-000000000000"}"#);
        assert_eq!(serde_json::from_str::<Recovery>(&show(&lookup)).unwrap(), lookup);
    }
}
