//! The daemon from outside, with a socket and without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "tests make files as a person would")]

mod any_request;
#[path = "../../../relive/tests/support/dice.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod dice;
mod mutations;
mod properties;
