//! What clients ask of a process, and what they are told.

use relive_api::Process;
use relive_core::SuspendReason;

use crate::hasty::Answer;

/// A verb to one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `run`, `exec`, or `resume --fork --workspace here` of another process.
    Create,
    /// `resume --fork` with a copy of the files, which needs those of the step.
    ForkOwn,
    /// `rewind` or `restore`: a running process is paused for it.
    PutBack(PutBack),
    /// The end of that pause, if the `PutBack` was refused. No client asks for it.
    ResumeAgain,
    /// `merge`, which does nothing to the process.
    Merge,
    /// `compose resume --node`.
    ResumeNode,
    Pause,
    Resume,
    /// `resume --input`.
    ResumeWith(String),
    Send(String),
    Signal(&'static str),
    Resolve(Decision),
    /// `resolve --answer`.
    Answer(String),
    /// `inbox ack`. What a person has ended was seen, so it changes nothing.
    Ack,
    /// `info`.
    Look,
}

/// How files go back to how they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutBack {
    Rewind(u64),
    Undo,
    Restore(u64),
}

/// An answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    Deny,
}

impl Decision {
    /// As a request has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// What the client that sent a verb knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// It hung up, or the daemon died: the verb may have been done.
    Nothing,
    Done {
        changed: bool,
    },
    Refused(u16),
    Saw(Seen),
}

impl Told {
    pub(crate) fn of(verb: &Verb, answer: &Answer) -> Self {
        let body = &answer.body;
        match (verb, answer.status) {
            (Verb::Create | Verb::ForkOwn | Verb::Send(_), 200) => Self::Done { changed: true },
            (Verb::PutBack(_), 200) => Self::Done { changed: body["paused"] == true },
            (Verb::Merge, 200) => Self::Done { changed: false },
            (Verb::ResumeNode, 200) => Self::Done { changed: true },
            (Verb::Resume | Verb::ResumeWith(_), 200) => Self::Done { changed: body["changed"] == true },
            (Verb::Ack, 200) => Self::Done { changed: body["changed"] == true },
            (Verb::Pause | Verb::Signal(_) | Verb::Resolve(_) | Verb::Answer(_), 200) => {
                Self::Done { changed: body["affected"].as_u64() > Some(0) }
            }
            (_, status) => Self::Refused(status),
        }
    }

    /// Whether a client may have been told this by a verb that changed something, or did not.
    pub(crate) fn fits(&self, changed: bool) -> bool {
        match self {
            Self::Nothing => true,
            Self::Done { changed: told } => *told == changed,
            Self::Refused(_) | Self::Saw(_) => false,
        }
    }
}

/// A process as `info` and `ps` show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Absent,
    Running,
    Asking,
    Suspended,
    Dead,
    /// In a state that nothing in this test brings about.
    Other(String),
}

impl Seen {
    pub(crate) fn of(process: &Process) -> Self {
        match (process.display.as_str(), process.suspend_reason) {
            // Whether the question is recorded yet is not said.
            ("running" | "loading", _) | ("pausing", Some(SuspendReason::Approval | SuspendReason::Question)) => {
                Self::Running
            }
            ("approval" | "question", _) => Self::Asking,
            ("pausing" | "suspended", Some(SuspendReason::User)) => Self::Suspended,
            ("dead" | "zombie", _) => Self::Dead,
            (display, reason) => Self::Other(format!("{display} {reason:?}")),
        }
    }
}
