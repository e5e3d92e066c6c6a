//! One binary for all tests of this crate's interface.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod compose;
mod files;
mod properties;
mod schemas;
mod supervise;
mod support;
