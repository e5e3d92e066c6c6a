//! The records of requests, in a file of the session's directory.

use std::io;
use std::os::fd::OwnedFd;

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::LOG;

/// The size at which no more requests are recorded, and so none are allowed.
const LOG_MAX_BYTES: u64 = 16 << 20;

/// One request, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub at: Timestamp,
    /// The name or the address that was asked for.
    pub host: String,
    pub port: u16,
    pub by: Protocol,
    pub verdict: Verdict,
    /// Why it was refused or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Connect,
    Http,
    Socks5,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Allowed,
    Refused,
    /// It waits for a person.
    Asked,
    /// It was allowed, but there was no connection.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Log {
    file: OwnedFd,
    length: u64,
    /// Whether the last record may be incomplete, and must not be continued by the next one.
    is_torn: bool,
}

impl Log {
    pub(crate) fn open(directory: &OwnedFd) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, LOG, flags, Mode::RUSR | Mode::WUSR)?;
        let length = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(u64::MAX);
        Ok(Self { file, length, is_torn: length > 0 })
    }

    pub(crate) fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = if self.is_torn { vec![b'\n'] } else { Vec::new() };
        serde_json::to_writer(&mut line, record)?;
        line.push(b'\n');
        if self.length + line.len() as u64 > LOG_MAX_BYTES {
            return Err(io::Error::other("too many requests were recorded"));
        }
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::write(&self.file, rest)).inspect_err(|_| {
                self.is_torn = true;
            })?;
            self.length += written as u64;
            rest = &rest[written..];
        }
        self.is_torn = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::PipeFlags;

    use super::*;

    #[test]
    fn a_record_after_one_that_was_cut_off_is_a_line_of_its_own() {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let mut log = Log { file: writer, length: 0, is_torn: false };
        let record = |reason: Option<String>| Record {
            at: Timestamp::UNIX_EPOCH,
            host: "a.com".into(),
            port: 443,
            by: Protocol::Connect,
            verdict: Verdict::Asked,
            reason,
        };
        let read = || {
            let mut bytes = vec![0; 1 << 20];
            let length = rustix::io::read(&reader, &mut bytes).unwrap();
            bytes.truncate(length);
            String::from_utf8(bytes).unwrap()
        };
        // More than a pipe takes, as of a disk that is full.
        assert!(log.append(&record(Some("x".repeat(200 << 10)))).is_err());
        assert!(!read().contains('\n'));
        log.append(&record(None)).unwrap();
        log.append(&record(None)).unwrap();
        let text = read();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!((lines[0], lines.len()), ("", 4), "{text}");
        for line in &lines[1..3] {
            assert_eq!(serde_json::from_str::<Record>(line).unwrap(), record(None));
        }
    }
}
