//! Names of files as text. A name may have any bytes but NUL, and text may not: a name that could not be told from other text
//! is in quotes with octal escapes, as Git shows it.

use std::borrow::Cow;

use crate::text::acts;

/// Returns a name as text: in quotes where it could not be told from other text.
#[must_use]
pub fn quoted(bytes: &[u8]) -> Cow<'_, str> {
    let plain = |character: char| !character.is_control() && character != '"' && character != '\\';
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(plain) => Cow::Borrowed(text),
        _ => Cow::Owned(quote(bytes)),
    }
}

/// Returns a name, as [`quoted`] returns it, for people: also in quotes if one of its characters moves others about or is not
/// seen, so that no name looks like another one. It can be typed as it is shown.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.contains(acts) { Cow::Owned(quote(text.as_bytes())) } else { Cow::Borrowed(text) }
}

fn quote(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}

/// Returns the bytes of a name in quotes; `None` if it is no such text.
#[must_use]
pub fn unquote(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?.as_bytes();
    let (mut bytes, mut at) = (Vec::with_capacity(inner.len()), 0);
    while let Some(&byte) = inner.get(at) {
        at += 1;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let escape = *inner.get(at)?;
        at += 1;
        bytes.push(match escape {
            b'"' | b'\\' => escape,
            b'n' => b'\n',
            b't' => b'\t',
            _ => {
                let digits = std::str::from_utf8(inner.get(at - 1..at + 2)?).ok()?;
                at += 2;
                u8::from_str_radix(digits, 8).ok()?
            }
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_quotes_is_the_name_that_was_quoted() {
        let check = |name: &[u8], expect: &str| {
            let text = quoted(name);
            assert_eq!(text, expect);
            let read = if text.starts_with('"') { unquote(&text).unwrap() } else { text.as_bytes().to_vec() };
            assert_eq!(read, name);
        };
        check("src/ä b".as_bytes(), "src/ä b");
        check(b"a\"\\\xff\n", r#""a\"\\\377\n""#);
        // Otherwise it would be taken for the name `a` in quotes.
        check(b"\"a\"", r#""\"a\"""#);
        for text in ["a", "\"a", "\"\\9\"", "\"\\37\""] {
            assert_eq!(unquote(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_is_shown_without_characters_that_act_on_others() {
        for (name, expect) in [
            ("two  spaces ä", "two  spaces ä"),
            ("gpj.\u{202e}exe", r#""gpj.\342\200\256exe""#),
            ("a\u{200b}", r#""a\342\200\213""#),
            ("\u{1b}[31m", r#""\033[31m""#),
        ] {
            assert_eq!(shown(name), expect);
            assert_eq!(unquote(&shown(name)).unwrap_or_else(|| name.into()), name.as_bytes());
        }
        let quoted = quoted(b"a\n\xff");
        assert_eq!(shown(&quoted), quoted, "in quotes already");
    }
}
