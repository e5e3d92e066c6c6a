//! The part of the daemon that owns processes: their verbs, their bodies, their recovery.
//!
//! It knows no HTTP: a server hands it requests and gets answers or a typed [`Error`].

#![forbid(unsafe_code)]

mod agent_pool;
mod alarm;
mod answers;
mod area;
mod attribution;
mod authority;
mod blame;
mod bodies;
mod budgets;
mod catalog;
mod clock;
mod collect_snapshots;
mod create;
mod credentials;
mod diff;
mod doing;
mod drive;
mod enter;
mod environment;
mod error;
#[cfg(feature = "faults")]
pub mod faults;
mod feed;
mod files;
mod flows;
mod fork;
mod gate;
mod gateways;
mod handles;
mod heartbeat;
mod hints;
mod housekeeping;
mod inbox;
mod instructions;
mod isolation;
mod listing;
mod lookup;
mod merge;
mod missing_directory;
mod myself;
mod names;
pub mod notify;
mod os_signal;
mod own_workspace;
mod owner;
mod pending;
mod policy;
mod pools;
mod questions;
mod reached;
mod recall;
mod records;
mod recover;
mod reload;
mod remove;
mod rename;
mod resume;
mod rewind;
mod runtime;
mod self_socket;
mod send;
mod settings;
mod signal;
mod spec;
mod stop;
mod subtree;
mod trees;
mod unrecorded_kill;
mod unrecovered;
mod usage;
mod user_file;
mod view;
mod wait;
mod warnings;
mod watch;
mod workspace_list;
mod workspaces;

pub use authority::{Access, Caller, Readable};
pub use clock::{Clock, TimeSource};
pub use error::{Advice, Error, Result};
pub use feed::{FeedPart, FeedReader, FeedReady};

pub use pools::Pools;
pub use runtime::Runtime;
pub use self_socket::SelfConnection;
pub use settings::Settings;
pub use view::About;
