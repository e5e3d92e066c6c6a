//! Reads the output of CLI agents (claude, codex, gemini, opencode, qwen and every agent that speaks ACP) and derives
//! their state.
//!
//! Bytes become lines ([`LineSplitter`]), lines become neutral events ([`Parser`]), and events drive one state machine
//! ([`Machine`]). [`AgentStream`] joins the three. [`Encoder`] writes the other direction: a user turn, an interrupt, the
//! answer to an approval.
//!
//! The crate is pure: bytes and the time are arguments, and nothing is opened, started or awaited. It is lenient: no
//! input is rejected, because a CLI that prints an unknown line is still a working CLI.
//!
//! ```
//! use std::time::Duration;
//!
//! use jiff::Timestamp;
//! use relive_cli_agent::{Activity, AgentStream, Lifecycle};
//!
//! let mut stream = AgentStream::new(None, Duration::from_secs(1800), Timestamp::now());
//! let printed = br#"{"type":"thread.started","thread_id":"01a1e064-e6e9-7740-b898-29d4e7339d96"}
//! {"type":"turn.started"}
//! {"type":"item.started","item":{"id":"i1","type":"command_execution","command":"ls"}}
//! "#;
//! stream.push(printed, Timestamp::now(), |line, report| {
//!     println!("{}: {} bytes, {:?}", report.line, line.bytes().len(), report.events);
//! });
//! assert_eq!(stream.machine().lifecycle(), Lifecycle::Working);
//! assert_eq!(stream.machine().activity(), Activity::RunningTool);
//!
//! // The process has ended, and another one continues the conversation.
//! stream.machine_mut().mark_killed();
//! stream.respawn(Timestamp::now());
//! assert_eq!(stream.machine().lifecycle(), Lifecycle::Spawning);
//! ```

mod dialect;
mod encode;
mod event;
mod form;
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
    ApprovalChannel, ApprovalOption, ApprovalRequest, Capabilities, Event, EventKind, OptionKind, RawJson, Refusal,
    ReportedUsage, ResetClock, TurnOutcome, UsageScope,
};
pub use form::{DECLINE, FORM_TOOL, Filled, Form, UnfitAnswer, UnfitForm};
pub use lines::{Line, LineSplitter, MAX_LINE_BYTES};
pub use machine::{Activity, Lifecycle, Machine, Waiting};
pub use parser::{CLAUDE_HOOKS, Parser};
pub use stream::{AgentStream, LineReport};
