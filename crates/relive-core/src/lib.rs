//! The process model of Relive.
//!
//! Owns what a process *is*: its ids and name, its four states, its tree, its signals and its end. Every operation is a
//! function of state and event that returns effects for a driver to carry out, or a typed refusal that changed nothing.
//! There is no I/O here, no clock and no randomness: time, ids and random bytes are arguments.
//!
//! [`Machine`] is the part of a process that its owner controls: events are applied to a draft, and [`Table`] makes the
//! draft current once it is recorded. The table holds the tree, the names, the authority and the completion records.
//! `docs/states.md` lists the result of every event in every state; a test writes it by walking the machine.

#![forbid(unsafe_code)]

mod arena;
pub mod effect;
pub mod machine;
pub mod process;
pub mod refusal;
pub mod signal;
pub mod table;
pub mod time;

pub use effect::{Effect, Effects};
pub use machine::{Aim, Applied, Event, Machine, Recovered, Suspension};
pub use process::{Body, Origin, Outcome, Spec, State, Urgency, UsageTotals};
pub use refusal::{Refusal, Transition};
pub use relive_types::{
    Cause, End, ErrorCode, Exit, Generation, Incarnation, KillSignal, Limits, OsSignal, Pid, ProcessStatus, Program,
    Signal, SignalSet, SuspendReason, Timestamp, Usd, Uuid, Why, ids, limits, program, status, uuid_v7,
};
pub use signal::{Disposition, disposition};
pub use table::authority::{HandleId, Holder, Rights};
pub use table::completion::{Past, Wait};
pub use table::release::ReleaseEvent;
pub use table::view::{Display, View};
pub use table::{Settings, Table};
pub use time::{Moment, Stopwatch};
