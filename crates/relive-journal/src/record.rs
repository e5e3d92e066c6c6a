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
mod verbs;

use relive_core::{Cause, Generation, Limits, Origin, Pid, Program, Timestamp, Usd, Uuid};
pub use relive_types::Usage;
use relive_types::{CommandRule, Isolated};
use serde::{Deserialize, Serialize, Serializer};

use crate::hash::Hash;
use crate::payload::{Json, Text};
use crate::policy::Policy;
use crate::recovery::{OnInDoubt, Recovery, RecoveryName};

pub use cli::{CliLaunch, CliRead, CliRecord, CliSession, CliStart, CliTurn, CliTurnState};
pub use files::{FilesId, FilesVerb, Grade, OwnWorkspace, PATHS_MAX, Rewound, Snapshot};
pub use flow::FlowRecord;
pub use handles::{Granted, Released};
pub use verbs::{
    Acked, Ended, NewLimits, NewModel, Paused, Renamed, Resumed, ResumedBy, SignalCommand, SignalMask, Signalled,
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

macro_rules! kinds {
    ($($kind:literal => $variant:ident($type:ty), $doc:literal;)*) => {
        /// What a record records. The names on disk are in [`Body::KINDS`].
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
    "opened" => Opened(Opened), "A writer took the journal.";
    "spawned" => Spawned(Box<Spawned>), "The process began, or began again as a fork.";
    "input" => Input(Input), "A message to the agent.";
    "model_started" => ModelStarted(ModelStarted), "A model is being asked.";
    "model_ended" => ModelEnded(ModelEnded), "The model answered.";
    "partial" => Partial(Partial), "The model was cut off.";
    "call_started" => CallStarted(CallStarted), "A tool is about to run: the intent.";
    "call_ended" => CallEnded(CallEnded), "A tool's result.";
    "doubt" => Doubt(Doubt), "Nobody can know what a call did; the model is told so.";
    "resolved" => Resolved(Resolved), "Somebody decided what a call did.";
    "approval" => Approval(Approval), "A call was put to a human, or answered by one.";
    "compacted" => Compacted(Compacted), "The conversation so far was replaced by a summary.";
    "paused" => Paused(Paused), "The process is suspended.";
    "resumed" => Resumed(Resumed), "The suspension is over.";
    "limits" => Limits(NewLimits), "What it may spend from now on.";
    "ended" => Ended(Ended), "The incarnation ended; synced before any waiter is answered.";
    "repair" => Repair(Repair), "A torn end was cut off.";
    "signalled" => Signalled(Signalled), "The process is to end by a signal, or a blocked signal is kept.";
    "signal_mask" => SignalMask(SignalMask), "Which signals are blocked and which are handled, from now on.";
    "renamed" => Renamed(Renamed), "The process has another name. Readers that do not know it show the name before.";
    "model" => Model(NewModel), "The model it is run on from now on. Readers that do not know it use the one before.";
    "granted" => Granted(Granted), "The process was given a handle to another one.";
    "released" => Released(Released), "The process has given up its handle to another one.";
    "snapshot" => Snapshot(Box<Snapshot>), "The state of the working directory.";
    "rewound" => Rewound(Box<Rewound>), "A verb changes files, or has.";
    "question" => Question(Question), "An agent asked a person something, or got the answer.";
    "acked" => Acked(Acked), "A person has seen how the process ended. Readers that do not know it pass over it.";
    "flow" => Flow(FlowRecord), "The definition of a tree of processes, or a decision about it.";
    "cli" => Cli(CliRecord), "A fact about a CLI agent.";
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
    /// Who had a process continue that had ended. Before Relive had this field, nobody was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// What a process is from its beginning on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spawned {
    /// Whose journal this is. In a fork's copied prefix it is the original's.
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
    /// What to do when it has spent what it may.
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

/// What becomes of a process that has spent what it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBudget {
    /// It ends.
    #[default]
    End,
    /// It waits until it may spend more.
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

/// A model call began. Not synced by itself: losing it changes nothing in the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStarted {
    pub model: String,
    /// What the call may cost at most, counted if its end is never learned.
    #[serde(default)]
    pub reserved_tokens: u64,
    /// And in dollars, where the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_cost_usd: Option<Usd>,
    /// What it is asked for, where that is not the next step.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub purpose: Option<AskedFor>,
}

/// What a model is asked for besides the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskedFor {
    /// A summary of the conversation. It is not shown as it comes.
    Summary,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelEnded {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    #[serde(default)]
    pub usage: Usage,
    /// What the provider wants back unchanged with the next question, such as the signatures of its thinking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<Json>,
    /// How the working directory stood while the model was asked; absent where it is in no repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
}

/// How a repository stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Git {
    pub head: String,
    /// Whether files that it knows differ from it; absent where nobody could say in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
}

/// A tool call the model asked for. Its place in the answer is its number within the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The provider's name for it.
    pub id: String,
    pub name: String,
    pub args: Json,
}

/// What a model had said when it was cut off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Partial {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    #[serde(default)]
    pub usage: Usage,
    /// Why it was cut off, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// The intent to run a tool. Its key, for sessions and for tools that know it, is `uuid:seq` of this record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStarted {
    /// The index of the call in its step.
    pub call: u32,
    /// The tool, said again for the reader.
    pub name: String,
    /// How to find out what became of it.
    pub recovery: Recovery,
    /// The rule that allowed it, where the tool asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<CommandRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnded {
    /// The index of the call in its step.
    pub call: u32,
    /// Whether the tool says it worked.
    pub ok: bool,
    pub result: Text,
    /// Whether the agent said with it that its work is done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub done: bool,
    /// Present where the result was found by looking, after a crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<RecoveryName>,
}

/// A call whose outcome nobody can know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The index of the call in its step.
    pub call: u32,
    /// Why it cannot be known.
    pub reason: String,
}

/// What somebody decided about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It happened.
    Done,
    /// It did not happen, and shall not.
    NotDone,
    /// Run it again, whatever it did.
    Retry,
}

/// A decision about a call in doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The index of the call in its step.
    pub call: u32,
    pub outcome: Outcome,
    /// Whether the policy `retry` decided, not a person.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_policy: bool,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// A question to a human about a call, or the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The index of the call in its step.
    pub call: u32,
    /// The tool, said again for the reader and for `always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Asked, or what was answered.
    pub decision: Decision,
    /// Whether the answer holds for every later call of this tool.
    #[serde(default, skip_serializing_if = "is_false")]
    pub always: bool,
    /// The commands that are allowed from now on. Not together with `always`: a reader that does not know it takes the
    /// answer for this one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<CommandRule>,
    /// The host that a command under way wants to reach: the question, and its answer for as long as the process lives,
    /// are about this and not about the call. A reader that does not know it takes the answer for the call, which has
    /// begun already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Why, in the words of whoever answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
    /// What a CLI agent calls its request for permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The states of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Asked,
    Allowed,
    Denied,
}

/// A question of an agent to a person, or the answer to it. The text is in the arguments of the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The index of the call in its step.
    pub call: u32,
    /// What the person answered; absent where the question was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The id of the request that answered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// The conversation up to and including record `through` now reads as `summary`. One with a `usage` is also the answer
/// to the model call under way, which asked for the summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    pub through: u64,
    pub summary: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A torn end that was cut off. What was cut is kept in `blobs/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    pub cut_bytes: u64,
    pub blob: Hash,
}

impl Body {
    /// Tells whether a reader that does not know the kind may pass over it: it decides nothing about what may run, and
    /// names no blob.
    pub(crate) fn is_skippable(&self) -> bool {
        matches!(
            self,
            Self::Renamed(_)
                | Self::Model(_)
                | Self::Granted(_)
                | Self::Released(_)
                | Self::Snapshot(_)
                | Self::Rewound(_)
                | Self::Acked(_)
                | Self::Cli(_)
        )
    }

    /// Whether events count their places from this record on. Those that happen while a model is asked are counted from
    /// its `model_started`, whatever is asked of the process meanwhile: the answer's text belongs there.
    #[must_use]
    pub(crate) fn is_anchor(&self) -> bool {
        match self {
            Self::Opened(_)
            | Self::Spawned(_)
            | Self::ModelStarted(_)
            | Self::ModelEnded(_)
            | Self::Partial(_)
            | Self::CallStarted(_)
            | Self::CallEnded(_)
            | Self::Doubt(_)
            | Self::Compacted(_)
            | Self::Ended(_)
            | Self::Repair(_) => true,
            Self::Input(_)
            | Self::Resolved(_)
            | Self::Approval(_)
            | Self::Paused(_)
            | Self::Resumed(_)
            | Self::Limits(_)
            | Self::Signalled(_)
            | Self::SignalMask(_)
            | Self::Renamed(_)
            | Self::Model(_)
            | Self::Granted(_)
            | Self::Released(_)
            | Self::Snapshot(_)
            | Self::Rewound(_)
            | Self::Question(_)
            | Self::Acked(_)
            | Self::Flow(_)
            | Self::Cli(_) => false,
        }
    }

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
