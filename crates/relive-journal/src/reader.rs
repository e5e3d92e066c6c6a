//! Streaming readers: any number of them on one file, each at its own place, none in the writer's way.
//!
//! A reader names its place by the id of the last record it has seen and gets every later one, once, in order, also
//! when the file grows, is cut by a repair, or is replaced by a rotation while it reads.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::str::FromStr;

use relive_core::{Generation, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::line::{self, LINE_MAX};
use crate::regular;

/// The id of a record: `epoch.seq`. A later record has a greater one, whatever a power cut took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cursor {
    /// Which writer.
    pub epoch: Generation,
    /// Its place.
    pub seq: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

/// Not of the form `epoch.seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id: ids look like `2.17`")]
pub struct NotACursor;

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let (epoch, seq) = text.split_once('.').ok_or(NotACursor)?;
        let epoch = Generation(epoch.parse().map_err(|_| NotACursor)?);
        Ok(Self { epoch, seq: seq.parse().map_err(|_| NotACursor)? })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A record.
    Record(Entry),
    /// A line that is none, as damage leaves it.
    Damaged {
        /// Where in the file it begins.
        offset: u64,
    },
}

/// A record as it stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: Cursor,
    /// When.
    pub at: Timestamp,
    /// Its kind.
    pub kind: String,
    /// The step it belongs to.
    pub step: u32,
    /// The whole line, without its newline.
    pub line: String,
}

/// A place in a file of records.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    last: Cursor,
    file: Option<File>,
    /// Of the first byte in `buffer`.
    offset: u64,
    buffer: Vec<u8>,
    /// How much of `buffer` was looked at.
    used: usize,
    /// Where the last record ends. What is after it may yet be cut off, and other bytes written in its place.
    sound: u64,
    /// Up to where damage was told of.
    told: u64,
    /// Nothing after this is read.
    limit: u64,
}

const CHUNK: usize = 64 * 1024;

impl Reader {
    /// Reads what comes after `after`; from the beginning if that is the default.
    #[must_use]
    pub fn new(path: PathBuf, after: Cursor) -> Self {
        Self {
            path,
            last: after,
            file: None,
            offset: 0,
            buffer: Vec::new(),
            used: 0,
            sound: 0,
            told: 0,
            limit: u64::MAX,
        }
    }

    /// Reads nothing after this place in the file: what is there may yet be lost.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The id of the last record handed out.
    #[must_use]
    pub fn last(&self) -> Cursor {
        self.last
    }

    /// The next item; `None` when there is none for now. Ask again when the file may have grown.
    pub fn next_item(&mut self) -> io::Result<Option<Item>> {
        loop {
            if let Some(len) = memchr::memchr(b'\n', &self.buffer[self.used..]) {
                let (start, end) = (self.used, self.used + len);
                self.used = end + 1;
                if let Some(item) = self.judge(start, end) {
                    return Ok(Some(item));
                }
            } else if self.buffer.len() - self.used > LINE_MAX {
                return Ok(Some(self.skip_rubbish()));
            } else if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// What the line is to this reader: nothing, if it was seen or is of an older writer than the last one.
    fn judge(&mut self, start: usize, end: usize) -> Option<Item> {
        let line = &self.buffer[start..end];
        let (offset, next) = (self.offset + start as u64, self.offset + end as u64 + 1);
        let intact =
            if line::is_intact(line) { line::head(line).ok().zip(std::str::from_utf8(line).ok()) } else { None };
        let Some((head, text)) = intact else {
            let is_news = offset >= self.told;
            self.told = self.told.max(next);
            return is_news.then_some(Item::Damaged { offset });
        };
        self.sound = next;
        let id = Cursor { epoch: head.epoch, seq: head.seq };
        if id <= self.last {
            return None;
        }
        self.last = id;
        let (at, step) = (head.at, head.step);
        Some(Item::Record(Entry { id, at, kind: head.kind.into_owned(), step, line: text.to_owned() }))
    }

    /// Passes over bytes that can be no line of ours.
    fn skip_rubbish(&mut self) -> Item {
        let offset = self.offset + self.used as u64;
        self.used = self.buffer.len();
        self.sound = self.offset + self.used as u64;
        Item::Damaged { offset }
    }

    /// Gets other bytes than there were; `false` when there are none for now.
    fn fill(&mut self) -> io::Result<bool> {
        if self.file.is_none() && !self.reopen()? {
            return Ok(false);
        }
        let Some(file) = &self.file else { return Ok(false) };
        let known = file.metadata()?;
        if self.limit < self.sound {
            return Ok(false);
        }
        if known.len() >= self.sound {
            // From the last record on, for a repair may have put others where the rest of a torn one was.
            let seen = self.buffer.split_off(usize::try_from(self.sound - self.offset).unwrap_or(usize::MAX));
            self.offset = self.sound;
            self.used = 0;
            let there = usize::try_from(known.len().min(self.limit) - self.sound).unwrap_or(usize::MAX);
            self.buffer.clear();
            self.buffer.resize(there.min(seen.len() + CHUNK.max(seen.len())), 0);
            let taken = file.read_at(&mut self.buffer, self.offset)?;
            self.buffer.truncate(taken);
            if self.buffer != seen {
                return Ok(true);
            }
            self.used = self.buffer.len();
        }
        let replaced = match std::fs::metadata(&self.path) {
            Ok(now) => (now.dev(), now.ino()) != (known.dev(), known.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if replaced || known.len() < self.sound { self.reopen() } else { Ok(false) }
    }

    /// Begins the file anew; what was handed out is passed over by its id.
    fn reopen(&mut self) -> io::Result<bool> {
        self.file = match regular::open(&self.path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        (self.offset, self.used, self.sound, self.told) = (0, 0, 0, 0);
        self.buffer.clear();
        Ok(self.file.is_some())
    }
}
