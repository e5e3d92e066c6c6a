//! The command line from outside: what is typed, what comes out, what it exits with.
//!
//! Where a daemon is needed, a stand-in answers on the socket: what is tested is what the command makes of its answers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod agent_events;
mod danger;
mod fake;
mod interrupting;
mod offline;
mod running;
mod screens;
mod snapshots;
mod support;
mod talking;
mod terminal;
