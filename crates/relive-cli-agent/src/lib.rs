//! Reads what CLI agents (claude, codex, gemini, opencode, qwen and every agent that speaks ACP) print, and derives
//! what they are doing.
//!
//! Bytes become lines ([`LineSplitter`]), lines become neutral events ([`Parser`]), and events drive one state machine
//! ([`Machine`]). [`AgentStream`] joins the three. [`Encoder`] writes the other direction: a user turn, an interrupt, the
//! answer to an approval.
//!
//! The crate is pure: bytes and the time are arguments, and nothing is opened, started or awaited. It is lenient: no
//! input is rejected, because a CLI that prints an unknown line is still a working CLI.

mod dialect;
mod encode;
mod event;
mod ids;
mod json;
mod lines;
mod machine;
mod open_requests;
mod parser;
mod stream;

pub use dialect::{Dialect, UnknownDialect};
pub use encode::{Answer, EncodeError, Encoder};
pub use event::{
    ApprovalChannel, ApprovalOption, ApprovalRequest, Event, EventKind, OptionKind, RawJson, TurnOutcome, Usage,
    UsageScope,
};
pub use lines::{Line, LineSplitter, MAX_LINE_BYTES};
pub use machine::{Activity, Lifecycle, Machine, Waiting};
pub use parser::Parser;
pub use stream::{AgentStream, LineReport};
