//! The process model of Relive.
//!
//! Owns what a process *is*: its names, its four states, its tree, its signals, how it ends. Every operation is a
//! function of state and event that returns effects for a driver to carry out, or a typed refusal that changed
//! nothing. There is no I/O here, no clock and no randomness: time, ids and random bytes are arguments.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod ids;
pub mod limits;
pub mod signal;
pub mod status;

pub use ids::{Generation, Pid, Uuid, uuid_v7};
pub use jiff::Timestamp;
pub use limits::{Limits, Usd};
pub use signal::Signal;
pub use status::{ProcessStatus, SuspendReason, Why};
