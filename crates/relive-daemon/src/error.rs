//! Converts the runtime's errors to HTTP.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use relive_api::{ErrorBody, ErrorDetail, http_status};
use relive_core::ErrorCode;
use relive_runtime::Error;

#[derive(Debug)]
pub(crate) struct HttpError(Error);

pub(crate) type Answer<T> = Result<T, HttpError>;

impl HttpError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Error::new(code, message))
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self(self.0.with_hint(hint))
    }
}

impl From<Error> for HttpError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let status = StatusCode::from_u16(http_status(error.code())).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let detail = ErrorDetail { code: error.code(), message: error.to_string(), hint: error.hint() };
        (status, Json(ErrorBody { error: detail })).into_response()
    }
}
