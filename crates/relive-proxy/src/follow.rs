//! The daemon's side: reads the records of a session's requests, each once, and sends a person's answers.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::log::{Record, Verdict};
use crate::settings::Answers;
use crate::{LOG, SOCKET};

/// How much of the log was shown, for the next daemon.
const TOLD: &str = "network.told";
/// How much is read at once.
const READ_BYTES: usize = 256 << 10;

/// Follows the requests of one session.
#[derive(Debug)]
pub struct Follower {
    session: PathBuf,
    stream: Option<UnixStream>,
    told: u64,
}

/// Returns whether the proxy of a session runs: without it, the session reaches no host.
pub async fn is_alive(session: &Path) -> bool {
    connect(session).await.is_some()
}

impl Follower {
    /// Follows a session from where the last follower stopped. Nothing if it has no proxy.
    pub async fn new(session: &Path) -> io::Result<Option<Self>> {
        let path = session.to_owned();
        let told = blocking(move || {
            let directory = open_directory(&path)?;
            match open(&directory, LOG) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
            let mut number = [0; 8];
            let read = open(&directory, TOLD).and_then(|file| file.read_exact_at(&mut number, 0));
            Ok(Some(read.map_or(0, |()| u64::from_le_bytes(number))))
        });
        let Some(told) = told.await? else { return Ok(None) };
        Ok(Some(Self { session: session.to_owned(), stream: connect(session).await, told }))
    }

    /// Waits until there may be more records. Never returns if the proxy is gone: then there are no more.
    pub async fn changed(&mut self) {
        if let Some(stream) = &mut self.stream {
            let mut bytes = [0; 1024];
            match stream.read(&mut bytes).await {
                Ok(1..) => return,
                Ok(0) | Err(_) => self.stream = None,
            }
        }
        std::future::pending().await
    }

    /// Returns the records that were not told yet, some at a time; nothing if there are no more. Some can be none, where all
    /// of them are unreadable.
    pub async fn read(&mut self) -> io::Result<Option<Vec<Record>>> {
        let (path, from) = (self.session.clone(), self.told);
        let bytes = blocking(move || {
            let file = open(&open_directory(&path)?, LOG)?;
            let mut bytes = vec![0; READ_BYTES];
            let length = file.read_at(&mut bytes, from)?;
            bytes.truncate(length);
            Ok(bytes)
        });
        let bytes = bytes.await?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole == 0 {
            return Ok(None);
        }
        self.told += whole as u64;
        let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        // One of a later version, or that was cut off, is left out.
        Ok(Some(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()))
    }

    /// Returns the hosts that the session has ever asked a person about.
    pub async fn asked(&self) -> io::Result<Vec<String>> {
        let mut all = Self { session: self.session.clone(), stream: None, told: 0 };
        let mut hosts = Vec::new();
        while let Some(records) = all.read().await? {
            for Record { host, verdict, .. } in records {
                if verdict == Verdict::Asked && !hosts.contains(&host) {
                    hosts.push(host);
                }
            }
        }
        Ok(hosts)
    }

    /// Keeps that everything that was read was told.
    pub async fn keep(&self) -> io::Result<()> {
        let (path, told) = (self.session.clone(), self.told);
        blocking(move || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(open_directory(&path)?, TOLD, flags, Mode::RUSR | Mode::WUSR)?;
            File::from(file).write_all_at(&told.to_le_bytes(), 0)
        })
        .await
    }

    /// Sends all answers so far.
    pub async fn answer(&mut self, answers: &Answers) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut line = serde_json::to_vec(answers)?;
        line.push(b'\n');
        stream.write_all(&line).await
    }
}

async fn connect(session: &Path) -> Option<UnixStream> {
    // By a descriptor: the path may be longer than that of a socket.
    let directory = open_directory(session).ok()?;
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd())).await.ok()
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn open(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn records_after_many_that_are_unreadable_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let asked = |host: &str| {
            format!(r#"{{"at":"2026-01-01T00:00:00Z","host":"{host}","port":443,"by":"connect","verdict":"asked"}}"#)
        };
        let unreadable = "{\"at\":\"2026\"}\n".repeat(2 * READ_BYTES / 14);
        let text = format!("{}\n{unreadable}{}\n{{", asked("a.com"), asked("b.com"));
        let mut file = File::options().write(true).create_new(true).open(dir.path().join(LOG)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut follower = Follower::new(dir.path()).await.unwrap().unwrap();
        assert_eq!(follower.asked().await.unwrap(), ["a.com", "b.com"]);
        let mut hosts = Vec::new();
        while let Some(records) = follower.read().await.unwrap() {
            hosts.extend(records.into_iter().map(|record| record.host));
        }
        assert_eq!(hosts, ["a.com", "b.com"]);
    }
}
