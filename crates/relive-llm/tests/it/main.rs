//! Every provider against a server that speaks its wire format.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod any_stream;
mod bounds;
mod conversations;
mod failures;
mod support;
