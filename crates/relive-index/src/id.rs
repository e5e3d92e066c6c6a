//! UUIDs as the index keeps them: 32 hexadecimal digits, forwards and backwards.

use relive_core::Uuid;

/// Where hyphens stand in a UUID, counted in digits before them.
const HYPHENS: [usize; 4] = [8, 12, 16, 20];
const DIGITS: usize = 32;

pub(crate) fn forwards(uuid: Uuid) -> String {
    uuid.simple().to_string()
}

pub(crate) fn backwards(uuid: Uuid) -> String {
    forwards(uuid).chars().rev().collect()
}

pub(crate) fn parse(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok()
}

/// The digits of a beginning of a UUID, in lower case; nothing if no UUID begins like that. Hyphens may be left out.
pub(crate) fn digits_of_prefix(text: &str) -> Option<String> {
    digits(text.chars(), |digits| HYPHENS.contains(&digits))
}

/// The digits of an end of a UUID, backwards and in lower case; nothing if no UUID ends like that.
pub(crate) fn digits_of_suffix(text: &str) -> Option<String> {
    digits(text.chars().rev(), |digits| HYPHENS.contains(&(DIGITS - digits)))
}

fn digits(text: impl Iterator<Item = char>, is_hyphen: impl Fn(usize) -> bool) -> Option<String> {
    let mut digits = String::new();
    let mut after_hyphen = false;
    for character in text {
        if character == '-' {
            if after_hyphen || digits.len() > DIGITS || !is_hyphen(digits.len()) {
                return None;
            }
            after_hyphen = true;
        } else if character.is_ascii_hexdigit() && digits.len() < DIGITS {
            digits.push(character.to_ascii_lowercase());
            after_hyphen = false;
        } else {
            return None;
        }
    }
    (!digits.is_empty()).then_some(digits)
}

/// The first text that comes after every text that begins with these digits; `g` comes after every digit.
pub(crate) fn end_of(digits: &str) -> String {
    format!("{digits}g")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyphens_stand_where_they_stand_or_not_at_all() {
        let check = |text: &str, prefix: Option<&str>, suffix: Option<&str>| {
            assert_eq!(digits_of_prefix(text).as_deref(), prefix, "{text}");
            assert_eq!(digits_of_suffix(text).as_deref(), suffix, "{text}");
        };
        check("0192", Some("0192"), Some("2910"));
        check("AbCd", Some("abcd"), Some("dcba"));
        check("01929b1e-", Some("01929b1e"), None);
        check("01929b1e-5d", Some("01929b1e5d"), None);
        check("01929b1e5d", Some("01929b1e5d"), Some("d5e1b92910"));
        check("0192-9b1e", None, None);
        check("-0192", None, None);
        check("-9a536a2f0c9d", None, Some("d9c0f2a635a9"));
        check("4b8e-9a536a2f0c9d", None, Some("d9c0f2a635a9e8b4"));
        check("01929b1e--5d", None, None);
        check("", None, None);
        check("-", None, None);
        check("worker", None, None);
        let uuid = "01929b1e-5d0a-7b8e-9a53-6a2f0c9d1e77";
        check(uuid, Some("01929b1e5d0a7b8e9a536a2f0c9d1e77"), Some("77e1d9c0f2a635a9e8b7a0d5e1b92910"));
        check(&format!("{uuid}0"), None, None);
        check(&format!("{uuid}-"), None, None);
    }
}
