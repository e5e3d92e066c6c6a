//! The languages that CLI agents speak on their pipes.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// One language of a CLI's standard output, and for some of them of its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// `claude -p --output-format stream-json`, in both directions; also the bodies of claude's HTTP hooks.
    Claude,
    /// Claude's dialect, with usage that is counted over the whole conversation.
    Qwen,
    /// `codex exec --json`.
    CodexExec,
    /// `codex app-server`, in both directions.
    CodexAppServer,
    /// `gemini -o stream-json`.
    Gemini,
    /// `opencode run --format json`.
    Opencode,
    /// Agent Client Protocol, version 1, in both directions.
    Acp,
}

impl Dialect {
    pub const ALL: [Self; 7] =
        [Self::Claude, Self::Qwen, Self::CodexExec, Self::CodexAppServer, Self::Gemini, Self::Opencode, Self::Acp];

    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Qwen => "qwen",
            Self::CodexExec => "codex-exec",
            Self::CodexAppServer => "codex-app-server",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Acp => "acp",
        }
    }

    /// Whether turns, interrupts and answers can be written to the CLI while it runs.
    pub fn is_duplex(self) -> bool {
        match self {
            Self::Claude | Self::Qwen | Self::CodexAppServer | Self::Acp => true,
            Self::CodexExec | Self::Gemini | Self::Opencode => false,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a dialect")]
pub struct UnknownDialect(String);

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name).ok_or_else(|| UnknownDialect(name.into()))
    }
}
