//! Relive's native agent: the reasoning loop, its tools and the scripted model.
//!
//! The loop writes through its journal's owner and keeps to the protocol: what changes the world is recorded before
//! it is done, and its result as soon as there is one. It decides nothing about processes; for that it asks its [`tool::Host`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod agent;
pub mod git;
pub mod script;
pub mod tool;
pub mod tools;

pub use agent::{Agent, Budget, Cadence, Exit, Orders};
