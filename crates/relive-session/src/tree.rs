//! What holds a session's processes together, so that all of them can be frozen, counted and killed.
//!
//! A ladder, tried from the top at the daemon's start by [`Ladder::probe`]; the shim is handed the [`Plan`] and makes a fresh
//! [`Tree`] from it for every launch. A limit that cannot be held is an error or a visible `degraded`, never silent.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::proc::Identity;

/// The variable by which every program of a session can be told: its value is the session's name.
pub const MARKER: &str = "RELIVE_SESSION";

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
    /// The name of the folder, in each of those above, in which the leaves are. Made when it is needed, removed when it is
    /// empty.
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

/// What a tree consists of: enough to find it again when its shim has gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Made {
    /// The session's name: the leaf's in each hierarchy, and the value of [`MARKER`] in the program's environment.
    pub name: String,
    /// The leaf of the v2 hierarchy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v2: Option<PathBuf>,
    /// The v1 leaf that is the list of members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_freezer: Option<PathBuf>,
    /// The v1 leaf with the limit of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_memory: Option<PathBuf>,
    /// The v1 leaf with the limit of processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_pids: Option<PathBuf>,
    /// Whether it has a PID namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<PidNamespace>,
    /// The first process, as soon as it is placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Identity>,
}

/// Which rung of each ladder is in force, in the words that `doctor` and `info` show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rungs {
    /// `cgroup2`, `cgroup1`, `pid-namespace`, `process-group`.
    pub tree: String,
    /// `cgroup2-freeze`, `cgroup1-freezer`, `sigstop`.
    pub pause: String,
    /// `cgroup-kill`, `cgroup-sweep` (freeze, kill each, thaw), `pid-namespace`, `subreaper`.
    pub kill: String,
    /// `cgroup2`, `cgroup1`, `pid-namespace`, `rlimit`, `none`.
    pub pids: String,
    /// `cgroup2`, `cgroup1`, `none`.
    pub memory: String,
    /// What was wanted and cannot be held, or holds only weakly; empty when all is well.
    pub degraded: Vec<String>,
}
