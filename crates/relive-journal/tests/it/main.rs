//! The journal, used as the daemon uses it.

mod protocol;
mod support;
#[cfg(feature = "faults")]
mod sweep;
