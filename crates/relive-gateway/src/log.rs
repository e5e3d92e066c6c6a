//! The calls of one process, in a file of its directory: a line when a call begins, and one when it has ended.
//!
//! Each gateway whose calls are in the file has a shared lock on it. During an upgrade there are two: the one before ends its
//! calls, and its successor begins new ones. Calls that are open although no other gateway has a lock were left by one that
//! was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::LOG;
use crate::api::Api;
use crate::meter;

/// The size at which no more calls are recorded, and so none are made.
const LOG_MAX_BYTES: u64 = 256 << 20;
/// The longest line.
const LINE_MAX: u64 = 64 << 10;

/// A line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Asked(Asked),
    Ended(Box<Ended>),
}

/// A call that is about to go to the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) api: Api,
    /// In the words of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// The length of the question.
    pub(crate) bytes: u64,
    /// The subagent that asks, where the CLI says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subagent: Option<String>,
}

/// A call that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub number: u64,
    pub at: Timestamp,
    pub api: Api,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    /// The status of the answer; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    #[serde(default)]
    pub cache_read: u64,
    #[serde(default)]
    pub cache_write: u64,
    /// Whether the provider did not report all of it.
    #[serde(default)]
    pub estimated: bool,
    /// Who broke off the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// Why the call was not made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// When the provider takes calls again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Timestamp>,
    /// The time to the first byte of the answer, and to its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<u64>,
    #[serde(default)]
    pub ms: u64,
}

/// Who broke off an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// The provider, or the network.
    Upstream,
    /// The CLI, which did not wait for the end.
    Agent,
    /// The gateway was killed.
    Gateway,
}

impl Asked {
    /// Returns the end of this call with nothing used.
    pub(crate) fn ended(&self, at: Timestamp) -> Ended {
        let ms = u64::try_from(at.duration_since(self.at).as_millis()).unwrap_or(0);
        Ended {
            number: self.number,
            at,
            api: self.api,
            model: self.model.clone(),
            subagent: self.subagent.clone(),
            status: None,
            tokens_in: 0,
            tokens_out: 0,
            cache_read: 0,
            cache_write: 0,
            estimated: false,
            cut: None,
            refused: None,
            resets_at: None,
            first_ms: None,
            ms,
        }
    }
}

/// The log of a process that is served.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    pub(crate) length: u64,
    /// The number of the next call.
    pub(crate) next: u64,
    /// The tokens of each call that has ended, by the end of its line.
    used: BTreeMap<u64, u64>,
    /// The daemon has subtracted the calls up to this offset.
    settled: u64,
    /// The calls of this gateway that are open.
    open: BTreeSet<u64>,
    /// The open calls of the gateway before, which ends them itself, or is gone.
    inherited: BTreeMap<u64, Asked>,
    /// The lines up to this offset were read.
    read_to: u64,
    is_retired: bool,
    #[cfg(test)]
    pub(crate) failing_syncs: u32,
    #[cfg(test)]
    pub(crate) failing_ends: u32,
}

/// Whether a call was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Recorded,
    /// Not recorded: another gateway begins the calls of the process now.
    Retired,
}

impl Log {
    /// Opens or makes the log in the directory of a process. Calls that a killed gateway left open are ended.
    pub(crate) fn open(directory: &Path, settled: u64) -> io::Result<Self> {
        let folder = rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&folder, LOG, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        let file = File::from(file);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other(format!("{LOG} is not a regular file")));
        }
        if metadata.len() == 0 {
            rustix::fs::fsync(&folder)?;
        }
        let mut log = Self {
            file,
            length: metadata.len(),
            next: 1,
            used: BTreeMap::new(),
            settled,
            open: BTreeSet::new(),
            inherited: BTreeMap::new(),
            read_to: 0,
            is_retired: false,
            #[cfg(test)]
            failing_syncs: 0,
            #[cfg(test)]
            failing_ends: 0,
        };
        flock(&log.file, FlockOperation::NonBlockingLockShared)?;
        log.read_lines()?;
        log.end_inherited()?;
        Ok(log)
    }

    /// Reads lines that were not read before.
    fn read_lines(&mut self) -> io::Result<()> {
        let mut read_to = self.read_to;
        for_each_line(&self.file.try_clone()?, self.read_to, |line, end| {
            read_to = end;
            match line {
                Some(Line::Asked(asked)) => {
                    self.next = self.next.max(asked.number + 1);
                    if !self.open.contains(&asked.number) {
                        self.inherited.insert(asked.number, asked);
                    }
                }
                Some(Line::Ended(ended)) => {
                    self.next = self.next.max(ended.number + 1);
                    self.inherited.remove(&ended.number);
                    if end > self.settled {
                        self.used.insert(end, ended.tokens_in + ended.tokens_out);
                    }
                }
                None => {}
            }
        })?;
        self.read_to = read_to;
        self.length = self.length.max(read_to);
        Ok(())
    }

    /// Tells whether no other gateway has calls in the log.
    fn is_alone(&self) -> io::Result<bool> {
        let is_alone = match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK) => false,
            Err(error) => return Err(error.into()),
        };
        // Whether or not it was changed, the lock is shared again. The others are retired: they do not look, so that none
        // of them can take this one for gone meanwhile.
        flock(&self.file, FlockOperation::NonBlockingLockShared)?;
        Ok(is_alone)
    }

    /// Ends the calls of the gateway before, if it is gone.
    fn end_inherited(&mut self) -> io::Result<()> {
        if self.inherited.is_empty() || !self.is_alone()? {
            return Ok(());
        }
        // It may have ended some of them just before.
        self.read_lines()?;
        while let Some((number, asked)) = self.inherited.first_key_value() {
            let number = *number;
            let tokens_in = meter::estimate(asked.bytes);
            let ended = Ended { tokens_in, estimated: true, cut: Some(Cut::Gateway), ..asked.ended(asked.at) };
            self.end(&ended)?;
            self.inherited.remove(&number);
        }
        self.sync()
    }

    /// Reads what the gateway before has recorded meanwhile, and returns how many of its calls are open. A retired
    /// gateway leaves that to its successor: to look, it would have to lock the log again.
    pub(crate) fn follow(&mut self) -> io::Result<usize> {
        if self.is_retired {
            return Ok(0);
        }
        self.read_lines()?;
        self.end_inherited()?;
        Ok(self.inherited.len())
    }

    /// Returns how many calls of the gateway before are open.
    pub(crate) fn inherited(&self) -> usize {
        self.inherited.len()
    }

    /// Begins no more calls: another gateway does.
    pub(crate) fn retire(&mut self) -> io::Result<()> {
        self.is_retired = true;
        self.unlock_if_over()
    }

    fn unlock_if_over(&self) -> io::Result<()> {
        if self.is_retired && self.open.is_empty() {
            flock(&self.file, FlockOperation::Unlock)?;
        }
        Ok(())
    }

    /// Records a call before it is made. It is on the disk after [`Self::sync`].
    pub(crate) fn begin(&mut self, asked: &Asked) -> io::Result<Begun> {
        if self.is_retired {
            return Ok(Begun::Retired);
        }
        if self.length > LOG_MAX_BYTES {
            return Err(io::Error::other("too many calls were recorded"));
        }
        self.append(&Line::Asked(asked.clone()))?;
        self.open.insert(asked.number);
        Ok(Begun::Recorded)
    }

    /// Records a call that is not made. It is on the disk after [`Self::sync`].
    pub(crate) fn refuse(&mut self, ended: &Ended) -> io::Result<Begun> {
        if self.is_retired {
            return Ok(Begun::Retired);
        }
        self.end(ended).map(|()| Begun::Recorded)
    }

    /// Records the end of a call. It is on the disk after [`Self::sync`].
    pub(crate) fn end(&mut self, ended: &Ended) -> io::Result<()> {
        #[cfg(test)]
        if self.failing_ends > 0 {
            self.failing_ends -= 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let end = self.append(&Line::Ended(Box::new(ended.clone())))?;
        self.used.insert(end, ended.tokens_in + ended.tokens_out);
        self.open.remove(&ended.number);
        self.unlock_if_over()
    }

    #[cfg(test)]
    pub(crate) fn has_open_calls(&self) -> bool {
        !self.open.is_empty()
    }

    /// Forgets what the daemon has subtracted.
    pub(crate) fn settle(&mut self, settled: u64) {
        self.settled = settled;
        self.used = self.used.split_off(&(settled + 1));
    }

    /// Returns the tokens that the daemon has not subtracted.
    pub(crate) fn unsettled(&self) -> u64 {
        self.used.values().fold(0, |sum, tokens| sum.saturating_add(*tokens))
    }

    /// Waits until all lines are on the disk. If that fails, only this is to be tried again: the lines are in the file, and the
    /// daemon may have counted them.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        #[cfg(test)]
        if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    /// Appends a line wherever the file ends now, as another gateway may have written, too. Returns the end of the line.
    fn append(&mut self, line: &Line) -> io::Result<u64> {
        loop {
            // A part of a line must not become the beginning of this one. Whoever wrote it, and whether or not it is gone.
            let mut text = if self.is_torn()? { vec![b'\n'] } else { Vec::new() };
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
            // In one piece, so that a line of another gateway does not get in between. If only a part fits, the next attempt
            // fails and tells why.
            if self.file.write(&text)? == text.len() {
                let end = self.file.stream_position()?;
                self.length = self.length.max(end);
                return Ok(end);
            }
        }
    }

    /// Tells whether the file ends with a part of a line.
    fn is_torn(&self) -> io::Result<bool> {
        let length = self.file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            self.file.read_at(&mut last, length - 1)?;
        }
        Ok(last != [b'\n'])
    }
}

/// Ends what a gateway that is gone has left open in the log of a process. There must be no gateway.
pub fn close(directory: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(directory.join(LOG)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) | Err(_) => Log::open(directory, 0).map(drop),
    }
}

/// Reads the calls that have ended from an offset on, each with the end of its line. There is no log if the process has
/// made no call.
pub fn read(directory: &Path, from: u64) -> io::Result<Vec<(Ended, u64)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(directory.join(LOG), flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{LOG} is not a regular file")));
    }
    let mut calls = Vec::new();
    for_each_line(&file, from, |line, end| {
        if let Some(Line::Ended(ended)) = line {
            calls.push((*ended, end));
        }
    })?;
    Ok(calls)
}

/// Reads complete lines with the offset of their ends. A line that cannot be read is none.
fn for_each_line(file: &File, from: u64, mut each: impl FnMut(Option<Line>, u64)) -> io::Result<()> {
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(from))?;
    let (mut line, mut end) = (Vec::new(), from);
    loop {
        line.clear();
        if reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        end += line.len() as u64;
        if line.last() == Some(&b'\n') {
            each(serde_json::from_slice(&line).ok(), end);
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files as a person would")]
mod tests {
    use super::*;

    fn asked(number: u64) -> Asked {
        let at = Timestamp::from_second(1_794_920_400).unwrap();
        Asked { number, at, api: Api::Anthropic, model: Some("m".into()), bytes: 400, subagent: None }
    }

    fn ended(number: u64, tokens_in: u64) -> Ended {
        let asked = asked(number);
        Ended { status: Some(200), tokens_in, tokens_out: 1, ..asked.ended(asked.at) }
    }

    #[test]
    fn a_call_that_a_killed_gateway_left_open_is_ended_once_with_an_estimate() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Log::open(directory.path(), 0).unwrap();
        log.begin(&asked(1)).unwrap();
        log.end(&ended(1, 10)).unwrap();
        log.begin(&asked(2)).unwrap();
        drop(log);
        let text = std::fs::read(directory.path().join(LOG)).unwrap();
        let whole = read(directory.path(), 0).unwrap();
        assert_eq!(whole.len(), 1);
        // Killed in the middle of a line, too.
        for torn in 0..30 {
            std::fs::write(directory.path().join(LOG), [&text[..], &text[..torn]].concat()).unwrap();
            for _ in 0..2 {
                let log = Log::open(directory.path(), whole[0].1).unwrap();
                assert_eq!((log.next, log.unsettled()), (3, 100), "{torn}");
            }
            let calls = read(directory.path(), 0).unwrap();
            assert_eq!(calls.len(), 2, "{torn}");
            assert_eq!((calls[1].0.cut, calls[1].0.estimated, calls[1].0.tokens_in), (Some(Cut::Gateway), true, 100));
            assert_eq!(read(directory.path(), whole[0].1).unwrap(), calls[1..]);
        }
    }

    #[test]
    fn a_line_after_a_part_of_one_is_read_whichever_gateway_wrote_them() {
        let directory = tempfile::tempdir().unwrap();
        let mut old = Log::open(directory.path(), 0).unwrap();
        old.begin(&asked(1)).unwrap();
        old.begin(&asked(2)).unwrap();
        old.retire().unwrap();
        let mut new = Log::open(directory.path(), 0).unwrap();
        let tear = |text: &[u8]| {
            let mut file = File::options().append(true).open(directory.path().join(LOG)).unwrap();
            file.write_all(text).unwrap();
        };
        // The disk was full in the middle of a line, for either of them.
        tear(b"{\"kind\":\"ask");
        old.end(&ended(1, 10)).unwrap();
        tear(b"{");
        new.begin(&asked(3)).unwrap();
        tear(b"{\"kind\":");
        assert_eq!((new.follow().unwrap(), new.unsettled()), (1, 11));
        old.end(&ended(2, 20)).unwrap();
        assert_eq!((new.follow().unwrap(), new.unsettled()), (0, 32));
        new.end(&ended(3, 30)).unwrap();
        let numbers: Vec<u64> = read(directory.path(), 0).unwrap().iter().map(|(call, _)| call.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn usage_that_the_daemon_has_subtracted_is_not_counted_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Log::open(directory.path(), 0).unwrap();
        for number in 1..=3 {
            log.begin(&asked(number)).unwrap();
            log.end(&ended(number, number * 10)).unwrap();
        }
        let calls = read(directory.path(), 0).unwrap();
        let mut unsettled = |settled| {
            log.settle(settled);
            log.unsettled()
        };
        assert_eq!((unsettled(0), unsettled(calls[1].1), unsettled(calls[2].1)), (63, 31, 0));
        assert!(close(directory.path()).is_ok() && read(directory.path(), calls[2].1).unwrap().is_empty());
    }

    #[test]
    fn two_gateways_write_to_one_log_and_the_calls_of_a_killed_one_are_ended_by_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Log::open(directory.path(), 0).unwrap();
        let numbers = || read(directory.path(), 0).unwrap().iter().map(|(call, _)| call.number).collect::<Vec<_>>();
        let mut old = open();
        for number in 1..=3 {
            assert_eq!(old.begin(&asked(number)).unwrap(), Begun::Recorded);
        }
        old.retire().unwrap();
        assert_eq!(old.begin(&asked(4)).unwrap(), Begun::Retired);
        let mut new = open();
        assert_eq!((new.next, new.inherited(), numbers()), (4, 3, vec![]));
        // A third one, before the first two are done.
        new.begin(&asked(4)).unwrap();
        old.end(&ended(2, 20)).unwrap();
        assert_eq!((new.follow().unwrap(), new.unsettled()), (2, 21));
        new.end(&ended(4, 40)).unwrap();
        new.begin(&asked(5)).unwrap();
        new.retire().unwrap();
        let mut third = open();
        old.end(&ended(1, 10)).unwrap();
        assert_eq!((third.follow().unwrap(), third.unsettled()), (2, 21 + 41 + 11));
        let length = std::fs::metadata(directory.path().join(LOG)).unwrap().len();
        assert_eq!((old.length, third.length), (length, length));
        // Killed.
        drop(old);
        assert_eq!(third.follow().unwrap(), 2, "the second one has an open call");
        new.end(&ended(5, 50)).unwrap();
        assert_eq!(third.follow().unwrap(), 0, "it has ended its last call");
        assert_eq!(numbers(), [2, 4, 1, 5, 3]);
        let last = read(directory.path(), 0).unwrap().pop().unwrap().0;
        assert_eq!((last.cut, last.estimated, last.tokens_in), (Some(Cut::Gateway), true, 100));
        assert_eq!(third.unsettled(), 21 + 41 + 11 + 51 + 100);
    }

    #[test]
    fn a_retired_gateway_without_calls_does_not_lock_the_log_again() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Log::open(directory.path(), 0).unwrap();
        let mut first = open();
        first.begin(&asked(1)).unwrap();
        first.retire().unwrap();
        let mut second = open();
        assert_eq!(second.inherited(), 1);
        second.retire().unwrap();
        assert_eq!(second.follow().unwrap(), 0);
        // Killed.
        drop(first);
        let third = open();
        assert_eq!(third.inherited(), 0, "nobody else has a lock, so the call was ended");
        assert_eq!(read(directory.path(), 0).unwrap().len(), 1);
    }

    #[test]
    fn a_pipe_in_its_place_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LOG);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(Log::open(directory.path(), 0).is_err());
        assert!(read(directory.path(), 0).is_err());
    }
}
