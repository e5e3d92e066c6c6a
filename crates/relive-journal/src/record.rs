//! The records of `steps.jsonl`: a closed list.
//!
//! How the format grows without a new version:
//! - An optional field may be added to a kind where ignoring it is safe; older readers pass over it.
//! - A kind that readers may ignore carries `"skip":true` right after `step`; older readers skip its records.
//! - Any other new kind, or a new value of an enum, makes a journal that holds one read-only to older readers: they list
//!   it and do not run it.

mod cli;
mod files;
mod flow;
mod handles;
mod payloads;
mod questions;
mod steps;
mod verbs;

use relive_core::{Cause, Generation, Limits, Origin, Pid, Program, Timestamp, Uuid};
use relive_types::Isolated;
pub use relive_types::Usage;
use relive_types::program::Inherited;
use serde::{Deserialize, Serialize, Serializer};

use crate::hash::Hash;
use crate::payload::Text;
use crate::policy::Policy;
use crate::recovery::OnInDoubt;

pub use cli::{
    CliCapabilities, CliGateway, CliLaunch, CliModelCall, CliRead, CliRecord, CliSession, CliStart, CliTurn,
    CliTurnState,
};
pub use files::{FilesId, FilesVerb, Grade, NOT_KEPT_MAX, NotKept, OwnWorkspace, PATHS_MAX, Rewound, Snapshot};
pub use flow::FlowRecord;
pub use handles::{Granted, Released};
pub use questions::{Approval, Decision, Question};
pub use steps::{
    AskedFor, Call, CallEnded, CallStarted, Compacted, Doubt, Git, ModelEnded, ModelStarted, Outcome, Partial, Resolved,
};
pub use verbs::{
    Acked, Ended, NewLimits, NewModel, Paused, Proceeded, Renamed, Resumed, ResumedBy, SignalCommand, SignalMask,
    Signalled,
};

/// One record, as read.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub seq: u64,
    pub epoch: Generation,
    pub at: Timestamp,
    /// The step it belongs to; 0 before the first.
    pub step: u32,
    /// Milliseconds since the writer's boot; absent where its writer did not say.
    pub up: Option<u64>,
    pub body: Body,
}

/// The properties of a kind of record.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traits {
    /// A reader that does not know the kind may pass over it: it decides nothing about what may run, and names no blob.
    pub(crate) skippable: bool,
    /// Events count their places from this record on. Those that happen while a model is asked are counted from its
    /// `model_started`, whatever is asked of the process meanwhile: the answer's text belongs there.
    pub(crate) anchor: bool,
    /// It is no sign that the process makes progress, so it does not end a crash loop.
    pub(crate) idle: bool,
}

macro_rules! kinds {
    ($($kind:literal => $variant:ident($type:ty) [$($trait:ident),*], $doc:literal;)*) => {
        /// The content of a record. The names on disk are in [`Body::KINDS`].
        #[derive(Debug, Clone, PartialEq)]
        pub enum Body {
            $(#[doc = $doc] $variant($type),)*
        }

        impl Body {
            pub const KINDS: [&'static str; [$($kind),*].len()] = [$($kind),*];

            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                }
            }

            /// Returns what its kind says about it.
            pub(crate) fn traits(&self) -> Traits {
                match self {
                    $(Self::$variant(_) => Traits { $($trait: true,)* ..Traits::default() },)*
                }
            }

            /// Reads the fields of a line whose head names `kind`; `None` where the kind is unknown.
            pub(crate) fn decode(kind: &str, line: &[u8]) -> Option<serde_json::Result<Self>> {
                match kind {
                    $($kind => Some(serde_json::from_slice(line).map(Self::$variant)),)*
                    _ => None,
                }
            }
        }

        impl Serialize for Body {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(body) => body.serialize(serializer),)*
                }
            }
        }
    };
}

kinds! {
    "opened" => Opened(Opened) [anchor, idle], "A writer took the journal.";
    "spawned" => Spawned(Box<Spawned>) [anchor], "The process began, or began again as a fork.";
    "input" => Input(Input) [], "A message to the agent.";
    "model_started" => ModelStarted(ModelStarted) [anchor], "A model is being asked.";
    "model_ended" => ModelEnded(ModelEnded) [anchor], "The model answered.";
    "partial" => Partial(Partial) [anchor], "The model was cut off.";
    "call_started" => CallStarted(CallStarted) [anchor], "A tool is about to run: the intent.";
    "call_ended" => CallEnded(CallEnded) [anchor], "A tool's result.";
    "doubt" => Doubt(Doubt) [anchor], "Nobody can know what a call did; the model is told so.";
    "resolved" => Resolved(Resolved) [], "Somebody decided what a call did.";
    "approval" => Approval(Approval) [], "A call was put to a human, or answered by one.";
    "compacted" => Compacted(Compacted) [anchor], "The conversation so far was replaced by a summary.";
    "paused" => Paused(Paused) [], "The process is suspended.";
    "resumed" => Resumed(Resumed) [], "The suspension is over.";
    "limits" => Limits(NewLimits) [], "What it may spend from now on.";
    "ended" => Ended(Ended) [anchor], "The incarnation ended; synced before any waiter is answered.";
    "repair" => Repair(Repair) [anchor, idle], "A torn end was cut off.";
    "signalled" => Signalled(Signalled) [], "The process is to end by a signal, or a blocked signal is kept.";
    "signal_mask" => SignalMask(SignalMask) [], "Which signals are blocked and which are handled, from now on.";
    "renamed" => Renamed(Renamed) [skippable], "The process has another name. Readers that do not know it show the name before.";
    "model" => Model(NewModel) [skippable], "The model it is run on from now on. Readers that do not know it use the one before.";
    "granted" => Granted(Granted) [skippable, idle], "The process was given a handle to another one.";
    "released" => Released(Released) [skippable, idle], "The process has given up its handle to another one.";
    "snapshot" => Snapshot(Box<Snapshot>) [skippable, idle], "The state of the working directory.";
    "rewound" => Rewound(Box<Rewound>) [skippable, idle], "A verb changes files, or has.";
    "question" => Question(Question) [], "An agent asked a person something, or got the answer.";
    "acked" => Acked(Acked) [skippable, idle], "A person has seen how the process ended. Readers that do not know it pass over it.";
    "proceeded" => Proceeded(Proceeded) [skippable, idle], "A program may pass its gate. Readers that do not know it count the time before it as well.";
    "flow" => Flow(FlowRecord) [], "The definition of a tree of processes, or a decision about it.";
    "cli" => Cli(CliRecord) [skippable], "A fact about a CLI agent.";
}

/// Who opened a journal, and so whether a crash loop is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenedBy {
    /// Its first writer.
    Spawn,
    /// Somebody asked for it.
    Resume,
    /// The daemon, at its start.
    Recovery,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub pid: Pid,
    pub by: OpenedBy,
    /// The machine's boot, within which a running program can still be found.
    pub boot_id: String,
    /// The version of Relive that writes from here on.
    pub relive: String,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
    /// How long the process had executed until now, in all its incarnations. It counts only where the record says `up`:
    /// before Relive had these fields, nobody counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ran_ms: u64,
    /// Whether events that only repeat a record are derived from it. Before Relive had this field, `events.jsonl` held
    /// them all.
    #[serde(default, skip_serializing_if = "is_false")]
    pub derives_events: bool,
    /// Who resumed the process after its end. Older versions do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Whether the process is a program that has not passed its gate: its time does not count before `proceeded`. Older
    /// versions count it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub held: bool,
}

/// The facts about a process that never change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spawned {
    /// The UUID of the process. In a fork's copied prefix it is that of the origin.
    pub uuid: Uuid,
    /// A name of the user's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The process that spawned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_uuid: Option<Uuid>,
    /// The process whose budget this one draws from, where that is not its parent: a fork of a child has no parent, and
    /// draws from the budget of the child's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_uuid: Option<Uuid>,
    /// Of which process, and of which of its steps, this is a fork.
    #[serde(flatten)]
    pub origin: Option<Origin>,
    /// What it runs: `agent` and so on.
    pub body: String,
    /// What it was asked to do.
    pub intent: Text,
    /// The program, where that is what it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    pub cwd: String,
    /// What its programs may reach; absent if that is everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<Isolated>,
    #[serde(default)]
    pub limits: Limits,
    /// What to do with a call whose outcome nobody can know.
    #[serde(default)]
    pub on_in_doubt: OnInDoubt,
    /// What to do when its budget is used up.
    #[serde(default)]
    pub on_budget: OnBudget,
    /// The names of the variables of its environment, in their order. Their values are in no journal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_names: Vec<String>,
    /// Which tools it may use without asking.
    #[serde(default, skip_serializing_if = "Policy::is_unsaid")]
    pub policy: Policy,
    /// The first of its ancestors, which nobody spawned; absent where it is the first itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_uuid: Option<Uuid>,
    /// How many ancestors it has.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// Present where it works on a copy of the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<OwnWorkspace>,
    /// The settings of the shell in which its command was typed, which its programs have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Inherited>,
    /// A hash of the request that began it, which tells a repeat from a different request with the same UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

impl Spawned {
    /// Returns the process whose budget this one draws from, besides its own.
    #[must_use]
    pub fn payer(&self) -> Option<Uuid> {
        self.parent_uuid.or(self.budget_uuid)
    }
}

/// What becomes of a process whose budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBudget {
    /// The process ends.
    #[default]
    End,
    /// The process is suspended until it has a higher limit.
    Suspend,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Chosen by the sender, so that a repeated message is known.
    pub id: String,
    /// The process that sent it, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Uuid>,
    pub text: Text,
}

/// A torn end that was cut off. What was cut is kept in `blobs/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    pub cut_bytes: u64,
    pub blob: Hash,
}

impl Spawned {
    /// Returns whether it is a program with a gate, which waits there before it runs.
    pub(crate) fn begins_at_gate(&self) -> bool {
        self.program.as_ref().is_some_and(|program| program.gate)
    }
}

impl Body {
    /// The id of the request that asked for it. The id of an `input` is one too.
    #[must_use]
    pub fn request(&self) -> Option<&str> {
        match self {
            Self::Opened(body) => body.req.as_deref(),
            Self::Input(body) => Some(&body.id),
            Self::Resolved(body) => body.req.as_deref(),
            Self::Approval(body) => body.req.as_deref(),
            Self::Paused(body) => body.req.as_deref(),
            Self::Resumed(body) => body.req.as_deref(),
            Self::Limits(body) => body.req.as_deref(),
            Self::Ended(body) => body.req.as_deref(),
            Self::Signalled(body) => body.req.as_deref(),
            Self::SignalMask(body) => body.req.as_deref(),
            Self::Renamed(body) => body.req.as_deref(),
            Self::Model(body) => body.req.as_deref(),
            Self::Granted(body) => body.req.as_deref(),
            Self::Released(body) => body.req.as_deref(),
            Self::Question(body) => body.req.as_deref(),
            Self::Acked(body) => body.req.as_deref(),
            Self::Flow(body) => body.req.as_deref(),
            // What is recorded before a verb begins answers nothing.
            Self::Rewound(body) => body.req.as_deref().filter(|_| body.done),
            Self::Spawned(_)
            | Self::Cli(_)
            | Self::ModelStarted(_)
            | Self::ModelEnded(_)
            | Self::Partial(_)
            | Self::CallStarted(_)
            | Self::CallEnded(_)
            | Self::Doubt(_)
            | Self::Compacted(_)
            | Self::Snapshot(_)
            | Self::Proceeded(_)
            | Self::Repair(_) => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
