//! The network of a session with an allow list.
//!
//! The session has an empty network namespace. Its child listens on [`PORT`] of the loopback there and hands the listener to
//! a process outside: this program executed again under the name [`PROXY`], started by the session's shim. A socket stays in
//! the namespace in which it was made, so this process accepts inside and connects outside. It speaks HTTP (`CONNECT` and
//! plain requests) and SOCKS5 on the one port.
//!
//! **Invariants:**
//! - a request is recorded in [`LOG`] of the session's directory before it is answered, and one that cannot be recorded is
//!   refused;
//! - a name is resolved here, and only once: the address that was checked is the one that is connected to;
//! - an address that is not public is reached only if a rule names it, or if the name stands for this machine;
//! - it outlives the daemon and ends with the shim. Without it the session has no network.
//!
//! The daemon reads the records, and sends a person's answers to [`SOCKET`] of the directory.

mod address;
mod control;
mod follow;
mod http;
mod log;
mod process;
mod relay;
mod rules;
mod settings;
mod socks;

pub use address::is_public;
pub use follow::{Follower, is_alive};
pub use log::{Protocol, Record, Verdict};
pub use process::main;
pub use settings::{Answers, Settings, Unknown};

/// The name under which this program is executed to become a proxy.
pub const PROXY: &str = "relive-proxy";
/// The port on the loopback of the session.
pub const PORT: u16 = 3128;
/// The socket in the session's directory for the daemon.
pub const SOCKET: &str = "proxy";
/// The records in the session's directory, one in a line.
pub const LOG: &str = "network";

/// Returns the variables by which programs find the proxy. Some read only those in lower case, some only the others. A
/// refusal is final, so tools that would repeat the request for seconds are told not to.
#[must_use]
pub fn environment() -> Vec<(&'static str, String)> {
    let address = format!("http://127.0.0.1:{PORT}");
    let proxies = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"].map(|name| (name, address.clone()));
    let others = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
    let once = ["CARGO_NET_RETRY", "UV_HTTP_RETRIES"].map(|name| (name, "0".to_owned()));
    let node = [("NODE_USE_ENV_PROXY", "1".to_owned())];
    proxies.into_iter().chain(others).chain(once).chain(node).collect()
}
