//! Parses server-sent events from chunks of bytes that may end anywhere.
//!
//! Lines end at CR, LF or both and nowhere else: U+2028 is data.

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The kind: `record`, or `end` when there will be no more.
    pub name: String,
    /// `epoch.seq`.
    pub id: String,
    /// A record of the journal or of the events, as JSON.
    pub data: String,
}

/// The longest event; a record has at most 1 MiB.
pub(crate) const EVENT_MAX: usize = 4 << 20;

/// An event is longer than any that the daemon sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// The received part of the events.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    /// Whether the last byte was a CR: an LF after it belongs to the same end of line.
    after_cr: bool,
    name: String,
    id: String,
    data: Option<String>,
}

impl Parser {
    /// Parses a chunk and returns the events it completes.
    pub(crate) fn push(&mut self, chunk: &[u8], out: &mut Vec<Event>) -> Result<(), TooLong> {
        for &byte in chunk {
            let after_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    self.take_line(&String::from_utf8_lossy(&line), out);
                }
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > EVENT_MAX {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str, out: &mut Vec<Event>) {
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            if let Some(data) = self.data.take() {
                out.push(Event { name, id: self.id.clone(), data });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => data.extend(["\n", value]),
                None => self.data = Some(value.to_owned()),
            },
            "id" => value.clone_into(&mut self.id),
            "event" => value.clone_into(&mut self.name),
            // Comments keep the connection alive; other fields are ignored.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        for chunk in chunks {
            parser.push(chunk, &mut out).unwrap();
        }
        out.into_iter().map(|event| (event.id, event.data)).collect()
    }

    const STREAM: &[u8] =
        "id: 1.1\ndata: {\"a\":\"\u{2028}é\"}\n\n: still here\n\nid: 1.2\r\ndata:two\r\ndata: lines\r\n\r\nid: 1.3\rdata: x\r\rdata: open".as_bytes();

    #[test]
    fn the_events_do_not_depend_on_the_chunks() {
        let whole = parse(&[STREAM]);
        let expected =
            [("1.1", "{\"a\":\"\u{2028}é\"}"), ("1.2", "two\nlines"), ("1.3", "x")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(whole, expected);
        for cut in 0..STREAM.len() {
            assert_eq!(parse(&[&STREAM[..cut], &STREAM[cut..]]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
        assert_eq!(parse(&bytes), whole);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        assert_eq!(parser.push(&vec![b'x'; EVENT_MAX + 1], &mut out), Err(TooLong));
    }
}
