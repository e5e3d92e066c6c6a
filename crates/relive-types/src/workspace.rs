use serde::{Deserialize, Serialize};

/// Where a process works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceKind {
    /// In its working directory itself.
    Here,
    /// On a copy of it, in `<data directory>-workspaces/UUID`.
    Own,
}

impl WorkspaceKind {
    pub const ALL: [Self; 2] = [Self::Here, Self::Own];

    /// The word that users type and see.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Own => "own",
        }
    }
}
