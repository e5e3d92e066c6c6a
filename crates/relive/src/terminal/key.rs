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
        for bad in ["", "a", "ctrl-", "ctrl-ab", "ctrl-1", "alt-x"] {
            assert!(parse_key(bad).is_err(), "{bad}");
        }
    }
}
