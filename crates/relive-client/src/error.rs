//! Errors of the client, distinguished by what can be done about them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use relive_api::{API_VERSION, BODY_MAX, ErrorDetail};
use relive_types::ErrorCode;

use super::owner::UnsafeSocket;
use super::start::StartError;

/// The longest path of a request. What has a name has a shorter one.
pub(crate) const PATH_MAX: usize = 8 << 10;

/// The cause of an error.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why the daemon did not answer, or its refusal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no socket, or nothing listens on it.
    #[error("no daemon is running")]
    NotRunning(#[source] io::Error),
    /// The socket cannot be connected to.
    #[error("{}: cannot connect to the daemon's socket", socket.display())]
    CannotConnect { socket: PathBuf, source: io::Error },
    /// Another user listens on the socket, or could. Nothing was sent.
    #[error(transparent)]
    Unsafe(#[from] UnsafeSocket),
    /// The connection broke before the answer was complete.
    #[error("the connection to the daemon was lost")]
    Lost(#[source] Cause),
    /// The answer did not begin in time.
    #[error("the daemon did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// A program listens on the socket, is not the daemon, and does not answer.
    #[error(
        "{}: the program that listens on this socket (OS pid {os_pid}) has not answered for {} s, and is not the daemon{}",
        socket.display(),
        within.as_secs(),
        in_its_place(*daemon)
    )]
    Mute { socket: PathBuf, os_pid: u32, within: Duration, daemon: Option<u32> },
    /// The daemon accepts no connections: as many wait as there may be.
    #[error("the daemon with OS pid {os_pid} has not accepted a connection for {} s", within.as_secs())]
    Overloaded { os_pid: u32, within: Duration },
    /// As many connections wait to be accepted as there may be. Nobody can tell who should accept them, only that it is not the
    /// daemon, if there is one.
    #[error(
        "{}: the program that listens on this socket has not accepted a connection for {} s{}",
        socket.display(),
        within.as_secs(),
        in_its_place(*daemon)
    )]
    Full { socket: PathBuf, within: Duration, daemon: Option<u32> },
    /// The answer is not that of a Relive daemon.
    #[error("{}: the program that answers is not a Relive daemon{}", socket.display(), in_its_place(*daemon))]
    NotADaemon { socket: PathBuf, source: Cause, daemon: Option<u32> },
    /// The daemon has another version of the protocol.
    #[error(
        "the daemon is version {version} (protocol {api}), this command is version {ours} (protocol {API_VERSION})",
        ours = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion { version: String, api: u32 },
    /// The daemon refused the request.
    #[error("{}", .0.message)]
    Refused(ErrorDetail),
    /// The request is larger than the daemon accepts.
    #[error("the request is larger than {} MiB", BODY_MAX >> 20)]
    TooLarge,
    /// A request names something that cannot exist.
    #[error("an id, a name or a pattern is longer than {PATH_MAX} bytes")]
    LongName,
    /// The request cannot be encoded as JSON.
    #[error("the request cannot be encoded as JSON")]
    Encode(#[source] serde_json::Error),
    /// The request cannot be encoded as HTTP.
    #[error("the request cannot be sent")]
    Request(#[source] hyper::http::Error),
    /// The system provides no random numbers.
    #[error("the system provides no random numbers")]
    Random(#[source] io::Error),
    /// No daemon is running, and none could be started.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Names the daemon that should be listening.
fn in_its_place(daemon: Option<u32>) -> String {
    daemon.map(|os_pid| format!("; the daemon of this data directory has OS pid {os_pid}")).unwrap_or_default()
}

impl Error {
    /// Returns whether another attempt with a restarted daemon may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotRunning(_) | Self::Lost(_) | Self::Full { .. } | Self::Overloaded { .. })
            || self.code() == Some(ErrorCode::Unavailable)
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
            | Self::Mute { .. }
            | Self::Full { .. }
            | Self::Overloaded { .. }
            | Self::NotADaemon { .. }
            | Self::OtherVersion { .. }
            | Self::TooLarge
            | Self::LongName
            | Self::Encode(_)
            | Self::Request(_)
            | Self::Random(_)
            | Self::Start(_) => None,
        }
    }
}
