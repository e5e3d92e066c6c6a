//! Streaming readers: any number of them on one file, each at its own position, none blocking the writer.
//!
//! A reader's position is the id of the last record it has seen. It gets every later one, once, in order, even when the
//! file grows, is cut by a repair, or is replaced by a rotation while it reads.

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

/// The id of a record, `epoch.seq`, or of an event, `epoch.seq.part`: the event's place after that record. A later one is
/// greater, whatever a power cut took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cursor {
    pub epoch: Generation,
    pub seq: u64,
    /// An event's place among those that follow the record; 0 for the record itself.
    pub part: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)?;
        if self.part > 0 { write!(f, ".{}", self.part) } else { Ok(()) }
    }
}

/// Not of the form `epoch.seq` or `epoch.seq.part`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id: ids look like `2.17`")]
pub struct NotACursor;

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let (epoch, seq) = text.split_once('.').ok_or(NotACursor)?;
        let (seq, part) = seq.split_once('.').unwrap_or((seq, "0"));
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| NotACursor);
        let epoch = Generation(epoch.parse().map_err(|_| NotACursor)?);
        Ok(Self { epoch, seq: number(seq)?, part: number(part)? })
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

/// An item that a reader returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Record(Entry),
    /// A line that is not a record, because it is damaged.
    Damaged {
        offset: u64,
    },
}

/// A record as it is in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: Cursor,
    pub at: Timestamp,
    pub kind: String,
    pub step: u32,
    /// The whole line, without its newline.
    pub line: String,
}

/// A position in a file of records.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    last: Cursor,
    file: Option<File>,
    /// The offset of the first byte in `buffer`.
    offset: u64,
    buffer: Vec<u8>,
    /// How much of `buffer` was processed.
    used: usize,
    /// The end of the last record. The rest may still be cut off and replaced.
    sound: u64,
    /// The end of the last record, with its checksum. If the file has something else there, the record was cut off.
    ending: Vec<u8>,
    /// The end of the damage that was reported.
    told: u64,
    /// Nothing after this offset is read.
    limit: u64,
}

const CHUNK: usize = 64 * 1024;

/// The number of bytes at the end of a record that are compared to see whether it is still there.
const ENDING: usize = 32;

impl Reader {
    /// Reads the records after `after`; from the beginning if that is the default.
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
            ending: Vec::new(),
            told: 0,
            limit: u64::MAX,
        }
    }

    /// Reads nothing after this offset, because it may still be lost.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Returns the id of the last returned record.
    #[must_use]
    pub fn last(&self) -> Cursor {
        self.last
    }

    /// Returns the next item; `None` if there is none for now. Call it again when the file may have grown.
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

    /// Classifies a line: `None` if it was seen before or belongs to an older writer than the last one.
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
        self.ending.clear();
        self.ending.extend_from_slice(&line[line.len() - ENDING.min(line.len())..]);
        let id = head.id();
        if id <= self.last {
            return None;
        }
        self.last = id;
        let (at, step) = (head.at, head.step);
        Some(Item::Record(Entry { id, at, kind: head.kind.into_owned(), step, line: text.to_owned() }))
    }

    /// Skips bytes that cannot be a line of Relive.
    fn skip_rubbish(&mut self) -> Item {
        let offset = self.offset + self.used as u64;
        self.used = self.buffer.len();
        self.sound = self.offset + self.used as u64;
        self.ending.clear();
        Item::Damaged { offset }
    }

    /// Reads more or changed bytes; returns `false` if there are none for now.
    fn fill(&mut self) -> io::Result<bool> {
        if self.file.is_none() && !self.reopen()? {
            return Ok(false);
        }
        let Some(file) = &self.file else { return Ok(false) };
        let known = file.metadata()?;
        if self.limit < self.sound {
            return Ok(false);
        }
        if known.len() >= self.sound && self.stands(file)? {
            // From the last record on, because a repair may have replaced the rest of a torn one.
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
        if replaced || known.len() < self.sound || !self.stands(file)? { self.reopen() } else { Ok(false) }
    }

    /// Tells whether the last record still stands where it was read.
    fn stands(&self, file: &File) -> io::Result<bool> {
        let mut there = [0; ENDING];
        let there = &mut there[..self.ending.len()];
        match file.read_exact_at(there, self.sound.saturating_sub(1 + there.len() as u64)) {
            Ok(()) => Ok(*there == self.ending[..]),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Starts again at the beginning of the file; records returned before are skipped by their ids.
    fn reopen(&mut self) -> io::Result<bool> {
        self.file = match regular::open(&self.path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        (self.offset, self.used, self.sound, self.told) = (0, 0, 0, 0);
        self.ending.clear();
        self.buffer.clear();
        Ok(self.file.is_some())
    }
}
