//! A daemon in this process, for tests and fuzzing: the same connections, routes and runtime.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use relive_api::Paths;
use relive_config::Config;
use relive_journal::{DataDirectory, Disk, Io};
pub use relive_runtime::Caller;
use relive_runtime::{About, Clock, Pools, Runtime, Settings};
use tokio::io::DuplexStream;
use tokio::sync::watch;

use crate::DaemonError;
use crate::server::{Connections, Identities, Server};

/// The buffer of a connection in each direction.
const PIPE_BYTES: usize = 64 << 10;

/// A daemon with in-memory connections.
#[derive(Debug)]
pub struct InProcess {
    router: Router,
    connections: Connections,
    runtime: Arc<Runtime>,
    data: Arc<DataDirectory>,
    stopping: watch::Receiver<bool>,
    identities: Identities,
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
        let runtime = Runtime::new(Arc::clone(&data), pools, settings, Clock::new()?, &paths);
        runtime.recover().await.map_err(|error| DaemonError::Recovery(error.to_string()))?;
        let identities = Identities::new(&paths);
        let about = Arc::new(About { data: paths.data, socket: paths.socket, started_at: runtime.now() });
        let (stop, stopping) = watch::channel(false);
        let router = Server::new(Arc::clone(&runtime), about, stop).router();
        Ok(Self { router, connections: Connections::new(stopping.clone()), runtime, data, stopping, identities })
    }

    /// Connects a person.
    #[must_use]
    pub fn connect(&self) -> DuplexStream {
        self.connect_as(Caller::Person)
    }

    /// Connects a client that counts as this caller.
    #[must_use]
    pub fn connect_as(&self, caller: Caller) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        self.connections.serve(server, move |_| caller, self.router.clone(), None);
        client
    }

    /// Listens on a socket as well, as a daemon does.
    pub async fn listen(&self, socket: &Path) -> Result<(), DaemonError> {
        let bound = crate::server::bind(socket).await.map_err(|error| DaemonError::Socket(error.to_string()))?;
        let (connections, router, stopping) = (self.connections.clone(), self.router.clone(), self.stopping.clone());
        let (identities, data) = (self.identities.clone(), Arc::clone(&self.data));
        tokio::spawn(async move { bound.accept(&connections, &identities, &router, &data, stopping).await });
        Ok(())
    }

    /// Stops like a daemon that was told to.
    pub async fn stop(self) {
        self.runtime.begin_stop();
        self.runtime.all_stopped().await;
    }
}
