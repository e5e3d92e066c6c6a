//! The address and the key of a provider.

use std::fmt;

/// How to reach a provider.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The address of the server; the provider's own if absent.
    pub base_url: Option<String>,
    /// Absent for a provider that needs none.
    pub key: Option<Secret>,
}

/// A text that `Debug` and `Display` do not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps the text without the white space around it, because files end in a newline.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Returns the text itself, to be sent to its provider.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Replaces this secret in the text.
    pub(crate) fn masked(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
