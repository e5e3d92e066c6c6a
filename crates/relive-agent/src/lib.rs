//! Relive's native agent: the reasoning loop, its tools and the scripted model.
//!
//! The loop owns the journal's writer while it runs and keeps to the protocol: what changes the world is recorded
//! before it is done. It decides nothing about processes; for that it asks its [`tool::Host`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod agent;
pub mod git;
mod journal;
pub mod script;
pub mod tool;
pub mod tools;

pub use agent::{Agent, Cadence, Exit, Letter, Orders, Returned, Watcher};
pub use journal::{Journal, JournalError};
/// Temporary, for the daemon's `relive_agent::model::Model`.
pub use relive_llm as model;
