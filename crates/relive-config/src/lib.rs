//! `config.yaml` and the files of `agents/`: their keys, defaults and mistakes.
//!
//! Every key has a default, and a missing file means all defaults. A file with a mistake is refused as a whole, and all
//! its mistakes are reported at once, each with its line: nobody wants half a configuration.

#![forbid(unsafe_code)]

mod agent;
mod check;
mod isolation;
mod pool;
mod price;
mod providers;
mod tools;
mod workspace;

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use agent::{AgentFile, AgentLimits};
pub use check::Problem;
pub use isolation::{GitConfig, IsolationSettings, NetworkSetting};
pub use pool::Pool;
pub use price::Price;
pub use providers::{PROVIDERS, Provider, Providers};
pub use tools::{EVERY_TOOL, Permission, TOOLS, Tools};
pub use workspace::{Snapshots, Workspace};

/// The shortest time between two garbage collections.
pub const GC_INTERVAL_MIN_SECONDS: u64 = 60;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `provider/model` of agents that name no model.
    pub default_model: Option<String>,
    /// What happens to a call whose outcome cannot be known.
    pub on_in_doubt: OnInDoubt,
    /// What happens to a process that was running when the daemon died.
    pub recovery: Recovery,
    /// When the journals of ended processes are deleted.
    pub gc: Gc,
    /// How often a checkpoint is written.
    pub checkpoint: Checkpoint,
    /// When a process counts as stalled.
    pub heartbeat: Heartbeat,
    pub limits: Limits,
    /// The keys and servers of model providers.
    pub providers: Providers,
    /// Additional environment variables for the programs that an agent's tools start.
    pub tool_env: Vec<String>,
    /// Which tools an agent may use without asking.
    pub tools: Tools,
    /// Prices by `provider/model`, which add to the built-in ones and replace them.
    pub prices: BTreeMap<String, Price>,
    /// Context windows in tokens by `provider/model`, which add to the built-in ones and replace them.
    pub context_window: BTreeMap<String, u64>,
    /// Whether agents record the state of the git repository in their directory.
    pub git_notes: GitNotes,
    /// What is kept of the files that agents work on.
    pub workspace: Workspace,
    /// What the programs of agents may reach.
    pub isolation: IsolationSettings,
    /// A shell command that hears of everything new that waits for a person.
    pub notify: Option<String>,
    /// How CLI agents are kept.
    pub pool: Pool,
}

/// Whether agents record the state of the git repository in their directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GitNotes(pub bool);

impl Default for GitNotes {
    fn default() -> Self {
        Self(true)
    }
}

/// What happens to a call whose outcome cannot be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInDoubt {
    /// The model is told, and asked to check.
    #[default]
    TellModel,
    /// The process waits for `relive resolve`.
    Park,
    /// The call is run again.
    Retry,
}

/// What happens to a process that was running when the daemon died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// It is resumed at the next start.
    #[default]
    Auto,
    /// It stays dead until `relive resume`.
    Manual,
}

/// When the journals of ended processes are deleted. Either rule is enough; 0 turns a rule off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gc {
    /// Days since the end.
    pub retention_days: u32,
    /// The number of ended processes that are kept.
    pub max_entries: u32,
    /// Seconds between two collections, at least [`GC_INTERVAL_MIN_SECONDS`].
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
    pub every_steps: u32,
    pub every_seconds: u64,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { every_steps: 5, every_seconds: 30 }
    }
}

/// When a process counts as stalled, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Heartbeat {
    /// Seconds without progress.
    pub stalled_after_seconds: u64,
    pub policy: StallPolicy,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { stalled_after_seconds: 300, policy: StallPolicy::Warn }
    }
}

/// What happens to a stalled process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallPolicy {
    /// It is shown as stalled.
    #[default]
    Warn,
    /// It is paused.
    Pause,
    /// It is ended.
    Kill,
}

/// The limits of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Processes that have not ended, including suspended ones.
    pub max_processes: u32,
    /// Megabytes of free disk space that the start of a process requires.
    pub floor_mb: u64,
    /// How many ancestors a spawned agent may have.
    pub max_depth: u32,
    /// Living agents that one agent may have spawned.
    pub max_children: u32,
    /// Living descendants, at any depth, of an agent that a person started.
    pub max_tree: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_processes: 100_000, floor_mb: 64, max_depth: 8, max_children: 64, max_tree: 256 }
    }
}

/// The reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file exists and cannot be read.
    #[error("{}: cannot be read", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file has mistakes.
    #[error("{}", relive_yaml::report(&path.display().to_string(), problems))]
    Wrong {
        path: PathBuf,
        /// All mistakes, ordered by line.
        problems: Vec<Problem>,
    },
}

impl Config {
    /// Reads a file; a missing one gives all defaults.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        match read(path) {
            Ok(text) => Self::parse(&text).map_err(|problems| ConfigError::Wrong { path: path.to_owned(), problems }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Unreadable { path: path.to_owned(), source }),
        }
    }

    /// Parses the text of a file, or returns all its mistakes.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let problems = check::check(text, check::KEYS, &[]);
        if !problems.is_empty() {
            return Err(problems);
        }
        let config: Option<Self> =
            serde_saphyr::from_str(text).map_err(|error| vec![check::problem_of(&error, text)])?;
        Ok(config.unwrap_or_default())
    }

    /// Returns a file that contains every key.
    pub fn to_yaml(&self) -> Result<String, String> {
        serde_saphyr::to_string(self).map_err(|error| error.to_string())
    }
}

/// Reads a configuration. Refuses pipes, which would block, and files of unbounded size.
fn read(path: &Path) -> io::Result<String> {
    const MAX: u64 = 1 << 20;
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > MAX {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
