//! The protocol between daemon and gateway: one JSON text per line.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hooks::Hook;

/// The longest line.
pub(crate) const LINE_MAX: usize = 1 << 20;
/// The first line of a client that proves nothing: an answer shows that the gateway runs.
pub(crate) const PING: &str = "ping\n";
pub(crate) const PONG: &str = "pong\n";
/// The first line of a client that asks which program the gateway runs, and the beginning of the answer. A gateway of an earlier
/// version refuses; it takes no sockets, and does not retire.
pub(crate) const WHICH: &str = "which\n";
pub(crate) const RUNS: &str = "runs ";
/// The first line of the daemon, which comes with its lock, and the answer.
pub(crate) const HELLO: &str = "hello 1\n";
pub(crate) const WELCOME: &str = "welcome 1\n";
pub(crate) const REFUSED: &str = "refused\n";

/// The way of one process to its provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub uuid: Uuid,
    /// The port that its program was told; another one if absent.
    pub port: Option<u16>,
    /// See [`crate::token_hash`].
    pub token: String,
    /// The address of the provider, without a path that requests have themselves.
    pub upstream: String,
    /// The key, as the provider wants it.
    pub auth: Auth,
    /// The directory of the process.
    pub directory: std::path::PathBuf,
    pub lease: Lease,
}

/// A header with a key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    pub header: String,
    pub value: String,
}

// The value is a secret.
impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("header", &self.header).finish_non_exhaustive()
    }
}

/// What a process may spend without asking the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lease {
    /// The calls in its log up to this offset are subtracted from what follows.
    pub settled: u64,
    /// Without a limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_left: Option<u64>,
    /// Calls with a higher number wait until the daemon permits them; none do if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permitted: Option<u64>,
    /// Why all further calls are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuse: Option<String>,
    /// Whether the next call waits, because the process is paused.
    #[serde(default)]
    pub hold: bool,
    /// The number of a call that was told of a quota, and is made again although the quota has not reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_again: Option<u64>,
    #[serde(default)]
    pub exhausted: Exhausted,
}

/// What becomes of a call when nothing is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    #[default]
    Refuse,
    /// The call waits until there is more.
    Hold,
}

/// The state of one process at the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The length of its log: calls that have ended are in it.
    pub log: u64,
    /// Calls that the provider is answering.
    pub in_flight: u32,
    /// Calls that wait, because the process is paused or has nothing left.
    pub held: u32,
    /// The provider takes no more calls before this time, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until_ms: Option<i64>,
    /// The number of the call that was told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_call: Option<u64>,
    /// Calls that wait for a permission, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<Wanted>,
    /// The lease that these facts are true of.
    #[serde(default)]
    pub is_holding: bool,
    /// Whether something waits to be recorded, because the disk is full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_disk_full: bool,
    /// The number of the last hook; absent from a gateway that knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<u64>,
}

/// A call that waits for a permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub number: u64,
    /// With its provider, as prices name it.
    pub model: String,
}

/// A request of the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: u64,
    #[serde(flatten)]
    pub(crate) what: Asked,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Asked {
    /// Serves a process; one that is served gets this key and lease.
    Serve {
        entry: Box<Entry>,
        /// Whether the socket that listens at its port comes with this line.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        listener: bool,
    },
    Lease {
        uuid: Uuid,
        lease: Lease,
    },
    /// Serves a process no longer. Its open calls are ended and recorded.
    Forget {
        uuid: Uuid,
    },
    List,
    /// Asks for the hooks of a process after this number.
    Hooks {
        uuid: Uuid,
        after: u64,
    },
    /// Keeps hooks that the gateway before has received, for a process that is about to be served.
    Inherit {
        uuid: Uuid,
        hooks: Vec<Hook>,
    },
    /// Leaves everybody to another gateway, ends the calls under way, and then ends itself.
    Retire,
}

/// A message of the gateway.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Said {
    Answer { id: u64, answer: Answer },
    Facts { uuid: Uuid, facts: Facts },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Port(u16),
    Done,
    Processes(Vec<Uuid>),
    Hooks(Vec<Hook>),
    Error(String),
}

/// Writes a line.
pub(crate) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}
