//! The address and the key of a provider.

use std::fmt;

/// The address and the key to reach a provider.
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

    /// Replaces this secret in the text. A short one, as for a server of one's own, is replaced only where it stands
    /// alone: it may be a part of any word.
    pub(crate) fn masked(&self, text: &str) -> String {
        const SHORT_MAX: usize = 8;
        if self.0.is_empty() {
            return text.to_owned();
        }
        if self.0.len() > SHORT_MAX {
            return text.replace(&self.0, "[key]");
        }
        let mut masked = String::with_capacity(text.len());
        let mut done = 0;
        for (at, found) in text.match_indices(&self.0) {
            let end = at + found.len();
            let is_part = text[..at].ends_with(char::is_alphanumeric) || text[end..].starts_with(char::is_alphanumeric);
            masked.push_str(&text[done..at]);
            masked.push_str(if is_part { found } else { "[key]" });
            done = end;
        }
        masked + &text[done..]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_masked_and_a_short_one_garbles_no_words() {
        let check = |key: &str, text: &str, expect: &str| assert_eq!(Secret::new(key).masked(text), expect, "{key}");
        check("sk-0123456789", "openai refused xsk-0123456789x", "openai refused x[key]x");
        check("k", "openai refused the key (401): wrong key 'k'", "openai refused the key (401): wrong key '[key]'");
        check("test", "the latest test of test, test", "the latest [key] of [key], [key]");
        check("", "nothing", "nothing");
    }
}
