//! Parts of a UUID, as people type and read them.
//!
//! The first digits of a version 7 UUID are a clock and identify nothing, so the last ones are shown. Digits alone are a
//! PID, so a part has at least one letter.

use uuid::Uuid;

/// The shortest part of a UUID that is looked up.
pub const PART_MIN: usize = 4;
/// How many digits are shown, unless they are all decimal.
const SHOWN: usize = 8;
const DIGITS: usize = 32;
/// Where hyphens stand in a UUID, counted in digits before them.
const HYPHENS: [usize; 4] = [8, 12, 16, 20];

/// Returns the last digits of a UUID: 8, or as many as it takes to have a letter among them. Where there is none, the
/// whole UUID.
#[must_use]
pub fn short(uuid: Uuid) -> String {
    let digits = uuid.simple().to_string();
    let last_letter = digits.rfind(|digit: char| digit.is_ascii_alphabetic());
    match last_letter {
        Some(letter) => digits[letter.min(DIGITS - SHOWN)..].to_owned(),
        None => uuid.to_string(),
    }
}

/// How much of a typed id is shown: as much as a name may have.
const TYPED_MAX: usize = 64;

/// Returns at most 64 characters of what somebody typed as an id, for an error.
#[must_use]
pub fn shortened(typed: &str) -> String {
    match typed.char_indices().nth(TYPED_MAX) {
        Some((end, _)) => format!("{}...", &typed[..end]),
        None => typed.to_owned(),
    }
}

/// Tells whether a text is looked up as the beginning or the end of a UUID: at least four digits, one of them a letter.
#[must_use]
pub fn is_part(text: &str) -> bool {
    let has_letter = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let digits = digits_of_prefix(text).or_else(|| digits_of_suffix(text));
    has_letter && digits.is_some_and(|digits| digits.len() >= PART_MIN)
}

/// Returns the digits of the beginning of a UUID, in lower case; `None` if no UUID begins like that. Hyphens may be left
/// out.
#[must_use]
pub fn digits_of_prefix(text: &str) -> Option<String> {
    digits(text.chars(), |digits| HYPHENS.contains(&digits))
}

/// Returns the digits of the end of a UUID, backwards and in lower case; `None` if no UUID ends like that.
#[must_use]
pub fn digits_of_suffix(text: &str) -> Option<String> {
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

/// Returns the UUID with its digits in the opposite order, by which ends can be looked up as beginnings.
#[must_use]
pub fn backwards(uuid: Uuid) -> Uuid {
    let mut bytes = *uuid.as_bytes();
    bytes.reverse();
    Uuid::from_bytes(bytes.map(|byte| byte.rotate_left(4)))
}

/// Returns the first and the last UUID that begin with these digits.
#[must_use]
pub fn range(digits: &str) -> Option<(Uuid, Uuid)> {
    let filled =
        |digit: &str| Uuid::try_parse(&format!("{digits}{}", digit.repeat(DIGITS.checked_sub(digits.len())?))).ok();
    Some((filled("0")?, filled("f")?))
}

/// The beginning of an id as it is shown, which people shorten as they do with those of other tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPart {
    digits: String,
}

impl ShownPart {
    /// Returns the digits of the text; `None` if it cannot be the beginning of a shown id, or is all of one, which is the end
    /// of its UUID.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let digits = digits(text.chars(), |_| false).filter(|digits| digits.len() >= PART_MIN)?;
        // Only an id with a single letter, its first digit, is longer than the usual ones.
        let is_long = digits.starts_with(|first: char| first.is_ascii_alphabetic())
            && digits[1..].bytes().all(|digit| digit.is_ascii_digit());
        let has_letter = digits.bytes().any(|digit| digit.is_ascii_alphabetic());
        (has_letter && (digits.len() < SHOWN || is_long)).then_some(Self { digits })
    }

    #[must_use]
    pub fn digits(&self) -> &str {
        &self.digits
    }

    /// Tells whether the shown id of a process begins like this. Allocates nothing, as many are compared.
    #[must_use]
    pub fn begins(&self, uuid: Uuid) -> bool {
        let digit = |place: usize| (uuid.as_u128() >> (4 * (DIGITS - 1 - place))) & 0xf;
        let Some(letter) = (0..DIGITS).rev().find(|place| digit(*place) > 9) else { return false };
        let shown = letter.min(DIGITS - SHOWN);
        let wanted = self.digits.chars().map(|digit| digit.to_digit(16).map(u128::from));
        self.digits.len() <= DIGITS - shown && wanted.zip(shown..).all(|(wanted, place)| wanted == Some(digit(place)))
    }
}

/// Tells whether a UUID begins or ends with a text, or its shown id begins with it.
#[must_use]
pub fn has_part(uuid: Uuid, text: &str) -> bool {
    let is_in = |digits: Option<String>, uuid: Uuid| {
        digits.as_deref().and_then(range).is_some_and(|(first, last)| (first..=last).contains(&uuid))
    };
    is_in(digits_of_prefix(text), uuid)
        || is_in(digits_of_suffix(text), backwards(uuid))
        || ShownPart::of(text).is_some_and(|part| part.begins(uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_eight_digits_are_shown_or_more_where_those_are_a_number() {
        let check = |uuid: &str, expect: &str| assert_eq!(short(uuid.parse().unwrap()), expect, "{uuid}");
        check("01929b1e-5d0a-7b8e-9a53-6a2f0c9d1e77", "0c9d1e77");
        check("01929b1e-5d0a-7b8e-9a53-6a2f00000000", "f00000000");
        check("01929b1e-5d0a-7b8e-9a53-600000000000", "a53600000000000");
        check("01929010-5000-7080-9053-600000000000", "01929010-5000-7080-9053-600000000000");
    }

    #[test]
    fn a_part_has_four_digits_and_a_letter() {
        for part in ["abcd", "0c9d1e77", "DEAD", "01929b1e-5d", "9a53-6a2f0c9d1e77", "-6a2f0c9d1e77", "01929b1e-"] {
            assert!(is_part(part), "{part}");
        }
        for other in ["", "abc", "1234", "12345678-1234", "worker", "abcdefg", "be-ef", "a-b-c-d", "fade-out"] {
            assert!(!is_part(other), "{other}");
        }
    }

    #[test]
    fn a_shown_id_can_be_shortened() {
        let check = |uuid: &str, text: &str, expect: bool| {
            let uuid: Uuid = uuid.parse().unwrap();
            assert_eq!(ShownPart::of(text).is_some_and(|part| part.begins(uuid)), expect, "{text}");
            assert_eq!(short(uuid).starts_with(&text.to_ascii_lowercase()), expect, "{text}");
            assert!(!expect || has_part(uuid, text), "{text}");
        };
        let usual = "01929b1e-5d0a-7b8e-9a53-6a2f0c9d1e77";
        for (text, expect) in [("0c9d", true), ("0C9D1", true), ("0c9d1e7", true), ("0c9e", false), ("c9d1", false)] {
            check(usual, text, expect);
        }
        let long = "01929b1e-5d0a-7b8e-9a53-6a2f00000000";
        for (text, expect) in [("f000", true), ("f0000000", true), ("f00000000", true), ("f001", false)] {
            check(long, text, expect);
        }
        // All of a shown id is the end of the UUID, digits alone are a PID, and it has no hyphens.
        for text in ["0c9d1e77", "0919", "0c9", "", "0c9d-", "0c9g"] {
            assert_eq!(ShownPart::of(text), None, "{text}");
        }
    }

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

    #[test]
    fn ends_are_beginnings_of_the_uuid_backwards() {
        let uuid: Uuid = "01929b1e-5d0a-7b8e-9a53-6a2f0c9d1e77".parse().unwrap();
        assert_eq!(backwards(uuid).simple().to_string(), "77e1d9c0f2a635a9e8b7a0d5e1b92910");
        assert_eq!(backwards(backwards(uuid)), uuid);
        let (first, last) = range(&digits_of_suffix("0c9d1e77").unwrap()).unwrap();
        assert!(first <= backwards(uuid) && backwards(uuid) <= last);
        let (first, last) = range("0198f3c1a").unwrap();
        assert_eq!(first.to_string(), "0198f3c1-a000-0000-0000-000000000000");
        assert_eq!(last.to_string(), "0198f3c1-afff-ffff-ffff-ffffffffffff");
    }
}
