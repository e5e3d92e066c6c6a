//! What the full-screen interface of claude reports of itself: by hooks, which it is given for one run. The settings of the
//! user are not touched.

use std::collections::BTreeMap;
use std::time::Duration;

use relive_cli_agent::{Activity, AgentStream, Dialect, Event, EventKind, Lifecycle, Waiting};
use relive_core::Timestamp;
use relive_gateway::HOOKS_PATH;
use relive_types::CliAgent;
use serde_json::{Value, json};

use super::agents::dialect_of;
use super::conversation::Conversation;
use super::known::described;
use super::live::Asked;
use super::route::program_of;
use super::subagents::Subagents;

/// The events that are reported. There is no hook by HTTP for the start of a session.
const EVENTS: [&str; 11] = [
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStart",
    "SubagentStop",
    "Notification",
    "Stop",
    "StopFailure",
    "SessionEnd",
];
/// How long claude waits for an answer, in seconds.
const TIMEOUT_S: u64 = 5;
/// The variable with the token for hooks. Claude gives hooks no variable with a key of its own.
pub(super) const TOKEN: &str = "RELIVE_HOOKS_TOKEN";
const SETTINGS: &str = "--settings";

/// Tells whether a program can be told to report. One whose command line names settings keeps those.
pub(super) fn can_report(agent: &CliAgent, argv: &[String]) -> bool {
    let has_settings = argv.iter().any(|word| word == SETTINGS || word.starts_with("--settings="));
    agent.terminal && dialect_of(agent) == Dialect::Claude && program_of(agent) == "claude" && !has_settings
}

/// Returns the arguments by which a program reports to the port. The token is not among them: it is in a variable.
pub(super) fn arguments(port: u16) -> [String; 2] {
    let hook = json!({
        "type": "http",
        "url": format!("http://127.0.0.1:{port}{HOOKS_PATH}"),
        "timeout": TIMEOUT_S,
        "headers": {"Authorization": format!("Bearer ${TOKEN}")},
        "allowedEnvVars": [TOKEN],
    });
    let hooks: Value = EVENTS.iter().map(|event| ((*event).to_owned(), json!([{"hooks": [hook]}]))).collect();
    [SETTINGS.to_owned(), json!({ "hooks": hooks }).to_string()]
}

/// What a program has reported.
pub(super) struct Reports {
    stream: AgentStream,
    /// The hooks up to this number are read.
    read_to: u64,
    has_any: bool,
    tool: Option<(String, Timestamp)>,
    /// The open requests of the program, which are answered in its terminal.
    asked: BTreeMap<String, Asked>,
    turn_since: Option<Timestamp>,
    subagents: Subagents,
}

impl Reports {
    pub(super) fn new(dialect: Dialect, now: Timestamp) -> Self {
        Self {
            stream: AgentStream::new(Some(dialect), Duration::ZERO, now),
            read_to: 0,
            has_any: false,
            tool: None,
            asked: BTreeMap::new(),
            turn_since: None,
            subagents: Subagents::default(),
        }
    }

    /// Reads the hooks up to the last one that the gateway has.
    pub(super) async fn read(&mut self, conversation: &Conversation, last: u64) {
        if last < self.read_to {
            // Another gateway counts anew.
            self.read_to = 0;
        }
        while self.read_to < last {
            let hooks = conversation.body.gateways.hooks(conversation.process.uuid, self.read_to).await;
            // What a gateway that is gone had is lost.
            self.read_to = hooks.last().map_or(last, |hook| hook.number);
            for hook in hooks {
                self.take_in(&hook.body, conversation.now());
            }
        }
    }

    fn take_in(&mut self, body: &str, at: Timestamp) {
        self.has_any = true;
        let mut events = Vec::new();
        self.stream.push(format!("{body}\n").as_bytes(), at, |_, report| events.extend(report.events));
        for event in &events {
            self.learn(event, at);
        }
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
                self.asked.insert(request.request_id.as_str().to_owned(), Asked::of(request));
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

    /// Returns its state; nothing before its first report.
    pub(super) fn state(&self) -> Option<(Lifecycle, Activity)> {
        let machine = self.stream.machine();
        self.has_any.then(|| (machine.lifecycle(), machine.activity()))
    }

    pub(super) fn waiting(&self) -> Option<Waiting> {
        self.stream.machine().waiting()
    }

    /// Returns what it asks about, if that is one thing.
    pub(super) fn asked(&self) -> Option<Asked> {
        self.asked.values().next().filter(|_| self.waiting().is_some()).cloned()
    }

    pub(super) fn tool(&self) -> Option<(String, Timestamp)> {
        self.tool.clone()
    }

    pub(super) fn turn_since(&self) -> Option<Timestamp> {
        self.turn_since
    }

    pub(super) fn subagents(&self) -> Subagents {
        self.subagents.clone()
    }

    /// Tells whether it does nothing after which a model call would follow, as far as it says.
    pub(super) fn is_at_rest(&self) -> bool {
        self.state().is_none_or(|(lifecycle, _)| lifecycle != Lifecycle::Working) || self.waiting().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::agents::built_in;
    use super::*;

    #[test]
    fn only_a_claude_in_its_terminal_without_settings_of_its_own_is_told_to_report() {
        let claude = CliAgent { terminal: true, command: vec!["claude".to_owned()], ..built_in("claude").unwrap() };
        let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(can_report(&claude, &argv(&["claude"])));
        assert!(!can_report(&claude, &argv(&["claude", "--settings", "x"])));
        assert!(!can_report(&claude, &argv(&["claude", "--settings=x"])));
        assert!(!can_report(&CliAgent { terminal: false, ..claude.clone() }, &argv(&["claude"])));
        assert!(!can_report(&CliAgent { command: vec!["mine".to_owned()], ..claude }, &argv(&["mine"])));
        let [_, settings] = arguments(4711);
        let settings: Value = serde_json::from_str(&settings).unwrap();
        assert_eq!(settings["hooks"]["Stop"][0]["hooks"][0]["url"], "http://127.0.0.1:4711/relive/hooks");
    }

    #[test]
    fn the_state_follows_the_reports() {
        let mut reports = Reports::new(Dialect::Claude, Timestamp::UNIX_EPOCH);
        assert!(reports.state().is_none() && reports.is_at_rest());
        let mut tell = |name: &str, more: Value| {
            let mut body = json!({"hook_event_name": name, "session_id": "s"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            reports.take_in(&body.to_string(), Timestamp::UNIX_EPOCH);
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
}
