//! Any bytes at all as the output of a CLI agent: see `any_bytes`, which the tests of `relive-cli-agent` run too.

#![no_main]

use libfuzzer_sys::fuzz_target;
use relive_cli_agent::Dialect;

#[path = "../../crates/relive-cli-agent/tests/it/any_bytes.rs"]
mod any_bytes;

// The first byte picks the dialect, or none; the second where the rest is cut in two.
fuzz_target!(|bytes: &[u8]| {
    let [choice, cut, bytes @ ..] = bytes else { return };
    let dialect = Dialect::ALL.get(usize::from(*choice) % (Dialect::ALL.len() + 1)).copied();
    any_bytes::check(dialect, bytes);
    any_bytes::check_duplex(dialect, bytes);
    let (left, right) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    assert_eq!(any_bytes::read(dialect, &[left, right]), any_bytes::read(dialect, &[bytes]));
});
