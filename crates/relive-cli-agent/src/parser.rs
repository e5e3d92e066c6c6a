//! Turns lines into events, in a given dialect or in the first one that a line belongs to.

mod acp;
mod claude;
mod codex;
mod codex_app_server;
mod codex_exec;
mod conversation;
mod detect;
mod gemini;
mod json_rpc;
mod line_events;
mod opencode;
mod questions;
mod quota;
mod usage;

use std::borrow::Cow;

use self::acp::AcpParser;
use self::claude::ClaudeParser;
pub use self::claude::REPORTED as CLAUDE_HOOKS;
use self::codex_app_server::CodexAppServerParser;
use self::codex_exec::CodexExecParser;
use self::gemini::GeminiParser;
use self::line_events::LineEvents;
use self::opencode::OpencodeParser;
use crate::dialect::Dialect;
use crate::event::{Event, EventKind};
use crate::json::Json;
use crate::lines::Line;

/// How much of a malformed line is shown.
const EXCERPT_CHARS: usize = 120;

/// Reads the lines of one CLI process. A new process needs a new parser.
#[derive(Debug)]
pub struct Parser {
    /// The dialect that the caller named; without one it is detected.
    named: Option<Dialect>,
    /// `None` until the dialect is detected.
    dialect_parser: Option<DialectParser>,
}

/// The parser of one dialect, with what it has to remember between lines.
#[derive(Debug)]
enum DialectParser {
    Claude(ClaudeParser),
    CodexExec(CodexExecParser),
    CodexAppServer(CodexAppServerParser),
    Gemini(GeminiParser),
    Opencode(OpencodeParser),
    Acp(AcpParser),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Printed by the CLI.
    Output,
    /// Written to the CLI.
    Input,
}

impl Parser {
    /// Creates a parser. Without a dialect, the first line that fits only one dialect decides for the rest of the
    /// stream.
    pub fn new(dialect: Option<Dialect>) -> Self {
        Self { named: dialect, dialect_parser: dialect.map(DialectParser::new) }
    }

    /// Starts over for another process.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.named);
    }

    /// Takes in that output was lost after which the CLI is in this conversation. Only an ACP agent's parser waits for
    /// replies that are lost with it.
    pub(crate) fn lose_output(&mut self, session_id: &str) -> Vec<Event> {
        let mut events = LineEvents::default();
        match &mut self.dialect_parser {
            Some(DialectParser::Acp(parser)) => parser.lose_output(session_id, &mut events),
            Some(
                DialectParser::Claude(_)
                | DialectParser::CodexExec(_)
                | DialectParser::CodexAppServer(_)
                | DialectParser::Gemini(_)
                | DialectParser::Opencode(_),
            )
            | None => {}
        }
        events.into_vec()
    }

    /// Returns the dialect in use; `None` until it is detected.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect_parser.as_ref().map(DialectParser::dialect)
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
            let mut events = LineEvents::default();
            if let (Some(DialectParser::Claude(parser)), Direction::Output) = (&mut self.dialect_parser, direction) {
                parser.read_head(&text, &mut events);
            }
            let mut events = events.into_vec();
            events.push(malformed(format!("a line of {bytes} bytes is above the limit"), &text));
            return events;
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
        let mut events = LineEvents::default();
        self.detect(json, direction);
        match (&mut self.dialect_parser, direction) {
            (Some(parser), direction) => parser.parse(json, direction, &mut events),
            (None, Direction::Output) => events.unknown(json.name()),
            (None, Direction::Input) => events.other(json.name()),
        }
        let mut events = events.into_vec();
        if matches!(text, Cow::Owned(_)) {
            events.push(malformed("invalid UTF-8 was replaced".into(), trimmed));
        }
        events
    }

    fn detect(&mut self, line: Json<'_>, direction: Direction) {
        if self.named.is_some() || direction == Direction::Input {
            return;
        }
        match &mut self.dialect_parser {
            None => self.dialect_parser = detect::detect(line).map(DialectParser::new),
            // In duplex mode the first line answers `initialize`, and only the second one tells qwen from claude.
            Some(DialectParser::Claude(parser)) if detect::is_qwen(line) => parser.become_qwen(),
            Some(_) => {}
        }
    }
}

impl DialectParser {
    fn new(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Claude | Dialect::Qwen => Self::Claude(ClaudeParser::new(dialect)),
            Dialect::CodexExec => Self::CodexExec(CodexExecParser::default()),
            Dialect::CodexAppServer => Self::CodexAppServer(CodexAppServerParser::default()),
            Dialect::Gemini => Self::Gemini(GeminiParser::default()),
            Dialect::Opencode => Self::Opencode(OpencodeParser::default()),
            Dialect::Acp => Self::Acp(AcpParser::default()),
        }
    }

    fn dialect(&self) -> Dialect {
        match self {
            Self::Claude(parser) => parser.dialect(),
            Self::CodexExec(_) => Dialect::CodexExec,
            Self::CodexAppServer(_) => Dialect::CodexAppServer,
            Self::Gemini(_) => Dialect::Gemini,
            Self::Opencode(_) => Dialect::Opencode,
            Self::Acp(_) => Dialect::Acp,
        }
    }

    fn parse(&mut self, line: Json<'_>, direction: Direction, events: &mut LineEvents) {
        match (self, direction) {
            (Self::Claude(parser), Direction::Output) => parser.read(line, events),
            (Self::Claude(_), Direction::Input) => claude::read_input(line, events),
            (Self::CodexExec(parser), Direction::Output) => parser.read(line, events),
            (Self::CodexAppServer(parser), Direction::Output) => parser.read(line, events),
            (Self::CodexAppServer(parser), Direction::Input) => parser.read_input(line, events),
            (Self::Gemini(parser), Direction::Output) => parser.read(line, events),
            (Self::Opencode(parser), Direction::Output) => parser.read(line, events),
            (Self::Acp(parser), Direction::Output) => parser.read(line, events),
            (Self::Acp(parser), Direction::Input) => parser.read_input(line, events),
            (Self::CodexExec(_) | Self::Gemini(_) | Self::Opencode(_), Direction::Input) => events.other("input"),
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
