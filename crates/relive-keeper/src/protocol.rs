//! The protocol between a daemon and the keeper.
//!
//! A frame is the length of the rest (`u32`, little endian), its kind (one byte) and its body. The daemon sends
//! requests and the keeper answers each; only [`Kind::List`] has more than one answer. A keeper outlives daemons: it
//! answers an unknown kind with [`Refusal::Unsupported`], so new kinds can be added, and the meaning of a kind never
//! changes. Unknown bytes at the end of a [`Kind::Hello`] or [`Kind::Welcome`] are ignored.

use crate::{Key, VALUE_MAX_BYTES};

/// The version of this code, and the oldest supported one.
pub(crate) const VERSION: u16 = 1;
pub(crate) const OLDEST: u16 = 1;

/// The most keys in one frame.
pub(crate) const KEYS_MAX: usize = 4096;
/// The longest frame, without its length field.
pub(crate) const FRAME_MAX: usize = 1 + 4 + KEYS_MAX * KEY_BYTES + VALUE_MAX_BYTES;
/// The longest frame of an unproved client.
pub(crate) const HELLO_MAX: usize = 64;

const KEY_BYTES: usize = size_of::<Key>();
const LENGTH_BYTES: usize = 4;

/// The kinds of frames. The numbers never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The oldest and the newest version of a daemon, with the descriptor of its lock.
    Hello,
    /// Keys and their new common value.
    Put,
    /// Keys whose values are deleted.
    Remove,
    /// A request for all values.
    List,
    Done,
    /// The version from now on.
    Welcome,
    /// Keys and their value.
    Group,
    /// One byte of [`Refusal`].
    Refused,
}

const KINDS: [(u8, Kind); 8] = [
    (1, Kind::Hello),
    (2, Kind::Put),
    (3, Kind::Remove),
    (4, Kind::List),
    (128, Kind::Done),
    (129, Kind::Welcome),
    (130, Kind::Group),
    (131, Kind::Refused),
];

/// The reason why the keeper refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The client has not proved that it holds the lock of the data directory.
    #[error("this daemon does not hold the data directory")]
    NotHolder,
    #[error("it has no space for another environment")]
    Full,
    /// The request is from a later version.
    #[error("it has another version")]
    Unsupported,
    /// The frame is malformed.
    #[error("it received an invalid request")]
    Malformed,
    /// The client holds the lock, and runs inside of a process whose environment is kept.
    #[error("this daemon runs inside of a process")]
    Inside,
}

impl Refusal {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::NotHolder => 1,
            Self::Full => 2,
            Self::Unsupported => 3,
            Self::Malformed => 4,
            Self::Inside => 5,
        }
    }

    pub(crate) fn of(code: u8) -> Self {
        match code {
            1 => Self::NotHolder,
            2 => Self::Full,
            4 => Self::Malformed,
            5 => Self::Inside,
            _ => Self::Unsupported,
        }
    }
}

/// A complete frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Absent for a kind of a later version.
    pub(crate) kind: Option<Kind>,
    pub(crate) body: &'a [u8],
}

/// A received frame is longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Returns the first received frame, and its length including the length field; `None` while it is incomplete.
pub(crate) fn first(received: &[u8], max: usize) -> Result<Option<(Frame<'_>, usize)>, TooLong> {
    let Some((length, rest)) = received.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 || length > max {
        return Err(TooLong);
    }
    let Some((kind, body)) = rest.get(..length).and_then(<[u8]>::split_first) else { return Ok(None) };
    let kind = KINDS.iter().find(|(number, _)| number == kind).map(|(_, kind)| *kind);
    Ok(Some((Frame { kind, body }, LENGTH_BYTES + length)))
}

/// Encodes a frame.
pub(crate) fn frame(kind: Kind, parts: &[&[u8]]) -> Vec<u8> {
    let number = KINDS.iter().find(|(_, known)| *known == kind).map_or(0, |(number, _)| *number);
    let length = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + length);
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes.push(number);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// Encodes a frame of keys and their value.
pub(crate) fn keyed(kind: Kind, keys: &[Key], value: &[u8]) -> Vec<u8> {
    let count = u32::try_from(keys.len()).unwrap_or(u32::MAX).to_le_bytes();
    let keys: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    frame(kind, &[&count, &keys, value])
}

/// Parses the keys in a body, and returns the rest.
pub(crate) fn keys(body: &[u8]) -> Option<(Vec<Key>, &[u8])> {
    let (count, rest) = body.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    if count > KEYS_MAX {
        return None;
    }
    let (keys, value) = rest.split_at_checked(count * KEY_BYTES)?;
    let (keys, _) = keys.as_chunks::<KEY_BYTES>();
    Some((keys.iter().map(|key| Key::from_le_bytes(*key)).collect(), value))
}

/// The body of a [`Kind::Hello`].
pub(crate) fn hello() -> [u8; 4] {
    let ([a, b], [c, d]) = (OLDEST.to_le_bytes(), VERSION.to_le_bytes());
    [a, b, c, d]
}

/// Returns the version for a client with this hello.
pub(crate) fn common_version(hello: &[u8]) -> Option<u16> {
    let (versions, _) = hello.split_first_chunk::<4>()?;
    let [a, b, c, d] = *versions;
    let (oldest, newest) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    let common = newest.min(VERSION);
    (common >= oldest.max(OLDEST)).then_some(common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_parsed_only_when_it_is_complete() {
        let bytes = [keyed(Kind::Put, &[1, Key::MAX], b"value"), frame(Kind::List, &[])].concat();
        let (read, length) = first(&bytes, FRAME_MAX).unwrap().unwrap();
        assert_eq!(read.kind, Some(Kind::Put));
        assert_eq!(keys(read.body), Some((vec![1, Key::MAX], &b"value"[..])));
        for end in 0..length {
            assert_eq!(first(&bytes[..end], FRAME_MAX), Ok(None), "{end}");
        }
        let (read, _) = first(&bytes[length..], FRAME_MAX).unwrap().unwrap();
        assert_eq!(read, Frame { kind: Some(Kind::List), body: &[] });
    }

    #[test]
    fn malformed_frames_are_refused_and_unknown_kinds_reported() {
        assert_eq!(first(&[0, 0, 0, 0], FRAME_MAX), Err(TooLong));
        assert_eq!(first(&[0xff; 8], FRAME_MAX), Err(TooLong));
        assert_eq!(first(&[1, 0, 0, 0, 99], FRAME_MAX).unwrap().unwrap().0.kind, None);
        assert_eq!(keys(&[1, 0, 0, 0, 1, 2]), None);
        assert_eq!(keys(&[0xff; 64]), None);
    }

    #[test]
    fn a_common_version_is_found_if_there_is_one() {
        let check = |oldest: u16, newest: u16, common| {
            let hello = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
            assert_eq!(common_version(&hello), common, "{oldest} to {newest}");
        };
        check(1, 1, Some(1));
        check(1, 9, Some(1));
        check(2, 9, None);
        check(0, 0, None);
        assert_eq!(common_version(&[1, 0, 1]), None);
        assert_eq!(common_version(&[&hello()[..], b"more"].concat()), Some(1));
    }
}
