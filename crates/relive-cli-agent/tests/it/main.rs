//! The crate from outside: recorded streams, the table of states, the behaviour cases, properties.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod any_bytes;
mod cases;
mod detection;
mod encoding;
mod hooks;
mod properties;
mod quotas;
mod replay;
mod states;
mod support;
mod timing;
mod turns;
mod unknown_parts;
