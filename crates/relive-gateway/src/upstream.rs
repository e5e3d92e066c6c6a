//! The provider's side: requests with the real key, and answers as they come.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, UPGRADE,
};
use hyper::header::{EXPECT, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING};

use crate::protocol::Auth;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const API_KEY: &str = "x-api-key";
const GOOGLE_KEY: &str = "x-goog-api-key";
const KEEP_ALIVE: &str = "keep-alive";

/// Builds the client that all processes share.
pub(crate) fn client() -> Result<reqwest::Client, reqwest::Error> {
    // This fails if a provider is installed already, and then that one is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http1_only()
        // A key is sent to the server it was given for, and to no other.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .retry(reqwest::retry::never())
        .build()
}

/// A request that was read.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) method: hyper::Method,
    /// The path and the query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Returns the token of a request.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
    text(HeaderName::from_static(API_KEY)).or_else(|| text(HeaderName::from_static(GOOGLE_KEY))).or(bearer)
}

/// Sends a request to the provider.
pub(crate) async fn send(
    client: &reqwest::Client,
    base: &str,
    auth: &Auth,
    question: &Question,
) -> Result<reqwest::Response, reqwest::Error> {
    let mut headers = question.headers.clone();
    headers.remove(AUTHORIZATION);
    headers.remove(API_KEY);
    headers.remove(GOOGLE_KEY);
    // A compressed answer could not be read here.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let name = HeaderName::from_bytes(auth.header.as_bytes());
    if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(&auth.value)) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    request(client, base, headers, question).await
}

/// Sends a request to the gateway that listens at the port of the process now, with the token that came with it.
pub(crate) async fn pass_on(
    client: &reqwest::Client,
    port: u16,
    question: &Question,
) -> Result<reqwest::Response, reqwest::Error> {
    request(client, &format!("http://127.0.0.1:{port}"), question.headers.clone(), question).await
}

async fn request(
    client: &reqwest::Client,
    base: &str,
    mut headers: HeaderMap,
    question: &Question,
) -> Result<reqwest::Response, reqwest::Error> {
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    remove_hop_by_hop(&mut headers);
    let url = format!("{}{}", base.trim_end_matches('/'), question.path);
    let mut request = client.request(question.method.clone(), url).headers(headers);
    if !question.body.is_empty() {
        request = request.body(question.body.clone());
    }
    request.send().await
}

/// Removes the headers that are about one connection.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, UPGRADE, TE, TRAILER, TRANSFER_ENCODING, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION] {
        headers.remove(name);
    }
    headers.remove(KEEP_ALIVE);
}
