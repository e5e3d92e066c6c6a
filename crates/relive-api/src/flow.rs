//! Trees of processes: compose files and supervisors.

use relive_types::{Limits, Pid, Uuid};
use serde::{Deserialize, Serialize};

use crate::program::Inherited;
use crate::{Environment, Exit};

/// The kinds of trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowKind {
    Compose,
    Supervisor,
}

/// A tree to be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRequest {
    /// Chosen by the client, so that asking again starts nothing twice.
    pub uuid: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: FlowKind,
    /// The name of the file, for messages.
    pub file: String,
    /// The text of the file.
    pub text: String,
    /// The directory of the file, in which its processes work.
    pub cwd: String,
    /// The environment of the one who asks.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    pub env: Environment,
    /// The settings of the shell in which its command was typed, which the programs of all its processes have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Inherited>,
    /// What all its processes may spend together.
    #[serde(default)]
    pub limits: Limits,
}

/// The state of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    pub uuid: Uuid,
    pub pid: Pid,
    pub kind: FlowKind,
    /// `running`, `suspended` and so on; `succeeded` or `failed` once it has ended.
    pub state: String,
    pub nodes: Vec<NodeStatus>,
    /// Why the tree itself is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The command that continues the tree, if it has ended or is suspended; absent if nothing would start again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// A node of a compose file, or the child of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub name: String,
    /// `waiting`, `due`, `running`, `stopping`, `succeeded`, `failed`, `stopped`, `halted` or `skipped`.
    pub state: String,
    /// The process that it ran last.
    pub uuid: Option<Uuid>,
    /// Its present PID, while it lives.
    pub pid: Option<Pid>,
    /// Present once it has ended.
    pub exit: Option<Exit>,
    /// How often it was started.
    pub starts: u32,
    pub depends_on: Vec<String>,
    /// Why it failed, was stopped or skipped, or is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The command that has it continue, if it has reached a limit, or is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A node that is to continue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeRequest {
    pub node: String,
    /// In a fork of its process.
    #[serde(default)]
    pub fork: bool,
    /// From the end of this step; only with `fork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<u32>,
    /// What to say to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// New limits of its process; those absent stay as they are.
    #[serde(default)]
    pub limits: Limits,
    /// The environment of the shell in which it was typed, for a tree that has lost its own.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    pub env: Environment,
}

/// A node that continues, and the tree it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResumed {
    pub pid: Pid,
    pub uuid: Uuid,
    pub node: String,
    /// What else happened: the tree was paused, and is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
