//! Git objects: their ids (SHA-256) and trees.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::path::is_valid_name;

/// The length of an id.
pub(crate) const ID_BYTES: usize = 32;

/// The SHA-256 of a Git object, as 64 hex digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId([u8; ID_BYTES]);

impl ObjectId {
    /// The id that these bytes are.
    #[must_use]
    pub const fn from_array(bytes: [u8; ID_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an object id: {0}")]
pub struct InvalidId(String);

impl FromStr for ObjectId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId(text.to_owned());
        if text.len() != 2 * ID_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let mut id = [0; ID_BYTES];
        for (byte, at) in id.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| invalid())?;
        }
        Ok(Self(id))
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The kind of an object. Relive writes no commits and no tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Blob,
    Tree,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
        }
    }

    /// Returns the number of the kind in a pack.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Tree => 2,
            Self::Blob => 3,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            2 => Some(Self::Tree),
            3 => Some(Self::Blob),
            _ => None,
        }
    }
}

/// Computes the id of an object that arrives in pieces. Its length has to be known first.
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn new(kind: Kind, bytes: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(format!("{} {bytes}\0", kind.name()));
        Self(hash)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> ObjectId {
        ObjectId(self.0.finalize().into())
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Computes the id of an object.
pub(crate) fn hash(kind: Kind, bytes: &[u8]) -> ObjectId {
    let mut hasher = Hasher::new(kind, bytes.len() as u64);
    hasher.update(bytes);
    hasher.finish()
}

/// Computes a plain SHA-256, for trailers and checksums.
pub(crate) fn checksum(bytes: &[u8]) -> [u8; ID_BYTES] {
    Sha256::digest(bytes).into()
}

/// The kind of a tree entry, as far as Git distinguishes modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file without the owner's execute bit.
    File,
    /// A regular file with the owner's execute bit.
    Executable,
    /// A symbolic link; its object holds the target.
    Symlink,
    /// A directory; its object is a tree.
    Directory,
}

impl EntryKind {
    fn octal(self) -> &'static str {
        match self {
            Self::File => "100644",
            Self::Executable => "100755",
            Self::Symlink => "120000",
            Self::Directory => "40000",
        }
    }

    fn from_octal(text: &[u8]) -> Option<Self> {
        match text {
            b"100644" => Some(Self::File),
            b"100755" => Some(Self::Executable),
            b"120000" => Some(Self::Symlink),
            b"40000" => Some(Self::Directory),
            _ => None,
        }
    }

    #[must_use]
    pub fn is_regular(self) -> bool {
        matches!(self, Self::File | Self::Executable)
    }
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    pub(crate) name: Box<[u8]>,
    pub(crate) kind: EntryKind,
    pub(crate) id: ObjectId,
}

/// Encodes a tree. The entries may be in any order.
pub(crate) fn encode_tree(mut entries: Vec<TreeEntry>) -> Vec<u8> {
    entries.sort_by(|a, b| sort_key(a).cmp(sort_key(b)));
    let mut bytes = Vec::with_capacity(entries.iter().map(|entry| entry.name.len() + 40).sum());
    for entry in entries {
        bytes.extend_from_slice(entry.kind.octal().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(&entry.name);
        bytes.push(0);
        bytes.extend_from_slice(entry.id.as_bytes());
    }
    bytes
}

/// Returns the sort key: Git sorts a directory as if its name ended with a slash.
fn sort_key(entry: &TreeEntry) -> impl Iterator<Item = u8> + '_ {
    let slash = (entry.kind == EntryKind::Directory).then_some(b'/');
    entry.name.iter().copied().chain(slash)
}

/// Decodes a tree; `None` if it is damaged or has a name that must not be written to a disk.
pub(crate) fn decode_tree(mut bytes: &[u8]) -> Option<Vec<TreeEntry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|&byte| byte == b' ')?;
        let kind = EntryKind::from_octal(&bytes[..space])?;
        let rest = &bytes[space + 1..];
        let end = rest.iter().position(|&byte| byte == 0)?;
        let name = &rest[..end];
        let id = ObjectId::from_slice(rest.get(end + 1..end + 1 + ID_BYTES)?)?;
        if !is_valid_name(name) {
            return None;
        }
        entries.push(TreeEntry { name: name.into(), kind, id });
        bytes = &rest[end + 1 + ID_BYTES..];
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_ids_match_git() {
        // git hash-object -t blob --stdin and git mktree in a SHA-256 repository.
        let empty_blob = "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813";
        let empty_tree = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";
        assert_eq!(hash(Kind::Blob, b"").to_string(), empty_blob);
        assert_eq!(hash(Kind::Tree, b"").to_string(), empty_tree);
    }

    #[test]
    fn a_tree_is_sorted_like_git() {
        let entry = |name: &str, kind| TreeEntry { name: name.as_bytes().into(), kind, id: hash(Kind::Blob, b"") };
        let entries =
            vec![entry("a0", EntryKind::File), entry("a", EntryKind::Directory), entry("a-b", EntryKind::File)];
        let decoded = decode_tree(&encode_tree(entries)).unwrap();
        let names: Vec<_> = decoded.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, [&b"a-b"[..], b"a", b"a0"]);
    }

    #[test]
    fn a_tree_with_a_dangerous_name_is_damaged() {
        for name in ["..", ".git", "a/b", ""] {
            let entry = TreeEntry { name: name.as_bytes().into(), kind: EntryKind::File, id: hash(Kind::Blob, b"") };
            assert_eq!(decode_tree(&encode_tree(vec![entry])), None, "{name}");
        }
    }
}
