//! What the full-screen interface of claude reports of itself: by hooks, which it is given for one run. The settings of the
//! user are not touched.

use std::collections::BTreeMap;
use std::time::Duration;

use relive_cli_agent::{Activity, AgentStream, CLAUDE_HOOKS, Dialect, Event, EventKind, Lifecycle, Waiting};
use relive_core::Timestamp;
use relive_gateway::{HOOKS_PATH, Hook};
use serde_json::{Value, json};

use super::conversation::Conversation;
use super::known::described;
use super::live::{Asked, Offered};
use super::subagents::Subagents;

/// How long claude waits for an answer, in seconds.
const TIMEOUT_S: u64 = 5;
/// The variable with the token for hooks. Claude gives hooks no variable with a key of its own.
pub(super) const TOKEN: &str = "RELIVE_HOOKS_TOKEN";
/// Returns the settings by which a program reports to the port. The token is not among them: it is in a variable.
pub(super) fn settings(port: u16) -> Value {
    let hook = json!({
        "type": "http",
        "url": format!("http://127.0.0.1:{port}{HOOKS_PATH}"),
        "timeout": TIMEOUT_S,
        "headers": {"Authorization": format!("Bearer ${TOKEN}")},
        "allowedEnvVars": [TOKEN],
    });
    CLAUDE_HOOKS.iter().map(|event| ((*event).to_owned(), json!([{"hooks": [hook]}]))).collect()
}

/// What a program has reported.
pub(super) struct Reports {
    dialect: Dialect,
    stream: AgentStream,
    /// The connection to the gateway that the hooks are read from.
    connection: Option<u64>,
    /// The hooks up to this number are read.
    read_to: u64,
    /// Whether the state is known: there was a report, and no later one is missing.
    is_known: bool,
    tool: Option<(String, Timestamp)>,
    /// The open requests of the program, which are answered in its terminal.
    asked: BTreeMap<String, Asked>,
    /// Since when it waits for a person.
    dialog_since: Option<Timestamp>,
    turn_since: Option<Timestamp>,
    subagents: Subagents,
}

impl Reports {
    pub(super) fn new(dialect: Dialect, now: Timestamp) -> Self {
        Self {
            dialect,
            stream: AgentStream::new(Some(dialect), Duration::ZERO, now),
            connection: None,
            read_to: 0,
            is_known: false,
            tool: None,
            asked: BTreeMap::new(),
            dialog_since: None,
            turn_since: None,
            subagents: Subagents::default(),
        }
    }

    /// Reads the hooks up to the last one that the gateway has.
    pub(super) async fn read(&mut self, conversation: &Conversation, last: u64) {
        let (gateways, uuid) = (&conversation.body.gateways, conversation.process.uuid);
        self.follow(gateways.connection(), last, conversation.now());
        while self.read_to < last {
            let hooks = gateways.hooks(uuid, self.read_to).await.unwrap_or_else(|error| {
                tracing::debug!("the hooks of {uuid} cannot be read: {error}");
                Vec::new()
            });
            if !self.take_all(&hooks, conversation.now()) {
                return;
            }
        }
    }

    /// Begins anew if another gateway may count the hooks: the reports to the one before it may be lost, such as the end of a
    /// turn.
    fn follow(&mut self, connection: u64, last: u64, now: Timestamp) {
        if self.connection != Some(connection) || last < self.read_to {
            *self = Self { connection: Some(connection), ..Self::new(self.dialect, now) };
        }
    }

    /// Takes in the next hooks; `false` if there is none, although the gateway has announced it. They are read with the next
    /// change then. Until that, the last report says nothing about the present: a pause must not wait for its end.
    fn take_all(&mut self, hooks: &[Hook], now: Timestamp) -> bool {
        for hook in hooks {
            self.take_in(&hook.body, hook.at.unwrap_or(now));
            self.read_to = hook.number;
        }
        self.is_known &= !hooks.is_empty();
        !hooks.is_empty()
    }

    fn take_in(&mut self, body: &str, at: Timestamp) {
        self.is_known = true;
        let mut events = Vec::new();
        self.stream.push(format!("{body}\n").as_bytes(), at, |_, report| events.extend(report.events));
        for event in &events {
            self.learn(event, at);
        }
        self.dialog_since = self.stream.machine().waiting().map(|_| self.dialog_since.unwrap_or(at));
    }

    fn learn(&mut self, event: &Event, at: Timestamp) {
        self.subagents.learn(event, at);
        let is_own = event.subagent.is_none();
        match &event.kind {
            EventKind::TurnStarted { .. } if is_own => self.turn_since = Some(at),
            EventKind::ToolStarted { name, input, .. } if is_own => {
                self.tool = Some((described(name, input.as_ref()), at));
            }
            EventKind::ToolEnded { .. } if is_own => self.tool = None,
            EventKind::ApprovalAsked(request) => {
                self.asked.insert(request.request_id.as_str().to_owned(), Asked::of(request, Offered::ALL));
            }
            EventKind::Answered { request_id } => drop(self.asked.remove(request_id.as_str())),
            EventKind::TurnEnded { .. } | EventKind::SessionEnded { .. } if is_own => {
                (self.turn_since, self.tool) = (None, None);
                self.asked.clear();
            }
            EventKind::TurnStarted { .. }
            | EventKind::ToolStarted { .. }
            | EventKind::ToolEnded { .. }
            | EventKind::TurnEnded { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::Capabilities(_)
            | EventKind::SessionFailed { .. }
            | EventKind::UnsupportedRequest { .. }
            | EventKind::SessionStarted { .. }
            | EventKind::Error { .. }
            | EventKind::Text { .. }
            | EventKind::Thinking { .. }
            | EventKind::Idle
            | EventKind::UserText { .. }
            | EventKind::MessageTaken { .. }
            | EventKind::MessageDropped { .. }
            | EventKind::BackgroundStarted { .. }
            | EventKind::BackgroundEnded { .. }
            | EventKind::SubagentStarted { .. }
            | EventKind::SubagentEnded { .. }
            | EventKind::Question { .. }
            | EventKind::Usage(_)
            | EventKind::Retry { .. }
            | EventKind::Quota { .. }
            | EventKind::Warning { .. }
            | EventKind::Malformed { .. }
            | EventKind::Unknown { .. }
            | EventKind::Other { .. } => {}
        }
    }

    /// Returns the state of the program; `None` before its first report, and while a later one is missing.
    pub(super) fn state(&self) -> Option<(Lifecycle, Activity)> {
        let machine = self.stream.machine();
        self.is_known.then(|| (machine.lifecycle(), machine.activity()))
    }

    pub(super) fn waiting(&self) -> Option<Waiting> {
        self.stream.machine().waiting().filter(|_| self.is_known)
    }

    /// Returns since when it waits for a person in a dialog.
    pub(super) fn dialog_since(&self) -> Option<Timestamp> {
        self.dialog_since.filter(|_| self.is_known)
    }

    /// Returns the first request that waits for an answer in the terminal.
    pub(super) fn asked(&self) -> Option<Asked> {
        self.asked.values().next().filter(|_| self.waiting().is_some()).cloned()
    }

    pub(super) fn tool(&self) -> Option<(String, Timestamp)> {
        self.tool.clone().filter(|_| self.is_known)
    }

    pub(super) fn turn_since(&self) -> Option<Timestamp> {
        self.turn_since.filter(|_| self.is_known)
    }

    pub(super) fn subagents(&self) -> Subagents {
        self.subagents.clone()
    }

    /// Tells whether no model call is expected: no turn is open, the program waits for an answer, or its state is not known.
    pub(super) fn is_at_rest(&self) -> bool {
        self.state().is_none_or(|(lifecycle, _)| lifecycle != Lifecycle::Working) || self.waiting().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hook_reports_to_the_port() {
        assert_eq!(settings(4711)["Stop"][0]["hooks"][0]["url"], "http://127.0.0.1:4711/relive/hooks");
    }

    #[test]
    fn the_state_follows_the_reports() {
        let mut reports = Reports::new(Dialect::Claude, Timestamp::UNIX_EPOCH);
        assert!(reports.state().is_none() && reports.is_at_rest());
        let mut hooks: Vec<String> = Vec::new();
        let mut tell = |name: &str, more: Value| {
            let mut body = json!({"hook_event_name": name, "session_id": "s"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let at = Timestamp::from_second(hooks.len() as i64).unwrap();
            hooks.push(name.to_owned());
            reports.take_in(&body.to_string(), at);
            assert_eq!(reports.dialog_since(), (name == "PermissionRequest").then_some(at));
            (reports.state().unwrap(), reports.waiting(), reports.is_at_rest())
        };
        let call = json!({"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "ls"}});
        let idle = ((Lifecycle::Working, Activity::Idle), None, false);
        assert_eq!(tell("UserPromptSubmit", json!({"prompt": "x"})), idle);
        let running = (Lifecycle::Working, Activity::RunningTool);
        assert_eq!(tell("PreToolUse", call.clone()), (running, None, false));
        assert_eq!(tell("PermissionRequest", call.clone()), (running, Some(Waiting::Approval), true));
        let after = tell("PostToolUse", call);
        assert_eq!((after.0.0, after.1), (Lifecycle::Working, None));
        assert_eq!(tell("Stop", json!({})), ((Lifecycle::Idle, Activity::Idle), None, true));
        assert!(reports.tool().is_none() && reports.asked().is_none() && reports.turn_since().is_none());
    }

    fn hook(number: u64, name: &str, at: Option<Timestamp>) -> Hook {
        let body = json!({"hook_event_name": name, "session_id": "s", "prompt": "x"}).to_string();
        Hook { number, at, body }
    }

    #[test]
    fn a_turn_began_when_its_hook_came_and_not_when_it_was_read() {
        let (then, now) = (Timestamp::from_second(100).unwrap(), Timestamp::from_second(900).unwrap());
        for (at, expect) in [(Some(then), then), (None, now)] {
            let mut reports = Reports::new(Dialect::Claude, now);
            assert!(reports.take_all(&[hook(1, "UserPromptSubmit", at)], now));
            assert_eq!(reports.turn_since(), Some(expect));
        }
    }

    #[test]
    fn a_report_that_cannot_be_read_blocks_no_pause_and_is_read_later() {
        let now = Timestamp::UNIX_EPOCH;
        let mut reports = Reports::new(Dialect::Claude, now);
        reports.follow(1, 1, now);
        assert!(reports.take_all(&[hook(1, "UserPromptSubmit", None)], now) && !reports.is_at_rest());
        reports.follow(1, 2, now);
        assert!(!reports.take_all(&[], now));
        assert_eq!((reports.read_to, reports.state(), reports.turn_since()), (1, None, None));
        assert!(reports.is_at_rest());
        assert!(reports.take_all(&[hook(2, "Stop", None)], now));
        assert_eq!((reports.read_to, reports.state()), (2, Some((Lifecycle::Idle, Activity::Idle))));
    }

    #[test]
    fn with_another_gateway_nothing_is_reported_yet() {
        let now = Timestamp::UNIX_EPOCH;
        // The other one may have as many hooks, or fewer.
        for (connection, last) in [(2, 1), (2, 0), (1, 0)] {
            let mut reports = Reports::new(Dialect::Claude, now);
            reports.follow(1, 1, now);
            assert!(reports.take_all(&[hook(1, "UserPromptSubmit", None)], now));
            reports.follow(1, 1, now);
            assert!(!reports.is_at_rest(), "the same one changes nothing");
            reports.follow(connection, last, now);
            assert_eq!((reports.read_to, reports.state(), reports.connection), (0, None, Some(connection)));
            assert!(reports.is_at_rest());
        }
    }
}
