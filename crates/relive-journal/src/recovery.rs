//! What a crash left open is settled by looking, not by guessing.
//!
//! An intent names the action that finds out what became of it. Whoever recovers a process carries the action out
//! and reports a [`Finding`]; [`Recovery::settle`] says what follows. Only what is still unknown then is in doubt,
//! and [`OnInDoubt`] says what happens with that. Nothing here looks at the world itself.

use std::path::PathBuf;

use relive_core::{Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use crate::hash::Hash;

/// How to find out what became of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Recovery {
    /// It only reads: run it again.
    Rerun,
    /// A program in a session named by the call's key: join it, or read its exit record.
    Join,
    /// A change of one file: compare the file with what it was and what it was to become.
    Check {
        /// The file.
        path: PathBuf,
        /// Its hash before; absent where there was no file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Hash>,
        /// Its hash after; absent where it was to be removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Hash>,
    },
    /// Something of Relive's own: look it up.
    Lookup {
        /// What to look for.
        #[serde(flatten)]
        what: Lookup,
    },
    /// The tool promises that the same key acts once: run it again with that.
    SameKey,
    /// Nothing can be found out.
    Doubt,
}

/// What of Relive's own a call was about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup {
    /// It was to spawn this process.
    Child(Uuid),
    /// It was to deliver the message with this id.
    Message(String),
    /// It waits for this process.
    Wait(Uuid),
    /// It sleeps until then.
    Until(Timestamp),
}

/// The name of a recovery action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "see `Recovery`")]
pub enum RecoveryName {
    Rerun,
    Join,
    Check,
    Lookup,
    SameKey,
    Doubt,
}

/// What looking found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// No trace of it: in a join, same boot and no session directory.
    Absent,
    /// It is under way.
    Running,
    /// It is over and its outcome is there: an exit record, a child, a delivered message.
    Finished,
    /// There are traces, and nothing that tells how it went: shim lost, another boot.
    Lost,
    /// The file now; absent where there is none.
    File(Option<Hash>),
}

/// What follows from a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It did not happen, or may happen again: run it.
    Run,
    /// It is still happening: take it over.
    Adopt,
    /// It happened: what was found is its result.
    Done,
    /// It cannot be known.
    Doubt,
}

impl Recovery {
    /// Its name.
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

    /// What follows from a finding. A finding that does not belong to the action settles nothing.
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
                // A change that changes nothing is done either way.
                Finding::File(now) if now == *after => Settlement::Done,
                Finding::File(now) if now == *before => Settlement::Run,
                Finding::File(_) | Finding::Absent | Finding::Running | Finding::Finished | Finding::Lost => {
                    Settlement::Doubt
                }
            },
            Self::Lookup { what } => match what {
                // Asking again and sleeping what is left of the time repeat nothing.
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
    /// Tell the model that the outcome is unknown, and to look before it acts.
    #[default]
    TellModel,
    /// Wait for a person to resolve it.
    Park,
    /// Repeat it: the user said that this is safe.
    Retry,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINDINGS: [Finding; 5] =
        [Finding::Absent, Finding::Running, Finding::Finished, Finding::Lost, Finding::File(None)];

    /// The findings in the order of `FINDINGS`; R run, A adopt, D done, ? doubt.
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
    fn every_action_by_every_finding() {
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
    fn an_action_reads_well_in_a_journal() {
        let show = |recovery: &Recovery| serde_json::to_string(recovery).unwrap();
        assert_eq!(show(&Recovery::Join), r#"{"by":"join"}"#);
        let lookup = Recovery::Lookup { what: Lookup::Child(Uuid::nil()) };
        assert_eq!(show(&lookup), r#"{"by":"lookup","child":"00000000-0000-0000-0000-000000000000"}"#);
        assert_eq!(serde_json::from_str::<Recovery>(&show(&lookup)).unwrap(), lookup);
    }
}
