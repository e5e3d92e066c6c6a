//! The process model of Relive.
//!
//! Owns what a process *is*: its names, its four states, its tree, its signals, how it ends. Every operation is a
//! function of state and event that returns effects for a driver to carry out, or a typed refusal that changed
//! nothing. There is no I/O here, no clock and no randomness: time, ids and random bytes are arguments.
//!
//! [`Machine`] is one process, as far as its owner decides on it: events are applied to a draft, and [`Table`] makes
//! the draft current once it is recorded. The table has the tree, the names, the authority and the completion records.
//! What every event does in each state is in `docs/states.md`, which a test writes by walking the machine.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

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
pub use process::{Body, Origin, Outcome, Spec, State, Urgency, Usage};
pub use refusal::{Refusal, Transition};
pub use relive_types::{
    Cause, End, ErrorCode, Exit, Generation, Incarnation, KillSignal, Limits, OsSignal, Pid, ProcessStatus, Program,
    Signal, SignalSet, SuspendReason, Timestamp, Usd, Uuid, Why, ids, limits, program, status, uuid_v7,
};
pub use signal::{Disposition, disposition};
pub use table::authority::{Caller, HandleId, Rights};
pub use table::completion::{Past, Wait};
pub use table::release::ReleaseEvent;
pub use table::view::{Display, View};
pub use table::{Settings, Table};
pub use time::{Moment, Stopwatch};
