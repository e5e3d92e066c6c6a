//! UUIDs as the index stores them: 32 hexadecimal digits, forwards and backwards.

use relive_core::Uuid;

pub(crate) fn forwards(uuid: Uuid) -> String {
    uuid.simple().to_string()
}

pub(crate) fn backwards(uuid: Uuid) -> String {
    forwards(uuid).chars().rev().collect()
}

pub(crate) fn parse(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok()
}

/// The first text that comes after every text that begins with these digits; `g` comes after every digit.
pub(crate) fn end_of(digits: &str) -> String {
    format!("{digits}g")
}
