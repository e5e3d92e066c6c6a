//! Who is at the other end of a connection: the person, or a process whose program has connected.
//!
//! CallerAccess once for each connection, when it is accepted. A connection that is handed on to another program stays that of
//! whoever made it.

use std::path::PathBuf;
use std::sync::Arc;

use relive_core::Uuid;
use relive_runtime::Caller;
use relive_session::peer::{Peer, Place};
use tokio::net::UnixStream;

/// Tells whose program made a connection, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Identities {
    /// The directory in which the processes have theirs.
    steps: Arc<PathBuf>,
    /// The name of the directory in which the cgroups of sessions are.
    prefix: Arc<str>,
}

impl Identities {
    pub(crate) fn new(paths: &relive_api::Paths) -> Self {
        Self { steps: Arc::new(paths.data.join("steps")), prefix: paths.short_name().into() }
    }

    /// Tells who made a connection to the daemon's socket.
    pub(crate) fn caller(&self, stream: &UnixStream) -> Caller {
        let place = match Peer::of(stream) {
            Ok(Some(peer)) => peer.place(&self.steps, &self.prefix),
            Ok(None) => Place::Outside,
            Err(_) => Place::Unknown,
        };
        let process = match place {
            Place::Outside => return Caller::Person,
            Place::Session(uuid) => Uuid::try_parse(&uuid).ok(),
            Place::Unknown => None,
        };
        process.map_or(Caller::Unknown, Caller::Process)
    }

    /// Tells who made a connection to the socket of a process. Another process has no business there.
    pub(crate) fn caller_of(&self, uuid: Uuid, stream: &UnixStream) -> Caller {
        match self.caller(stream) {
            Caller::Process(other) if other != uuid => Caller::Stranger,
            Caller::Process(_) => Caller::Process(uuid),
            Caller::Person => Caller::Acting(uuid),
            // Also a peer that has ended: another program may hold the connection that it made.
            Caller::Unknown | Caller::Acting(_) | Caller::Stranger => Caller::Unknown,
        }
    }
}
