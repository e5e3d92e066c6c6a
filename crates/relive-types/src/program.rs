//! A program to be run: what a process with the body `exec` is, beside its folder and its environment.

use serde::{Deserialize, Serialize};

/// A program to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// What its descriptors 0, 1 and 2 are.
    #[serde(default)]
    pub stdio: Stdio,
    /// Whether it waits for `proceed` before it runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate: bool,
    /// Whether it sees the host's processes.
    #[serde(default)]
    pub namespace: Namespace,
    /// How much memory its tree may use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// How many processes and threads its tree may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
}

/// What descriptors 0, 1 and 2 of a program are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// Nothing to read; output by pipes.
    #[default]
    Null,
    /// Pipes for all three.
    Pipes,
    /// A terminal of its own.
    Pty {
        /// Its height.
        rows: u16,
        /// Its width.
        columns: u16,
    },
}

/// Whether a program sees the host's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespace {
    /// As the machine needs it: the host's, unless a PID namespace is what holds its tree together.
    #[default]
    Host,
    /// A PID namespace with a stub init.
    Pid,
    /// A PID namespace in which it is PID 1 itself.
    PidWithoutInit,
}

impl Program {
    /// As a person would type it.
    #[must_use]
    pub fn command_line(&self) -> String {
        let quoted = self.argv.iter().map(|word| quote(word));
        quoted.collect::<Vec<_>>().join(" ")
    }
}

fn quote(word: &str) -> String {
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
    fn a_command_line_can_be_typed_again() {
        let argv = ["sh", "-c", "echo 'a b'", ""].map(str::to_owned).to_vec();
        let program: Program = serde_json::from_value(serde_json::json!({ "argv": argv })).unwrap();
        assert_eq!(program.command_line(), r"sh -c 'echo '\''a b'\''' ''");
    }
}
