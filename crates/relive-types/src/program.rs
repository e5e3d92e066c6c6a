//! The program of a process with the body `exec`, without its directory and its environment.

use serde::{Deserialize, Serialize};

use crate::Uuid;
use crate::isolation::NamespaceKind;

/// A program and how to start it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Descriptors 0, 1 and 2.
    #[serde(default)]
    pub stdio: Stdio,
    /// Whether the program waits at its gate for `relive proceed`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate: bool,
    /// Whether it sees the host's processes.
    #[serde(default)]
    pub namespace: Namespace,
    /// The most memory its process tree may use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The most processes and threads its process tree may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// The most CPU time its process tree may use, in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Whether the program may run without a limit that this machine cannot enforce; otherwise the start fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_degraded: bool,
    /// Whether the first run was started in the foreground, where output is not dropped but waits for its reader.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreground: bool,
    /// Whether both outputs share one pipe, which keeps their order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_output: bool,
    /// The settings of the shell in which the command was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Inherited>,
    /// The session that it runs in, next to the program of that; absent for one with a session of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enter: Option<Entered>,
}

/// The session that a program enters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered {
    /// The process of the session.
    pub uuid: Uuid,
    /// The program of the session, by its OS pid and the time of its start in clock ticks since the boot.
    pub host_pid: i32,
    pub start_time: u64,
    /// The namespaces that are joined.
    pub namespaces: Vec<NamespaceKind>,
}

/// The settings that a program inherits from a shell, apart from its environment and directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// The file mode bits that new files do not get.
    pub umask: u32,
    /// The priority, from -20 to 19.
    pub nice: i32,
    /// The limits of the operating system, by their numbers.
    pub limits: Vec<ResourceLimit>,
    /// The numbers of the signals that are ignored.
    pub ignored: Vec<u8>,
}

/// One limit of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// The number of the limit on Linux.
    pub resource: u32,
    /// The limit in force; absent if unlimited.
    pub soft: Option<u64>,
    /// The highest limit that the program may set; absent if unlimited.
    pub hard: Option<u64>,
}

/// The targets of descriptors 0, 1 and 2 of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// Input is empty; output goes through pipes.
    #[default]
    Null,
    /// Pipes for all three.
    Pipes,
    /// A terminal of its own.
    Pty { rows: u16, columns: u16 },
}

/// Whether a program sees the host's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespace {
    /// Yes, unless this machine needs a PID namespace to keep the process tree together.
    #[default]
    Host,
    /// No: it has a PID namespace with a stub init.
    Pid,
    /// No: it has a PID namespace in which it is PID 1 itself.
    PidWithoutInit,
}

impl Program {
    /// Returns the command line as a person would type it in a shell.
    #[must_use]
    pub fn command_line(&self) -> String {
        let quoted = self.argv.iter().map(|word| quote(word));
        quoted.collect::<Vec<_>>().join(" ")
    }
}

/// Returns a word as a person would type it in a shell.
#[must_use]
pub fn quote(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "%+,-./:=@_".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_quoted_so_that_it_can_be_typed_again() {
        let argv = ["sh", "-c", "echo 'a b'", ""].map(str::to_owned).to_vec();
        let program: Program = serde_json::from_value(serde_json::json!({ "argv": argv })).unwrap();
        assert_eq!(program.command_line(), r"sh -c 'echo '\''a b'\''' ''");
    }
}
