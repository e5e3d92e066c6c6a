//! The way of CLI agents to the providers of their models.
//!
//! One process per data directory: this program executed again under the name [`GATEWAY`]. It outlives the daemon, so that
//! a daemon that is killed disturbs no answer. Each CLI agent has a port of its own on the loopback, and a token that
//! works only there. The gateway puts the real key in its place and passes the bytes on unchanged.
//!
//! **Invariants:**
//! - it is not dumpable, and a key is in no file and in no record;
//! - a call is in the log of its process, synced, before it goes to the provider, and its usage before the last byte of the
//!   answer is passed on. The daemon copies the log into the journal; it never writes to the log of a gateway that runs;
//! - what a provider does not report, because its answer was cut, is estimated and marked;
//! - it answers only the daemon that holds the lock of the data directory;
//! - a gateway that is killed or replaced closes no port: the shim of the process has its socket, too;
//! - one that is replaced begins no more calls, ends those under way, and passes other requests on to its successor;
//! - while there is no daemon, agents spend within their last [`Lease`], and then wait.

#![forbid(unsafe_code)]

mod answers;
mod api;
mod client;
mod control;
mod entry;
mod gates;
mod hooks;
mod limits;
mod listen;
mod log;
mod meter;
mod process;
mod protocol;
mod serve;
mod upstream;
mod wire;

pub use api::Api;
pub use client::{Error, Gateway, Link};
pub use hooks::{HOOKS_PATH, Hook};
pub use listen::{listen, port_of};
pub use log::{Cut, Ended, close as close_log, read as read_log};
pub use process::main;
pub use protocol::{Auth, Entry, Exhausted, Facts, Lease, Wanted};

use sha2::{Digest as _, Sha256};

/// The name under which this program is executed to become the gateway.
pub const GATEWAY: &str = "relive-gateway";
/// The gateway's socket in the data directory.
pub const SOCKET: &str = "gateway";
/// The log of calls in the directory of a process.
pub const LOG: &str = "gateway.jsonl";

/// The variable with the switches for tests.
#[cfg(feature = "faults")]
pub(crate) const FAULTS: &str = "RELIVE_FAULTS";

/// Returns the token by which a program reports its hooks, and with which it can do nothing else. `hash` is that of the token
/// of its port.
#[must_use]
pub fn hooks_token(hash: &str) -> String {
    token_hash(&format!("hooks {hash}"))
}

/// Returns how a token is kept: what is stored cannot be used at the port.
#[must_use]
pub fn token_hash(token: &str) -> String {
    Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
