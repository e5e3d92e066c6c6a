//! A blocking client of the daemon's socket, as small as it can be: one request a connection.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
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

/// Why there is none.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The daemon is not there, or went away: nobody knows whether it did what it was asked.
    Gone,
    /// It is there and says nothing.
    Hangs,
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        let hangs = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        if hangs { Self::Hangs } else { Self::Gone }
    }
}

/// Where to ask.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Answer, NoAnswer> {
        self.ask("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Answer, NoAnswer> {
        self.ask("POST", path, Some(body))
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, NoAnswer> {
        let mut response = self.open(method, path, body)?;
        let mut bytes = Vec::new();
        response.body.read_to_end(&mut bytes)?;
        let body = serde_json::from_slice(&bytes).map_err(|_| NoAnswer::Gone)?;
        Ok(Answer { status: response.status, body })
    }

    fn open(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Response, NoAnswer> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: relive\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut reader = BufReader::new(stream);
        let first = line(&mut reader)?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(NoAnswer::Gone)?;
        let mut left = Left::ToTheEnd;
        loop {
            let header = line(&mut reader)?.to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if header == "transfer-encoding: chunked" {
                left = Left::Chunk { bytes: 0, first: true };
            } else if let Some(length) = header.strip_prefix("content-length: ") {
                left = Left::Bytes(length.parse().map_err(|_| NoAnswer::Gone)?);
            }
        }
        Ok(Response { status, body: Body { reader, left } })
    }

    /// Hands every record of a journal after `after` to `each`, until there are no more, the daemon goes, or `each` says no.
    pub(crate) fn journal(
        &self,
        id: &str,
        after: &str,
        follow: bool,
        mut each: impl FnMut(&str, &str) -> bool,
    ) -> Result<(), NoAnswer> {
        let response = self.open("GET", &format!("/v1/processes/{id}/journal?follow={follow}&after={after}"), None)?;
        if response.status != 200 {
            return Ok(());
        }
        let (mut id, mut data, mut kind) = (String::new(), String::new(), String::new());
        for line in BufReader::new(response.body).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            match line.split_once(": ").or_else(|| line.split_once(':')) {
                Some(("id", value)) => value.clone_into(&mut id),
                Some(("event", value)) => value.clone_into(&mut kind),
                Some(("data", value)) => value.clone_into(&mut data),
                Some(_) => {}
                None if kind == "record" => {
                    if !each(&id, &data) {
                        return Ok(());
                    }
                    kind.clear();
                }
                None if kind == "end" => return Ok(()),
                None => {}
            }
        }
        Ok(())
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

impl Client {
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

fn line(reader: &mut impl BufRead) -> Result<String, NoAnswer> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(NoAnswer::Gone);
    }
    Ok(line.trim_end().to_owned())
}

struct Response {
    status: u16,
    body: Body,
}

/// What is still to come of a body.
enum Left {
    Bytes(u64),
    Chunk { bytes: u64, first: bool },
    ToTheEnd,
    Nothing,
}

struct Body {
    reader: BufReader<UnixStream>,
    left: Left,
}

impl io::Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let cut_off = || io::Error::from(io::ErrorKind::UnexpectedEof);
        if let Left::Chunk { bytes: 0, first } = self.left {
            let mut size = String::new();
            if !first {
                self.reader.read_line(&mut size)?;
                size.clear();
            }
            self.reader.read_line(&mut size)?;
            let bytes = u64::from_str_radix(size.trim(), 16).map_err(|_| cut_off())?;
            self.left = if bytes == 0 { Left::Nothing } else { Left::Chunk { bytes, first: false } };
        }
        let max = match self.left {
            Left::Bytes(max) | Left::Chunk { bytes: max, .. } => max,
            Left::ToTheEnd => return self.reader.read(buffer),
            Left::Nothing => return Ok(0),
        };
        if max == 0 {
            return Ok(0);
        }
        let taken = (&mut self.reader).take(max).read(buffer)?;
        if taken == 0 && !buffer.is_empty() {
            return Err(cut_off());
        }
        if let Left::Bytes(left) | Left::Chunk { bytes: left, .. } = &mut self.left {
            *left -= taken as u64;
        }
        Ok(taken)
    }
}
