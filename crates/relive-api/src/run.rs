//! Creating an agent, and waiting for a process.

use std::collections::BTreeMap;

use relive_types::{Limits, Pid, ProcessStatus, Uuid, Why};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::files::WorkspaceKind;
use crate::process::Exit;
use crate::program::{Inherited, Isolation, Network, Resources};

/// A request to run an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Chosen by the client, so that asking again starts nothing twice.
    pub uuid: Uuid,
    /// A name of the user's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub intent: String,
    /// A text it is to work with, which is no instruction: what was piped into the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Provider and model; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The name of a file in `agents/`, which says what is not said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The system prompt; the agent file's, else the daemon's default, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The working directory of the caller.
    pub cwd: String,
    /// The environment of the one who asks.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    pub env: Environment,
    /// The settings of the shell in which its command was typed, which its programs have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Inherited>,
    #[serde(default)]
    pub limits: Limits,
    /// `tell_model`, `park` or `retry`; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_in_doubt: Option<String>,
    /// `end` or `suspend`; `end` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_budget: Option<String>,
    /// By tool, or `*`: `allow`, `ask` or `deny`; laid over the daemon's configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policy: BTreeMap<String, String>,
    /// Whatever would be asked is allowed.
    #[serde(default)]
    pub yes: bool,
    /// Whether it works in `cwd` or on a copy of it; if absent, on a copy if it is sealed and has no parent, otherwise in
    /// `cwd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceKind>,
    /// What its commands may reach; as the agent's file or the configuration says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// What they reach of the network; as the isolation says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The limits of a CLI agent and its programs; of any agent, whether its commands run even if this machine cannot
    /// enforce all of the isolation.
    #[serde(flatten)]
    pub resources: Resources,
    /// Whether somebody waits for it in the foreground: a CLI agent then ends when its work is done, instead of waiting for
    /// the next message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreground: bool,
    /// Whether the model calls of a CLI agent go to its provider directly.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_gateway: bool,
    /// A CLI agent runs with its own full-screen interface, in a terminal of this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    pub pid: Pid,
    pub uuid: Uuid,
}

/// The answer to a start that was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCancelled {
    /// The process, if it was created before its start could be cancelled. It runs.
    pub pid: Option<Pid>,
}

/// A request to wait for the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitRequest {
    /// For ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// `wait --json`, and what the command exits with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitAnswer {
    pub pid: Pid,
    pub uuid: Uuid,
    pub status: Option<ProcessStatus>,
    pub why: Option<Why>,
    pub exit: Option<Exit>,
    pub timed_out: bool,
    /// What `wait` exits with; 124 if it timed out.
    pub exit_code: u8,
    /// That the PID which was asked for continues as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
