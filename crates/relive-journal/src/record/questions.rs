//! The records of questions to a person.

use relive_types::CommandRule;
use serde::{Deserialize, Serialize};

use super::is_false;

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
    /// The CLI agent's own id of its request for permission.
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
    /// The person's answer; absent in the record of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The id of the request that answered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
    /// The CLI agent's own id of its question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}
