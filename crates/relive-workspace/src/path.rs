//! Paths inside a workspace: bytes, because Linux names are bytes.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::str::FromStr;

use relive_types::file_name;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path relative to the root of a workspace, its components separated by `/`. The root itself is empty.
///
/// It is shown and serialized as plain text. A name with control characters, `"`, `\` or invalid UTF-8 is put in double
/// quotes with octal escapes, as Git does, so that every path survives JSON and no path can confuse a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FilePath(Vec<u8>);

/// A text that is not the path of a file inside a workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a path inside a workspace: {0}")]
pub struct InvalidPath(String);

/// The file that says which files are tracked. Where it cannot be read, tracked files that are ignored may be missing.
pub const GIT_INDEX: &str = ".git/index";

impl FilePath {
    /// Returns the root of a workspace.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns the path of the Git index, only to be shown: no snapshot has it.
    pub(crate) fn git_index() -> Self {
        Self(GIT_INDEX.as_bytes().to_vec())
    }

    /// Accepts relative paths of ordinary components; refuses `..`, empty components, NUL, and names reserved by Git
    /// (`.git`).
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self, InvalidPath> {
        let bytes = bytes.into();
        if bytes.is_empty() || bytes.split(|&byte| byte == b'/').all(is_valid_name) {
            return Ok(Self(bytes));
        }
        Err(InvalidPath(String::from_utf8_lossy(&bytes).into_owned()))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the path of an entry of this directory.
    #[must_use]
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !self.0.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self(bytes)
    }

    /// Returns the directory of this path and the name in it; the root has neither.
    #[must_use]
    pub(crate) fn split(&self) -> Option<(Self, &[u8])> {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => Some((Self(self.0[..slash].to_vec()), &self.0[slash + 1..])),
            None if self.0.is_empty() => None,
            None => Some((Self::root(), &self.0)),
        }
    }

    /// Returns whether this path is `directory` or below it.
    #[must_use]
    pub fn is_within(&self, directory: &Self) -> bool {
        let (path, above) = (&self.0, &directory.0);
        above.is_empty() || path == above || (path.starts_with(above) && path.get(above.len()) == Some(&b'/'))
    }

    /// Returns every directory above this path, nearest first, without the root.
    pub(crate) fn parents(&self) -> impl Iterator<Item = Self> {
        let slashes = self.0.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        slashes.map(|(at, _)| Self(self.0[..at].to_vec()))
    }

    /// Returns the number of components.
    pub(crate) fn depth(&self) -> usize {
        if self.0.is_empty() { 0 } else { self.0.iter().filter(|&&byte| byte == b'/').count() + 1 }
    }

    fn quoted(&self) -> Cow<'_, str> {
        file_name::quoted(&self.0)
    }

    /// Returns the bytes of a name in quotes, as paths are shown that are no plain text; `None` if it is no such text.
    #[must_use]
    pub fn unquote(text: &str) -> Option<Vec<u8>> {
        file_name::unquote(text)
    }

    /// Returns the path with this before it, quoted as a whole, as diffs name files.
    pub(crate) fn below(&self, prefix: &str) -> String {
        file_name::shown(&file_name::quoted(&[prefix.as_bytes(), &self.0].concat())).into_owned()
    }
}

/// Returns whether an entry of a tree may have this name.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b".." | b".git") && !name.contains(&0) && !name.contains(&b'/')
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str(".") } else { f.write_str(&self.quoted()) }
    }
}

impl FromStr for FilePath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        if !text.starts_with('"') {
            return Self::from_bytes(text.as_bytes());
        }
        Self::from_bytes(file_name::unquote(text).ok_or_else(|| InvalidPath(text.to_owned()))?)
    }
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.quoted())
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_unchanged_after_printing_and_parsing() {
        for bytes in
            [&b"plain/name"[..], b"new\nline", b"caf\xe9", b"\"quoted\"", b"back\\slash", b"\x01\x7f", b"\xc3\xa9"]
        {
            let path = FilePath::from_bytes(bytes).unwrap();
            let text = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<FilePath>(&text).unwrap(), path, "{text}");
            assert!(!path.to_string().contains('\n'));
        }
    }

    #[test]
    fn paths_that_leave_the_workspace_are_refused() {
        for bytes in [&b"/etc"[..], b"a/../b", b"..", b"a//b", b"a/", b".git/config", b"a/.git", b"nul\0"] {
            assert!(FilePath::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn is_within_compares_whole_components() {
        let path = |text: &str| text.parse::<FilePath>().unwrap();
        assert!(path("a/b").is_within(&path("a")) && path("a").is_within(&path("a")) && path("a").is_within(&path("")));
        assert!(!path("ab").is_within(&path("a")));
    }
}
