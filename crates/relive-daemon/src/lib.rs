//! Relive's daemon: opens the data directory, recovers its processes and serves them on a unix socket.
//!
//! One daemon serves one data directory and holds its lock for life. What happens to processes is `relive-runtime`'s.
//! Nothing that a client does, or does not do, keeps the daemon from answering others or from stopping.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod error;
#[doc(hidden)]
pub mod in_process;
mod log;
mod server;

use std::sync::Arc;
use std::time::Duration;

use relive_api::Paths;
use relive_config::Config;
use relive_journal::data::OpenError;
use relive_journal::{DataDirectory, Disk, Io};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use relive_runtime::{About, Clock, Pools, Runtime, Settings};
use server::{Connections, Server};

/// How long the lock of another daemon is waited for, and how often it is tried.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_AGAIN: Duration = Duration::from_millis(5);
/// How long a daemon that stops lets answers be written. Nobody who does not read is waited for longer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The data directory cannot be had.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// The socket cannot be had.
    #[error("{0}")]
    Socket(String),
    /// What was left cannot be taken up.
    #[error("the processes cannot be recovered: {0}")]
    Recovery(String),
    /// The system says no.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Runs the daemon until it is told to stop.
pub fn serve(paths: &Paths, config: &Config) -> Result<(), DaemonError> {
    // Away from the terminal of whoever started it. It fails only for a process group's leader, which is away already.
    let _ = rustix::process::setsid();
    raise_descriptor_limit();
    log::start();
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = executor.block_on(run(paths, config.into()));
    executor.shutdown_background();
    outcome
}

async fn run(paths: &Paths, settings: Settings) -> Result<(), DaemonError> {
    let clock = Clock::new()?;
    let io = Io::new(Disk::new());
    let data = Arc::new(open_data(paths, &io, &settings).await?);
    let bound = server::bind(&paths.socket).await;
    let socket = bound.map_err(|error| DaemonError::Socket(error.to_string()))?;
    let runtime = Runtime::new(Arc::clone(&data), Pools::default(), settings, clock, paths);
    if std::fs::symlink_metadata(&paths.log).is_ok() && !paths.log.is_file() {
        runtime.warn(format!("nothing is logged: {} is not a regular file", paths.log.display()));
    }
    runtime.recover().await.map_err(|error| DaemonError::Recovery(error.to_string()))?;
    runtime.run_housekeeping();
    let about = Arc::new(About { data: paths.data.clone(), socket: paths.socket.clone(), started_at: runtime.now() });
    let (stop, stopping) = watch::channel(false);
    on_signals(Arc::clone(&runtime), stop.clone())?;
    let router = Server::new(Arc::clone(&runtime), about, stop).router();
    let connections = Connections::new(stopping.clone());
    tracing::info!("serving {} on {}", paths.data.display(), paths.socket.display());
    let socket_file = socket.accept(&connections, &router, stopping).await;
    runtime.all_stopped().await;
    runtime.close().await;
    connections.closed_within(ANSWERS_WITHIN).await;
    socket_file.remove();
    tracing::info!("stopped");
    Ok(())
}

/// Opens the data directory. A daemon that was killed may take a moment to die, and a child that it was just spawning has
/// a copy of every lock until it executes.
async fn open_data(paths: &Paths, io: &Io, settings: &Settings) -> Result<DataDirectory, OpenError> {
    let deadline = tokio::time::Instant::now() + LOCK_PATIENCE;
    loop {
        match DataDirectory::open(&paths.data, io.clone(), settings.space) {
            Err(OpenError::Held { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(LOCK_AGAIN).await;
            }
            opened => return opened,
        }
    }
}

/// TERM and INT stop the daemon as `relive daemon stop` does.
fn on_signals(runtime: Arc<Runtime>, stop: watch::Sender<bool>) -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        runtime.begin_stop();
        stop.send_replace(true);
    });
    Ok(())
}

/// A running agent holds two descriptors, a client one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
