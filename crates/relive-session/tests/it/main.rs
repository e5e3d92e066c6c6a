//! Sessions with a real shim, real programs and whatever this machine has to hold them.

mod harness;
mod stages;
