//! The journal, used as the daemon uses it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod additions;
mod cases;
mod collect;
mod compact;
mod conversations;
mod data;
mod derived;
mod events;
mod forks;
#[cfg(feature = "faults")]
mod full;
mod golden;
mod model;
mod open_and_repair;
mod openings;
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
