//! What the programs of agents may reach.

pub use relive_types::isolation::GitConfig;
use relive_types::{Isolation, Network};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The isolation of agents' commands, and additions to the lists of `docs/isolation.md`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IsolationSettings {
    /// What the commands of agents may reach, unless the command or the agent says otherwise; if absent `confined`, and
    /// `none` on a machine that cannot confine.
    pub agents: Option<Isolation>,
    /// What confined programs reach of the network; `full` if absent.
    pub network: NetworkSetting,
    /// Further directories that isolated programs may write: absolute, or beginning with `~/`.
    pub writable: Vec<String>,
    /// Further files and directories that they do not see.
    pub hidden: Vec<String>,
    pub git_config: GitConfig,
}

/// A network as it is written in a file: a word, a list of domains, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkSetting(pub Option<Network>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Word(String),
    Domains(Vec<String>),
}

impl Serialize for NetworkSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = self.0.as_ref().map(|network| match network {
            Network::Allow(rules) => Written::Domains(rules.iter().map(ToString::to_string).collect()),
            Network::Full | Network::None => Written::Word(network.to_string()),
        });
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for NetworkSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let network = match Option::<Written>::deserialize(deserializer)? {
            None => return Ok(Self(None)),
            Some(Written::Word(word)) => word.parse(),
            Some(Written::Domains(domains)) => Network::allow(domains.iter().map(String::as_str)),
        };
        network.map(|network| Self(Some(network))).map_err(serde::de::Error::custom)
    }
}
