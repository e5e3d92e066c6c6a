//! One request and its answer, over the daemon's socket. What went wrong is told apart by what can be done about it.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use relive_api::{ErrorBody, ErrorDetail, REQUEST_ID_HEADER, VERSION_HEADER};
use relive_core::ErrorCode;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// The largest answer that is read as a whole.
const ANSWER_MAX: usize = 256 << 20;

/// Something to ask the daemon.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub method: Method,
    pub path: String,
    pub body: Option<Vec<u8>>,
    /// So that asking again changes nothing twice.
    pub request_id: Option<String>,
    /// How long the beginning of the answer may take; for ever if absent.
    pub within: Option<Duration>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody listens: there is no socket, or it is what a dead daemon left behind.
    Absent(io::Error),
    /// There is a socket we cannot use.
    Unusable(io::Error),
    /// The connection broke off.
    Lost(String),
    /// Whoever listens did not answer in time.
    Silent(Duration),
    /// Whoever listens is not a daemon of ours.
    Foreign(String),
    /// The daemon said no.
    Refused(ErrorDetail),
}

impl Failure {
    /// Whether a daemon that comes back, or comes up, makes it pass.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Absent(_) | Self::Lost(_) => true,
            Self::Refused(detail) => detail.code == ErrorCode::Unavailable,
            Self::Unusable(_) | Self::Silent(_) | Self::Foreign(_) => false,
        }
    }
}

/// An answer that has begun.
pub(crate) struct Answer {
    pub version: String,
    pub body: Incoming,
}

pub(crate) async fn connect(socket: &Path) -> Result<UnixStream, Failure> {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, WouldBlock};
    UnixStream::connect(socket).await.map_err(|error| {
        if matches!(error.kind(), NotFound | ConnectionRefused) {
            Failure::Absent(error)
        } else if matches!(error.kind(), WouldBlock | ConnectionReset) {
            // A daemon that has more callers than it has taken yet.
            Failure::Lost(error.to_string())
        } else {
            Failure::Unusable(error)
        }
    })
}

/// Asks. A refusal has been read to its end; an answer has only begun.
pub(crate) async fn exchange(socket: &Path, ask: &Ask) -> Result<Answer, Failure> {
    let Some(within) = ask.within else { return exchange_at_leisure(socket, ask).await };
    tokio::time::timeout(within, exchange_at_leisure(socket, ask)).await.unwrap_or(Err(Failure::Silent(within)))
}

async fn exchange_at_leisure(socket: &Path, ask: &Ask) -> Result<Answer, Failure> {
    let stream = connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| judge(&error))?;
    // Ends by itself when the sender and the answer's body are gone.
    tokio::spawn(connection);
    let mut request = Request::builder().method(ask.method.clone()).uri(&ask.path).header(HOST, "relive");
    if ask.body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    if let Some(id) = &ask.request_id {
        request = request.header(REQUEST_ID_HEADER, id);
    }
    let body = Full::new(Bytes::from(ask.body.clone().unwrap_or_default()));
    let request = request.body(body).map_err(|error| Failure::Foreign(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(|error| judge(&error))?;
    let version = response.headers().get(VERSION_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let Some(version) = version else {
        return Err(Failure::Foreign(format!("it answers {} and does not name itself", response.status())));
    };
    if response.status().is_success() {
        return Ok(Answer { version, body: response.into_body() });
    }
    Err(refusal(response).await)
}

async fn refusal(response: Response<Incoming>) -> Failure {
    let status = response.status();
    match read_json::<ErrorBody>(response.into_body()).await {
        Ok(body) => Failure::Refused(body.error),
        Err(Failure::Foreign(_)) if status == StatusCode::NOT_FOUND => {
            Failure::Foreign("it does not know this request".into())
        }
        Err(Failure::Foreign(_)) => Failure::Foreign(format!("it answers {status}")),
        Err(failure) => failure,
    }
}

/// Reads an answer to its end.
pub(crate) async fn read_json<T: DeserializeOwned>(body: Incoming) -> Result<T, Failure> {
    let whole = Limited::new(body, ANSWER_MAX).collect().await;
    let bytes = whole.map_err(|error| Failure::Lost(error.to_string()))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| Failure::Foreign(format!("its answer cannot be read: {error}")))
}

pub(crate) fn judge(error: &hyper::Error) -> Failure {
    if error.is_parse() || error.is_parse_status() {
        Failure::Foreign(error.to_string())
    } else {
        Failure::Lost(error.to_string())
    }
}

/// A path segment, percent-encoded: whatever a person typed stays one segment.
pub(crate) fn segment(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && !text.starts_with('.')) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_21_an_id_stays_one_segment() {
        let check = |id: &str, encoded: &str| assert_eq!(segment(id), encoded);
        check("fix-tests.2", "fix-tests.2");
        check("../../etc", "%2E%2E%2F%2E%2E%2Fetc");
        check("a/b?c#d e%", "a%2Fb%3Fc%23d%20e%25");
        check("é", "%C3%A9");
    }
}
