//! The records of a CLI agent that no other kind has. Older readers skip them: they run no CLI agents.

use relive_types::{CliAgent, Usage};
use serde::{Deserialize, Serialize};

/// Facts about a CLI agent. Each record has some of the fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CliRecord {
    /// Present in the first one of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<CliAgent>>,
    /// A program is about to be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<CliLaunch>,
    /// The CLI has named its conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<CliSession>,
    /// A turn has begun or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<CliTurn>,
    /// The message or answer of this record is about to be written to the program. This record numbers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// The output up to here is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<CliRead>,
    /// A model call that went through the gateway is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<CliModelCall>>,
    /// The program of this session has crashed, and another one is about to be started in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crashed: Option<u32>,
    /// The agent has said what it can do with conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<CliCapabilities>,
    /// The request of the agent with this id, in JSON, is about to be answered: nobody can fulfil it. This record numbers
    /// the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// Whether it waits for a place in the pool from here on. Meanwhile no time counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<bool>,
    /// That request is for a form, which is declined.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
}

/// What an ACP agent can do with conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliCapabilities {
    /// The version of the protocol.
    pub version: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub load: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fork: bool,
}

/// The start of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliLaunch {
    pub argv: Vec<String>,
    pub how: CliStart,
    /// Present if its model calls go through the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<CliGateway>,
}

/// Where a program finds the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliGateway {
    /// On the loopback.
    pub port: u16,
    /// The hash of the token that the port accepts. The token is in no file.
    pub token: String,
}

/// A model call, as the gateway counted it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CliModelCall {
    pub number: u64,
    /// The end of its line in the gateway's log: what comes before is recorded.
    pub offset: u64,
    /// With its provider.
    pub model: String,
    pub usage: Usage,
    /// The status of the answer; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The subagent that asked, where the CLI says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    /// Who broke off the answer: `upstream`, `agent` or `gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// Why the call was not made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// When the provider takes calls again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<relive_core::Timestamp>,
    /// The time to the first byte of the answer, and to its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<u64>,
    #[serde(default)]
    pub ms: u64,
}

/// How a program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CliStart {
    /// With a new conversation.
    New,
    /// With the conversation that it had.
    Resume,
    /// With a copy of the conversation of its origin.
    Fork,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliSession {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliTurn {
    pub state: CliTurnState,
    /// The last message that it was begun with, by its record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// The CLI's message about a failed turn, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The tokens that the CLI has reported for the whole conversation, input and output, where it counts like that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CliTurnState {
    Open,
    Completed,
    Interrupted,
    Failed,
}

/// A position in the output of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliRead {
    /// The number of the session.
    pub session: u32,
    /// The offset in its log.
    pub offset: u64,
}
