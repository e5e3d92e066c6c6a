//! The HTTP client, one for the whole process, so that all models share its connections.

use std::sync::OnceLock;
use std::time::Duration;

use crate::OpenError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) fn client() -> Result<genai::Client, OpenError> {
    static CLIENT: OnceLock<Result<genai::Client, String>> = OnceLock::new();
    CLIENT.get_or_init(|| build().map_err(|error| error.to_string())).clone().map_err(OpenError::Client)
}

fn build() -> Result<genai::Client, Box<dyn std::error::Error>> {
    // It fails if a provider is installed already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder()
        .user_agent(concat!("relive/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        // A key is sent to the server it was given for, and to no other.
        .redirect(reqwest::redirect::Policy::none())
        // The daemon's environment is not the user's.
        .no_proxy()
        .build()?;
    Ok(genai::Client::builder().with_reqwest(http).build()?)
}
