//! The journal, used as the daemon uses it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod protocol;
mod support;
#[cfg(feature = "faults")]
mod sweep;
