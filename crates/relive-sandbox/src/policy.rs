//! The request: how a program is to be isolated.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How much of the machine a program may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Everything that the user may.
    #[default]
    None,
    /// It reads everything except secrets, and writes only in its working directory, caches and private temporary
    /// directories.
    Confined,
    /// As `Confined`, without the caches and the network, and in namespaces of its own.
    Sealed,
}

/// One kind of namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    User,
    Pid,
    Mount,
    Net,
    Ipc,
    Uts,
    Cgroup,
    Time,
}

/// A set of namespaces, in the order of [`Kind`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Namespaces(Vec<Kind>);

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

/// Whether a program may change the configuration of the repository it works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitConfig {
    /// No: Git executes what its configuration names, for whoever uses the repository next.
    #[default]
    ReadOnly,
    Writable,
}

/// What happens if this machine cannot hold a program to its isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unheld {
    /// The launch fails.
    #[default]
    Fail,
    /// It runs with less, and the plan says what is missing.
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
    /// Directories that are hidden, but that may contain the working directory and what is shown.
    #[serde(default)]
    pub private: Vec<PathBuf>,
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

impl Isolation {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Confined => "confined",
            Self::Sealed => "sealed",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Kind {
    pub const ALL: [Self; 8] =
        [Self::User, Self::Pid, Self::Mount, Self::Net, Self::Ipc, Self::Uts, Self::Cgroup, Self::Time];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pid => "pid",
            Self::Mount => "mount",
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Cgroup => "cgroup",
            Self::Time => "time",
        }
    }

    /// Returns the name of its file in `/proc/PID/ns`.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Mount => "mnt",
            Self::User | Self::Pid | Self::Net | Self::Ipc | Self::Uts | Self::Cgroup | Self::Time => self.name(),
        }
    }

    #[must_use]
    pub fn clone_flag(self) -> u64 {
        let flag = match self {
            Self::User => libc::CLONE_NEWUSER,
            Self::Pid => libc::CLONE_NEWPID,
            Self::Mount => libc::CLONE_NEWNS,
            Self::Net => libc::CLONE_NEWNET,
            Self::Ipc => libc::CLONE_NEWIPC,
            Self::Uts => libc::CLONE_NEWUTS,
            Self::Cgroup => libc::CLONE_NEWCGROUP,
            Self::Time => libc::CLONE_NEWTIME,
        };
        flag as u64
    }
}

impl Namespaces {
    #[must_use]
    pub fn of(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let mut kinds: Vec<Kind> = kinds.into_iter().collect();
        kinds.sort_unstable();
        kinds.dedup();
        Self(kinds)
    }

    /// Returns the namespaces of a mask of clone flags.
    #[must_use]
    pub fn of_flags(flags: u64) -> Self {
        Self::of(Kind::ALL.into_iter().filter(|kind| flags & kind.clone_flag() != 0))
    }

    #[must_use]
    pub fn and(&self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self::of(self.0.iter().copied().chain(kinds))
    }

    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Kind> + '_ {
        self.0.iter().copied()
    }

    #[must_use]
    pub fn clone_flags(&self) -> u64 {
        self.iter().fold(0, |flags, kind| flags | kind.clone_flag())
    }
}
