//! Sessions with a real shim, real programs and whatever this machine has to hold them.

mod containment;
mod harness;
mod input_output;
mod races;
mod stages;
mod unprivileged;
