//! The caller of a request: the only way from a route to the processes.
//!
//! A handler has no other access to them than an [`CallerAccess`] among its arguments. A route that forgot it could neither read
//! nor change anything: it would not compile.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use relive_api::{StopQuery, Stopping};
use relive_runtime::{Access, Caller, Runtime};
use tokio::sync::watch;

use super::Server;

/// The processes, and the switch that stops the daemon, behind the question of who asks.
#[derive(Debug, Clone)]
pub(super) struct Guarded {
    runtime: Arc<Runtime>,
    stop: watch::Sender<bool>,
}

impl Guarded {
    pub(super) fn new(runtime: Arc<Runtime>, stop: watch::Sender<bool>) -> Self {
        Self { runtime, stop }
    }

    /// Tells when the daemon stops.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}

/// The verbs, as whoever made the connection may use them.
pub(super) struct CallerAccess(pub(super) Access);

impl FromRequestParts<Server> for CallerAccess {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Infallible> {
        // A request that nobody vouches for may do nothing.
        let caller = parts.extensions.get::<Caller>().copied().unwrap_or(Caller::Unknown);
        let access = Access::new(Arc::clone(&server.guarded.runtime), caller);
        access.ready().await;
        Ok(Self(access))
    }
}

impl CallerAccess {
    /// Stops the daemon, if whoever asks may do that.
    pub(super) fn stop(&self, server: &Server, query: StopQuery) -> relive_runtime::Result<Stopping> {
        let stopping = self.0.begin_stop(query)?;
        server.guarded.stop.send_replace(true);
        Ok(stopping)
    }
}
