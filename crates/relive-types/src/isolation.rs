//! How the programs of a process are isolated from the rest of the machine.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::network::Network;

/// What the programs of a process may reach. A later one reaches less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Everything that the user may.
    #[default]
    None,
    /// Everything is readable except secrets; the working directory, caches and private temporary directories are
    /// writable.
    Confined,
    /// As `Confined`, without the caches and the network, and in namespaces of its own.
    Sealed,
}

/// A kind of namespace of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamespaceKind {
    User,
    Pid,
    Mount,
    Net,
    Ipc,
    Uts,
    Cgroup,
    Time,
}

/// Whether isolated programs may change the configuration of the repository they work in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitConfig {
    /// No: Git executes what its configuration names, for whoever uses the repository next.
    #[default]
    ReadOnly,
    Writable,
}

/// The isolation that a process was given at its start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Isolated {
    #[serde(default)]
    pub isolation: Isolation,
    /// Namespaces besides those of the isolation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NamespaceKind>,
    /// As the isolation says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The directory of the isolated process above it: it works nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Whether its programs run where this machine cannot give all of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_degraded: bool,
}

impl Isolation {
    pub const ALL: [Self; 3] = [Self::None, Self::Confined, Self::Sealed];

    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Confined => "confined",
            Self::Sealed => "sealed",
        }
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl NamespaceKind {
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
}

/// The text is none of the words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {expected}")]
pub struct UnknownWord {
    expected: String,
}

impl FromStr for Isolation {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        find(&Self::ALL, Self::name, text)
    }
}

impl FromStr for NamespaceKind {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        find(&Self::ALL, Self::name, text)
    }
}

fn find<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T, UnknownWord> {
    let expected = || all.iter().map(|&known| name(known)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|&known| name(known) == text).ok_or_else(|| UnknownWord { expected: expected() })
}

impl Isolated {
    /// Returns whether its programs run as if there were no isolation.
    #[must_use]
    pub fn is_none(&self) -> bool {
        let is_open = match self.network {
            None | Some(Network::Full) => true,
            Some(Network::Allow(_) | Network::None) => false,
        };
        self.isolation == Isolation::None && self.namespaces.is_empty() && is_open
    }

    /// Returns what is left of it below a process with the isolation `above`: nobody reaches more than the one that it
    /// was started by, whose working directory is `cwd`.
    #[must_use]
    pub fn below(&self, above: &Self, cwd: &str) -> Self {
        if above.is_none() {
            return self.clone();
        }
        let network = self.reach().below(&above.reach());
        let mut namespaces: Vec<NamespaceKind> = self.namespaces.iter().chain(&above.namespaces).copied().collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        Self {
            isolation: self.isolation.max(above.isolation),
            namespaces,
            network: Some(network).filter(|network| self.network.is_some() || *network != self.reach()),
            within: above.within.clone().or_else(|| (above.isolation != Isolation::None).then(|| cwd.to_owned())),
            allow_degraded: self.allow_degraded && above.allow_degraded,
        }
    }

    /// Returns what its programs reach of the network.
    #[must_use]
    pub fn reach(&self) -> Network {
        self.network.clone().unwrap_or(match self.isolation {
            Isolation::None | Isolation::Confined => Network::Full,
            Isolation::Sealed => Network::None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isolated(isolation: Isolation, network: Option<Network>) -> Isolated {
        Isolated { isolation, network, ..Isolated::default() }
    }

    #[test]
    fn a_child_reaches_no_more_than_its_parent() {
        let check = |wanted: Isolated, above: Isolated, expect: Isolated| {
            let within = (above.isolation != Isolation::None).then(|| "/work".to_owned());
            let below = wanted.below(&above, "/work");
            assert_eq!(below, Isolated { within, ..expect });
            assert_eq!(below.below(&below, "/work/deeper").within, below.within, "the outermost counts");
        };
        let (confined, sealed) = (isolated(Isolation::Confined, None), isolated(Isolation::Sealed, None));
        check(Isolated::default(), confined.clone(), confined.clone());
        check(sealed.clone(), confined.clone(), sealed.clone());
        let open = isolated(Isolation::Sealed, Some(Network::Full));
        check(open.clone(), confined.clone(), open.clone());
        check(open, sealed.clone(), isolated(Isolation::Sealed, Some(Network::None)));
        let offline = isolated(Isolation::Confined, Some(Network::None));
        check(confined.clone(), offline.clone(), offline);
        let lenient = Isolated { allow_degraded: true, ..Isolated::default() };
        check(lenient.clone(), confined.clone(), confined);
        check(lenient.clone(), Isolated::default(), lenient);
        let kinds = |kinds: &[NamespaceKind]| Isolated { namespaces: kinds.to_vec(), ..Isolated::default() };
        check(
            kinds(&[NamespaceKind::Uts]),
            kinds(&[NamespaceKind::Ipc]),
            kinds(&[NamespaceKind::Ipc, NamespaceKind::Uts]),
        );
    }

    #[test]
    fn the_json_has_the_published_names() {
        let text = r#"{"isolation":"sealed","namespaces":["net"],"network":"full"}"#;
        let read: Isolated = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!("confind".parse::<Isolation>().unwrap_err().to_string(), "expected one of none, confined, sealed");
    }
}
