//! What holds a session's processes together, so that all of them can be frozen, counted and killed.
//!
//! A ladder, tried from the top at the daemon's start by [`Ladder::probe`]; the shim is handed the [`Plan`] and makes a fresh
//! [`Tree`] from it for every launch. A limit that cannot be held is an error or a visible `degraded`, never silent.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a tree is made: found once by trying, sent to every shim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The cgroup v2 folder in which a leaf is made.
    pub v2: Option<PathBuf>,
    /// The v1 folders in which a leaf is made, where v2 has not got the controller.
    pub v1_freezer: Option<PathBuf>,
    /// The same.
    pub v1_memory: Option<PathBuf>,
    /// The same.
    pub v1_pids: Option<PathBuf>,
    /// Whether a PID namespace is what holds the tree, and, where it takes one, in a user namespace.
    pub pid_namespace: Option<PidNamespace>,
    /// The beginning of a leaf's name; the session's own name is the rest.
    pub prefix: String,
}

/// What a PID namespace takes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PidNamespace {
    /// Nothing else: we are privileged.
    Plain,
    /// A user namespace around it.
    InUserNamespace,
}

/// Which rung of each ladder is in force, in the words that `doctor` and `info` show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rungs {
    /// `cgroup2`, `cgroup1`, `pid-namespace`, `process-group`.
    pub tree: String,
    /// `cgroup2-freeze`, `cgroup1-freezer`, `sigstop`.
    pub pause: String,
    /// `cgroup-kill`, `pid-namespace`, `subreaper`.
    pub kill: String,
    /// `cgroup2`, `cgroup1`, `pid-namespace`, `rlimit`, `none`.
    pub pids: String,
    /// `cgroup2`, `cgroup1`, `none`.
    pub memory: String,
    /// What was wanted and cannot be held, or holds only weakly; empty when all is well.
    pub degraded: Vec<String>,
}
