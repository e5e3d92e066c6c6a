//! The records of a step: the model's part and the tools'.

use relive_core::Usd;
use relive_types::{CommandRule, Usage};
use serde::{Deserialize, Serialize};

use super::is_false;
use crate::payload::{Json, Text};
use crate::recovery::{Recovery, RecoveryName};

/// A model call began. Not synced by itself: losing it changes nothing in the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStarted {
    pub model: String,
    /// The most that the call may cost, charged if its end is never known.
    #[serde(default)]
    pub reserved_tokens: u64,
    /// And in dollars, where the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_cost_usd: Option<Usd>,
    /// The purpose of the call, if it is not the next step.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub purpose: Option<AskedFor>,
}

/// The purposes of a model call other than the next step.
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
    /// The repository of the working directory during the model call; absent outside a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
}

/// The state of a repository.
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

/// The part of an answer that was received before it broke off.
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
    /// How to find out whether it happened.
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
    /// Whether a person or a policy denied the call, so that it was not made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub denied: bool,
}

/// A call whose outcome nobody can know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The index of the call in its step.
    pub call: u32,
    /// Why it cannot be known.
    pub reason: String,
}

/// The resolution of a call in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The call happened.
    Done,
    /// The call did not happen, and must not.
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

/// The conversation up to and including record `through` now reads as `summary`. One with a `usage` is also the answer
/// to the model call under way, which asked for the summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    pub through: u64,
    pub summary: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
