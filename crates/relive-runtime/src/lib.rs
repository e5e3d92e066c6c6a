//! The part of the daemon that owns processes: their verbs, their bodies, their recovery.
//!
//! It knows no HTTP: a server hands it requests and gets answers or a typed [`Error`].

#![forbid(unsafe_code)]

mod alarm;
mod clock;
mod credentials;
mod drive;
mod effects;
mod environment;
mod error;
mod exec;
mod files;
mod host;
mod housekeeping;
mod instructions;
mod ledger;
mod policy;
mod program;
mod query;
mod recover;
mod resolve;
mod resume;
mod run;
mod runtime;
mod settings;
mod signal;
mod stop;
mod trees;
mod watch;

pub use clock::Clock;
pub use error::{Error, Result};
pub use query::About;
pub use runtime::Runtime;
pub use settings::Settings;
pub use watch::Changes;
