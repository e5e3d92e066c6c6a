//! The output of a command that an agent runs, while it runs: read from the log of its session.

use std::path::PathBuf;

use relive_session::log::{Item, Reader};

use crate::render::size::bytes;
use crate::terminal::without_controls;

/// How much is read at a time, so that a command that prints without end holds up nobody.
const READ_MAX: usize = 64 << 10;
/// A longer line is shown in parts.
const LINE_MAX: usize = 4096;

/// The output of a command.
pub(crate) struct Output {
    directory: PathBuf,
    from: u64,
    /// Absent until there is a log.
    reader: Option<Reader>,
    /// The line that is not whole yet.
    line: Vec<u8>,
    /// Whether anything was shown.
    pub(crate) any: bool,
}

impl Output {
    /// `name` is that of a session of the process whose directory of sessions this is.
    pub(crate) fn new(sessions: PathBuf, name: &str) -> Option<Self> {
        let number = name.strip_prefix("call-")?;
        let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| Self { directory: sessions.join(name), from: 0, reader: None, line: Vec::new(), any: false })
    }

    /// Begins with the latest output only.
    pub(crate) fn recent(mut self, bytes: u64) -> Self {
        self.from = Reader::tail(&self.directory, bytes).unwrap_or(0);
        self
    }

    /// The lines that came since the last time, and whether there may be more at once.
    pub(crate) fn lines(&mut self) -> (Vec<String>, bool) {
        if self.reader.is_none() {
            // The command may not have been started yet.
            self.reader = Reader::open(&self.directory, self.from).ok();
        }
        let Some(reader) = &mut self.reader else { return (Vec::new(), false) };
        let (mut lines, mut read) = (Vec::new(), 0);
        while read < READ_MAX {
            // What cannot be read is not shown; the result has it.
            let Ok(Some(item)) = reader.next() else { return (lines, false) };
            match item {
                Item::Chunk(chunk) => {
                    read += chunk.bytes.len();
                    for part in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
                        self.line.extend_from_slice(part);
                        if part.ends_with(b"\n") || self.line.len() >= LINE_MAX {
                            lines.push(shown(&std::mem::take(&mut self.line)));
                        }
                    }
                }
                Item::Gap { from, to } => lines.push(format!("({} were dropped)", bytes(to - from))),
            }
            self.any = true;
        }
        (lines, true)
    }

    /// The line that nothing ended, when the command has ended.
    pub(crate) fn rest(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| shown(&std::mem::take(&mut self.line)))
    }
}

/// A line as a terminal would show it in the end: what a carriage return went back over is not there any more.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    without_controls(text.rsplit('\r').next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_session_of_a_call_is_read() {
        for name in ["call-", "call-1/../../x", "../call-1", "call-1x", "exec-1", ""] {
            assert!(Output::new(PathBuf::from("/s"), name).is_none(), "{name}");
        }
        assert!(Output::new(PathBuf::from("/s"), "call-17").is_some());
    }

    #[test]
    fn a_carriage_return_overwrites_the_line() {
        assert_eq!(shown(b"10%\r50%\r100%\r\n"), "100%");
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a<ESC>[2Jb");
    }
}
