//! Relive's daemon: opens the data directory, recovers its processes and serves them on a unix socket.
//!
//! One daemon serves one data directory and holds its lock until it ends. `relive-runtime` manages the processes.
//! Nothing that a client does, or fails to do, prevents the daemon from answering others or from stopping.

#![forbid(unsafe_code)]

mod error;
#[doc(hidden)]
pub mod in_process;
mod log;
mod server;

use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::time::Duration;

use relive_api::Paths;
use relive_config::Config;
use relive_journal::data::OpenError;
use relive_journal::{DataDirectory, Disk, Io};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub use relive_runtime::notify::{NOTIFIER, main as run_notification};
use relive_runtime::{About, Clock, Pools, Runtime, Settings};
use server::{Connections, Identities, Server};

/// How long to wait for the lock of another daemon, and how often it is tried.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_AGAIN: Duration = Duration::from_millis(5);
/// How long a stopping daemon waits for answers to be written. Clients that do not read are not waited for longer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The program that becomes the keeper of environments, and the parent of commands: this one, even if its file was replaced.
const KEEPER: &str = "/proc/self/exe";

/// The reason why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The data directory cannot be opened.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// The socket cannot be bound.
    #[error("{0}")]
    Socket(String),
    /// The processes cannot be recovered.
    #[error("the processes cannot be recovered: {0}")]
    Recovery(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Makes the directory of the configuration, which is hidden from isolated programs: what is missing cannot be hidden, and a
/// program that works in the home directory could make it.
fn make_configuration_directory(paths: &Paths) {
    let mut builder = std::fs::DirBuilder::new();
    let made = paths.config.parent().map_or(Ok(()), |path| builder.recursive(true).mode(0o700).create(path));
    if let Err(error) = made {
        tracing::warn!(path = %paths.config.display(), %error, "cannot make the directory of the configuration");
    }
}

/// Runs the daemon until it is told to stop.
pub fn serve(paths: &Paths, config: &Config) -> Result<(), DaemonError> {
    // Detaches from the terminal. This fails only for the leader of a process group: a daemon that a command started has left
    // the session of its terminal already, and one that was typed into a shell belongs to that.
    let _ = rustix::process::setsid();
    raise_descriptor_limit();
    log::start();
    hide();
    make_configuration_directory(paths);
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut settings: Settings = config.into();
    settings.keeper = Some(KEEPER.into());
    let paths = paths.clone();
    // On a thread of the executor: connections are accepted where they are served.
    let running = executor.spawn(async move { run(&paths, settings).await });
    let outcome = executor.block_on(running).unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => Err(std::io::Error::other(error).into()),
    });
    executor.shutdown_background();
    outcome
}

async fn run(paths: &Paths, settings: Settings) -> Result<(), DaemonError> {
    let clock = Clock::new()?;
    let io = Io::new(Disk::new());
    let data = Arc::new(open_data(paths, &io, &settings).await?);
    let bound = server::bind(&paths.socket).await;
    let socket = bound.map_err(|error| DaemonError::Socket(error.to_string()))?;
    // Only for messages: a second daemon, and commands, say where this one listens.
    let _ = data.tell_socket(&paths.socket);
    let runtime = Runtime::new(Arc::clone(&data), Pools::default(), settings, clock, paths);
    if std::fs::symlink_metadata(&paths.log).is_ok() && !paths.log.is_file() {
        runtime.warn(format!("no log is written: {} is not a regular file", paths.log.display()));
    }
    if let Some(note) = Paths::unused_runtime_directory() {
        runtime.warn(format!("{note}; the socket is {}", paths.socket.display()));
    }
    runtime.recover().await.map_err(|error| DaemonError::Recovery(error.to_string()))?;
    runtime.run_housekeeping();
    let about = Arc::new(About { data: paths.data.clone(), socket: paths.socket.clone(), started_at: runtime.now() });
    let (stop, stopping) = watch::channel(false);
    on_signals(Arc::clone(&runtime), stop.clone())?;
    let router = Server::new(Arc::clone(&runtime), about, stop).router();
    let connections = Connections::new(stopping.clone());
    tracing::info!("serving {} on {}", paths.data.display(), paths.socket.display());
    let identities = Identities::new(paths);
    server::serve_processes(&runtime, &connections, &identities, &router);
    let socket_file = socket.accept(&connections, &identities, &router, &data, stopping).await;
    runtime.all_stopped().await;
    runtime.close().await;
    connections.closed_within(ANSWERS_WITHIN).await;
    socket_file.remove();
    tracing::info!("stopped");
    Ok(())
}

/// Opens the data directory. A killed daemon may take a moment to die, and a child that it was spawning has a copy of
/// every lock until it executes its program.
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

/// Makes TERM and INT stop the daemon like `relive daemon stop`.
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

/// Hides the memory, the descriptors and the environment of this process from other programs of the same user, unless
/// it is being debugged.
fn hide() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if std::env::var_os("RELIVE_DUMPABLE").is_some_and(|value| !value.is_empty()) {
        tracing::warn!("RELIVE_DUMPABLE is set: other programs of this user can read the keys of all processes");
        return;
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!("other programs of this user can read the keys of all processes: {error}");
    }
}

/// Raises the limit of open files: a running agent has two descriptors, a client one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
