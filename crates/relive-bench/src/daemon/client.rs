//! As much of HTTP as the daemon's answers need, blocking.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;

/// A connection that is kept.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

/// How long a body is.
enum Length {
    Bytes(usize),
    Chunked,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        Ok(Self { stream: BufReader::new(UnixStream::connect(socket)?) })
    }

    pub(crate) fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        Ok(serde_json::from_slice(&self.get_bytes(path)?)?)
    }

    /// The answer as it comes, for whoever measures the daemon and not the parser.
    pub(crate) fn get_bytes(&mut self, path: &str) -> Result<Vec<u8>> {
        self.exchange("GET", path, &[])
    }

    pub(crate) fn post<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T> {
        Ok(serde_json::from_slice(&self.exchange("POST", path, &serde_json::to_vec(body)?)?)?)
    }

    /// The status of an answer that may be an error.
    pub(crate) fn status(&mut self, path: &str) -> Result<String> {
        Ok(self.ask("GET", path, &[])?.0)
    }

    fn exchange(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        let (status, answer) = self.ask(method, path, body)?;
        if status == "200" {
            return Ok(answer);
        }
        Err(format!("{method} {path}: {status}: {}", String::from_utf8_lossy(&answer)).into())
    }

    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(String, Vec<u8>)> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: relive\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.stream.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let status = self.line()?;
        let length = self.length()?;
        let answer = self.body(length)?;
        Ok((status.split(' ').nth(1).unwrap_or_default().to_owned(), answer))
    }

    /// Reads the head to its end.
    fn length(&mut self) -> Result<Length> {
        let mut length = Length::Bytes(0);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", number)) => length = Length::Bytes(number.trim().parse()?),
                Some(("transfer-encoding", _)) => length = Length::Chunked,
                Some(_) => {}
                None => return Ok(length),
            }
        }
    }

    fn body(&mut self, length: Length) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        match length {
            Length::Bytes(bytes) => self.take(bytes, &mut body)?,
            Length::Chunked => loop {
                let bytes = usize::from_str_radix(&self.line()?, 16)?;
                self.take(bytes, &mut body)?;
                self.line()?;
                if bytes == 0 {
                    break;
                }
            },
        }
        Ok(body)
    }

    fn take(&mut self, bytes: usize, body: &mut Vec<u8>) -> Result<()> {
        let start = body.len();
        body.resize(start + bytes, 0);
        Ok(self.stream.read_exact(&mut body[start..])?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err("the daemon closed the connection".into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

/// Has `work` done for each item, shared among connections that are at it at once. The answers are in no order.
pub(crate) fn at_once<I: Sync, T: Send>(
    socket: &Path,
    connections: usize,
    items: &[I],
    work: impl Fn(&mut Client, &I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = |share: &[I]| -> Result<Vec<T>> {
            let mut client = Client::connect(socket)?;
            share.iter().map(|item| work(&mut client, item)).collect()
        };
        let share = items.len().div_ceil(connections).max(1);
        let started: Vec<_> = items.chunks(share).map(|share| scope.spawn(move || work(share))).collect();
        let mut answers = Vec::new();
        for thread in started {
            answers.extend(thread.join().map_err(|_| "a client panicked")??);
        }
        Ok(answers)
    })
}
