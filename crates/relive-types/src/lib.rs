//! The small types that every crate of Relive shares.
//!
//! Ids, limits and money, signals, programs, how a process ended, what a model call used, the codes of errors, and how
//! durations and sizes are written. They are values: they compare, print and turn into JSON, and decide nothing. There is no I/O
//! here, no clock and no randomness.

#![forbid(unsafe_code)]

mod cli_agent;
pub mod duration;
mod error_code;
pub mod file_name;
pub mod ids;
pub mod isolation;
pub mod limits;
pub mod model_name;
pub mod network;
mod os_signal;
pub mod program;
pub mod rule;
pub mod short_id;
pub mod signal;
pub mod size;
pub mod status;
pub mod suggest;
pub mod text;
mod usage;
mod workspace;

pub use cli_agent::CliAgent;
pub use error_code::ErrorCode;
pub use ids::{Generation, Incarnation, Pid, Uuid, uuid_v7};
pub use isolation::{Isolated, Isolation};
pub use jiff::Timestamp;
pub use limits::{LimitKind, Limits, Usd};
pub use network::{HostRule, Network};
pub use os_signal::OsSignal;
pub use program::Program;
pub use rule::CommandRule;
pub use signal::{KillSignal, Signal, SignalSet};
pub use status::{Cause, End, Exit, ProcessStatus, SuspendReason, Why};
pub use usage::Usage;
pub use workspace::WorkspaceKind;
