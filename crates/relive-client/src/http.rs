//! One request and its answer, over the daemon's socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use relive_api::{ErrorBody, REQUEST_ID_HEADER, VERSION_HEADER};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::error::{Cause, Error};

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

/// An answer that has begun.
pub(crate) struct Answer {
    pub version: String,
    pub body: Incoming,
}

pub(crate) async fn connect(socket: &Path) -> Result<UnixStream, Error> {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, WouldBlock};
    UnixStream::connect(socket).await.map_err(|error| {
        if matches!(error.kind(), NotFound | ConnectionRefused) {
            Error::NotRunning(error)
        } else if matches!(error.kind(), WouldBlock | ConnectionReset) {
            // A daemon that has more callers than it has taken yet.
            Error::Lost(error.into())
        } else {
            Error::CannotConnect { socket: socket.to_owned(), source: error }
        }
    })
}

/// Asks. A refusal has been read to its end; an answer has only begun.
pub(crate) async fn exchange(socket: &Path, ask: &Ask) -> Result<Answer, Error> {
    let Some(within) = ask.within else { return exchange_at_leisure(socket, ask).await };
    tokio::time::timeout(within, exchange_at_leisure(socket, ask)).await.unwrap_or(Err(Error::Silent(within)))
}

async fn exchange_at_leisure(socket: &Path, ask: &Ask) -> Result<Answer, Error> {
    let stream = connect(socket).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| judge(socket, error))?;
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
    let request = request.body(body).map_err(|error| not_a_daemon(socket, error))?;
    let response = sender.send_request(request).await.map_err(|error| judge(socket, error))?;
    let version = response.headers().get(VERSION_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let Some(version) = version else {
        return Err(not_a_daemon(socket, format!("it answers {} and does not name itself", response.status())));
    };
    if response.status().is_success() {
        return Ok(Answer { version, body: response.into_body() });
    }
    Err(refusal(socket, response).await)
}

async fn refusal(socket: &Path, response: Response<Incoming>) -> Error {
    let status = response.status();
    match read_json::<ErrorBody>(socket, response.into_body()).await {
        Ok(body) => Error::Refused(body.error),
        Err(Error::NotADaemon { .. }) if status == StatusCode::NOT_FOUND => {
            not_a_daemon(socket, "it does not know this request")
        }
        Err(Error::NotADaemon { .. }) => not_a_daemon(socket, format!("it answers {status}")),
        Err(error) => error,
    }
}

/// Reads an answer to its end.
pub(crate) async fn read_json<T: DeserializeOwned>(socket: &Path, body: Incoming) -> Result<T, Error> {
    let whole = Limited::new(body, ANSWER_MAX).collect().await;
    let bytes = whole.map_err(Error::Lost)?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| not_a_daemon(socket, format!("its answer cannot be read: {error}")))
}

/// Tells a peer that does not speak HTTP from a connection that broke.
pub(crate) fn judge(socket: &Path, error: hyper::Error) -> Error {
    if error.is_parse() || error.is_parse_status() { not_a_daemon(socket, error) } else { Error::Lost(error.into()) }
}

pub(crate) fn not_a_daemon(socket: &Path, source: impl Into<Cause>) -> Error {
    Error::NotADaemon { socket: socket.to_owned(), source: source.into() }
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
