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
}

impl Log {
    pub(crate) fn open(directory: &OwnedFd) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, LOG, flags, Mode::RUSR | Mode::WUSR)?;
        let length = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(u64::MAX);
        Ok(Self { file, length })
    }

    pub(crate) fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if self.length + line.len() as u64 > LOG_MAX_BYTES {
            return Err(io::Error::other("too many requests were recorded"));
        }
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let written = rustix::io::write(&self.file, rest)?;
            self.length += written as u64;
            rest = &rest[written..];
        }
        Ok(())
    }
}
