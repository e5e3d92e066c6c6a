//! Percent-encoding of paths in headers: any bytes, as plain characters.

use std::fmt::Write as _;

/// Encodes everything but letters, digits and `/-_.~`.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, &byte| {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// Decodes the output of [`encode`]; `None` for a `%` without two digits.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            let digit = |place: usize| char::from(digits[place]).to_digit(16);
            bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_encoding_and_decoding() {
        let check = |bytes: &[u8], text: &str| {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        };
        check(b"/home/a-b_c/.local", "/home/a-b_c/.local");
        check(b"/a b%\n", "/a%20b%25%0A");
        check("/é".as_bytes(), "/%C3%A9");
        check(&[0xff, 0], "%FF%00");
        check(b"", "");
    }

    #[test]
    fn an_incomplete_escape_is_refused() {
        for text in ["%", "%4", "a%zz", "%+1"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
