//! Payloads: text and JSON that may be too large for a line.
//!
//! Up to [`INLINE_MAX`] bytes a payload is in its record. A larger one is in `blobs/<hash>`, written and synced before
//! the record that names it, which contains its beginning, its length and its hash.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::disk::Disk;
use crate::hash::Hash;
use crate::regular;

/// The largest payload that is inside its record.
pub const INLINE_MAX: usize = 64 * 1024;

/// The number of bytes of a payload in `blobs/` that its record contains.
const HEAD_MAX: usize = 1024;

/// A reference to a payload in `blobs/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// The name of the file, and the hash of its bytes.
    #[serde(rename = "$blob")]
    pub hash: Hash,
    pub bytes: u64,
    /// The beginning of the payload.
    pub head: String,
}

/// Text, inline or in `blobs/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Text {
    Inline(String),
    Blob(BlobRef),
}

impl Text {
    /// Returns the beginning of the text, at most `max` bytes and whole characters.
    #[must_use]
    pub fn head(&self, max: usize) -> &str {
        let text = match self {
            Self::Inline(text) => text,
            Self::Blob(blob) => &blob.head,
        };
        &text[..text.floor_char_boundary(max)]
    }

    /// Returns whether the text is longer than `max` bytes, which a blob always is.
    #[must_use]
    pub fn is_longer_than(&self, max: usize) -> bool {
        match self {
            Self::Inline(text) => text.len() > max,
            Self::Blob(_) => true,
        }
    }
}

/// Written by hand, because serde's untagged enums copy a string twice.
impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or a reference to a blob")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text::from(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
        BlobRef::deserialize(MapAccessDeserializer::new(map)).map(Text::Blob)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Inline(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Inline(text)
    }
}

/// JSON as it was given, inline or in `blobs/`; inline, line breaks between its values become spaces.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Json {
    Inline(Box<RawValue>),
    Blob(BlobRef),
}

impl Json {
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        RawValue::from_string(text.to_owned()).map(Self::Inline)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline(a), Self::Inline(b)) => a.get() == b.get(),
            (Self::Blob(a), Self::Blob(b)) => a == b,
            (Self::Inline(_), Self::Blob(_)) | (Self::Blob(_), Self::Inline(_)) => false,
        }
    }
}

/// The beginning of a reference. A user's value that begins like this always goes to `blobs/`, so the two cannot be
/// confused.
const BLOB_START: &str = "{\"$blob\"";

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get().starts_with(BLOB_START) {
            serde_json::from_str(raw.get()).map(Self::Blob).map_err(serde::de::Error::custom)
        } else {
            Ok(Self::Inline(raw))
        }
    }
}

/// A payload of a record that is about to be written.
#[derive(Debug)]
pub(crate) enum PayloadMut<'a> {
    Text(&'a mut Text),
    Json(&'a mut Json),
}

impl PayloadMut<'_> {
    /// Returns how many bytes are not in `blobs/`. A payload that has to go there regardless of its length has too
    /// many.
    pub(crate) fn inline_len(&self) -> usize {
        match self {
            Self::Text(Text::Inline(text)) => text.len(),
            Self::Json(Json::Inline(json)) if json.get().starts_with(BLOB_START) => usize::MAX,
            Self::Json(Json::Inline(json)) => json.get().len(),
            Self::Text(Text::Blob(_)) | Self::Json(Json::Blob(_)) => 0,
        }
    }

    /// Returns whether the payload is in its record.
    pub(crate) fn is_inline(&self) -> bool {
        match self {
            Self::Text(Text::Inline(_)) | Self::Json(Json::Inline(_)) => true,
            Self::Text(Text::Blob(_)) | Self::Json(Json::Blob(_)) => false,
        }
    }

    /// Moves the payload to `blobs/` if it has more than `max` bytes.
    pub(crate) fn spill(self, max: usize, blobs: &mut Blobs) -> io::Result<()> {
        match self {
            Self::Text(text) => {
                if let Text::Inline(inline) = text
                    && inline.len() > max
                {
                    *text = Text::Blob(blobs.put(inline)?);
                }
            }
            Self::Json(json) => {
                if let Json::Inline(inline) = json
                    && (inline.get().len() > max || inline.get().starts_with(BLOB_START))
                {
                    *json = Json::Blob(blobs.put(inline.get())?);
                }
            }
        }
        Ok(())
    }

    /// Replaces a reference to `blobs/` with the whole payload.
    pub(crate) fn load(self, blobs: &Blobs) -> Result<(), BlobError> {
        match self {
            Self::Text(text) => {
                if let Text::Blob(blob) = text {
                    *text = Text::Inline(blobs.get_text(blob.hash)?);
                }
            }
            Self::Json(json) => {
                if let Json::Blob(blob) = json {
                    let damaged = BlobError::Damaged { path: blobs.path(blob.hash) };
                    *json = Json::parse(&blobs.get_text(blob.hash)?).map_err(|_| damaged)?;
                }
            }
        }
        Ok(())
    }
}

/// The directory `blobs/` of one process.
#[derive(Debug)]
pub struct Blobs {
    disk: Disk,
    directory: PathBuf,
    /// Blobs that are known to be on the disk.
    known: HashSet<Hash>,
    /// Whether the directory itself is known to be on the disk.
    directory_known: bool,
}

/// A blob is missing, or does not match its name.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The bytes do not match the hash.
    #[error("{path}: the content does not match the name", path = path.display())]
    Damaged { path: PathBuf },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Blobs {
    /// Opens the blobs of the process with this directory.
    #[must_use]
    pub fn new(disk: Disk, process_directory: &Path) -> Self {
        Self { disk, directory: process_directory.join("blobs"), known: HashSet::new(), directory_known: false }
    }

    /// Stores bytes under their hash; on return they are on the disk.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) -> io::Result<Hash> {
        let hash = Hash::of(bytes);
        if self.known.contains(&hash) {
            return Ok(hash);
        }
        self.make_directory()?;
        self.disk.replace(&self.directory.join(hash.to_string()), bytes)?;
        self.known.insert(hash);
        Ok(hash)
    }

    /// Creates and syncs the directory. An earlier writer may have created it, and been killed before the sync.
    fn make_directory(&mut self) -> io::Result<()> {
        if self.directory_known {
            return Ok(());
        }
        let is_new = !self.directory.is_dir();
        if is_new {
            self.disk.mkdir(&self.directory)?;
        }
        self.disk.sync_dir(self.directory.parent().unwrap_or(Path::new("."))).inspect_err(|_| {
            if is_new {
                let _ = self.disk.remove_tree(&self.directory);
            }
        })?;
        self.directory_known = true;
        Ok(())
    }

    fn put(&mut self, text: &str) -> io::Result<BlobRef> {
        let hash = self.put_bytes(text.as_bytes())?;
        let head = text[..text.floor_char_boundary(HEAD_MAX)].to_owned();
        Ok(BlobRef { hash, bytes: text.len() as u64, head })
    }

    /// Returns the file of a blob.
    #[must_use]
    pub fn path(&self, hash: Hash) -> PathBuf {
        self.directory.join(hash.to_string())
    }

    /// Reads and checks a whole blob.
    pub fn get(&self, hash: Hash) -> Result<Vec<u8>, BlobError> {
        let path = self.path(hash);
        match regular::read(&path, regular::LARGE_MAX) {
            Ok(bytes) if Hash::of(&bytes) == hash => Ok(bytes),
            Ok(_) => Err(BlobError::Damaged { path }),
            Err(source) => Err(BlobError::Io { path, source }),
        }
    }

    pub(crate) fn get_text(&self, hash: Hash) -> Result<String, BlobError> {
        String::from_utf8(self.get(hash)?).map_err(|_| BlobError::Damaged { path: self.path(hash) })
    }

    /// Returns a whole text, inline or from `blobs/`.
    pub fn text(&self, text: &Text) -> Result<String, BlobError> {
        match text {
            Text::Inline(text) => Ok(text.clone()),
            Text::Blob(blob) => self.get_text(blob.hash),
        }
    }

    /// Returns a whole JSON value as text, inline or from `blobs/`.
    pub fn json(&self, json: &Json) -> Result<String, BlobError> {
        match json {
            Json::Inline(raw) => Ok(raw.get().to_owned()),
            Json::Blob(blob) => self.get_text(blob.hash),
        }
    }
}
