//! A whole stream: bytes in, one report for each line out.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::dialect::Dialect;
use crate::event::Event;
use crate::lines::{Line, LineSplitter};
use crate::machine::{Activity, Lifecycle, Machine, Waiting};
use crate::parser::Parser;

/// The events of a line, and the state after it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineReport {
    /// The number of the line, from 1.
    pub line: u64,
    /// `None` until the dialect is detected.
    pub dialect: Option<Dialect>,
    pub events: Vec<Event>,
    pub activity: Activity,
    pub lifecycle: Lifecycle,
    /// The kind of answer that the agent needs from a person before it can continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
}

/// Reads the output of one CLI process.
#[derive(Debug)]
pub struct AgentStream {
    splitter: LineSplitter,
    parser: Parser,
    machine: Machine,
    lines: u64,
}

impl AgentStream {
    /// Creates a stream. Without a dialect, the dialect is detected.
    pub fn new(dialect: Option<Dialect>, idle_timeout: Duration, now: Timestamp) -> Self {
        Self {
            splitter: LineSplitter::default(),
            parser: Parser::new(dialect),
            machine: Machine::new(idle_timeout, now),
            lines: 0,
        }
    }

    /// Sets another limit for lines than [`MAX_LINE_BYTES`](crate::MAX_LINE_BYTES).
    #[must_use]
    pub fn with_max_line_bytes(mut self, max_bytes: usize) -> Self {
        self.splitter = LineSplitter::new(max_bytes);
        self
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Gives access to the machine, for facts that no line states: the process has ended, or is idle. A new process
    /// needs [`respawn`](Self::respawn).
    pub fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Starts over for a new process of the same CLI: drops the state, the incomplete line, a detected dialect and
    /// everything remembered of the previous process, and counts lines from 1 again.
    pub fn respawn(&mut self, now: Timestamp) {
        self.splitter.reset();
        self.parser.reset();
        self.machine.respawn(now);
        self.lines = 0;
    }

    /// Reads bytes that the CLI printed. `on_line` gets each unmodified line and its report.
    pub fn push(&mut self, chunk: &[u8], now: Timestamp, mut on_line: impl FnMut(Line<'_>, LineReport)) {
        let Self { splitter, parser, machine, lines } = self;
        splitter.push(chunk, |line| on_line(line, report(line, parser, machine, lines, now)));
    }

    /// Takes in that a part of the output is lost, with half a line before it. The CLI is in this conversation.
    pub fn lose_output(&mut self, session_id: &str, now: Timestamp) {
        self.splitter.reset();
        for event in self.parser.lose_output(session_id) {
            self.machine.apply(&event, now);
        }
    }

    /// Ends the stream. Half a line at its end is reported like a whole one.
    pub fn finish(&mut self, now: Timestamp, mut on_line: impl FnMut(Line<'_>, LineReport)) {
        let Self { splitter, parser, machine, lines } = self;
        splitter.finish(|line| on_line(line, report(line, parser, machine, lines, now)));
    }

    /// Reads a whole line that was written to the CLI. A turn counts as open before the CLI confirms it, but only the
    /// CLI itself ends `spawning`.
    pub fn push_input(&mut self, line: &[u8], now: Timestamp) -> Vec<Event> {
        let events = self.parser.read_input(Line::Whole(line));
        events.iter().for_each(|event| self.machine.apply_input(event, now));
        events
    }
}

fn report(line: Line<'_>, parser: &mut Parser, machine: &mut Machine, lines: &mut u64, now: Timestamp) -> LineReport {
    *lines += 1;
    let events = parser.read(line);
    for event in &events {
        machine.apply(event, now);
    }
    LineReport {
        line: *lines,
        dialect: parser.dialect(),
        events,
        activity: machine.activity(),
        lifecycle: machine.lifecycle(),
        waiting: machine.waiting(),
    }
}
