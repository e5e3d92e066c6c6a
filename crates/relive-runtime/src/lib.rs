//! The part of the daemon that owns processes: their verbs, their bodies, their recovery.
//!
//! It knows no HTTP: a server hands it requests and gets answers or a typed [`Error`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alarm;
mod answers;
mod bodies;
mod budgets;
mod catalog;
mod clock;
mod create;
mod credentials;
mod drive;
mod environment;
mod error;
#[cfg(feature = "faults")]
pub mod faults;
mod files;
mod fork;
mod gate;
mod heartbeat;
mod hints;
mod housekeeping;
mod instructions;
mod listing;
mod lookup;
mod os_signal;
mod owner;
mod policy;
mod pools;
mod records;
mod recover;
mod resume;
mod runtime;
mod send;
mod settings;
mod signal;
mod spec;
mod stop;
mod subtree;
mod trees;
mod unrecovered;
mod user_file;
mod view;
mod wait;
mod warnings;
mod watch;

pub use clock::{Clock, TimeSource};
pub use error::{Error, Result};

pub use pools::Pools;
pub use runtime::Runtime;
pub use settings::Settings;
pub use view::About;
