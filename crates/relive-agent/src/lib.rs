//! Relive's native agent: the reasoning loop, its tools and the scripted model.
//!
//! The loop writes through its journal's owner: it records an act that changes the world before the act, and its result as
//! soon as there is one. It decides nothing about processes; for that it asks its [`tool::Host`].

#![forbid(unsafe_code)]

mod agent;
#[cfg(feature = "faults")]
pub mod faults;
pub mod git;
mod plain_file;
mod pulse;
pub mod requests;
pub mod script;
pub mod snapshots;
pub mod tool;
pub mod tools;

pub use agent::{Agent, Budget, Cadence, Exit, Orders};
pub use pulse::Pulse;
