//! The journal, used as the daemon uses it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod additions;
mod attention;
mod cases;
mod cli_calls;
mod collect;
mod compact;
mod conversations;
mod data;
mod derived;
mod derived_events;
mod events;
mod files;
mod forks;
#[cfg(feature = "faults")]
mod full;
mod golden;
mod model;
mod open_and_repair;
mod openings;
#[cfg(feature = "faults")]
mod programs;
mod properties;
mod protocol;
mod random;
mod readers;
mod support;
#[cfg(feature = "faults")]
mod sweep;
mod time;
mod unreadable;
#[cfg(feature = "faults")]
mod unsynced;
mod verbs;
