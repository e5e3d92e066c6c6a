//! Errors on the wire.

use relive_types::ErrorCode;
use serde::{Deserialize, Serialize};

/// An error, as the wire and `--json` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// The code, message and hint of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    pub code: ErrorCode,
    /// The message, which names the process.
    pub message: String,
    /// The command to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The HTTP status that goes with an error.
#[must_use]
pub fn http_status(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::Invalid => 400,
        ErrorCode::Permission => 403,
        ErrorCode::NotFound => 404,
        ErrorCode::Timeout => 408,
        ErrorCode::Conflict => 409,
        ErrorCode::Exhausted => 429,
        ErrorCode::Internal => 500,
        ErrorCode::Unavailable => 503,
    }
}
