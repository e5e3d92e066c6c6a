//! Sessions with a real shim, real programs and whatever this machine has to hold them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod containment;
mod harness;
mod hostile;
mod input_output;
mod messages;
mod races;
mod stages;
mod unprivileged;
