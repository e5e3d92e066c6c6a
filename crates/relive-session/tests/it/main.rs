//! Sessions with a real shim, real programs and the mechanisms of this machine.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod containment;
mod harness;
mod hostile;
mod input_output;
mod isolation;
mod messages;
mod races;
mod spares;
mod stages;
mod tampering;
mod unprivileged;
