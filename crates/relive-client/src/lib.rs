//! A client of the daemon: finds it or has it started, sends requests until they are answered, and follows streams.
//!
//! Its errors are typed and it prints nothing: what people are told is up to whoever uses it.

#![forbid(unsafe_code)]

mod blocking;
mod client;
mod connection;
mod error;
mod files;
mod flows;
mod follow;
mod http;
mod ids;
mod inbox;
mod owner;
mod silence;
mod sse;
mod start;
mod stop;
mod verbs;

pub use blocking::BlockingClient;
pub use client::{Client, Link, RequestDeadlines, Retry};
pub use error::{Cause, Error};
pub use follow::Source;
pub use ids::new_uuid;
pub use owner::UnsafeSocket;
pub use silence::{LongWork, Pulse, Witness};
pub use sse::Event;
pub use start::{Delegated, Launcher, StartError, Unwritable};
pub use verbs::Waited;
