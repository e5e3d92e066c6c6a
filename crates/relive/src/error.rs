//! Errors of commands: the message, the cause, a hint, and the exit code.

use std::error::Error;
use std::fmt;
use std::io;

use relive_api::{ErrorDetail, UnsafeDirectory};
use relive_client::{Error as ClientError, StartError, UnsafeSocket};
use relive_core::{ErrorCode, Pid};
use relive_types::program::quote;
use relive_types::short_id::shortened;

use crate::client::{Unreached, chmod};

/// The hint if the data directory cannot be used.
pub(crate) const OTHER_DATA: &str = "export RELIVE_DATA_DIR=~/relive-data";

/// The error of a failed command.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub kind: Kind,
    /// The message, with the id of the process.
    pub message: String,
    /// The cause.
    pub source: Option<Box<dyn Error + Send + Sync>>,
    /// The command to run.
    pub hint: Option<String>,
}

/// The kind, which determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Code(ErrorCode),
    /// Nobody answers on the socket, or somebody who is not the daemon.
    Unanswered,
    /// The reader of the output is gone. Nothing is printed.
    ClosedPipe,
    /// Stdout takes nothing, as on a full disk.
    NoOutput,
}

pub(crate) type Outcome<T> = Result<T, CommandError>;

impl CommandError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { kind: Kind::Code(code), message: message.into(), source: None, hint: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }

    /// Nobody answers on the socket, or somebody who is not the daemon.
    fn unanswered(message: impl Into<String>) -> Self {
        Self { kind: Kind::Unanswered, ..Self::unavailable(message) }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    pub(crate) fn not_found(id: &str) -> Self {
        let error = Self::new(ErrorCode::NotFound, format!("no process `{}`", shortened(id)));
        error.with_hint("relive ps -a")
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns whether only the output failed, and nothing that the command did.
    pub(crate) fn is_about_output(&self) -> bool {
        self.kind == Kind::NoOutput
    }

    /// Adds to an error of the output what became of the process, which is not affected by it, and the command that helps.
    #[must_use]
    pub(crate) fn beside(self, process: &str, next: Option<String>) -> Self {
        if !self.is_about_output() {
            return self;
        }
        Self { message: format!("{}; {process}", self.message), hint: next, ..self }
    }

    /// Adds to an error of the output that the process which was started is not affected by it, and the command that helps.
    #[must_use]
    pub(crate) fn beside_running(self, pid: Pid, next: String) -> Self {
        self.beside(&keeps_running(pid), Some(next))
    }

    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self.kind {
            Kind::Code(code) => Some(code),
            Kind::Unanswered => Some(ErrorCode::Unavailable),
            Kind::NoOutput => Some(ErrorCode::Internal),
            Kind::ClosedPipe => None,
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.code().map_or(0, ErrorCode::exit_code)
    }

    /// Returns the message and all causes, one line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![without_numbers(&self.message)];
        let mut next = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(source) = next {
            lines.push(match source.downcast_ref() {
                Some(error) => plain(error),
                None => without_numbers(&source.to_string()),
            });
            next = source.source();
        }
        lines
    }

    /// Returns the error as in the protocol and with `--json`.
    pub(crate) fn detail(&self) -> ErrorDetail {
        let code = self.code().unwrap_or(ErrorCode::Internal);
        ErrorDetail { code, message: self.lines().join(": "), hint: self.hint.clone() }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join(": "))
    }
}

impl Error for CommandError {}

impl From<ErrorDetail> for CommandError {
    fn from(detail: ErrorDetail) -> Self {
        Self { kind: Kind::Code(detail.code), message: detail.message, source: None, hint: detail.hint }
    }
}

/// Returns an error of the operating system in words alone.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = without_numbers(&error.to_string());
    match text.chars().next() {
        Some(first) if error.raw_os_error().is_some() => {
            format!("{}{}", first.to_lowercase(), text.chars().skip(1).collect::<String>())
        }
        Some(_) | None if error.kind() == io::ErrorKind::InvalidData => {
            text.replace("stream did not contain valid UTF-8", "not UTF-8 text")
        }
        Some(_) | None => text,
    }
}

/// Says that a process is not affected by what failed.
pub(crate) fn keeps_running(pid: Pid) -> String {
    format!("PID {pid} keeps running")
}

/// Removes each ` (os error 2)`, which tells a person nothing.
fn without_numbers(text: &str) -> String {
    const MARK: &str = " (os error ";
    let mut rest = text;
    let mut kept = String::with_capacity(text.len());
    while let Some((before, after)) = rest.split_once(MARK) {
        kept.push_str(before);
        let end = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
        rest = end.strip_prefix(')').filter(|_| end.len() < after.len()).unwrap_or_else(|| {
            kept.push_str(MARK);
            after
        });
    }
    kept + rest
}

/// Returns the hint if something else uses the daemon's socket: without the variable, or with another one.
fn other_socket() -> &'static str {
    let is_set = std::env::var_os("RELIVE_SOCKET").is_some_and(|socket| !socket.is_empty());
    if is_set { "unset RELIVE_SOCKET" } else { "export RELIVE_SOCKET=~/.relive-socket" }
}

/// Returns the hint if another program listens on the socket. A daemon that it has displaced has to be stopped first: while
/// it runs, none can be started on another socket.
fn hint_for_foreign_listener(daemon: Option<u32>) -> &'static str {
    if daemon.is_some() { "relive daemon stop" } else { other_socket() }
}

/// Adds a hint and the exit code to an error of the client.
impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::Refused(detail) => detail.into(),
            ClientError::Start(error) => error.into(),
            ClientError::NotRunning(cause) => {
                Self::unavailable(message).because(cause).with_hint("relive daemon start")
            }
            ClientError::Unsafe(error) => {
                let hint = match &error {
                    UnsafeSocket::Directory(UnsafeDirectory::Mode { path, .. }) => chmod(path),
                    UnsafeSocket::Directory(UnsafeDirectory::Owner { .. })
                    | UnsafeSocket::SocketOwner { .. }
                    | UnsafeSocket::Listener { .. } => other_socket().into(),
                };
                Self::new(ErrorCode::Permission, message).with_hint(hint)
            }
            ClientError::CannotConnect { source, .. } => Self::unavailable(message).because(source),
            ClientError::Lost(cause) => Self::unavailable(message).because(cause).with_hint("relive daemon status"),
            ClientError::Silent(_) => Self::unanswered(message).with_hint("relive daemon restart"),
            ClientError::OtherVersion { .. } => Self::unavailable(message).with_hint("relive daemon restart"),
            ClientError::Overloaded { .. } => Self::unanswered(message).with_hint("relive daemon status"),
            ClientError::Mute { daemon, .. } | ClientError::Full { daemon, .. } => {
                Self::unanswered(message).with_hint(hint_for_foreign_listener(daemon))
            }
            ClientError::NotADaemon { source, daemon, .. } => {
                Self::unanswered(message).because(source).with_hint(hint_for_foreign_listener(daemon))
            }
            ClientError::TooLarge | ClientError::LongName => Self::invalid(message),
            ClientError::Encode(cause) => Self::internal(message).because(cause),
            ClientError::Request(cause) => Self::internal(message).because(cause),
            ClientError::Random(cause) => Self::internal(message).because(cause),
        }
    }
}

impl From<StartError> for CommandError {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        match error {
            // Mistakes in the configuration are reported as by `config show`.
            StartError::Refused(cause) => match cause.downcast::<Self>() {
                Ok(refusal) => *refusal,
                Err(cause) => Self::unavailable(message).because(cause),
            },
            StartError::Unwritable(cause) if cause.is_denied() => {
                Self::unavailable(message).because(cause).with_hint(OTHER_DATA)
            }
            StartError::Unwritable(cause) => Self::unavailable(message).because(cause),
            StartError::Spawn(cause) => Self::unavailable(message).because(cause),
            StartError::Busy(_) | StartError::Hidden(_) => Self::unavailable(message).with_hint("relive daemon status"),
            StartError::Held { ref data, ref socket, .. } if let Some(found) = Unreached::of(data) => {
                found.error(socket)
            }
            StartError::Ended { log, said } | StartError::Silent { log, said } | StartError::Held { log, said, .. } => {
                let error = Self::unavailable(message).with_hint(format!("less {}", quote(&log.display().to_string())));
                if said.is_empty() { error } else { error.because(said) }
            }
        }
    }
}

/// Errors of writing to the terminal, or to a pipe that may have been closed.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { kind: Kind::ClosedPipe, message: String::new(), source: None, hint: None };
        }
        Self { kind: Kind::NoOutput, ..Self::internal("cannot write to stdout") }.because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_shown_without_numbers() {
        let error = CommandError::invalid("cannot move a: Invalid cross-device link (os error 18); nothing changed");
        let error = error.because(io::Error::from_raw_os_error(2));
        assert_eq!(
            error.lines(),
            ["cannot move a: Invalid cross-device link; nothing changed", "no such file or directory"]
        );
        for text in ["(os error x)", " (os error )", " (os error 1"] {
            assert_eq!(without_numbers(text), text);
        }
        let text = io::read_to_string(&b"\xff"[..]).unwrap_err();
        assert_eq!(plain(&text), "not UTF-8 text");
    }
}
