//! Waits for a tree, and says what happens to its nodes.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use relive_api::{Exit, NodeStatus, SignalRequest};
use relive_client::{Event, Source};
use relive_core::{Pid, Timestamp, Uuid};
use tokio::signal::unix::{SignalKind, signal};

use super::waits::{told, word};
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::line::Line;
use crate::terminal::one_line;

/// How long the end of a run is waited for: a program has ten seconds before it is killed.
pub(super) const DOWN_WITHIN: Duration = Duration::from_secs(60);

/// Waits for the end of a tree, and returns its exit code. The first Ctrl-C ends the tree, the second kills it.
pub(crate) async fn follow(context: &Context, client: &Client<'_>, uuid: Uuid) -> Outcome<u8> {
    let cannot = |error| CommandError::internal("cannot listen for Ctrl-C").because(error);
    let mut interrupts = signal(SignalKind::interrupt()).map_err(cannot)?;
    let (id, mut asked, mut last) = (uuid.to_string(), false, None);
    let mut said = Told { context, uuid, states: HashMap::new(), waits: HashMap::new() };
    let answer = {
        let tell = async |event: Event| {
            said.event(client, &event).await;
            Ok::<_, CommandError>(())
        };
        let mut followed = pin!(client.follow(&id, Source::Events, &mut last, tell));
        loop {
            tokio::select! {
                answer = &mut followed => break answer?,
                _ = interrupts.recv() => {
                    let signal = if asked { "SIGKILL" } else { "SIGTERM" };
                    asked = true;
                    client.signal(&id, &SignalRequest { signal: signal.to_owned(), subtree: true }).await?;
                }
            }
        }
    };
    if context.json {
        return Ok(answer.exit_code);
    }
    // A daemon that was killed may not have written all events.
    let flow = client.flow(&id).await?;
    for node in &flow.nodes {
        said.node(node);
    }
    if let Some(exit) = answer.exit.filter(|exit| exit.code != 0) {
        context.say(&format!("error: {} {} {}", word(&flow), answer.pid, exit.reason));
        context.say(&format!("\nhint: relive compose status {}", answer.pid));
    }
    Ok(answer.exit_code)
}

/// What was reported last.
struct Told<'a> {
    context: &'a Context,
    /// The tree.
    uuid: Uuid,
    /// Of each node.
    states: HashMap<String, String>,
    /// Since when each process waits for something that was told.
    waits: HashMap<Uuid, Option<Timestamp>>,
}

impl Told<'_> {
    async fn event(&mut self, client: &Client<'_>, event: &Event) {
        let Some(line) = Line::parse(&event.data).filter(|_| !self.context.json) else { return };
        match line.kind.as_str() {
            "node" => {
                if let (Some(node), Some(state)) = (line.field::<String>("node"), line.field::<String>("state")) {
                    let (exit, reason) = (line.field::<Exit>("exit"), line.field::<String>("reason"));
                    self.state(&node, &state, line.field("child"), (exit.as_ref(), reason.as_deref()));
                    if line.field::<bool>("at_limit") == Some(true) {
                        self.way_on(client, &node).await;
                    }
                }
            }
            "suspended_below" => {
                if let Some(pid) = line.field::<Pid>("pid") {
                    self.waits(client, &pid.to_string()).await;
                }
            }
            "paused" => self.waits(client, &self.uuid.to_string()).await,
            _ => {}
        }
    }

    /// Says how a node continues that a limit has ended.
    async fn way_on(&self, client: &Client<'_>, node: &str) {
        // The status of the run tells it as well.
        let Ok(flow) = client.flow(&self.uuid.to_string()).await else { return };
        let hint = flow.nodes.into_iter().find(|found| found.name == node).and_then(|node| node.hint);
        if let Some(hint) = hint {
            self.context.say(&format!("to continue it: {hint}"));
        }
    }

    /// Says that a process of the tree, or the tree itself, waits for something, if it still does.
    async fn waits(&mut self, client: &Client<'_>, id: &str) {
        // What it waits for is told by every other command as well.
        let Ok(process) = client.process(id).await else { return };
        let said = match (process.uuid == self.uuid, process.paused_at.filter(|_| process.dead_at.is_none())) {
            (true, Some(_)) => {
                let pid = process.pid;
                Some(format!("run {pid} paused\nto continue it: relive resume --subtree {pid}"))
            }
            (true, None) => None,
            (false, _) => told(&process, self.uuid),
        };
        if let Some(said) = said
            && self.waits.insert(process.uuid, process.paused_at) != Some(process.paused_at)
        {
            self.context.say(&said);
        }
    }

    fn node(&mut self, node: &NodeStatus) {
        if node.state != "waiting" {
            let (pid, reason) = (node.pid, node.reason.as_deref());
            self.state(&node.name, &node.state, pid, (node.exit.as_ref(), reason));
        }
    }

    fn state(&mut self, node: &str, state: &str, pid: Option<Pid>, (exit, reason): (Option<&Exit>, Option<&str>)) {
        if self.context.json || self.states.get(node).is_some_and(|told| told == state) {
            return;
        }
        self.states.insert(node.to_owned(), state.to_owned());
        let pid = pid.map(|pid| format!(" (PID {pid})")).unwrap_or_default();
        let reason = match exit.filter(|exit| exit.code != 0) {
            Some(exit) if exit.reason == "exited" => format!(": exit {}", exit.code),
            Some(exit) => format!(": exit {}, {}", exit.code, one_line(&exit.reason)),
            None => reason.map(|reason| format!(": {}", one_line(reason))).unwrap_or_default(),
        };
        let state = if state == "due" { "is tried again" } else { state };
        self.context.say(&format!("{node} {state}{pid}{reason}"));
    }
}
