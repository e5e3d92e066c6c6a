//! What a command fails with: what, the cause, the way out, and the exit code that goes with it.

use std::error::Error;
use std::fmt;
use std::io;

use relive_api::ErrorDetail;
use relive_client::{Error as ClientError, StartError, UnsafeSocket};
use relive_core::ErrorCode;

/// The end of a command that did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub kind: Kind,
    /// What went wrong, with the id.
    pub message: String,
    /// What is below it.
    pub source: Option<Box<dyn Error + Send + Sync>>,
    /// The command to run.
    pub hint: Option<String>,
}

/// Which exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Code(ErrorCode),
    /// The reader of our output is gone. Nothing is said.
    ClosedPipe,
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

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    pub(crate) fn not_found(id: &str) -> Self {
        let error = Self::new(ErrorCode::NotFound, format!("`{id}`: no such process"));
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

    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self.kind {
            Kind::Code(code) => Some(code),
            Kind::ClosedPipe => None,
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.code().map_or(0, ErrorCode::exit_code)
    }

    /// What went wrong and all that is below it, one line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.message.clone()];
        let mut next = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(source) = next {
            lines.push(source.to_string());
            next = source.source();
        }
        lines
    }

    /// As the wire and `--json` show it.
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

/// The way out where something else has the daemon's socket.
const OTHER_SOCKET: &str = "export RELIVE_SOCKET=~/.relive-socket";

/// What the client says, with the way out and the exit code.
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
                    UnsafeSocket::DirectoryMode { path, .. } => format!("chmod go-w {}", path.display()),
                    UnsafeSocket::DirectoryOwner { .. }
                    | UnsafeSocket::SocketOwner { .. }
                    | UnsafeSocket::Listener { .. } => OTHER_SOCKET.into(),
                };
                Self::new(ErrorCode::Permission, message).with_hint(hint)
            }
            ClientError::CannotConnect { source, .. } => Self::unavailable(message).because(source),
            ClientError::Lost(cause) => Self::unavailable(message).because(cause).with_hint("relive daemon status"),
            ClientError::Silent(_) | ClientError::OtherVersion { .. } => {
                Self::unavailable(message).with_hint("relive daemon restart")
            }
            ClientError::NotADaemon { source, .. } => {
                Self::unavailable(message).because(source).with_hint(OTHER_SOCKET)
            }
            ClientError::TooLarge => Self::invalid(message),
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
            // What is wrong with the configuration is said as `config show` says it.
            StartError::Refused(cause) => match cause.downcast::<Self>() {
                Ok(refusal) => *refusal,
                Err(cause) => Self::unavailable(message).because(cause),
            },
            StartError::Unwritable(cause) => Self::unavailable(message).because(cause),
            StartError::Spawn(cause) => Self::unavailable(message).because(cause),
            StartError::Busy(_) => Self::unavailable(message).with_hint("relive daemon status"),
            StartError::Ended { log, said } | StartError::Silent { log, said } | StartError::Held { log, said, .. } => {
                let error = Self::unavailable(message).with_hint(format!("less {}", log.display()));
                if said.is_empty() { error } else { error.because(said) }
            }
        }
    }
}

/// Writing to the terminal, or to a pipe that may have been closed.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { kind: Kind::ClosedPipe, message: String::new(), source: None, hint: None };
        }
        Self::internal("cannot write the answer").because(error)
    }
}
