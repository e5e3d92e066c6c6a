//! The dashboard without a terminal: screens as files that a person can read, and what each key asks for.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod elsewhere;
mod keys;
mod results;
mod screens;
mod world;
