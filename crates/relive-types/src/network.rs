//! What the programs of a process reach of the network, and the rules of an allow list.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How many rules an allow list has at most.
const RULES_MAX: usize = 1024;
/// The longest name of a host.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;
const LOCALHOST: &str = "localhost";

/// What the programs of a process reach of the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    Full,
    /// Only these hosts, through a proxy. Everything else is a loopback of their own.
    Allow(Vec<HostRule>),
    /// Only a loopback of their own.
    None,
}

/// Hosts that an allow list allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostRule {
    /// This name.
    Name(String),
    /// `*.NAME`: the names below this one.
    Below(String),
    /// An address, or with fewer bits the addresses that begin with them: `10.0.0.0/8`.
    Addresses { base: IpAddr, bits: u8 },
}

/// The text is no network, or no rule for hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongNetwork {
    #[error("expected full, none or allow:DOMAIN,...")]
    Word,
    #[error("`allow:` needs a domain, such as allow:github.com,*.crates.io")]
    Empty,
    #[error("more than {RULES_MAX} domains")]
    TooMany,
    #[error("`{0}` is not a domain like github.com or *.crates.io, nor an address like 10.0.0.0/8")]
    Rule(String),
}

impl Network {
    /// Returns the network of a process with this one that was started by a process with the network `above`: nobody
    /// reaches more than the one that it was started by.
    #[must_use]
    pub fn below(&self, above: &Self) -> Self {
        match (self, above) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::Full, above) => above.clone(),
            (wanted, Self::Full) => wanted.clone(),
            (Self::Allow(wanted), Self::Allow(above)) => {
                let mut rules: Vec<HostRule> =
                    wanted.iter().filter(|rule| above.iter().any(|other| other.covers(rule))).cloned().collect();
                rules.extend(above.iter().filter(|rule| wanted.iter().any(|other| other.covers(rule))).cloned());
                rules.sort();
                rules.dedup();
                if rules.is_empty() { Self::None } else { Self::Allow(rules) }
            }
        }
    }

    /// Reads the domains of an allow list.
    pub fn allow<'a>(domains: impl IntoIterator<Item = &'a str>) -> Result<Self, WrongNetwork> {
        let rules: Vec<HostRule> = domains.into_iter().map(|text| text.trim().parse()).collect::<Result<_, _>>()?;
        match rules.len() {
            0 => Err(WrongNetwork::Empty),
            1..=RULES_MAX => Ok(Self::Allow(rules)),
            _ => Err(WrongNetwork::TooMany),
        }
    }
}

impl FromStr for Network {
    type Err = WrongNetwork;

    fn from_str(text: &str) -> Result<Self, WrongNetwork> {
        match (text, text.strip_prefix("allow:")) {
            ("full", _) => Ok(Self::Full),
            ("none", _) => Ok(Self::None),
            (_, Some("")) => Err(WrongNetwork::Empty),
            (_, Some(domains)) => Self::allow(domains.split(',')),
            (_, None) => Err(WrongNetwork::Word),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::None => f.write_str("none"),
            Self::Allow(rules) => {
                let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
                write!(f, "allow:{}", rules.join(","))
            }
        }
    }
}

impl HostRule {
    /// Returns whether it allows a name, which is in lower case and without a dot at its end.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        match self {
            Self::Name(allowed) => allowed == name,
            Self::Below(above) => is_below(name, above),
            Self::Addresses { .. } => false,
        }
    }

    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Name(_) | Self::Below(_) => false,
            Self::Addresses { base, bits } => begins_with(address, *base, *bits),
        }
    }

    /// Returns whether it allows everything that the other rule allows.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Name(name)) => self.has_name(name),
            (Self::Below(above), Self::Below(name)) => name == above || is_below(name, above),
            (Self::Addresses { base, bits }, Self::Addresses { base: inner, bits: more }) => {
                more >= bits && begins_with(*inner, *base, *bits)
            }
            (Self::Name(_) | Self::Addresses { .. }, Self::Below(_))
            | (Self::Name(_) | Self::Below(_), Self::Addresses { .. }) => false,
        }
    }
}

/// Returns whether a name stands for this machine itself, whoever resolves it.
#[must_use]
pub fn is_localhost(name: &str) -> bool {
    name == LOCALHOST || is_below(name, LOCALHOST)
}

/// Returns a name of a host in its common form, if it is one.
#[must_use]
pub fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    (name.len() <= NAME_MAX && name.split('.').all(is_label)).then_some(name)
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_suffix(above).and_then(|rest| rest.strip_suffix('.')).is_some_and(|rest| !rest.is_empty())
}

fn begins_with(address: IpAddr, base: IpAddr, bits: u8) -> bool {
    let same = |a: u128, b: u128, width: u32| (a ^ b).checked_shr(width - u32::from(bits).min(width)).unwrap_or(0) == 0;
    match (address, base) {
        (IpAddr::V4(address), IpAddr::V4(base)) => same(address.to_bits().into(), base.to_bits().into(), 32),
        (IpAddr::V6(address), IpAddr::V6(base)) => same(address.to_bits(), base.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for HostRule {
    type Err = WrongNetwork;

    fn from_str(text: &str) -> Result<Self, WrongNetwork> {
        let wrong = || WrongNetwork::Rule(text.to_owned());
        if let Some((base, bits)) = text.split_once('/') {
            let base: IpAddr = base.parse().map_err(|_| wrong())?;
            let bits: u8 = bits.parse().map_err(|_| wrong())?;
            return (bits <= width(base)).then_some(Self::Addresses { base, bits }).ok_or_else(wrong);
        }
        if let Ok(base) = text.parse::<IpAddr>() {
            return Ok(Self::Addresses { base, bits: width(base) });
        }
        let (name, rule): (&str, fn(String) -> Self) = match text.strip_prefix("*.") {
            Some(name) => (name, Self::Below),
            None => (text, Self::Name),
        };
        host_name(name).map(rule).ok_or_else(wrong)
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Addresses { base, bits } if *bits == width(*base) => write!(f, "{base}"),
            Self::Addresses { base, bits } => write!(f, "{base}/{bits}"),
        }
    }
}

impl Serialize for HostRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostRule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
