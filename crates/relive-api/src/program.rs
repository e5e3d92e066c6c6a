//! Programs: any command as a process, and the session it runs in.
//!
//! Output does not pass through the daemon: whoever wants it reads the session's log in `folder` and hears of its growth
//! from the session's own socket there.

use std::fmt;

pub use relive_types::program::{Inherited, Namespace, ResourceLimit, Stdio};
use relive_types::{Limits, Pid, Uuid};
use serde::{Deserialize, Serialize};

use crate::Environment;

/// A program to be run.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Chosen by the client, so that asking again starts nothing twice.
    pub uuid: Uuid,
    /// A name of the user's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The program and its arguments; never empty.
    pub argv: Vec<String>,
    /// Its whole environment: that of the one who asks, and what was added to it.
    #[serde(default)]
    pub env: Environment,
    /// The folder it begins in.
    pub cwd: String,
    /// What its descriptors 0, 1 and 2 are.
    pub stdio: Stdio,
    /// Whether it waits for `proceed` before it runs.
    #[serde(default)]
    pub gate: bool,
    /// Which processes it sees.
    #[serde(default)]
    pub namespace: Namespace,
    /// How long it may take; the other limits do not count for a program.
    #[serde(default)]
    pub limits: Limits,
    /// Bytes of memory its tree may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processes and threads its tree may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Thousandths of a processor its tree may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Whether it runs without a limit that this machine cannot hold, and is said to be degraded; otherwise it does not run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_degraded: bool,
    /// Whether the one who asks reads its output as it comes: the program then waits for them, as for a pipe's reader.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreground: bool,
    /// Whether standard output and standard error lead to the same place, so that their order counts and they need not be
    /// told apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_output: bool,
    /// What it inherits from the shell in which its command was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Inherited>,
}

impl fmt::Debug for ExecRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold secrets.
        f.debug_struct("ExecRequest").field("uuid", &self.uuid).field("argv", &self.argv).finish_non_exhaustive()
    }
}

/// A program that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    /// The PID of the program's process.
    pub pid: Pid,
    /// The UUID of that process.
    pub uuid: Uuid,
    /// The directory of its session.
    pub folder: String,
}

/// A program's session at one glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// How it was made: `spawn`.
    pub mode: String,
    /// `starting spawned ready running exited signaled aborted errored`.
    pub stage: String,
    /// Its pid on the host; null before it was spawned, kept after the end.
    pub host_pid: Option<i32>,
    /// The pid that it sees of itself; null before it was ready.
    pub child_pid: Option<i32>,
    /// The pid on the host of the small init above it, where it has one.
    #[serde(default)]
    pub init_pid: Option<i32>,
    /// Whether it has a terminal.
    pub pty: bool,
    /// Null, `{"exited":0}`, `{"signaled":9}`, `"aborted"` or `{"error":{"stage","errno","code"}}`.
    pub result: Option<serde_json::Value>,
    /// What keeps it from the rest of the machine: `none`.
    pub isolation: String,
    /// What was wanted and cannot be held, or holds only weakly.
    pub degraded: Vec<String>,
    /// What holds its tree together.
    pub tree: String,
    /// What stops its tree.
    pub pause: String,
    /// What ends its tree.
    pub kill: String,
    /// The session's folder.
    pub folder: String,
    /// Whether its tree stands still.
    pub frozen: bool,
    /// About how many bytes of its output were dropped because there was too much of it.
    #[serde(default)]
    pub output_dropped: u64,
    /// Whether output is missing because the disk did not take it; known at the end.
    #[serde(default)]
    pub output_lost: bool,
    /// How many of its processes the kernel killed for memory; known at the end.
    #[serde(default)]
    pub oom_kills: u64,
    /// The OS pids of processes that no kill could end.
    #[serde(default)]
    pub left: Vec<i32>,
    /// On one line: `<spawn running host=12345 pty>`.
    pub compact: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_has_the_published_words() {
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
    fn a_request_in_a_log_does_not_tell_the_environment() {
        let request: ExecRequest = serde_json::from_str(
            r#"{"uuid":"0198f3c1-0000-7000-8000-000000000000","argv":["true"],"env":{"KEY":"sesame"},"cwd":"/","stdio":"null"}"#,
        )
        .unwrap();
        assert!(!format!("{request:?}").contains("sesame"));
        assert_eq!((request.gate, request.namespace), (false, Namespace::Host));
    }
}
