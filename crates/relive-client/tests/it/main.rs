//! The client, with sockets created by the tests.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "what a test writes need not survive")]

mod connections;
mod owner;
mod silence;
mod start;
