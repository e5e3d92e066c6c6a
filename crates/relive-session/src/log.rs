//! The log of a session: the output of its program, at offsets that count from the beginning of the session.
//!
//! A file of frames: `{stream u8, length u24, unix milliseconds u64}`, big-endian, then the bytes. An offset counts the
//! bytes of the files, frames' heads included. The current segment is `log`, older ones are `log.<first offset>`; the first
//! frame of each is a mark (stream 0) with its first offset, so an open descriptor knows where it is whatever happens to
//! the names. The oldest segments go when there is too much. The last frame (stream 3) may be the exit record, so that one
//! sync puts it on the disk with the output.
//!
//! **Invariant:** a segment has its name only when its mark is complete; a frame is read only when it is complete; a
//! reader that is too late learns what it missed.

mod reader;
mod writer;

pub(crate) use reader::read_exit;
pub use reader::{Chunk, Ends, Item, Reader, read_ends};
pub use writer::Writer;

use serde::{Deserialize, Serialize};

const NAME: &str = "log";
const NEW_NAME: &str = "log.new";
const HEAD: usize = 12;
/// A longer write becomes several frames, so that a reader needs space for only one.
const FRAME_MAX: usize = 64 * 1024;
/// The mark at the beginning of a segment.
const MARK: u8 = 0;
const MARK_SIZE: usize = HEAD + 8;
/// The offset at which the output of a session begins.
pub const BEGINNING: u64 = MARK_SIZE as u64;
/// How the session ended.
const END: u8 = 3;

/// The stream of some output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output; all output of a terminal.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    fn number(self) -> u8 {
        match self {
            Self::Out => 1,
            Self::Err => 2,
        }
    }
}

/// The head of a frame.
struct Head {
    stream: u8,
    length: usize,
    at_ms: u64,
}

impl Head {
    fn encode(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0] = self.stream;
        head[1..4].copy_from_slice(&(self.length as u32).to_be_bytes()[1..]);
        head[4..].copy_from_slice(&self.at_ms.to_be_bytes());
        head
    }

    /// Returns `None` if no frame begins with these bytes: zeros, or the rest of a lost write.
    fn decode(bytes: &[u8; HEAD]) -> Option<Self> {
        let [stream, a, b, c, time @ ..] = *bytes;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let sound = match stream {
            MARK => length == MARK_SIZE - HEAD,
            1 | 2 | END => (1..=FRAME_MAX).contains(&length),
            4.. => false,
        };
        sound.then(|| Self { stream, length, at_ms: u64::from_be_bytes(time) })
    }
}

fn name_of(first: u64) -> String {
    format!("{NAME}.{first}")
}

#[cfg(test)]
mod tests;
