//! What the daemon says no with: a code, a text, and the way out.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use relive_agent::JournalError;
use relive_api::{ErrorBody, ErrorDetail, http_status};
use relive_core::{ErrorCode, Refusal};
use relive_journal::data::{CollectError, ForkError, LineageError, SpawnError};
use relive_journal::{JobLost, WriteError};

/// An error for a client.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

pub(crate) type Answer<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(http_status(self.code)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let Self { code, message, hint } = self;
        (status, Json(ErrorBody { error: ErrorDetail { code, message, hint } })).into_response()
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self { code: refusal.code(), message: refusal.to_string(), hint: refusal.hint() }
    }
}

impl From<WriteError> for ApiError {
    fn from(error: WriteError) -> Self {
        let (code, hint) = match &error {
            WriteError::Busy { .. } => (ErrorCode::Conflict, None),
            WriteError::Absent { .. } => (ErrorCode::NotFound, None),
            WriteError::Damaged { .. } => {
                (ErrorCode::Conflict, Some("relive resume --fork --from-step N ID takes up what is before the damage"))
            }
            WriteError::ReadOnly { .. } => (ErrorCode::Conflict, Some("install the newer Relive that wrote it")),
            WriteError::Poisoned { .. } => {
                (ErrorCode::Unavailable, Some("look at the disk (dmesg), then: relive daemon restart"))
            }
            WriteError::DiskFull { .. } => {
                (ErrorCode::Exhausted, Some("free some space, then resume; relive gc removes old histories"))
            }
            WriteError::Misplaced { .. } | WriteError::TooLong { .. } | WriteError::Io { .. } => {
                (ErrorCode::Internal, None)
            }
        };
        Self { code, message: error.to_string(), hint: hint.map(Into::into) }
    }
}

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Write(error) => error.into(),
            JournalError::Lost(error) => error.into(),
            JournalError::Read(_) => Self::new(ErrorCode::Internal, error.to_string()),
        }
    }
}

impl From<JobLost> for ApiError {
    fn from(error: JobLost) -> Self {
        Self::new(ErrorCode::Internal, error.to_string())
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorCode::Internal, error.to_string())
    }
}

impl From<SpawnError> for ApiError {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::Write(error) => error.into(),
            SpawnError::Exists(_) => Self::new(ErrorCode::Conflict, error.to_string()),
            SpawnError::NoSpace { .. } => Self::new(ErrorCode::Exhausted, error.to_string())
                .hint("free some space; relive gc removes old histories"),
            SpawnError::Io { .. } => Self::new(ErrorCode::Internal, error.to_string()),
        }
    }
}

impl From<ForkError> for ApiError {
    fn from(error: ForkError) -> Self {
        let message = error.to_string();
        match error {
            ForkError::NoSuchStep { last, .. } => {
                Self::new(ErrorCode::Invalid, message).hint(format!("--from-step takes 0 to {last}"))
            }
            ForkError::Damaged { last, .. } => {
                Self::new(ErrorCode::Conflict, message).hint(format!("--fork --from-step {last} works"))
            }
            ForkError::ReadOnly { .. } => Self::new(ErrorCode::Conflict, message),
            ForkError::Io { .. } => Self::new(ErrorCode::Internal, message),
            ForkError::Spawn(error) => error.into(),
            ForkError::Write(error) => error.into(),
        }
    }
}

impl From<LineageError> for ApiError {
    fn from(error: LineageError) -> Self {
        Self::new(ErrorCode::Conflict, error.to_string())
    }
}

impl From<CollectError> for ApiError {
    fn from(error: CollectError) -> Self {
        let code = match &error {
            CollectError::ClockJumped { .. } => ErrorCode::Conflict,
            CollectError::Io(_) => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}
