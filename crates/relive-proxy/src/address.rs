//! Which addresses are on the public network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns whether an address is one of the public network, also if it is written inside of another one.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // This network, loopback, multicast and what is reserved.
        (0 | 127 | 224.., ..) => true,
        // Carriers' networks, benchmarks, and what the registry has set aside.
        (100, 64..128, _) | (198, 18..20, _) | (192, 0, 0) | (192, 88, 99) => true,
        _ => address.is_private() || address.is_link_local() || address.is_documentation(),
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match (a, b, c, d, e, f) {
        // IPv4 addresses in another form.
        (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => is_public_v4(v4(g, h)),
        (0x2002, ..) => is_public_v4(v4(b, c)),
        // Teredo and others that lead elsewhere; documentation.
        (0x2001, 0..0x200, ..) | (0x2001, 0xdb8, ..) | (0x3fff, 0..0x1000, ..) => false,
        (0x2000..0x4000, ..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_public_are_known_in_every_form() {
        let check = |text: &str, expect: bool| assert_eq!(is_public(text.parse().unwrap()), expect, "{text}");
        for public in
            ["1.1.1.1", "8.8.8.8", "100.63.0.1", "172.15.0.1", "2606:4700::1", "::ffff:1.1.1.1", "2002:101:101::"]
        {
            check(public, true);
        }
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
        ] {
            check(private, false);
        }
    }
}
