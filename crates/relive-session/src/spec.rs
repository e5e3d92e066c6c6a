//! What a session runs, and how. The shim reads it from a descriptor it is born with: never from a command line, and
//! never from the disk, because the environment may hold secrets.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::tree::{MARKER, Plan};

/// What a session runs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The program and its arguments. A program without a `/` is looked for in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The directory it begins in.
    pub cwd: String,
    /// What its descriptors 0, 1 and 2 are.
    pub stdio: Stdio,
    /// Whether its outputs are told apart.
    pub streams: Streams,
    /// Whether it waits for somebody to open the gate.
    pub gate: Gate,
    /// Whether it gets a PID namespace of its own.
    pub namespace: Namespace,
    /// Where its tree is made.
    pub tree: Plan,
    /// What its tree may use.
    pub limits: Limits,
    /// How much of its output is kept; the oldest goes first.
    pub log_max_bytes: u64,
    /// Whether its output waits for a reader.
    pub pace: Pace,
    /// What it inherits from the shell in which it was typed; without one, what the daemon has, with the usual limit of open
    /// files instead of the daemon's own.
    pub inherited: Option<Inherited>,
    /// How long it may run; the time in which its tree stands still does not count.
    pub timeout_ms: Option<u64>,
    /// How to start the daemon again, for a program that asks for one.
    pub daemon: Option<DaemonStart>,
}

/// What a program inherits from whoever starts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Inherited {
    pub umask: u32,
    pub nice: i32,
    pub limits: Vec<ResourceLimit>,
    /// The signals that are ignored.
    pub ignored: Vec<i32>,
}

/// One limit of the operating system; none where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct ResourceLimit {
    pub resource: u32,
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// How the daemon is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStart {
    /// Its file.
    pub program: String,
    /// Its whole environment, in which there are no keys.
    pub env: Vec<(String, String)>,
    /// Where its messages go.
    pub log: PathBuf,
}

impl DaemonStart {
    /// Returns how to start this process again, which is a daemon.
    #[must_use]
    pub fn of_this_process(log: PathBuf) -> Self {
        let program = std::env::current_exe().unwrap_or_default().to_string_lossy().into_owned();
        let utf8 = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let env = std::env::vars_os().filter_map(utf8).filter(|(name, _)| name != MARKER).collect();
        Self { program, env, log }
    }
}

impl Spec {
    /// How much output is kept if nobody says.
    pub const LOG_MAX_BYTES: u64 = 64 << 20;

    /// Returns a program without input, limits and gate, at its own pace.
    #[must_use]
    pub fn new(argv: Vec<String>, env: Vec<(String, String)>, cwd: String, tree: Plan) -> Self {
        Self {
            argv,
            env,
            cwd,
            stdio: Stdio::Null,
            streams: Streams::Apart,
            gate: Gate::Open,
            namespace: Namespace::AsPlanned,
            tree,
            limits: Limits::default(),
            log_max_bytes: Self::LOG_MAX_BYTES,
            pace: Pace::Free,
            inherited: None,
            timeout_ms: None,
            daemon: None,
        }
    }
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The environment may hold secrets.
        f.debug_struct("Spec").field("argv", &self.argv).field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

/// What descriptors 0, 1 and 2 are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// Nothing to read; output by pipes.
    Null,
    /// Pipes for all three.
    Pipes,
    /// A terminal of its own, of this size.
    Pty(Size),
}

/// Whether the two outputs of a program without a terminal are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streams {
    /// A pipe each. Nobody can tell in which order a program wrote to two pipes.
    Apart,
    /// One pipe for both: all of it is standard output, in the order in which it was written.
    Together,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// Whether the program waits before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// It runs as soon as it is ready.
    Open,
    /// It waits for `proceed` or `abort`.
    Closed,
}

/// Whether a program's output waits for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// The program never waits; the oldest output makes room.
    Free,
    /// A reader is about to come who needs all of it: the program waits for them as it would for a pipe's reader.
    Held,
}

/// Whether the program sees the host's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespace {
    /// As the tree's plan has it: the host's, unless a PID namespace is what holds the tree together.
    AsPlanned,
    /// A PID namespace of its own, with a stub init as PID 1 that forwards signals and reaps.
    Pid,
    /// A PID namespace of its own in which the program itself is PID 1.
    PidWithoutInit,
}

/// What a tree may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Thousandths of a processor.
    pub cpu: Option<u32>,
    /// Processes and threads.
    pub pids: Option<PidsLimit>,
    /// What becomes of a limit that cannot be held.
    pub unheld: Unheld,
}

/// What becomes of a limit that was asked for and that this machine cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unheld {
    /// The launch fails.
    #[default]
    Fail,
    /// The session is said to be degraded.
    Say,
}

/// How many processes and threads a tree may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidsLimit {
    /// So many.
    pub max: u32,
    /// Whether a launch fails where it cannot be held; else the session is said to be degraded.
    pub required: bool,
}
