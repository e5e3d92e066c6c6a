//! Reads a journal from end to end, and reports its damage.
//!
//! It changes nothing: the writer repairs (see [`crate::Writer`]). Only this module decides which records count: a
//! record of an older epoch than one before it, or one already seen, is skipped; a line with a wrong checksum ends the
//! good part; a record of an unknown kind makes the journal read-only, unless it may be skipped.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};

use relive_core::{Generation, Timestamp};

use crate::history::{History, Place};
use crate::line::{self, Head, LINE_MAX, VERSION};
use crate::outline;
use crate::record::{Body, Record};

/// The condition of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Good,
    /// It ends in bytes that are not a record, left by an interrupted write, and nothing after them declares them to be
    /// on the disk. The next writer repairs it.
    Torn {
        offset: u64,
        bytes: u64,
    },
    /// There are good records after damaged ones that were on the disk. Nothing is cut; the part before the hole can be
    /// forked.
    Damaged(Hole),
    /// It contains something from a newer Relive. It can be read, and forked before that.
    ReadOnly(Hole),
}

/// The first unusable line of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The line number, from 1.
    pub line: u64,
    pub offset: u64,
    pub problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Its bytes do not match its checksum.
    Checksum,
    /// It is longer than any line that Relive writes.
    TooLong,
    /// Its number is not the next one.
    Gap { expected: u64, found: u64 },
    /// It belongs to a new epoch without an `opened` record.
    Unopened(Generation),
    /// It has an unknown version.
    Version(u32),
    /// It has an unknown kind.
    Kind(String),
    /// It has unknown fields or values.
    Fields(String),
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.problem {
            Problem::Checksum => write!(f, "its bytes do not match its checksum"),
            Problem::TooLong => write!(f, "longer than {LINE_MAX} bytes"),
            Problem::Gap { expected, found } => write!(f, "record {found} where record {expected} should be"),
            Problem::Unopened(epoch) => write!(f, "epoch {epoch} was never opened"),
            Problem::Version(version) => write!(f, "format version {version}, but this Relive knows {VERSION}"),
            Problem::Kind(kind) => write!(f, "a record of kind `{kind}`, which this Relive does not know"),
            Problem::Fields(error) => write!(f, "fields this Relive does not know: {error}"),
        }
    }
}

/// One line of a file.
#[derive(Debug)]
pub(crate) enum Line<'a> {
    /// A line, without its newline.
    Whole(&'a [u8]),
    /// A line longer than any that Relive writes.
    TooLong,
    /// The last bytes of the file, without a newline.
    Unfinished,
    /// More bytes without a newline than any write leaves. The rest is not read: it may be terabytes.
    Endless,
    End,
}

/// How many bytes of garbage are read to find records after them.
const GARBAGE_MAX: u64 = 256 << 20;

/// Splits a file at 0x0A, holding one line at a time.
#[derive(Debug)]
pub(crate) struct Lines<'f> {
    reader: BufReader<&'f File>,
    buffer: Vec<u8>,
    /// The start of the last line.
    pub(crate) offset: u64,
    /// The start of the next line.
    pub(crate) next: u64,
    /// The number of the last line, from 1.
    pub(crate) number: u64,
}

impl<'f> Lines<'f> {
    pub(crate) fn new(mut file: &'f File, start: u64, number: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(start))?;
        let reader = BufReader::with_capacity(256 * 1024, file);
        Ok(Self { reader, buffer: Vec::new(), offset: start, next: start, number })
    }

    pub(crate) fn read(&mut self) -> io::Result<Line<'_>> {
        self.offset = self.next;
        self.buffer.clear();
        let read = self.reader.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut self.buffer)?;
        self.next += read as u64;
        if read == 0 {
            return Ok(Line::End);
        }
        self.number += 1;
        if self.buffer.last() == Some(&b'\n') {
            return Ok(Line::Whole(&self.buffer[..read - 1]));
        }
        if read < LINE_MAX {
            return Ok(Line::Unfinished);
        }
        self.skip_line()
    }

    fn skip_line(&mut self) -> io::Result<Line<'_>> {
        while self.next - self.offset < GARBAGE_MAX {
            let available = self.reader.fill_buf()?;
            if available.is_empty() {
                return Ok(Line::Unfinished);
            }
            let (used, found) = match memchr::memchr(b'\n', available) {
                Some(at) => (at + 1, true),
                None => (available.len(), false),
            };
            self.reader.consume(used);
            self.next += used as u64;
            if found {
                return Ok(Line::TooLong);
            }
        }
        Ok(Line::Endless)
    }

    /// Returns whether a line from here on declares record `seq` to be on the disk, or may do so: not everything is
    /// read.
    fn may_claim(&mut self, seq: u64) -> io::Result<bool> {
        let end = self.next.saturating_add(GARBAGE_MAX);
        while self.next < end {
            match self.read()? {
                Line::Whole(line) if claims(line, seq) => return Ok(true),
                Line::Whole(_) | Line::TooLong => {}
                Line::Endless => return Ok(true),
                Line::Unfinished | Line::End => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Returns whether a line is intact and declares record `seq` to be on the disk. A line without a declaration may come
/// from anybody: nothing is cut before it.
fn claims(line: &[u8], seq: u64) -> bool {
    line::is_intact(line) && line::head(line).map_or(true, |head| head.synced.is_none_or(|synced| synced >= seq))
}

/// The effect of one line on the fold.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and most are records")]
enum Verdict {
    /// The next record, and the last one that it declares to be on the disk.
    Next(Record, u64),
    PassOver,
    /// A record of an unknown kind that may be skipped, and the last one that it declares to be on the disk.
    Skip {
        seq: u64,
        at: Timestamp,
        up: Option<u64>,
        claimed: u64,
    },
    Bad(Problem),
    /// A record of a newer Relive, with its head if that can be read.
    Newer {
        seq: u64,
        epoch: Generation,
        problem: Problem,
    },
}

/// How much of a journal is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    End,
    /// To the end of this step; for 0, to the first model call.
    EndOfStep(u32),
    Offset(u64),
}

/// Reads a journal, continuing from `history`, which covers the file up to its own end.
pub(crate) fn scan(file: &File, history: History) -> io::Result<(History, Health)> {
    scan_until(file, history, Until::End)
}

/// Reads a journal up to `until`, and ignores the rest.
pub(crate) fn scan_until(file: &File, mut history: History, until: Until) -> io::Result<(History, Health)> {
    let mut lines = Lines::new(file, history.end, history.lines)?;
    let mut newer: Option<Hole> = None;
    while !is_over(&history, until) {
        let verdict = match lines.read()? {
            Line::End => break,
            Line::Unfinished => {
                let torn = Health::Torn { offset: lines.offset, bytes: lines.next - lines.offset };
                return Ok((history, newer.map_or(torn, Health::ReadOnly)));
            }
            Line::TooLong | Line::Endless => Verdict::Bad(Problem::TooLong),
            Line::Whole(line) => judge(line, &history),
        };
        if matches!(until, Until::Offset(end) if lines.next > end) {
            break;
        }
        let (offset, number) = (lines.offset, lines.number);
        #[expect(clippy::cast_possible_truncation, reason = "a line is at most LINE_MAX long")]
        let len = (lines.next - offset) as u32;
        let mut claimed = 0;
        match verdict {
            Verdict::Next(record, _) if until == Until::EndOfStep(0) && begins_a_step(&record) => break,
            Verdict::Next(record, says) => {
                history.apply(&record, Place { seq: record.seq, offset, len });
                claimed = says;
            }
            Verdict::PassOver => {}
            Verdict::Skip { seq, at, up, claimed: says } => {
                history.skip(seq, at, up);
                claimed = says;
            }
            Verdict::Newer { seq, epoch, problem } => {
                newer.get_or_insert(Hole { line: number, offset, problem });
                (history.seq, history.epoch) = (seq, epoch);
            }
            // Whatever else is wrong, nothing is cut from the records of a newer Relive.
            Verdict::Bad(_) if newer.is_some() => break,
            Verdict::Bad(problem) => {
                let intact_itself = matches!(problem, Problem::Gap { .. } | Problem::Unopened(_));
                let seq = history.seq.saturating_add(1);
                if intact_itself || ends_in_a_claim(&lines.buffer, seq) || lines.may_claim(seq)? {
                    return Ok((history, Health::Damaged(Hole { line: number, offset, problem })));
                }
                let bytes = file.metadata()?.len().saturating_sub(offset);
                return Ok((history, Health::Torn { offset, bytes }));
            }
        }
        history.cover(&lines.buffer, claimed);
    }
    Ok((history, newer.map_or(Health::Good, Health::ReadOnly)))
}

fn is_over(history: &History, until: Until) -> bool {
    match until {
        Until::End | Until::EndOfStep(0) => false,
        Until::EndOfStep(step) => history.completed_step >= step,
        Until::Offset(offset) => history.end >= offset,
    }
}

/// Returns whether a damaged line ends in an intact record with such a declaration: only the newline before it is
/// missing.
fn ends_in_a_claim(line: &[u8], seq: u64) -> bool {
    let Some(line) = line.strip_suffix(b"\n") else { return false };
    memchr::memmem::find_iter(line, b"{\"v\":").any(|start| start > 0 && claims(&line[start..], seq))
}

fn begins_a_step(record: &Record) -> bool {
    matches!(record.body, Body::ModelStarted(_))
}

/// Applies lines that follow a history; `None` if one of them is not the next record.
pub(crate) fn fold_lines(lines: &[u8], mut history: History) -> Option<History> {
    for whole in lines.split_inclusive(|byte| *byte == b'\n') {
        let line = whole.strip_suffix(b"\n")?;
        let Verdict::Next(record, claimed) = judge(line, &history) else { return None };
        let place = Place { seq: record.seq, offset: history.end, len: u32::try_from(whole.len()).ok()? };
        history.apply(&record, place);
        history.cover(whole, claimed);
    }
    Some(history)
}

fn judge(line: &[u8], history: &History) -> Verdict {
    if !line::is_intact(line) {
        return Verdict::Bad(Problem::Checksum);
    }
    let expected = history.seq.saturating_add(1);
    let head = match line::head(line) {
        Ok(head) => head,
        Err(error) => {
            let problem = Problem::Fields(error.to_string());
            return Verdict::Newer { seq: expected, epoch: history.epoch, problem };
        }
    };
    let newer = |problem| Verdict::Newer { seq: head.seq, epoch: head.epoch, problem };
    if head.v != VERSION {
        return newer(Problem::Version(head.v));
    }
    if head.epoch < history.epoch || (head.epoch == history.epoch && head.seq <= history.seq) {
        return Verdict::PassOver;
    }
    if head.seq != expected {
        return Verdict::Bad(Problem::Gap { expected, found: head.seq });
    }
    if head.epoch > history.epoch && head.kind != "opened" {
        return Verdict::Bad(Problem::Unopened(head.epoch));
    }
    match outline::decode(&head.kind, line) {
        Some(Ok(body)) => Verdict::Next(record(&head, body), head.synced.unwrap_or(0)),
        Some(Err(error)) => newer(Problem::Fields(error.to_string())),
        None if line::is_skippable(line) => {
            Verdict::Skip { seq: head.seq, at: head.at, up: head.up, claimed: head.synced.unwrap_or(0) }
        }
        None => newer(Problem::Kind(head.kind.to_string())),
    }
}

/// Calls `each` for every record that counts, in order, with its whole line. Other lines are skipped. Returns the number
/// of the first one that may have been a record and could not be read: damaged, missing, or of a newer Relive.
pub(crate) fn for_each_record(file: &File, mut each: impl FnMut(&Head<'_>, &[u8])) -> io::Result<Option<u64>> {
    let mut lines = Lines::new(file, 0, 0)?;
    let (mut last, mut unread) = ((Generation(0), 0), None);
    loop {
        let number = lines.number + 1;
        let line = match lines.read()? {
            Line::Whole(line) if line::is_intact(line) => line,
            Line::Whole(_) | Line::TooLong => {
                unread.get_or_insert(number);
                continue;
            }
            Line::Endless => return Ok(unread.or(Some(number))),
            // A write that is under way, or was interrupted: nobody was told that it is done.
            Line::Unfinished | Line::End => return Ok(unread),
        };
        let Ok(head) = line::head(line) else {
            unread.get_or_insert(number);
            continue;
        };
        if (head.epoch, head.seq) > last {
            let is_known = Body::KINDS.contains(&&*head.kind) || line::is_skippable(line);
            if head.seq != last.1 + 1 || head.v != VERSION || !is_known {
                unread.get_or_insert(number);
            }
            last = (head.epoch, head.seq);
            each(&head, line);
        }
    }
}

pub(crate) fn record(head: &Head<'_>, body: Body) -> Record {
    Record { seq: head.seq, epoch: head.epoch, at: head.at, step: head.step, up: head.up, body }
}
