//! A dashboard with a few processes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use relive_api::{Change, Process, item_of};
use relive_top::{Drawn, Effect, Input, Key, Look, State, draw};
use serde_json::{Value, json};

pub(crate) const PLAIN: Look = Look { color: false, ascii: false };

/// A process: an agent that runs, except for these fields.
pub(crate) fn process(pid: u32, ppid: u32, fields: &Value) -> Process {
    let mut process = json!({
        "pid": pid, "ppid": ppid, "uuid": format!("00000000-0000-7000-8000-{pid:012x}"), "short": format!("{pid:08x}"),
        "parent_uuid": null, "origin_uuid": null, "origin_step": null, "generation": 1, "successor_pid": null,
        "name": format!("agent-{pid}"), "body": "agent", "intent": "fix the test", "cwd": "/work", "state": "running",
        "paused": false, "paused_at": null, "display": "running", "suspend_reason": null, "resume_at": null,
        "ending": null, "status": null, "why": null, "killed_by": null, "killed_from": null, "exit": null, "step": 3,
        "max_steps": null, "tokens_in": 1200, "tokens_out": 34, "max_tokens": null, "cost_usd": 0.25,
        "model": "script/x", "suspended_below": 0, "resumable": false, "stalled": false,
        "created_at": "2026-11-15T12:00:00Z", "started_at": "2026-11-15T12:00:00Z", "dead_at": null,
        "elapsed_ms": 61_000, "session": null, "agent": null
    });
    for (name, value) in fields.as_object().unwrap() {
        process[name] = value.clone();
    }
    serde_json::from_value(process).unwrap()
}

pub(crate) fn paused(reason: &str) -> Value {
    let display = if matches!(reason, "approval" | "question" | "in_doubt") { reason } else { "suspended" };
    json!({"paused": true, "paused_at": "2026-11-15T12:01:00Z", "suspend_reason": reason, "display": display})
}

pub(crate) fn approval(pid: u32, command: &str) -> Process {
    let mut fields = paused("approval");
    fields["approval"] =
        json!({"id": 7, "call": 0, "tool": "shell", "args": {"command": command}, "at": "2026-11-15T12:01:00Z"});
    process(pid, 0, &fields)
}

pub(crate) fn finished(pid: u32, code: i32) -> Process {
    let fields = json!({
        "state": "dead", "display": "dead", "dead_at": "2026-11-15T12:02:00Z", "unseen": true,
        "exit": {"code": code, "reason": if code == 0 { "completed" } else { "no way" }, "err": null}
    });
    process(pid, 0, &fields)
}

/// A dashboard and its clock.
pub(crate) struct Dashboard {
    pub(crate) state: State,
    pub(crate) now_ms: u64,
}

impl Dashboard {
    pub(crate) fn new(look: Look, processes: Vec<Process>) -> Self {
        let mut dashboard = Self { state: State::new(look), now_ms: 0 };
        dashboard.state.set_wall("2026-11-15T12:03:00Z".parse().unwrap());
        dashboard.apply(Input::Reset);
        processes.into_iter().for_each(|process| drop(dashboard.heard(process)));
        dashboard.apply(Input::Ready { incomplete: false });
        dashboard.settle();
        dashboard.pass(1_000);
        dashboard
    }

    pub(crate) fn apply(&mut self, input: Input) -> Vec<Effect> {
        self.state.apply(input, self.now_ms)
    }

    pub(crate) fn heard(&mut self, process: Process) -> Vec<Effect> {
        let change = Change { uuid: process.uuid, item: item_of(&process), process: Some(process) };
        self.apply(Input::Change(Box::new(change)))
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.now_ms += millis;
        self.state.tick(self.now_ms);
    }

    /// Presses keys; what the last one asks for.
    pub(crate) fn press(&mut self, keys: &[Key]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for key in keys {
            effects = self.apply(Input::Key(*key));
            self.settle();
        }
        effects
    }

    pub(crate) fn type_in(&mut self, text: &str) -> Vec<Effect> {
        self.press(&text.chars().map(Key::Char).collect::<Vec<_>>())
    }

    /// Draws a small screen, as the loop does after each input.
    pub(crate) fn settle(&mut self) {
        self.screen(80, 24);
    }

    pub(crate) fn screen(&mut self, width: u16, height: u16) -> String {
        self.state.settle();
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut shown = Drawn::default();
        terminal.draw(|frame| shown = draw(&self.state, frame)).unwrap();
        self.state.note_drawn(shown);
        let buffer = terminal.backend().buffer().clone();
        let rows = (0..height).map(|y| {
            let row: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            row.trim_end().to_owned() + "\n"
        });
        rows.collect()
    }
}
