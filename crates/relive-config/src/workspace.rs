//! What is kept of the files that agents work on.

use serde::{Deserialize, Serialize};

/// Snapshots of working directories, and what they may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// Whether snapshots are taken.
    pub snapshots: Snapshots,
    /// A larger file is not kept.
    pub max_file_mb: u64,
    /// A directory with more files gets no snapshots.
    pub max_files: u64,
    /// A directory with more megabytes in its files gets no snapshots.
    pub max_total_mb: u64,
    /// Patterns, as in a `.gitignore`, of what is kept although it is ignored or looks like a secret.
    pub include: Vec<String>,
    /// Patterns of what is never kept.
    pub exclude: Vec<String>,
}

impl Default for Workspace {
    fn default() -> Self {
        Self {
            snapshots: Snapshots::Auto,
            max_file_mb: 100,
            max_files: 300_000,
            max_total_mb: 8 << 10,
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

/// Whether snapshots are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Snapshots {
    /// Of every directory within the limits, but `/`, the home directory and what is above it.
    #[default]
    Auto,
    /// Of none.
    Off,
}
