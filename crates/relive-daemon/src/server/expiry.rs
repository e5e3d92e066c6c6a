//! Refuses a request that has waited for too long, for example because the daemon was stopped: whoever sent it was told that
//! nothing happened, and it does not act later.

use std::time::{Duration, SystemTime};

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use relive_api::EXPIRES_HEADER;
use relive_core::ErrorCode;

use crate::error::{Answer, HttpError};

/// Passes on a request that has not expired.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    match check(request.headers(), SystemTime::now()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(headers: &HeaderMap, now: SystemTime) -> Answer<()> {
    let Some(expires) = headers.get(EXPIRES_HEADER) else { return Ok(()) };
    let Some(expires) = expires.to_str().ok().and_then(|text| text.parse().ok()) else {
        let message = format!("the header {EXPIRES_HEADER}: not a number of milliseconds");
        return Err(HttpError::new(ErrorCode::Invalid, message));
    };
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if now <= Duration::from_millis(expires) {
        return Ok(());
    }
    Err(HttpError::new(ErrorCode::Timeout, "the request has expired: nothing was done"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_refused_after_it_has_expired() {
        let check = |expires: Option<&str>, expect: bool| {
            let mut headers = HeaderMap::new();
            if let Some(expires) = expires {
                headers.insert(EXPIRES_HEADER, expires.parse().unwrap());
            }
            let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000);
            assert_eq!(check(&headers, now).is_ok(), expect, "{expires:?}");
        };
        check(None, true);
        check(Some("1000"), true);
        check(Some("2000"), true);
        check(Some("999"), false);
        check(Some("soon"), false);
    }
}
