//! A client that sends one request on a connection of its own, and hangs up when it is told to.
//!
//! It writes HTTP by hand, because half a request and a connection that is closed at a given moment are what it is for.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Nobody who asks waits longer than this; a daemon that takes longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn is_ok(&self) -> bool {
        self.status == 200
    }
}

/// A request that changes something.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) body: Value,
    /// The value of `relive-request-id`. A repeat of the request has the same.
    pub(crate) id: String,
}

/// When a client closes its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HangUp {
    /// After the answer.
    Never,
    /// So long after the request was written, or after the answer if that comes first.
    After(Duration),
    /// In the middle of the request's body.
    InBody,
}

/// What one client saw of one request.
#[derive(Debug, Clone)]
pub(crate) enum Attempt {
    /// There was no daemon, so nothing was asked.
    NotSent,
    /// The client hung up, or the daemon died: the verb may have been done.
    Unanswered {
        sent: Instant,
    },
    /// The daemon is there and does not answer.
    Silent,
    Answered {
        sent: Instant,
        answered: Instant,
        answer: Answer,
    },
}

impl Attempt {
    /// The answer, if there was one.
    pub(crate) fn answer(self) -> Option<Answer> {
        match self {
            Self::Answered { answer, .. } => Some(answer),
            Self::NotSent | Self::Unanswered { .. } | Self::Silent => None,
        }
    }
}

/// Where to ask.
#[derive(Debug, Clone)]
pub(crate) struct HastyClient {
    socket: PathBuf,
}

impl HastyClient {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Sends a request once, and hangs up as told.
    pub(crate) fn attempt(&self, request: &Request, hang_up: HangUp) -> Attempt {
        let Ok(mut stream) = UnixStream::connect(&self.socket) else { return Attempt::NotSent };
        let sent = Instant::now();
        let body = request.body.to_string();
        let Request { path, id, .. } = request;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: relive\r\nconnection: close\r\nrelive-request-id: {id}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let text = format!("{head}{body}");
        let (written, patience) = match hang_up {
            HangUp::Never => (text.len(), PATIENCE),
            HangUp::After(patience) => (text.len(), patience),
            HangUp::InBody => (head.len() + body.len() / 2, Duration::ZERO),
        };
        if stream.write_all(&text.as_bytes()[..written]).is_err() {
            return Attempt::Unanswered { sent };
        }
        match read_answer(&mut stream, sent + patience) {
            Ok(Some(answer)) => Attempt::Answered { sent, answered: Instant::now(), answer },
            Ok(None) if hang_up == HangUp::Never => Attempt::Silent,
            Ok(None) | Err(_) => Attempt::Unanswered { sent },
        }
    }
}

/// Reads a whole answer; `None` if it has not come by then. Looks often, because a read's own timeout is coarse.
fn read_answer(stream: &mut UnixStream, until: Instant) -> io::Result<Option<Answer>> {
    const LOOK_EVERY: Duration = Duration::from_micros(100);
    stream.set_nonblocking(true)?;
    let mut bytes = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(left.min(LOOK_EVERY)),
            Err(error) => return Err(error),
        }
        if let Some(answer) = whole_answer(&bytes) {
            return Ok(Some(answer));
        }
    }
}

/// The answer, once all of it is there.
fn whole_answer(bytes: &[u8]) -> Option<Answer> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let headers = head.to_ascii_lowercase();
    let length = headers.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let body = body.get(..length.trim().parse().ok()?)?;
    Some(Answer { status, body: serde_json::from_str(body).unwrap_or_default() })
}
