//! Trees of processes: what a compose file or a supervisor starts, retries, restarts and stops.
//!
//! Everything here is a decision. A [`Flow`] is the fold of its [`Event`]s: whoever drives it records an event, applies
//! it, and carries out what [`Flow::decide`] returns. Time is an argument, processes are named by their UUIDs, and
//! nothing here starts or reads anything.

#![forbid(unsafe_code)]

pub mod compose;
mod event;
pub mod file;
mod flow;
mod graph;
mod plan;
mod restart;
mod room;
mod slot;
pub mod supervise;
pub mod template;
mod yaml;

pub use event::{AtEnd, Decision, Event, Origin, Outcome, Start, Verdict};
pub use file::{
    ComposeFile, Condition, Dependency, FileError, Node, RESULT_MAX, Retries, Run, SupervisedChild, SupervisorFile,
    Task,
};
pub use flow::{Definition, Flow, OwnNode, Rejected};
pub use graph::Graph;
pub use restart::{Backoff, Intensity, Policy, Restart, Strategy};
pub use room::TooManyServices;
pub use slot::{SlotState, SlotStatus};
pub use yaml::Problem;

/// The JSON schema of a compose file.
pub const COMPOSE_SCHEMA: &str = include_str!("../schemas/compose.schema.json");

/// The JSON schema of a supervisor file.
pub const SUPERVISOR_SCHEMA: &str = include_str!("../schemas/supervisor.schema.json");
