//! The outside of a line: how every record of every file is framed and checked.
//!
//! A line is one JSON object whose last field is `crc`: the CRC-32C, in eight lower-case hexadecimal digits, of the
//! line's bytes with that field (and the comma before it) taken out. Lines are split at the byte 0x0A and nowhere
//! else. Files that hold one object (`checkpoint.json` and so on) are one such line.

use std::borrow::Cow;

use relive_core::{Generation, Timestamp};
use serde::{Deserialize, Serialize};

use crate::reader::Cursor;

/// The version of everything this crate writes. A reader meets a higher one with [`crate::Health::ReadOnly`].
pub const VERSION: u32 = 1;

/// The longest line, its newline included. Larger payloads are in `blobs/`.
pub const LINE_MAX: usize = 1 << 20;

const SKIP: &[u8] = br#","skip":true"#;
const CRC_FIELD: &[u8] = br#","crc":""#;
const CRC_TAIL: usize = CRC_FIELD.len() + 8 + 2;
/// From the checksum's digits to the newline.
pub(crate) const CRC_END: usize = 8 + 3;

/// The head of every record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head<'a> {
    pub v: u32,
    /// Place in the file: each record of an epoch is one above the one before.
    pub seq: u64,
    pub epoch: Generation,
    /// An event's place among those that follow record `seq`; absent from records, and from events whose writer numbered
    /// them by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u64>,
    /// The last record that was known to be on the disk when this one was written; events say nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced: Option<u64>,
    /// When, by the writer's wall clock. Order is by `seq`, never by this.
    pub at: Timestamp,
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// The step it belongs to; 0 before the first.
    #[serde(default)]
    pub step: u32,
    /// Whether a reader that does not know the kind may pass over the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
    /// Milliseconds since the writer's boot; absent from events, and from what Relive wrote before it had this field.
    ///
    /// It stands after `step`, and after a `skip`: readers that do not know it find the head as they expect it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<u64>,
}

impl Head<'_> {
    /// The id of the record or event.
    pub(crate) fn id(&self) -> Cursor {
        Cursor { epoch: self.epoch, seq: self.seq, part: self.part.unwrap_or(0) }
    }
}

/// Appends one line: the head, the fields of `body` (which must serialize as an object), the checksum.
pub(crate) fn encode(out: &mut Vec<u8>, head: &Head<'_>, body: &impl Serialize) -> serde_json::Result<()> {
    let start = out.len();
    serde_json::to_writer(&mut *out, head)?;
    let joint = out.len();
    serde_json::to_writer(&mut *out, body)?;
    if out.len() - joint > 2 {
        // `}{` between the two objects becomes a comma.
        out.splice(joint - 1..=joint, *b",");
    } else {
        out.truncate(joint);
    }
    join_lines(&mut out[joint..]);
    seal(out, start);
    Ok(())
}

/// JSON that is passed on as it came may be spread over lines. In a string a line break is escaped, so one that stands
/// bare is space between values, and a space says the same.
fn join_lines(json: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memchr(b'\n', &json[from..]) {
        json[from + at] = b' ';
        from += at + 1;
    }
}

/// Turns the JSON object that starts at `start` into a line, by giving it its checksum and its newline.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize) {
    let crc = crc32c::crc32c(&out[start..]);
    out.pop();
    out.extend_from_slice(CRC_FIELD);
    out.extend_from_slice(&hexadecimal(crc));
    out.extend_from_slice(b"\"}\n");
}

/// Encodes an object as the whole content of a file.
pub(crate) fn encode_file(body: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut out = serde_json::to_vec(body)?;
    join_lines(&mut out);
    seal(&mut out, 0);
    Ok(out)
}

/// Reads back what [`encode_file`] wrote; `None` when it is not that, to the byte.
pub(crate) fn decode_file<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let line = bytes.strip_suffix(b"\n")?;
    if !is_intact(line) {
        return None;
    }
    serde_json::from_slice(line).ok()
}

/// Whether a line, without its newline, has the checksum it names.
pub(crate) fn is_intact(line: &[u8]) -> bool {
    let Some(cut) = line.len().checked_sub(CRC_TAIL) else { return false };
    let (covered, tail) = line.split_at(cut);
    let crc = crc32c::crc32c_append(crc32c::crc32c(covered), b"}");
    let (field, value) = tail.split_at(CRC_FIELD.len());
    field == CRC_FIELD && value.strip_suffix(b"\"}") == Some(&hexadecimal(crc))
}

fn hexadecimal(crc: u32) -> [u8; 8] {
    std::array::from_fn(|place| b"0123456789abcdef"[(crc >> (28 - 4 * place)) as usize & 0xf])
}

/// The checksum that the last line of `bytes`, which end with its newline, names.
pub(crate) fn named_crc(bytes: &[u8]) -> Option<u32> {
    let (_, tail) = bytes.split_at_checked(bytes.len().checked_sub(CRC_END)?)?;
    let digits = tail.strip_suffix(b"\"}\n")?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The head of an intact line.
pub(crate) fn head(line: &[u8]) -> serde_json::Result<Head<'_>> {
    match head_as_written(line) {
        Some(head) => Ok(head),
        None => serde_json::from_slice(line),
    }
}

/// Whether a reader that does not know the line's kind may pass over it: `"skip":true` stands right after `step`.
///
/// Only a kind that decides nothing about what may run, and names no blob, is written with it. The place is part of the
/// rule, so that no field of a body can be taken for it.
pub(crate) fn is_skippable(line: &[u8]) -> bool {
    split_head(line).is_some_and(|(_, rest)| rest.strip_prefix(SKIP).is_some_and(|rest| rest.starts_with(b",")))
}

/// The head, if it stands exactly as [`encode`] writes it.
fn head_as_written(line: &[u8]) -> Option<Head<'_>> {
    split_head(line).map(|(head, _)| head)
}

/// The head and the rest of the line, if the head stands exactly as [`encode`] writes it. The rest is not parsed:
/// parsing a line whole for its head would cost as much as parsing it for its body.
fn split_head(line: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let (v, rest) = number(line.strip_prefix(br#"{"v":"#)?)?;
    let (seq, rest) = number(rest.strip_prefix(br#","seq":"#)?)?;
    let (epoch, rest) = number(rest.strip_prefix(br#","epoch":"#)?)?;
    let (part, rest) = match rest.strip_prefix(br#","part":"#) {
        Some(rest) => number(rest).map(|(part, rest)| (Some(part), rest))?,
        None => (None, rest),
    };
    let (synced, rest) = match rest.strip_prefix(br#","synced":"#) {
        Some(rest) => number(rest).map(|(synced, rest)| (Some(synced), rest))?,
        None => (None, rest),
    };
    let (at, rest) = string(rest.strip_prefix(br#","at":"#)?)?;
    let (kind, rest) = string(rest.strip_prefix(br#","kind":"#)?)?;
    let (step, rest) = number(rest.strip_prefix(br#","step":"#)?)?;
    let after_skip = rest.strip_prefix(SKIP).unwrap_or(rest);
    let up = match after_skip.strip_prefix(br#","up":"#) {
        Some(up) => number(up).filter(|(_, rest)| rest.starts_with(b",")).map(|(up, _)| Some(up))?,
        None => None,
    };
    let head = Head {
        v: u32::try_from(v).ok()?,
        seq,
        epoch: Generation(u32::try_from(epoch).ok()?),
        part,
        synced,
        at: at.parse().ok()?,
        kind: Cow::Borrowed(kind),
        step: u32::try_from(step).ok()?,
        skip: after_skip.len() != rest.len(),
        up,
    };
    rest.starts_with(b",").then_some((head, rest))
}

/// A number without a sign, and what follows it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit())?;
    let (number, rest) = text.split_at(digits);
    if number.len() > 1 && number[0] == b'0' {
        return None;
    }
    let value =
        number.iter().try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    if digits == 0 { None } else { Some((value?, rest)) }
}

/// A string of plain characters, and what follows it.
fn string(text: &[u8]) -> Option<(&str, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\'))?;
    let (string, rest) = text.split_at(end);
    Some((std::str::from_utf8(string).ok()?, rest.strip_prefix(b"\"")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(body: &impl Serialize) -> Vec<u8> {
        let head = Head {
            v: VERSION,
            seq: 7,
            epoch: Generation(2),
            part: None,
            synced: Some(6),
            at: Timestamp::from_millisecond(1_700_000_000_123).unwrap(),
            kind: Cow::Borrowed("input"),
            step: 3,
            skip: false,
            up: Some(45),
        };
        let mut out = Vec::new();
        encode(&mut out, &head, body).unwrap();
        out
    }

    #[test]
    fn a_line_looks_as_documented() {
        let text = String::from_utf8(line(&serde_json::json!({"text": "a\u{2028}b"}))).unwrap();
        assert!(text.starts_with(
            "{\"v\":1,\"seq\":7,\"epoch\":2,\"synced\":6,\"at\":\"2023-11-14T22:13:20.123Z\",\"kind\":\"input\",\"step\":3,\"up\":45,\"text\":\"a\u{2028}b\",\"crc\":\""
        ));
        assert!(text.ends_with("\"}\n"));
        let without = format!("{}}}", &text[..text.len() - 1 - CRC_TAIL]);
        assert_eq!(format!("{:08x}", crc32c::crc32c(without.as_bytes())), text[text.len() - 11..text.len() - 3]);
        assert!(is_intact(text.trim_end_matches('\n').as_bytes()));
    }

    #[test]
    fn a_body_without_fields_is_a_line_too() {
        let bytes = line(&serde_json::json!({}));
        assert!(is_intact(&bytes[..bytes.len() - 1]));
        assert_eq!(head(&bytes).unwrap().seq, 7);
    }

    #[test]
    fn a_head_is_read_the_same_by_hand_and_by_the_book() {
        let written = line(&serde_json::json!({"text": "hello"}));
        assert_eq!(head_as_written(&written).unwrap(), serde_json::from_slice(&written).unwrap());
        let text = std::str::from_utf8(&written).unwrap();
        for (old, new) in [
            ("\"seq\":7", "\"seq\":18446744073709551615"),
            ("\"seq\":7", "\"seq\":18446744073709551616"),
            ("\"seq\":7", "\"seq\":07"),
            ("\"seq\":7", "\"seq\":7.0"),
            ("\"seq\":7", "\"seq\":"),
            ("\"seq\":7", "\"seq\": 7"),
            ("\"epoch\":2", "\"epoch\":4294967296"),
            ("\"epoch\":2", "\"epoch\":2,\"new\":1"),
            ("\"epoch\":2", "\"epoch\":2,\"part\":4"),
            ("\"epoch\":2", "\"epoch\":2,\"part\":-4"),
            ("\"epoch\":2", "\"epoch\":2,\"part\":null"),
            ("input", "inp\\u0075t"),
            ("input", "ïnput"),
            ("input", "in\tput"),
            ("2023-11", "2023-13"),
            (",\"step\":3", ""),
            (",\"up\":45", ""),
            ("\"up\":45", "\"skip\":true,\"up\":45"),
            ("\"up\":45", "\"up\":18446744073709551616"),
            ("\"up\":45", "\"up\":4.5"),
            ("\"up\":45", "\"up\":null"),
            ("\"up\":45", "\"up\":-1"),
        ] {
            let changed = text.replace(old, new);
            assert_ne!(changed, text);
            let by_the_book = serde_json::from_str::<Head<'_>>(&changed).ok();
            assert_eq!(head(changed.as_bytes()).ok(), by_the_book, "{changed}");
        }
    }

    #[test]
    fn only_skip_true_right_after_the_step_lets_a_line_be_skipped() {
        let text = String::from_utf8(line(&serde_json::json!({"text": "hello"}))).unwrap();
        for (fields, expected) in [
            (r#""step":3,"skip":true"#, true),
            (r#""step":3"#, false),
            (r#""step":3,"skip":false"#, false),
            (r#""step":3,"skip":1"#, false),
            (r#""step":3,"skip":"true""#, false),
            (r#""step":3,"a":{"skip":true}"#, false),
            (r#""step":3,"a":1,"skip":true"#, false),
            (r#""skip":true,"step":3"#, false),
            (r#""step":3,"up":4,"skip":true"#, false),
        ] {
            let changed = text.replace(r#""step":3"#, fields);
            assert_eq!(is_skippable(changed.as_bytes()), expected, "{changed}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_line_is_noticed() {
        let bytes = line(&serde_json::json!({"text": "hello", "n": 12}));
        for at in 0..bytes.len() - 1 {
            for bit in 0..8 {
                let mut bad = bytes[..bytes.len() - 1].to_vec();
                bad[at] ^= 1 << bit;
                assert!(!is_intact(&bad), "bit {bit} of byte {at}");
            }
        }
    }
}
