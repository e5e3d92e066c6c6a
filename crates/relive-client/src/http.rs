//! The encoding of requests and answers.

use std::path::Path;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use relive_api::{
    API_HEADER, API_VERSION, DATA_DIR_HEADER, EXPIRES_HEADER, ErrorBody, REQUEST_ID_HEADER, VERSION_HEADER,
};
use serde::de::DeserializeOwned;

use super::error::{Cause, Error};

/// The largest answer that is read as a whole.
const ANSWER_MAX: usize = 256 << 20;
/// The protocol version of a daemon that does not report it.
const API_UNNAMED: u32 = 1;

/// Which daemons a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Daemons with the client's protocol version.
    Ours,
    /// All daemons: the request is the same in every version.
    Any,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub method: Method,
    pub path: String,
    pub body: Option<Bytes>,
    /// Makes a repeated request harmless.
    pub request_id: Option<String>,
    pub wire: Wire,
    /// How long the head of the answer may take; for ever if absent.
    pub within: Option<Duration>,
}

impl Ask {
    pub(crate) fn request(
        &self,
        data: Option<&str>,
        expires: Option<SystemTime>,
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::builder().method(self.method.clone()).uri(&self.path).header(HOST, "relive");
        if self.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(id) = &self.request_id {
            request = request.header(REQUEST_ID_HEADER, id);
        }
        if let Some(data) = data {
            request = request.header(DATA_DIR_HEADER, data);
        }
        if let Some(expires) = expires.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok()) {
            request = request.header(EXPIRES_HEADER, expires.as_millis().to_string());
        }
        request.body(Full::new(self.body.clone().unwrap_or_default()))
    }

    /// Checks that the answer is from a daemon that the request is for.
    pub(crate) fn check(&self, socket: &Path, response: &Response<Incoming>) -> Result<(), Error> {
        let Some(version) = text(response.headers(), VERSION_HEADER) else {
            return Err(not_a_daemon(
                socket,
                format!("its answer ({}) has no header {VERSION_HEADER}", response.status()),
            ));
        };
        let api = text(response.headers(), API_HEADER).map_or(Some(API_UNNAMED), |api| api.parse().ok());
        match (self.wire, api) {
            (Wire::Any, _) | (Wire::Ours, Some(API_VERSION)) => Ok(()),
            (Wire::Ours, Some(api)) => Err(Error::OtherVersion { version: version.to_owned(), api }),
            (Wire::Ours, None) => Err(not_a_daemon(socket, format!("its header {API_HEADER} is not a number"))),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Reads a refusal completely.
pub(crate) async fn refusal(socket: &Path, response: Response<Incoming>) -> Error {
    let status = response.status();
    match read_json::<ErrorBody>(socket, response.into_body()).await {
        Ok(body) => Error::Refused(body.error),
        Err(Error::NotADaemon { .. }) if status == StatusCode::NOT_FOUND => {
            not_a_daemon(socket, "it answers 404 to a request that every daemon knows")
        }
        Err(Error::NotADaemon { .. }) => {
            not_a_daemon(socket, format!("its answer ({status}) is not an error of Relive"))
        }
        Err(error) => error,
    }
}

/// Reads an answer completely.
pub(crate) async fn read(body: Incoming) -> Result<Bytes, Error> {
    Ok(Limited::new(body, ANSWER_MAX).collect().await.map_err(Error::Lost)?.to_bytes())
}

async fn read_json<T: DeserializeOwned>(socket: &Path, body: Incoming) -> Result<T, Error> {
    parse(socket, &read(body).await?)
}

pub(crate) fn parse<T: DeserializeOwned>(socket: &Path, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| not_a_daemon(socket, format!("its answer cannot be read: {error}")))
}

/// Distinguishes a peer that does not speak HTTP from a broken connection.
pub(crate) fn judge(socket: &Path, error: hyper::Error) -> Error {
    if error.is_parse() || error.is_parse_status() { not_a_daemon(socket, error) } else { Error::Lost(error.into()) }
}

pub(crate) fn not_a_daemon(socket: &Path, source: impl Into<Cause>) -> Error {
    Error::NotADaemon { socket: socket.to_owned(), source: source.into(), daemon: None }
}

/// Percent-encodes a path segment: whatever a person typed stays one segment.
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
    fn case_21_an_id_is_encoded_as_one_path_segment() {
        let check = |id: &str, encoded: &str| assert_eq!(segment(id), encoded);
        check("fix-tests.2", "fix-tests.2");
        check("../../etc", "%2E%2E%2F%2E%2E%2Fetc");
        check("a/b?c#d e%", "a%2Fb%3Fc%23d%20e%25");
        check("é", "%C3%A9");
    }
}
