//! Answers of the gateway's own.

use std::convert::Infallible;
use std::io;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};

use crate::api::Api;

pub(crate) type Body = BoxBody<Bytes, io::Error>;

pub(crate) fn failed(api: Option<Api>, status: u16, kind: &str, message: &str) -> Response<Body> {
    whole(status, api.unwrap_or(Api::Chat).error(status, kind, message))
}

pub(crate) fn whole(status: u16, body: String) -> Response<Body> {
    let body = Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Describes why the provider cannot be reached, without the address, which may have a key in it.
pub(crate) fn unreachable(error: &reqwest::Error) -> String {
    let mut message = "the provider cannot be reached".to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    message
}

/// Returns the answer in place of a redirect. A CLI would follow it past the gateway, and nobody would count what it spends
/// there; the gateway does not follow it either, because the key is for the address that the user has named.
pub(crate) fn redirect(api: Option<Api>, response: &reqwest::Response) -> Option<Response<Body>> {
    let status = response.status();
    if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
        return None;
    }
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    // Only the server: the rest may have a key in it.
    let server = location.and_then(|location| response.url().join(location).ok());
    let server = server.map_or_else(|| "another address".to_owned(), |url| url.origin().ascii_serialization());
    let status = status.as_u16();
    let message = format!(
        "Relive: the provider redirects ({status}) to {server}, which is not followed: if that is right, set it as the \
         address of the provider"
    );
    Some(final_answer(failed(api, 400, "invalid_request_error", &message)))
}

/// Stops those that would ask again.
pub(crate) fn final_answer(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    response
}
