//! The key that detaches: one control character, because the program gets every other key.

use std::fmt;

/// The character a key types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u8);

/// `Ctrl-]`: no shell, editor or terminal multiplexer uses it.
pub(crate) const DETACH: &str = "ctrl-]";

impl Key {
    pub(crate) fn byte(self) -> u8 {
        self.0
    }
}

impl Key {
    /// Whether a terminal that edits lines keeps the key for itself: it interrupts, stops, ends or edits them.
    pub(crate) fn is_taken(self) -> bool {
        const TAKEN: &[u8] = b"cdjmqrsuvwz\\";
        TAKEN.iter().any(|letter| letter & 0x1f == self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ctrl-{}", char::from(self.0 | 0x40))
    }
}

/// Parses `ctrl-]`, `Ctrl-A` or `^a`.
pub(crate) fn parse_key(text: &str) -> Result<Key, String> {
    let wrong = || "use a key such as ctrl-] or ctrl-a".to_owned();
    let lower = text.to_ascii_lowercase();
    let rest = lower.strip_prefix("ctrl-").or_else(|| lower.strip_prefix('^')).ok_or_else(wrong)?;
    match rest.as_bytes() {
        [byte @ (b'a'..=b'z' | b'[' | b'\\' | b']' | b'_')] => Ok(Key(byte & 0x1f)),
        _ => Err(wrong()),
    }
}

/// Parses a key for a terminal that edits lines.
pub(crate) fn parse_free_key(text: &str) -> Result<Key, String> {
    match parse_key(text)? {
        key if key.is_taken() => Err(taken(key)),
        key => Ok(key),
    }
}

/// Says that a key would never arrive.
pub(crate) fn taken(key: Key) -> String {
    format!("the terminal uses {key} itself: use another key, such as {DETACH}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_and_shown() {
        let check = |text: &str, byte, shown: &str| {
            let key = parse_key(text).unwrap();
            assert_eq!((key.byte(), key.to_string().as_str()), (byte, shown), "{text}");
        };
        check(DETACH, 0x1d, "Ctrl-]");
        check("Ctrl-A", 1, "Ctrl-A");
        check("^z", 26, "Ctrl-Z");
        check("ctrl-\\", 0x1c, "Ctrl-\\");
        for taken in ["ctrl-c", "ctrl-z", "ctrl-d", "^m", "ctrl-\\"] {
            assert!(parse_key(taken).is_ok() && parse_free_key(taken).is_err(), "{taken}");
        }
        assert!(parse_free_key("ctrl-a").is_ok() && parse_free_key(DETACH).is_ok());
        for bad in ["", "a", "ctrl-", "ctrl-ab", "ctrl-1", "alt-x"] {
            assert!(parse_key(bad).is_err(), "{bad}");
        }
    }
}
