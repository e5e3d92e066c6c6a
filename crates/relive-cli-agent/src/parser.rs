//! Turns lines into events, in a given dialect or in the first one that a line belongs to.

use std::borrow::Cow;

use crate::detect;
use crate::dialect::Dialect;
use crate::dialects::{Events, acp, claude, codex_app_server, codex_exec, gemini, opencode};
use crate::event::{Event, EventKind};
use crate::json::Json;
use crate::lines::Line;

/// How much of a malformed line is shown.
const EXCERPT_CHARS: usize = 120;

/// Reads the lines of one CLI process. A new process needs a new parser.
#[derive(Debug)]
pub struct Parser {
    dialect: Option<Dialect>,
    choice: Choice,
    reader: Option<Reader>,
}

/// Who chose the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Caller,
    Detection,
}

/// The parser of one dialect, with what it has to remember between lines.
#[derive(Debug)]
enum Reader {
    Claude(claude::Reader),
    CodexExec,
    CodexAppServer(codex_app_server::Reader),
    Gemini,
    Opencode(opencode::Reader),
    Acp(acp::Reader),
}

/// The direction of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Printed by the CLI.
    Output,
    /// Written to the CLI.
    Input,
}

impl Parser {
    /// Without a dialect, the first line that can belong to only one decides, for the rest of the stream.
    pub fn new(dialect: Option<Dialect>) -> Self {
        let choice = if dialect.is_some() { Choice::Caller } else { Choice::Detection };
        Self { dialect, choice, reader: dialect.map(Reader::new) }
    }

    /// The dialect in use; `None` until it is detected.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// Reads a line that the CLI printed. Only a blank line has no events.
    pub fn read(&mut self, line: Line<'_>) -> Vec<Event> {
        self.parse(line, Direction::Output)
    }

    /// Reads a line that was written to the CLI. Some replies can only be understood together with their request, and a
    /// CLI does not always say that a turn has started or that an approval was answered.
    pub fn read_input(&mut self, line: Line<'_>) -> Vec<Event> {
        self.parse(line, Direction::Input)
    }

    fn parse(&mut self, line: Line<'_>, direction: Direction) -> Vec<Event> {
        let text = String::from_utf8_lossy(line.bytes());
        if let Line::TooLong { bytes, .. } = line {
            return vec![malformed(format!("a line of {bytes} bytes is above the limit"), &text)];
        }
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Vec::new();
        }
        let json = match Json::parse(trimmed) {
            Ok(json) if json.is_object() => json,
            Ok(_) => return vec![malformed("not a JSON object".into(), trimmed)],
            Err(error) => return vec![malformed(json_fault(&error), trimmed)],
        };
        let mut events = Events::default();
        self.choose(json, direction);
        match (&mut self.reader, direction) {
            (Some(reader), direction) => reader.parse(json, direction, &mut events),
            (None, Direction::Output) => events.unknown(json.name()),
            (None, Direction::Input) => events.other(json.name()),
        }
        let mut events = events.into_vec();
        if matches!(text, Cow::Owned(_)) {
            events.push(malformed("invalid UTF-8 was replaced".into(), trimmed));
        }
        events
    }

    fn choose(&mut self, line: Json<'_>, direction: Direction) {
        if self.choice == Choice::Caller || direction == Direction::Input {
            return;
        }
        if self.reader.is_none() {
            self.dialect = detect::detect(line);
            self.reader = self.dialect.map(Reader::new);
        } else if let Some(Reader::Claude(reader)) = &mut self.reader
            && self.dialect == Some(Dialect::Claude)
            && detect::is_qwen(line)
        {
            // In duplex mode the first line answers `initialize`, and only the second one tells qwen from claude.
            self.dialect = Some(Dialect::Qwen);
            reader.become_qwen();
        }
    }
}

impl Reader {
    fn new(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Claude | Dialect::Qwen => Self::Claude(claude::Reader::new(dialect)),
            Dialect::CodexExec => Self::CodexExec,
            Dialect::CodexAppServer => Self::CodexAppServer(codex_app_server::Reader::default()),
            Dialect::Gemini => Self::Gemini,
            Dialect::Opencode => Self::Opencode(opencode::Reader::default()),
            Dialect::Acp => Self::Acp(acp::Reader::default()),
        }
    }

    fn parse(&mut self, line: Json<'_>, direction: Direction, events: &mut Events) {
        match (self, direction) {
            (Self::Claude(reader), Direction::Output) => reader.read(line, events),
            (Self::Claude(_), Direction::Input) => claude::read_input(line, events),
            (Self::CodexExec, Direction::Output) => codex_exec::read(line, events),
            (Self::CodexAppServer(reader), Direction::Output) => reader.read(line, events),
            (Self::CodexAppServer(reader), Direction::Input) => reader.read_input(line, events),
            (Self::Gemini, Direction::Output) => gemini::read(line, events),
            (Self::Opencode(reader), Direction::Output) => reader.read(line, events),
            (Self::Acp(reader), Direction::Output) => reader.read(line, events),
            (Self::Acp(reader), Direction::Input) => reader.read_input(line, events),
            (Self::CodexExec | Self::Gemini | Self::Opencode(_), Direction::Input) => events.other("input"),
        }
    }
}

/// Names the fault and its column; the parser's own "line 1" would be taken for a line of the stream.
fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let fault = text.split(" at line ").next().unwrap_or_default();
    format!("{fault} at column {}", error.column())
}

fn malformed(reason: String, text: &str) -> Event {
    let excerpt = text.chars().take(EXCERPT_CHARS).collect();
    EventKind::Malformed { reason, excerpt }.into()
}
