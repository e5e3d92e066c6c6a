//! The HTTP client, one for the whole process, so that all models share its connections.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::StatusCode;

use crate::OpenError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

thread_local! {
    /// The status of a refusing response, from the moment its head is read until [`take_refusal`].
    static REFUSAL: Cell<Option<StatusCode>> = const { Cell::new(None) };
}

/// Returns the status if a poll on this thread, since the last call, has read the head of a refusing response.
///
/// `genai` collects the whole body of such a response before it reports anything. Only the client sees the head
/// earlier, in the function that decides on retries.
pub(crate) fn take_refusal() -> Option<StatusCode> {
    REFUSAL.take()
}

pub(crate) fn client() -> Result<genai::Client, OpenError> {
    static CLIENT: OnceLock<Result<genai::Client, String>> = OnceLock::new();
    CLIENT.get_or_init(|| build().map_err(|error| error.to_string())).clone().map_err(OpenError::Client)
}

fn build() -> Result<genai::Client, Box<dyn std::error::Error>> {
    // This fails if a provider is installed already, and then that one is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder()
        .user_agent(concat!("relive/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        // A key is sent to the server it was given for, and to no other.
        .redirect(reqwest::redirect::Policy::none())
        // The daemon's environment does not belong to the user.
        .no_proxy()
        // A few compressed bytes could expand to any size before they are counted.
        .no_gzip()
        .retry(reqwest::retry::never().classify_fn(|attempt| {
            REFUSAL.set(attempt.status().filter(|status| !status.is_success()));
            attempt.success()
        }))
        .build()?;
    Ok(genai::Client::builder().with_reqwest(http).build()?)
}
