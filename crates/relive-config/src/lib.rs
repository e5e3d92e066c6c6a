//! `config.yaml` and the files of `agents/`: what they may say, and what is wrong with them.
//!
//! Every key has a default and a missing file is all defaults. A file with a mistake is refused as a whole, with all
//! of its mistakes at once, each with its line: half a configuration is nobody's intention.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod agent;
mod check;
mod price;
mod providers;
mod tools;

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use agent::{AgentFile, AgentLimits};
pub use check::Problem;
pub use price::Price;
pub use providers::{PROVIDERS, Provider, Providers};
pub use tools::{EVERY_TOOL, Permission, TOOLS, Tools};

/// The shortest time between two collections.
pub const GC_INTERVAL_MIN_SECONDS: u64 = 60;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Provider and model of an agent that names none.
    pub default_model: Option<String>,
    /// What becomes of a call whose outcome nobody can know.
    pub on_in_doubt: OnInDoubt,
    /// What becomes of a process that ran when the daemon died.
    pub recovery: Recovery,
    /// When histories go.
    pub gc: Gc,
    /// How often a checkpoint is written.
    pub checkpoint: Checkpoint,
    /// When a process counts as stalled.
    pub heartbeat: Heartbeat,
    /// What the daemon takes on.
    pub limits: Limits,
    /// Where the keys of model providers are, and their servers.
    pub providers: Providers,
    /// Which variables the programs of an agent's tools get, beside those every program needs.
    pub tool_env: Vec<String>,
    /// Which tools an agent may use without asking.
    pub tools: Tools,
    /// What models cost, by `provider/model`: beside and instead of what is built in.
    pub prices: BTreeMap<String, Price>,
    /// How many tokens models can read and write in one call, by `provider/model`: beside and instead of what is built
    /// in.
    pub context_window: BTreeMap<String, u64>,
    /// Whether agents note how the repository of their folder stands.
    pub git_notes: GitNotes,
}

/// Whether agents note how the repository of their folder stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GitNotes(pub bool);

impl Default for GitNotes {
    fn default() -> Self {
        Self(true)
    }
}

/// What becomes of a call whose outcome nobody can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInDoubt {
    /// The model is told, and asked to look.
    #[default]
    TellModel,
    /// The process waits for `relive resolve`.
    Park,
    /// It is run again.
    Retry,
}

/// What becomes of a process that ran when the daemon died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// It continues at the next start.
    #[default]
    Auto,
    /// It is dead until `relive resume`.
    Manual,
}

/// When histories go. Either rule collects; 0 turns a rule off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gc {
    /// Days since the end.
    pub retention_days: u32,
    /// The number of ended processes that are kept.
    pub max_entries: u32,
    /// Between two collections, at least [`GC_INTERVAL_MIN_SECONDS`].
    pub interval_seconds: u64,
}

impl Default for Gc {
    fn default() -> Self {
        Self { retention_days: 30, max_entries: 500, interval_seconds: 3600 }
    }
}

/// How often a checkpoint is written: whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// After so many steps.
    pub every_steps: u32,
    /// After so many seconds.
    pub every_seconds: u64,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { every_steps: 5, every_seconds: 30 }
    }
}

/// When a process counts as stalled, and what is done then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Heartbeat {
    /// Seconds without progress.
    pub stalled_after_seconds: u64,
    /// What is done.
    pub policy: StallPolicy,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { stalled_after_seconds: 300, policy: StallPolicy::Warn }
    }
}

/// What is done about a stalled process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallPolicy {
    /// It is shown.
    #[default]
    Warn,
    /// It is paused.
    Pause,
    /// It is ended.
    Kill,
}

/// What the daemon takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Processes that have not ended, suspended ones too.
    pub max_processes: u32,
    /// Megabytes that must be free on the disk for a process to be started.
    pub floor_mb: u64,
    /// How many ancestors an agent that another one spawned may have.
    pub max_depth: u32,
    /// Living agents that one agent may have spawned.
    pub max_children: u32,
    /// Living agents below one that a person began, whoever of them spawned them.
    pub max_tree: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_processes: 100_000, floor_mb: 64, max_depth: 8, max_children: 64, max_tree: 256 }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is there and cannot be read.
    #[error("{}: cannot be read", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has mistakes.
    #[error("{}", check::report(path, problems))]
    Wrong {
        /// Which file.
        path: PathBuf,
        /// All of them, in the order of their lines.
        problems: Vec<Problem>,
    },
}

impl Config {
    /// From this file; all defaults where there is none.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        match read(path) {
            Ok(text) => Self::parse(&text).map_err(|problems| ConfigError::Wrong { path: path.to_owned(), problems }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Unreadable { path: path.to_owned(), source }),
        }
    }

    /// From the text of a file; all that is wrong with it otherwise.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let problems = check::check(text, check::KEYS, &[]);
        if !problems.is_empty() {
            return Err(problems);
        }
        let config: Option<Self> =
            serde_saphyr::from_str(text).map_err(|error| vec![check::problem_of(&error, text)])?;
        Ok(config.unwrap_or_default())
    }

    /// As a file that says all of it.
    pub fn to_yaml(&self) -> Result<String, String> {
        serde_saphyr::to_string(self).map_err(|error| error.to_string())
    }
}

/// Reads a configuration. A pipe would be waited for, and a file of any length would fill the memory.
fn read(path: &Path) -> io::Result<String> {
    const MAX: u64 = 1 << 20;
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MAX {
        return Err(io::Error::other("it has more than 1 MiB"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
