//! A daemon without a socket, for tests and fuzzing: the same connections, routes and runtime.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use relive_api::Paths;
use relive_config::Config;
use relive_journal::{Disk, Io};
use relive_runtime::{About, Clock, Pools, Runtime, Settings};
use tokio::io::DuplexStream;
use tokio::sync::watch;

use crate::DaemonError;
use crate::server::{Connections, Server};

/// How much a connection holds in each direction.
const PIPE_BYTES: usize = 64 << 10;

/// A daemon that is reached by pipes in memory.
#[derive(Debug)]
pub struct InProcess {
    router: Router,
    connections: Connections,
    runtime: Arc<Runtime>,
}

impl InProcess {
    /// Starts a daemon whose files are all below `root`.
    pub async fn start(root: &Path, config: &Config) -> Result<Self, DaemonError> {
        let paths = Paths {
            data: root.join("data"),
            config: root.join("config.yaml"),
            socket: root.join("run/socket"),
            log: root.join("daemon.log"),
        };
        let (settings, pools): (Settings, _) = (config.into(), Pools::default());
        let io = Io::new(Disk::new());
        let data = Arc::new(crate::open_data(&paths, &io, &settings).await?);
        let runtime = Runtime::new(data, pools, settings, Clock::new()?, &paths);
        runtime.recover().await.map_err(|error| DaemonError::Recovery(error.to_string()))?;
        let about = Arc::new(About { data: paths.data, socket: paths.socket, started_at: runtime.now() });
        let (stop, stopping) = watch::channel(false);
        let router = Server::new(Arc::clone(&runtime), about, stop).router();
        Ok(Self { router, connections: Connections::new(stopping), runtime })
    }

    /// Connects a client.
    #[must_use]
    pub fn connect(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        self.connections.serve(server, self.router.clone(), None);
        client
    }

    /// Stops as a daemon does that was told to.
    pub async fn stop(self) {
        self.runtime.begin_stop();
        self.runtime.all_stopped().await;
    }
}
