//! The state of a CLI agent, derived from its events.

use std::mem;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::event::{Event, EventKind};
use crate::ids::IdSet;
use crate::open_requests::{OpenRequest, OpenRequests};

/// Whether the CLI's process is alive, and whether it has work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// Started, and has not printed a line that its dialect knows. Shown to people as `loading`.
    Spawning,
    Working,
    /// Alive, and no turn is open: the countdown to the idle kill runs.
    Idle,
    Killed,
}

/// The agent's activity within its turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    #[default]
    Idle,
    Thinking,
    RunningTool,
    Responding,
}

/// The kind of answer that the agent needs from a person before it can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    Approval,
    Question,
}

/// The state of one CLI agent.
///
/// The machine is lenient: real CLIs reorder their events and invent new ones, so no event is rejected. A test writes a
/// table of every state and event into `docs/cli-agents.md`.
#[derive(Debug, Clone)]
pub struct Machine {
    state: State,
    last_active: Timestamp,
    /// When the countdown of an idle agent begins, if that is later than its last activity.
    counts_from: Timestamp,
    idle_timeout: Duration,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    /// With the turn that was written to the CLI before it was ready.
    Spawning(Turn),
    Idle,
    Working(OpenWork),
    Killed,
}

/// The data of an agent that is not idle.
#[derive(Debug, Clone, Default, PartialEq)]
struct OpenWork {
    activity: Activity,
    turn: Turn,
    tools: IdSet,
    background: IdSet,
    requests: OpenRequests,
}

/// Whether a turn has started that has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    #[default]
    Closed,
    Open,
}

impl Machine {
    /// Starts in `spawning`. An `idle_timeout` of zero means that an idle agent is never ended.
    pub fn new(idle_timeout: Duration, now: Timestamp) -> Self {
        Self { state: State::Spawning(Turn::Closed), last_active: now, counts_from: now, idle_timeout }
    }

    /// Applies one event. Every event of a living process updates `last_active`; after `mark_killed` nothing changes
    /// until `mark_spawning`.
    pub fn apply(&mut self, event: &Event, now: Timestamp) {
        if self.state == State::Killed {
            return;
        }
        self.last_active = now;
        self.state = mem::replace(&mut self.state, State::Idle).after(event);
    }

    /// Applies an event of a line that was written to the CLI. Only the CLI itself ends `spawning`; a turn that was
    /// written earlier is open as soon as the CLI is ready.
    pub fn apply_input(&mut self, event: &Event, now: Timestamp) {
        let State::Spawning(turn) = &mut self.state else { return self.apply(event, now) };
        self.last_active = now;
        if let EventKind::TurnStarted { .. } = event.kind {
            *turn = Turn::Open;
        }
    }

    /// Resets the machine for a new subprocess. Calling it again while it is spawning changes nothing.
    pub fn mark_spawning(&mut self, now: Timestamp) {
        if self.lifecycle() != Lifecycle::Spawning {
            *self = Self::new(self.idle_timeout, now);
        }
    }

    /// Resets the machine for a new subprocess, even while it is spawning.
    pub(crate) fn respawn(&mut self, now: Timestamp) {
        *self = Self::new(self.idle_timeout, now);
    }

    /// Forces the machine to idle. This is not a sign of life, so `last_active` stays.
    pub fn mark_idle(&mut self) {
        if self.state != State::Killed {
            self.state = State::Idle;
        }
    }

    /// Records that the subprocess has ended, for whatever reason.
    pub fn mark_killed(&mut self) {
        self.state = State::Killed;
    }

    pub fn lifecycle(&self) -> Lifecycle {
        match self.state {
            State::Spawning(_) => Lifecycle::Spawning,
            State::Idle => Lifecycle::Idle,
            State::Working(_) => Lifecycle::Working,
            State::Killed => Lifecycle::Killed,
        }
    }

    pub fn activity(&self) -> Activity {
        self.work().map_or(Activity::Idle, |work| work.activity)
    }

    /// Returns the kind of the oldest request without an answer.
    pub fn waiting(&self) -> Option<Waiting> {
        self.work()?.requests.waiting()
    }

    /// Returns the number of open tool calls, without background commands.
    pub fn open_tools(&self) -> usize {
        self.work().map_or(0, |work| work.tools.len())
    }

    /// Returns the number of running background commands.
    pub fn background_commands(&self) -> usize {
        self.work().map_or(0, |work| work.background.len())
    }

    /// Returns whether a turn is open; while the CLI is spawning, whether one was written to it.
    pub fn is_turn_open(&self) -> bool {
        match &self.state {
            State::Spawning(turn) => *turn == Turn::Open,
            State::Working(work) => work.turn == Turn::Open,
            State::Idle | State::Killed => false,
        }
    }

    pub fn last_active(&self) -> Timestamp {
        self.last_active
    }

    /// Begins the idle countdown anew: before `now` the agent was stopped, so that its silence says nothing.
    pub fn restart_countdown(&mut self, now: Timestamp) {
        self.counts_from = now;
    }

    /// Returns since when the agent has been silent, without the time in which it was stopped.
    pub fn silent_since(&self) -> Timestamp {
        self.last_active.max(self.counts_from)
    }

    /// Returns when the idle countdown reaches zero; `None` while it does not run.
    pub fn idle_kill_at(&self) -> Option<Timestamp> {
        if self.state != State::Idle || self.idle_timeout.is_zero() {
            return None;
        }
        let timeout = SignedDuration::try_from(self.idle_timeout).unwrap_or(SignedDuration::MAX);
        Some(self.silent_since().saturating_add(timeout).unwrap_or(Timestamp::MAX))
    }

    fn work(&self) -> Option<&OpenWork> {
        match &self.state {
            State::Working(work) => Some(work),
            State::Spawning(_) | State::Idle | State::Killed => None,
        }
    }
}

impl State {
    fn after(self, event: &Event) -> Self {
        let mut work = match self {
            Self::Killed => return Self::Killed,
            // Probably a warning of a wrapper script: the CLI itself may not be ready.
            Self::Spawning(turn) if !event.kind.is_recognized() => return Self::Spawning(turn),
            // Reading began within a turn.
            Self::Spawning(_) if event.is_own_tool_end() => OpenWork { turn: Turn::Open, ..OpenWork::default() },
            Self::Spawning(turn) => OpenWork { turn, ..OpenWork::default() },
            Self::Idle => OpenWork::default(),
            Self::Working(work) => work,
        };
        work.apply(event);
        work.settle()
    }
}

impl OpenWork {
    fn apply(&mut self, event: &Event) {
        let subagent = event.subagent.as_deref();
        let by_subagent = subagent.is_some();
        match &event.kind {
            EventKind::ToolEnded { id, .. } if by_subagent => self.requests.close_for_tool(id),
            // The agent itself waits for its subagent with a tool call of its own, so its activity is that call's.
            EventKind::Thinking { .. }
            | EventKind::Text { .. }
            | EventKind::ToolStarted { .. }
            | EventKind::TurnStarted { .. }
            | EventKind::TurnEnded { .. }
            | EventKind::Idle
            | EventKind::SessionEnded { .. }
            | EventKind::SessionFailed { .. }
            | EventKind::Error { .. }
                if by_subagent => {}
            EventKind::Thinking { .. } => self.enter_turn(Activity::Thinking),
            EventKind::Text { .. } => self.enter_turn(Activity::Responding),
            EventKind::ToolStarted { id, .. } => {
                self.tools.insert(id);
                self.enter_turn(Activity::RunningTool);
            }
            EventKind::ToolEnded { id, .. } => self.end_tool(id),
            EventKind::TurnStarted { .. } => self.turn = Turn::Open,
            EventKind::TurnEnded { .. }
            | EventKind::Idle
            | EventKind::Error { .. }
            | EventKind::SessionFailed { .. } => self.close_turn(),
            EventKind::SessionEnded { .. } => *self = Self::default(),
            EventKind::BackgroundStarted { id, .. } => {
                self.background.insert(id);
            }
            EventKind::BackgroundEnded { id } => {
                self.background.remove(id);
                self.requests.close_for_subagent(id);
            }
            EventKind::SubagentEnded { id } => self.requests.close_for_subagent(id),
            EventKind::ApprovalAsked(request) => {
                let (id, tool_id) = (request.request_id.as_str(), request.tool_id.as_deref());
                self.requests.add(OpenRequest::new(id, tool_id, subagent, Waiting::Approval));
            }
            EventKind::Question { request_id, tool_id, .. } => {
                let id = request_id.as_str();
                self.requests.add(OpenRequest::new(id, tool_id.as_deref(), subagent, Waiting::Question));
            }
            EventKind::Answered { request_id } => self.requests.close(request_id.as_str()),
            EventKind::SessionStarted { .. }
            | EventKind::Capabilities(_)
            | EventKind::UnsupportedRequest { .. }
            | EventKind::UserText { .. }
            | EventKind::MessageTaken { .. }
            | EventKind::MessageDropped { .. }
            | EventKind::SubagentStarted { .. }
            | EventKind::Usage(_)
            | EventKind::Retry { .. }
            | EventKind::Quota { .. }
            | EventKind::Warning { .. }
            | EventKind::Malformed { .. }
            | EventKind::Unknown { .. }
            | EventKind::Other { .. } => {}
        }
    }

    /// Sets the agent's own activity. It is in a turn, even if the start of the turn was not seen.
    fn enter_turn(&mut self, activity: Activity) {
        self.turn = Turn::Open;
        self.activity = activity;
    }

    /// Ends a call. The late end of a call of an earlier turn opens no turn, because nothing would end that turn.
    fn end_tool(&mut self, id: &str) {
        self.tools.remove(id);
        self.requests.close_for_tool(id);
        if self.turn == Turn::Open && self.tools.is_empty() {
            self.activity = Activity::Responding;
        }
    }

    /// Closes the turn with its calls and requests, because a CLI that gave up on a call never reports its end.
    fn close_turn(&mut self) {
        self.requests.end_turn();
        self.tools = IdSet::default();
        self.turn = Turn::Closed;
    }

    fn settle(mut self) -> State {
        if self.turn == Turn::Closed {
            // A background command is a running tool: ending the process would end it too.
            self.activity = if self.background.is_empty() { Activity::Idle } else { Activity::RunningTool };
        }
        let is_idle = self.turn == Turn::Closed && self.background.is_empty() && self.requests.waiting().is_none();
        if is_idle { State::Idle } else { State::Working(self) }
    }
}
