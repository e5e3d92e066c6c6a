//! A CLI agent: how its program is started, continued and forked.

use serde::{Deserialize, Serialize};

/// The definition of a CLI agent, as it was when its process was created.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CliAgent {
    /// The name that a person used, such as `claude`.
    pub agent: String,
    /// The language of its standard input and output.
    pub dialect: String,
    /// The program and the arguments of every run.
    pub command: Vec<String>,
    /// Further arguments of a run that begins a conversation. `{session}` is the UUID of the process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// Further arguments of a run that continues the conversation `{session}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resume: Vec<String>,
    /// Further arguments of a run that forks the conversation `{origin}` as `{session}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fork: Vec<String>,
    /// Further arguments if a model was named, which is `{model}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with_model: Vec<String>,
    /// The model, in the words of the CLI; its own choice if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether each of its requests for permission is allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yes: bool,
    /// Whether it ends when its work is done, instead of waiting for the next message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_idle: bool,
    /// Whether its model calls do not go through the gateway, although they could.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_gateway: bool,
    /// Whether it runs with its own full-screen interface, in a terminal. Its output is then not read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
    /// Directories of its own that it may write when it is confined; `~/` is the home of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    /// Whether Relive isolates it, so that a sandbox of its own, which cannot be nested, is off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
}
