//! Why there is no answer from the daemon, told apart by what can be done about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use relive_api::{API_VERSION, BODY_MAX, ErrorDetail};
use relive_types::ErrorCode;

use super::owner::UnsafeSocket;
use super::start::StartError;

/// The cause of an error.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the daemon did not answer, or what it refused.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum Error {
    /// There is no socket, or nothing listens on it.
    #[error("no daemon is running")]
    NotRunning(#[source] io::Error),
    /// The socket cannot be connected to.
    #[error("{}: cannot connect to the daemon's socket", socket.display())]
    CannotConnect { socket: PathBuf, source: io::Error },
    /// Somebody else listens on the socket, or could. Nothing was sent.
    #[error(transparent)]
    Unsafe(#[from] UnsafeSocket),
    /// The connection broke before the answer was complete.
    #[error("the connection to the daemon was lost")]
    Lost(#[source] Cause),
    /// The answer did not begin in time.
    #[error("the daemon did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The answer is not one of a Relive daemon.
    #[error("{}: the program that answers is not a Relive daemon", socket.display())]
    NotADaemon { socket: PathBuf, source: Cause },
    /// The daemon speaks another version of the wire.
    #[error(
        "the daemon is version {version} (wire {api}), this command is version {ours} (wire {API_VERSION})",
        ours = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion { version: String, api: u32 },
    /// The daemon refused the request.
    #[error("{}", .0.message)]
    Refused(ErrorDetail),
    /// The request is larger than a daemon reads.
    #[error("the request is larger than {} MiB", BODY_MAX >> 20)]
    TooLarge,
    /// The request has no JSON form.
    #[error("the request cannot be written as JSON")]
    Encode(#[source] serde_json::Error),
    /// The request cannot be put into HTTP.
    #[error("the request cannot be sent")]
    Request(#[source] hyper::http::Error),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
    /// No daemon is running, and none could be started.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Error {
    /// Tells whether a daemon that comes back, or comes up, makes it pass.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotRunning(_) | Self::Lost(_)) || self.code() == Some(ErrorCode::Unavailable)
    }

    /// Returns the code of a refusal.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(detail) => Some(detail.code),
            Self::NotRunning(_)
            | Self::CannotConnect { .. }
            | Self::Unsafe(_)
            | Self::Lost(_)
            | Self::Silent(_)
            | Self::NotADaemon { .. }
            | Self::OtherVersion { .. }
            | Self::TooLarge
            | Self::Encode(_)
            | Self::Request(_)
            | Self::Random(_)
            | Self::Start(_) => None,
        }
    }
}
