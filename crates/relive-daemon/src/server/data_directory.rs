//! Checks the data directory of a request: a client that sets the socket path may reach the daemon of another one.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use relive_api::{DATA_DIR_HEADER, percent};
use relive_core::ErrorCode;
use relive_runtime::About;

use crate::error::{Answer, HttpError};

/// The data directory of this daemon.
#[derive(Debug, Clone)]
pub(super) struct DataDirectory {
    about: Arc<About>,
    /// Without symbolic links.
    canonical: Arc<Path>,
}

impl DataDirectory {
    pub(super) fn new(about: &Arc<About>) -> Self {
        let canonical = about.data.canonicalize().unwrap_or_else(|_| about.data.clone());
        Self { about: Arc::clone(about), canonical: canonical.into() }
    }

    fn check(&self, request: &Request) -> Answer<()> {
        let Some(meant) = request.headers().get(DATA_DIR_HEADER) else { return Ok(()) };
        let Some(meant) = meant.to_str().ok().and_then(percent::decode) else {
            let message = format!("the header {DATA_DIR_HEADER}: not percent-encoded");
            return Err(HttpError::new(ErrorCode::Invalid, message));
        };
        let About { data, socket, .. } = &*self.about;
        if meant == data.as_os_str().as_bytes() || meant == self.canonical.as_os_str().as_bytes() {
            return Ok(());
        }
        let meant = PathBuf::from(OsString::from_vec(meant));
        let message = format!("the daemon on {} serves {}, not {}", socket.display(), data.display(), meant.display());
        Err(HttpError::new(ErrorCode::Invalid, message).with_hint("unset RELIVE_SOCKET"))
    }
}

/// Refuses a request for another data directory.
pub(super) async fn is_ours(State(directory): State<DataDirectory>, request: Request, next: Next) -> Response {
    match directory.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}
