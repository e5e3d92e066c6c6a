//! The process model, as its callers see it.

#![expect(clippy::unwrap_used, reason = "tests; the helpers are outside of `#[test]` functions")]

mod authority;
mod drafts;
mod names;
mod pauses;
mod processes;
mod random;
mod records;
mod recovered;
mod release;
mod states;
mod support;
