//! Error codes that clients and scripts may rely on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The code of an error; every error Relive returns has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// A bad argument, or an ambiguous name.
    Invalid,
    /// The process is in a state that does not allow the operation.
    Conflict,
    /// No such process, or one the caller may not see.
    NotFound,
    /// Refused by policy.
    Permission,
    /// The daemon cannot be reached.
    Unavailable,
    /// It took too long.
    Timeout,
    /// A failure of Relive itself.
    Internal,
    /// A limit was reached.
    Exhausted,
}

impl ErrorCode {
    pub const ALL: [Self; 8] = [
        Self::Invalid,
        Self::Conflict,
        Self::NotFound,
        Self::Permission,
        Self::Unavailable,
        Self::Timeout,
        Self::Internal,
        Self::Exhausted,
    ];

    /// Returns the published name: `NOT_FOUND`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID",
            Self::Conflict => "CONFLICT",
            Self::NotFound => "NOT_FOUND",
            Self::Permission => "PERMISSION",
            Self::Unavailable => "UNAVAILABLE",
            Self::Timeout => "TIMEOUT",
            Self::Internal => "INTERNAL",
            Self::Exhausted => "EXHAUSTED",
        }
    }

    /// Returns the exit code of a command that fails with it.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Exhausted => 1,
            Self::Invalid => 2,
            Self::Conflict => 3,
            Self::NotFound => 4,
            Self::Permission => 5,
            Self::Unavailable => 6,
            Self::Timeout => 124,
            Self::Internal => 125,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_published_names_and_exit_codes() {
        let published: Vec<_> = ErrorCode::ALL.iter().map(|code| (code.name(), code.exit_code())).collect();
        assert_eq!(
            published,
            [
                ("INVALID", 2),
                ("CONFLICT", 3),
                ("NOT_FOUND", 4),
                ("PERMISSION", 5),
                ("UNAVAILABLE", 6),
                ("TIMEOUT", 124),
                ("INTERNAL", 125),
                ("EXHAUSTED", 1),
            ]
        );
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{code}\""));
        }
    }
}
