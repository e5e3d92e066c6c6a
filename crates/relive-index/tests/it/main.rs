//! The index, compared with a full scan of the same data directory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod same;
mod scan;
mod standing;
mod support;
