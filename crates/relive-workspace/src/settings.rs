//! The limits and rules of a workspace.

use std::path::PathBuf;
use std::time::Duration;

/// Limits and rules of a workspace. Nothing is read from the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Larger files are skipped.
    pub max_file_bytes: u64,
    /// A directory with more files is refused.
    pub max_files: u64,
    /// A directory with more bytes in its files is refused.
    pub max_total_bytes: u64,
    /// How long a snapshot may take.
    pub time_limit: Option<Duration>,
    /// Patterns, as in a `.gitignore`, of files that are included although they are ignored or look like a secret.
    pub include: Vec<String>,
    /// Patterns of files that are always excluded.
    pub exclude: Vec<String>,
    /// Files and directories, by their real paths, that no snapshot has, whatever `include` says and Git tracks.
    pub hidden: Vec<PathBuf>,
    /// The user's home directory, which is refused as a workspace.
    pub home: Option<PathBuf>,
    /// Directories that are never part of a workspace: Relive's own.
    pub private: Vec<PathBuf>,
    /// The user's Git configuration files, the strongest last; they may set `core.excludesFile`.
    pub git_configs: Vec<PathBuf>,
    /// The excludes file if no configuration names one, usually `~/.config/git/ignore`.
    pub excludes_file: Option<PathBuf>,
}

/// The limits of a snapshot as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_files: u64,
    pub(crate) max_total_bytes: u64,
    pub(crate) time_limit: Option<Duration>,
}

/// No limits.
impl Default for Limits {
    fn default() -> Self {
        Self { max_files: u64::MAX, max_total_bytes: u64::MAX, time_limit: None }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_file_bytes: 100 << 20,
            max_files: 300_000,
            max_total_bytes: 8 << 30,
            time_limit: Some(Duration::from_secs(60)),
            include: Vec::new(),
            exclude: Vec::new(),
            hidden: Vec::new(),
            home: None,
            private: Vec::new(),
            git_configs: Vec::new(),
            excludes_file: None,
        }
    }
}
