//! The dashboard with many processes, without a terminal: what a screen costs after changes, and when only time passes.
//! And how long it takes until a question is in the inbox.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use relive_api::{Change, Process, item_of};
use relive_client::Client;
use relive_top::{Drawn, Input, Look, State, draw};
use serde_json::json;

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, median_seconds, seconds};
use crate::runs::{self, Work};
use crate::table::{Mark, Row, milliseconds};

/// How many processes the other dashboard has.
const FEW: u32 = 10;
const MANY: u32 = 10_000;
/// How many of them change between two screens: 200 a second, ten screens a second.
const CHANGED: u32 = 20;
const FRAMES: usize = 20;
const FRAME_LIMIT_MS: f64 = 60.0;
/// A screen a second is drawn while only clocks move: this much of a core.
const IDLE_LIMIT_MS: f64 = 50.0;
const SHOWN_LIMIT_MS: f64 = 1_000.0;
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let (mut frames, mut idle) = (Rounds::default(), Rounds::default());
    let (mut few, mut many) = (Dashboard::with(FEW)?, Dashboard::with(MANY)?);
    for _ in 0..options.crowd_rounds.max(1) {
        frames.add(median_seconds(FRAMES, || many.frame(CHANGED))?, median_seconds(FRAMES, || few.frame(CHANGED))?);
        idle.add(median_seconds(FRAMES, || many.frame(0))?, median_seconds(FRAMES, || few.frame(0))?);
    }
    let row = |name: &str, rounds: &Rounds, limit_ms| Row {
        name: name.to_owned(),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  with {FEW}", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::Within { ms: rounds.ours() * 1e3, limit_ms },
    };
    let mut rows = vec![
        row("dashboard: a frame of 10,000", &frames, FRAME_LIMIT_MS),
        row("dashboard: an idle second of 10,000", &idle, IDLE_LIMIT_MS),
    ];
    rows.push(question(place)?);
    Ok(rows)
}

/// A dashboard on a screen that nobody sees.
struct Dashboard {
    state: State,
    terminal: Terminal<TestBackend>,
    count: u32,
    next: u32,
    now_ms: u64,
}

impl Dashboard {
    fn with(count: u32) -> Result<Self> {
        let terminal = Terminal::new(TestBackend::new(200, 60))?;
        let state = State::new(Look { color: true, ascii: false });
        let mut dashboard = Self { state, terminal, count, next: 1, now_ms: 0 };
        dashboard.state.apply(Input::Reset, 0);
        for pid in 1..=count {
            dashboard.change(pid)?;
        }
        dashboard.state.apply(Input::Ready { incomplete: false }, 0);
        Ok(dashboard)
    }

    fn change(&mut self, pid: u32) -> Result<()> {
        let process = process(pid, self.now_ms)?;
        let change = Change { uuid: process.uuid, item: item_of(&process), process: Some(process) };
        self.state.apply(Input::Change(Box::new(change)), self.now_ms);
        Ok(())
    }

    /// Takes in so many changes, and draws.
    fn frame(&mut self, changes: u32) -> Result<()> {
        self.now_ms += 100;
        self.state.tick(self.now_ms);
        for _ in 0..changes.min(self.count) {
            self.change(self.next)?;
            self.next = self.next % self.count + 1;
        }
        self.state.settle();
        let mut shown = Drawn::default();
        self.terminal.draw(|frame| shown = draw(&self.state, frame))?;
        self.state.note_drawn(shown);
        Ok(())
    }
}

/// Half of them run, each tenth below the one before; one in a hundred waits for an approval.
fn process(pid: u32, elapsed_ms: u64) -> Result<Process> {
    let waits = pid.is_multiple_of(100);
    let paused = waits || pid.is_multiple_of(2);
    let ppid = if pid % 10 == 5 { pid - 1 } else { 0 };
    let display = if waits {
        "approval"
    } else if paused {
        "suspended"
    } else {
        "running"
    };
    let reason = if waits {
        json!("approval")
    } else if paused {
        json!("user")
    } else {
        json!(null)
    };
    let process = json!({
        "pid": pid, "ppid": ppid, "uuid": format!("00000000-0000-7000-8000-{pid:012x}"), "short": format!("{pid:08x}"),
        "parent_uuid": null, "origin_uuid": null, "origin_step": null, "generation": 1, "successor_pid": null,
        "name": format!("agent-{pid}"), "body": "agent", "intent": "fix the test", "cwd": "/work", "state": "running",
        "paused": paused, "paused_at": paused.then_some("2026-11-15T12:01:00Z"), "display": display,
        "suspend_reason": reason, "resume_at": null, "ending": null, "status": null, "why": null, "killed_by": null,
        "killed_from": null, "exit": null, "step": 3, "max_steps": null, "tokens_in": 1200, "tokens_out": 34,
        "max_tokens": null, "cost_usd": 0.25, "model": "script/x", "suspended_below": 0, "resumable": false,
        "stalled": false, "created_at": "2026-11-15T12:00:00Z", "started_at": "2026-11-15T12:00:00Z", "dead_at": null,
        "elapsed_ms": elapsed_ms, "session": null, "agent": null
    });
    Ok(serde_json::from_value(process)?)
}

/// From the request that starts an agent until its question is in the inbox, next to the answer of an empty inbox.
fn question(place: &Place) -> Result<Row> {
    let root = place.directory("dashboard")?;
    let work = Work::new(root.join("work"), "  - calls: [{name: ask, args: {question: which?}}]\n")?;
    let (_, daemon) = Daemon::start(&Home::new(root.join("home"))?)?;
    let client = daemon.client()?;
    let peer = median_seconds(FRAMES, || client.call(Client::inbox).map(drop).map_err(Into::into))?;
    let mut rounds = Rounds::default();
    for _ in 0..5 {
        let (shown, ()) = seconds(|| {
            let uuid = runs::begin(&client, &work)?.uuid;
            let begun = Instant::now();
            while !client.call(Client::inbox)?.items.iter().any(|item| item.uuid == uuid) {
                if begun.elapsed() > SHOWN_WITHIN {
                    return Err("a question is not in the inbox".into());
                }
            }
            Ok(())
        })?;
        rounds.add(shown, peer);
    }
    drop(daemon);
    crate::place::remove(&root)?;
    Ok(Row {
        name: "inbox: an agent's first question".to_owned(),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  an empty inbox", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::Within { ms: rounds.ours() * 1e3, limit_ms: SHOWN_LIMIT_MS },
    })
}
