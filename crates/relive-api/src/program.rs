//! Programs: any command as a process, and its session.
//!
//! Output does not go through the daemon: clients read the session's log in `folder`, and the session's own socket
//! there reports its growth.

use std::fmt;

pub use relive_types::isolation::{Isolated, Isolation, NamespaceKind, Network};
pub use relive_types::program::{Inherited, Namespace, ResourceLimit, Resources, Stdio};
use relive_types::{Limits, Pid, Uuid};
use serde::{Deserialize, Serialize};

use crate::Environment;

/// A request to run a program.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Chosen by the client, so that a repeated request starts nothing twice.
    pub uuid: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The program and its arguments; never empty.
    pub argv: Vec<String>,
    /// Its whole environment: that of the caller, with additions.
    #[serde(default)]
    pub env: Environment,
    pub cwd: String,
    /// The targets of descriptors 0, 1 and 2.
    pub stdio: Stdio,
    /// Whether it waits for `proceed` before it runs.
    #[serde(default)]
    pub gate: bool,
    /// Whether it sees the host's processes.
    #[serde(default)]
    pub namespace: Namespace,
    /// What it may reach.
    #[serde(default, skip_serializing_if = "Isolation::is_none")]
    pub isolation: Isolation,
    /// Namespaces of its own, besides that of `namespace` and those of the isolation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NamespaceKind>,
    /// As the isolation says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The time limit; the other limits do not apply to a program.
    #[serde(default)]
    pub limits: Limits,
    #[serde(flatten)]
    pub resources: Resources,
    /// Whether the caller reads its output as it arrives: the program then waits for the reader, as for that of a pipe.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreground: bool,
    /// Whether standard output and standard error go to the same place, so that their order matters and they need not
    /// be distinguished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_output: bool,
    /// The settings of the shell in which its command was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Inherited>,
    /// The session that it is to run in; `cwd` may then be empty, for the directory of that. It has no limits and no
    /// isolation besides those of that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enter: Option<EnterRequest>,
}

/// The session that a program is to enter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnterRequest {
    /// The process of the session: its PID, its name or a part of its UUID.
    pub id: String,
    /// The namespaces to join; all that the session has of its own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<NamespaceKind>>,
}

impl fmt::Debug for ExecRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may contain secrets.
        f.debug_struct("ExecRequest").field("uuid", &self.uuid).field("argv", &self.argv).finish_non_exhaustive()
    }
}

/// A program that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    pub pid: Pid,
    pub uuid: Uuid,
    /// The directory of its session.
    pub folder: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// How it was created: `spawn`, or `enter` in the session of another process.
    pub mode: String,
    /// `starting spawned ready running exited signaled aborted errored`.
    pub stage: String,
    /// The OS pid; null before it was spawned, kept after the end.
    pub host_pid: Option<i32>,
    /// The pid that the program sees as its own; null before it was ready.
    pub child_pid: Option<i32>,
    /// The OS pid of its small init, if it has one.
    #[serde(default)]
    pub init_pid: Option<i32>,
    pub pty: bool,
    /// Null, `{"exited":0}`, `{"signaled":9}`, `"aborted"` or `{"error":{"stage","errno","code"}}`.
    pub result: Option<serde_json::Value>,
    /// The isolation from the rest of the machine: `none`, `confined` or `sealed`.
    pub isolation: String,
    /// What it reaches of the network: `full`, `none` or `allow:DOMAIN,...`.
    #[serde(default = "full")]
    pub network: String,
    /// The namespaces of its own: `user pid mount net ipc uts cgroup time`.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// The limits that were asked for: bytes of memory, processes and threads, and thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Limits that cannot be enforced, or only weakly.
    pub degraded: Vec<String>,
    /// The mechanism that keeps its process tree together.
    pub tree: String,
    /// The mechanism that pauses its process tree.
    pub pause: String,
    /// The mechanism that kills its process tree.
    pub kill: String,
    /// The directory of the session.
    pub folder: String,
    /// Whether its process tree is frozen.
    pub frozen: bool,
    /// About how many bytes of its output were dropped because there were too many.
    #[serde(default)]
    pub output_dropped: u64,
    /// Whether output is missing because it could not be written to the disk; known at the end.
    #[serde(default)]
    pub output_lost: bool,
    /// How many of its processes the kernel killed for lack of memory; known at the end.
    #[serde(default)]
    pub oom_kills: u64,
    /// The OS pids of processes that could not be killed.
    #[serde(default)]
    pub left: Vec<i32>,
    /// The last signal that somebody had sent to it, if it exited by itself; known at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_signal: Option<LastSignal>,
    /// The session on one line: `<spawn running host=12345 pty>`.
    pub compact: String,
}

fn full() -> String {
    Network::Full.to_string()
}

/// A signal of the operating system that was sent to a program before it exited by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSignal {
    pub signal: String,
    /// The process that sent it, or 0 for a person; null if the one who asks may not see that process.
    pub by: Option<Pid>,
    /// The sender in words: `you`, `PID 4 (lead)`.
    pub from: String,
    pub before_end_ms: u64,
}

impl LastSignal {
    /// `itself, 0.1s after SIGHUP from PID 4 (lead)`: whether it exited because of the signal, only the program knows.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("itself, {} after {} from {}", elapsed(self.before_end_ms), self.signal, self.from)
    }
}

/// `0.4s`, `12s`, `1m05s`, `2h03m`, `3d04h`: two units at most.
#[must_use]
pub fn elapsed(millis: u64) -> String {
    let seconds = millis / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds < 10 => format!("{}.{}s", seconds, millis % 1000 / 100),
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m{:02}s", seconds % 60),
        () if days == 0 => format!("{hours}h{:02}m", minutes % 60),
        () => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_has_the_published_names() {
        let check = |stdio: Stdio, text: &str| {
            assert_eq!(serde_json::to_string(&stdio).unwrap(), text);
            assert_eq!(serde_json::from_str::<Stdio>(text).unwrap(), stdio);
        };
        check(Stdio::Null, r#""null""#);
        check(Stdio::Pipes, r#""pipes""#);
        check(Stdio::Pty { rows: 24, columns: 80 }, r#"{"pty":{"rows":24,"columns":80}}"#);
        assert_eq!(serde_json::to_string(&Namespace::PidWithoutInit).unwrap(), r#""pid_without_init""#);
    }

    #[test]
    fn debug_output_of_a_request_hides_the_environment() {
        let request: ExecRequest = serde_json::from_str(
            r#"{"uuid":"0198f3c1-0000-7000-8000-000000000000","argv":["true"],"env":{"KEY":"sesame"},"cwd":"/","stdio":"null"}"#,
        )
        .unwrap();
        assert!(!format!("{request:?}").contains("sesame"));
        assert_eq!((request.gate, request.namespace), (false, Namespace::Host));
    }
}
