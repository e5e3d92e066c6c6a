//! The program of a session, and how to run it. The shim reads it from an initial descriptor: never from a command
//! line, and never from the disk, because the environment may contain secrets.

use std::ffi::OsString;
use std::path::PathBuf;

pub use relive_sandbox::{Machine, Namespaces, Policy, Unheld};
use serde::{Deserialize, Serialize};

use crate::proc::Identity;
use crate::tree::{MARKER, Plan};

/// The program of a session, and how to run it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The program and its arguments. A program without a `/` is searched in the `PATH` of `env`.
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    /// The working directory.
    pub cwd: String,
    pub stdio: Stdio,
    pub streams: Streams,
    pub gate: Gate,
    pub namespace: Namespace,
    /// What it may reach.
    #[serde(default)]
    pub isolation: Isolation,
    /// The hosts that it reaches through a proxy, if its policy says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<relive_proxy::Settings>,
    /// The session that it is to run in, next to the program of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enter: Option<Enter>,
    /// Where its process tree is created.
    pub tree: Plan,
    pub limits: Limits,
    /// How much of its output is kept; the oldest is dropped first.
    pub log_max_bytes: u64,
    pub pace: Pace,
    #[serde(default)]
    pub on_full_disk: OnFullDisk,
    /// The settings of the shell in which it was typed; if absent those of the daemon, with the usual limit of open
    /// files instead of the daemon's own.
    pub inherited: Option<Inherited>,
    /// The time limit; time in which its tree is frozen does not count.
    pub timeout_ms: Option<u64>,
    /// How to start the daemon again, for a program that asks for one.
    pub daemon: Option<DaemonStart>,
    /// How its directory is made durable.
    pub names: Names,
}

/// How the names of a session's files are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// Each by a sync of its directory: the session's own name before anything runs, its exit record before the shim goes.
    Apart,
    /// In the order in which they were made, with the files, by one sync at the end. The owner knows by other means whether a session whose name was lost with the
    /// power may have run: by the boot.
    InOrder,
}

/// The settings that a program inherits from its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    pub umask: u32,
    pub nice: i32,
    pub limits: Vec<ResourceLimit>,
    /// The ignored signals.
    pub ignored: Vec<i32>,
    /// The CPUs that it may run on, like `0-3,7`; if absent those of the shim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
}

/// One limit of the operating system; absent if unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    pub resource: u32,
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// How to start the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStart {
    pub program: String,
    /// Its whole environment, without keys.
    pub env: Vec<(String, String)>,
    pub log: PathBuf,
}

impl DaemonStart {
    /// Returns how to start this process, which is a daemon, again.
    #[must_use]
    pub fn of_this_process(log: PathBuf) -> Self {
        let program = std::env::current_exe().unwrap_or_default().to_string_lossy().into_owned();
        let utf8 = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let env = std::env::vars_os().filter_map(utf8).filter(|(name, _)| name != MARKER).collect();
        Self { program, env, log }
    }
}

impl Spec {
    /// How much output is kept by default.
    pub const LOG_MAX_BYTES: u64 = 64 << 20;

    /// Returns a spec without input, limits and gate, at its own pace.
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
            isolation: Isolation::default(),
            proxy: None,
            enter: None,
            tree,
            limits: Limits::default(),
            log_max_bytes: Self::LOG_MAX_BYTES,
            pace: Pace::Free,
            on_full_disk: OnFullDisk::Lose,
            inherited: None,
            timeout_ms: None,
            daemon: None,
            names: Names::Apart,
        }
    }
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The environment may contain secrets.
        f.debug_struct("Spec").field("argv", &self.argv).field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

/// The targets of descriptors 0, 1 and 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// Empty input; output through pipes.
    Null,
    /// Pipes for all three.
    Pipes,
    /// A terminal of its own, of this size.
    Pty(Size),
}

/// Whether the two outputs of a program without a terminal are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streams {
    /// A pipe each. The order in which a program writes to two pipes is not known.
    Apart,
    /// One pipe for both: all of it is standard output, in the order in which it was written.
    Together,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The program never waits; the oldest output is dropped.
    Free,
    /// A reader that needs all output will connect: the program waits for it like for the reader of a pipe.
    Held,
}

/// What happens to output that does not fit on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFullDisk {
    /// It is lost, and the program continues.
    #[default]
    Lose,
    /// The program waits for space as it would for the reader of a pipe: somebody depends on every line.
    Wait,
}

/// Whether the program sees the host's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespace {
    /// As planned for the tree: yes, unless a PID namespace keeps the tree together.
    AsPlanned,
    /// A PID namespace of its own, with a stub init as PID 1 that forwards signals and reaps.
    Pid,
    /// A PID namespace of its own in which the program itself is PID 1.
    PidWithoutInit,
}

/// The session that a program enters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enter {
    /// The program of that session. Another process that has its pid by now is not entered.
    pub program: Identity,
    /// The namespaces of that program that are joined.
    pub namespaces: Namespaces,
}

/// What a program may reach, and on which machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Isolation {
    pub policy: Policy,
    /// The findings of the probe.
    pub machine: Machine,
}

/// The limits of a process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// In bytes.
    pub memory: Option<u64>,
    /// In thousandths of a core.
    pub cpu: Option<u32>,
    pub pids: Option<PidsLimit>,
    pub unheld: Unheld,
}

/// The limit of processes and threads of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidsLimit {
    pub max: u32,
    /// Whether a launch fails if the limit cannot be enforced; otherwise the session is reported as degraded.
    pub required: bool,
}
