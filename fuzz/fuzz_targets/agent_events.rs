//! Any bytes at all as the output of a CLI agent, and as lines in both directions: see `any_bytes`, which the tests of
//! `relive-cli-agent` run too.

#![no_main]

use libfuzzer_sys::fuzz_target;
use relive_cli_agent::Dialect;

#[path = "../../crates/relive-cli-agent/tests/it/any_bytes.rs"]
mod any_bytes;

// The first byte picks the dialect, or none; the next two the place where the rest is cut in two.
fuzz_target!(|bytes: &[u8]| {
    let [choice, high, low, bytes @ ..] = bytes else { return };
    let dialect = Dialect::ALL.get(usize::from(*choice) % (Dialect::ALL.len() + 1)).copied();
    any_bytes::check(dialect, bytes);
    any_bytes::check_duplex(dialect, bytes);
    let place = usize::from(u16::from_be_bytes([*high, *low])) % (bytes.len() + 1);
    let (left, right) = bytes.split_at(place);
    assert_eq!(any_bytes::read(dialect, &[left, right]), any_bytes::read(dialect, &[bytes]));
});
