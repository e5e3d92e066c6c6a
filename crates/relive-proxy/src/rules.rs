//! Decides about a request. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use relive_types::HostRule;
use relive_types::network::{host_name, is_localhost};

use crate::address::is_public;
use crate::settings::{Answers, Unknown};

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// Reads a host as it is written in a request; an IPv6 address may be in brackets.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        match bare.parse() {
            Ok(address) => Some(Self::Address(address)),
            Err(_) => host_name(text).map(Self::Name),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    Ask,
    /// With the reason, which begins with the name of the host.
    Refuse(String),
}

/// Decides whether a host may be reached, before its name is resolved.
pub(crate) fn decide(host: &Host, rules: &[HostRule], unknown: Unknown, answers: &Answers) -> Decision {
    let is_listed = match host {
        Host::Name(name) => rules.iter().any(|rule| rule.has_name(name)),
        Host::Address(address) => rules.iter().any(|rule| rule.has_address(*address)),
    };
    let written = host.to_string();
    if is_listed || answers.allowed.contains(&written) {
        return Decision::Allow;
    }
    if let Host::Address(address) = host
        && !is_public(*address)
    {
        return Decision::Refuse(format!("{host} is a private address that is not in the allow list"));
    }
    if answers.denied.contains(&written) {
        return Decision::Refuse(format!("{host} was denied by the user"));
    }
    match unknown {
        Unknown::Ask => Decision::Ask,
        Unknown::Refuse => Decision::Refuse(format!("{host} is not in the allow list")),
    }
}

/// Returns the addresses of a name that need no resolver.
pub(crate) fn known_addresses(name: &str) -> Option<[IpAddr; 2]> {
    is_localhost(name).then_some([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)])
}

/// Returns those of the addresses of an allowed host that may be connected to.
pub(crate) fn reachable(host: &Host, addresses: &[IpAddr], rules: &[HostRule]) -> Result<Vec<IpAddr>, String> {
    let means_this_machine = |address: &IpAddr| match host {
        Host::Name(name) => is_localhost(name) && address.is_loopback(),
        // It was allowed as it is.
        Host::Address(_) => true,
    };
    let may = |address: &&IpAddr| {
        is_public(**address) || means_this_machine(address) || rules.iter().any(|rule| rule.has_address(**address))
    };
    let found: Vec<IpAddr> = addresses.iter().filter(may).copied().collect();
    match addresses {
        [] => Err(format!("{host} has no address")),
        [first, ..] if found.is_empty() => {
            Err(format!("{host} has the private address {first}, which is not in the allow list"))
        }
        [..] => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[&str]) -> Vec<HostRule> {
        rules.iter().map(|rule| rule.parse().unwrap()).collect()
    }

    #[test]
    fn a_host_is_allowed_asked_about_or_refused_by_name() {
        let rules = rules(&["a.com", "*.b.com", "10.0.0.0/8", "9.9.9.9"]);
        let answers = Answers { allowed: vec!["c.com".into()], denied: vec!["d.com".into()] };
        let check = |host: &str, expect: Decision| {
            let host = Host::parse(host).unwrap();
            assert_eq!(decide(&host, &rules, Unknown::Ask, &answers), expect, "{host}");
        };
        for allowed in ["a.com", "A.COM.", "x.b.com", "10.1.2.3", "9.9.9.9", "c.com"] {
            check(allowed, Decision::Allow);
        }
        check("b.com", Decision::Ask);
        check("8.8.8.8", Decision::Ask);
        check("d.com", Decision::Refuse("d.com was denied by the user".into()));
        let private =
            |host: &str| Decision::Refuse(format!("{host} is a private address that is not in the allow list"));
        check("127.0.0.1", private("127.0.0.1"));
        check("[::1]", private("::1"));
        check("169.254.169.254", private("169.254.169.254"));
        let host = Host::parse("b.com").unwrap();
        let refused = Decision::Refuse("b.com is not in the allow list".into());
        assert_eq!(decide(&host, &rules, Unknown::Refuse, &answers), refused);
        for wrong in ["", "a b", "a/b", "[::1", "ü.de", "a..b"] {
            assert_eq!(Host::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_allowed_name_does_not_lead_to_a_private_address() {
        let rules = rules(&["10.0.0.0/8"]);
        let check = |host: &str, addresses: &[&str], expect: Result<&[&str], &str>| {
            let parse = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
            let found = reachable(&Host::parse(host).unwrap(), &parse(addresses), &rules);
            assert_eq!(found, expect.map(parse).map_err(str::to_owned), "{host}");
        };
        check("a.com", &["1.1.1.1"], Ok(&["1.1.1.1"]));
        check("a.com", &["127.0.0.1", "1.1.1.1"], Ok(&["1.1.1.1"]));
        check("a.com", &["127.0.0.1"], Err("a.com has the private address 127.0.0.1, which is not in the allow list"));
        check(
            "a.com",
            &["::ffff:192.168.0.1"],
            Err("a.com has the private address ::ffff:192.168.0.1, which is not in the allow list"),
        );
        check("a.com", &["10.0.0.1"], Ok(&["10.0.0.1"]));
        check("a.localhost", &["127.0.0.1"], Ok(&["127.0.0.1"]));
        check(
            "a.localhost",
            &["192.168.0.1"],
            Err("a.localhost has the private address 192.168.0.1, which is not in the allow list"),
        );
        check("a.com", &[], Err("a.com has no address"));
    }
}
