//! The daemon's socket from outside, without a socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "tests make files as a person would")]

mod any_request;
mod properties;
