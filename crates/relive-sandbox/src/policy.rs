//! The request: how a program is to be isolated.

use std::path::PathBuf;

pub use relive_types::isolation::{GitConfig, Isolation, NamespaceKind};
use serde::{Deserialize, Serialize};

use crate::state::State;

/// A set of namespaces, in the order of [`NamespaceKind`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Namespaces(Vec<NamespaceKind>);

/// Whether a program reaches the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// As the isolation says: full, and none for `sealed`.
    #[default]
    ByIsolation,
    Full,
    /// Only its own loopback, on which a process outside listens on this port.
    Proxy(u16),
    /// Only its own loopback.
    None,
}

/// What to do if this machine cannot enforce the isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unheld {
    /// The launch fails.
    #[default]
    Fail,
    /// The program runs with less, and the plan lists what is missing.
    Say,
}

/// How a program is to be isolated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    pub isolation: Isolation,
    /// Namespaces in addition to those of the isolation.
    #[serde(default)]
    pub namespaces: Namespaces,
    #[serde(default)]
    pub network: Network,
    #[serde(default)]
    pub git_config: GitConfig,
    #[serde(default)]
    pub unheld: Unheld,
    /// Further writable directories.
    #[serde(default)]
    pub writable: Vec<PathBuf>,
    /// Further directories and files that are hidden.
    #[serde(default)]
    pub hidden: Vec<PathBuf>,
    /// Directories that are hidden, but that may contain what is shown. A copy of the working directory leaves them out.
    #[serde(default)]
    pub private: Vec<PathBuf>,
    /// Configuration through which whoever writes it gets more than the program has: hidden, also where it is reached by links.
    #[serde(default)]
    pub configuration: Vec<PathBuf>,
    /// The only directory in which, or below which, the program may work.
    #[serde(default)]
    pub within: Option<PathBuf>,
    /// The user's home, whatever the environment says: the program may have chosen that.
    #[serde(default)]
    pub home: Option<PathBuf>,
    /// Sockets, and directories of sockets, that stay reachable in hidden directories. They cannot be changed.
    #[serde(default)]
    pub shown: Vec<PathBuf>,
    /// Programs that stay visible, read-only, in a directory that is empty for the program. Those in hidden directories stay
    /// hidden.
    #[serde(default)]
    pub programs: Vec<PathBuf>,
    /// The directories in which the program keeps state of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<State>,
}

impl Policy {
    /// Returns whether the program runs as it would without this crate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_open = match self.network {
            Network::ByIsolation | Network::Full => true,
            Network::Proxy(_) | Network::None => false,
        };
        self.isolation == Isolation::None && self.namespaces.is_empty() && is_open
    }
}

/// Returns the flag with which the kernel makes a namespace of this kind, or joins one.
#[must_use]
pub(crate) fn clone_flag(kind: NamespaceKind) -> u64 {
    let flag = match kind {
        NamespaceKind::User => libc::CLONE_NEWUSER,
        NamespaceKind::Pid => libc::CLONE_NEWPID,
        NamespaceKind::Mount => libc::CLONE_NEWNS,
        NamespaceKind::Net => libc::CLONE_NEWNET,
        NamespaceKind::Ipc => libc::CLONE_NEWIPC,
        NamespaceKind::Uts => libc::CLONE_NEWUTS,
        NamespaceKind::Cgroup => libc::CLONE_NEWCGROUP,
        NamespaceKind::Time => libc::CLONE_NEWTIME,
    };
    flag as u64
}

impl Namespaces {
    #[must_use]
    pub fn of(kinds: impl IntoIterator<Item = NamespaceKind>) -> Self {
        let mut kinds: Vec<NamespaceKind> = kinds.into_iter().collect();
        kinds.sort_unstable();
        kinds.dedup();
        Self(kinds)
    }

    /// Returns the namespaces of a mask of clone flags.
    #[must_use]
    pub fn of_flags(flags: u64) -> Self {
        Self::of(NamespaceKind::ALL.into_iter().filter(|kind| flags & clone_flag(*kind) != 0))
    }

    #[must_use]
    pub fn and(&self, kinds: impl IntoIterator<Item = NamespaceKind>) -> Self {
        Self::of(self.0.iter().copied().chain(kinds))
    }

    #[must_use]
    pub fn has(&self, kind: NamespaceKind) -> bool {
        self.0.contains(&kind)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = NamespaceKind> + '_ {
        self.0.iter().copied()
    }

    #[must_use]
    pub fn clone_flags(&self) -> u64 {
        self.iter().fold(0, |flags, kind| flags | clone_flag(kind))
    }
}
