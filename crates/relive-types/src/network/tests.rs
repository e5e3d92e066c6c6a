use super::*;

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

#[test]
fn a_network_is_a_word_or_a_list_and_prints_as_it_was_written() {
    for text in ["full", "none", "allow:github.com,*.crates.io,10.0.0.0/8,127.0.0.1,::1,fe80::/10"] {
        assert_eq!(network(text).to_string(), text);
    }
    assert_eq!(network("allow:GitHub.com.").to_string(), "allow:github.com");
    for wrong in
        ["", "allow", "allow:", "allow:a,,b", "allow:https://a", "allow:a/33", "allow:*", "allow:a*.b", "allow:ü.de"]
    {
        assert!(wrong.parse::<Network>().is_err(), "{wrong}");
    }
    let json = serde_json::to_string(&network("allow:a.b,10.0.0.0/8")).unwrap();
    assert_eq!(json, r#"{"allow":["a.b","10.0.0.0/8"]}"#);
    assert_eq!(serde_json::from_str::<Network>(&json).unwrap(), network("allow:a.b,10.0.0.0/8"));
    assert_eq!(serde_json::to_string(&Network::None).unwrap(), r#""none""#);
}

#[test]
fn a_rule_allows_a_name_the_names_below_one_or_addresses() {
    let check = |rule: &str, host: &str, expect: bool| {
        let rule: HostRule = rule.parse().unwrap();
        let allowed = match host.parse() {
            Ok(address) => rule.has_address(address),
            Err(_) => rule.has_name(host),
        };
        assert_eq!(allowed, expect, "{rule} {host}");
    };
    check("a.com", "a.com", true);
    check("a.com", "b.a.com", false);
    check("a.com", "aa.com", false);
    check("*.a.com", "a.com", false);
    check("*.a.com", "b.a.com", true);
    check("*.a.com", "c.b.a.com", true);
    check("*.a.com", "xa.com", false);
    check("*.a.com", ".a.com", false);
    check("10.0.0.0/8", "10.1.2.3", true);
    check("10.0.0.0/8", "11.1.2.3", false);
    check("0.0.0.0/0", "1.2.3.4", true);
    check("0.0.0.0/0", "::1", false);
    check("::1", "::1", true);
    check("::1", "::2", false);
    check("127.0.0.1", "127.0.0.2", false);
}

#[test]
fn a_child_of_an_allow_list_reaches_no_more_than_the_list() {
    let check = |wanted: &str, above: &str, expect: &str| {
        assert_eq!(network(wanted).below(&network(above)).to_string(), expect, "{wanted} below {above}");
    };
    check("full", "allow:a.com", "allow:a.com");
    check("allow:a.com", "full", "allow:a.com");
    check("none", "allow:a.com", "none");
    check("allow:a.com", "none", "none");
    check("allow:a.com,b.com", "allow:b.com,c.com", "allow:b.com");
    check("allow:*.a.com", "allow:x.a.com,*.b.a.com,b.com", "allow:x.a.com,*.b.a.com");
    check("allow:x.a.com", "allow:*.a.com", "allow:x.a.com");
    check("allow:10.0.0.0/8", "allow:10.1.0.0/16", "allow:10.1.0.0/16");
    check("allow:a.com", "allow:b.com", "none");
    check("full", "full", "full");
}

#[test]
fn localhost_is_a_name_and_those_below_it() {
    assert!(is_localhost("localhost") && is_localhost("a.localhost"));
    assert!(!is_localhost("localhost.com") && !is_localhost("notlocalhost"));
}
