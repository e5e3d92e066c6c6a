//! The crate from outside: recorded streams, the table of states, the behaviour cases, properties.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod any_bytes;
mod background;
mod cases;
mod codex_threads;
mod detection;
mod encoding;
mod hooks;
mod lines;
mod properties;
mod quota_texts;
mod quotas;
mod replay;
mod requests;
mod restarts;
mod spawning;
mod states;
mod subagents;
mod support;
mod timing;
mod turns;
mod unknown_parts;
