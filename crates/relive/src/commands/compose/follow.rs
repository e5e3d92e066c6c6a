//! Waits for a tree, and says what happens to its nodes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use relive_api::{Created, Exit, NodeStatus, Process, SignalRequest, WaitAnswer};
use relive_client::{Event, Source};
use relive_core::{Pid, Timestamp, Uuid};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::waits::{told, told_of_tree, was_ended, word};
use crate::client::Client;
use crate::commands::incarnations::Incarnations;
use crate::commands::interrupts::INTERRUPTED;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::line::Line;
use crate::terminal::one_line;

/// How long the end of a run is waited for: a program has ten seconds before it is killed.
pub(super) const DOWN_WITHIN: Duration = Duration::from_secs(60);

/// How often to look for processes of the tree that stand still: those that were paused together with it and stay so when
/// it is resumed alone have no event.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The last line of `compose up --json`.
#[derive(Serialize)]
struct ExitLine<'a> {
    kind: &'static str,
    #[serde(flatten)]
    answer: &'a WaitAnswer,
    nodes: &'a [NodeStatus],
}

/// A tree that was followed until its end.
pub(super) struct Followed {
    /// The exit code of the tree.
    pub(super) code: u8,
    /// Whether its end could be reported.
    pub(super) reported: Outcome<()>,
}

/// Waits for the end of a tree that was just started. The first Ctrl-C ends the tree, the second kills it. An error says
/// nothing about the tree, which may keep running.
pub(super) async fn follow(context: &Context, client: &Client<'_>, created: &Created) -> Outcome<Followed> {
    let cannot = |error| CommandError::internal("cannot listen for Ctrl-C").because(error);
    let mut interrupts = signal(SignalKind::interrupt()).map_err(cannot)?;
    let (id, mut asked, mut last) = (created.uuid.to_string(), false, None);
    let said = RefCell::new(Told::new(context, created.uuid));
    let mut incarnations = Incarnations::new(id.clone(), 1, created.pid);
    let answer = {
        let tell = async |event: Event| {
            let Some(line) = Line::parse(&event.data) else { return Ok(()) };
            if context.json {
                let pid = incarnations.pid_of(client, &event.id).await?;
                return context.print_line(&line.to_json(&event.id, pid));
            }
            report_event(client, &id, &line, &said).await;
            Ok(())
        };
        let mut followed = pin!(client.follow(&id, Source::Events, &mut last, tell));
        let mut watched = pin!(report_suspended(context, &id, &said));
        loop {
            tokio::select! {
                answer = &mut followed => break answer?,
                never = &mut watched => match never {},
                _ = interrupts.recv() => {
                    let (signal, pid) = (if asked { "SIGKILL" } else { "SIGTERM" }, created.pid);
                    context.say(&match asked {
                        false => format!("ending PID {pid} (SIGTERM); press Ctrl-C again to kill it"),
                        true => format!("killing PID {pid}"),
                    });
                    asked = true;
                    client.signal(&id, &SignalRequest { signal: signal.to_owned(), subtree: true }).await?;
                }
            }
        }
    };
    let flow = client.flow(&id).await;
    let code = if asked { INTERRUPTED } else { answer.exit_code };
    if context.json {
        // The exit code is known, also if the nodes are not any more.
        let nodes = flow.as_ref().map_or(&[][..], |flow| &flow.nodes);
        let reported = context.print_json(&ExitLine { kind: "exit", answer: &answer, nodes });
        return Ok(Followed { code, reported });
    }
    let flow = match flow {
        Ok(flow) => flow,
        Err(error) => return Ok(Followed { code, reported: Err(error.into()) }),
    };
    // A daemon that was killed may not have written all events.
    let mut said = said.into_inner();
    for node in &flow.nodes {
        said.node(node);
    }
    if let Some(exit) = answer.exit.filter(|exit| exit.code != 0) {
        context.say(&format!("error: {} {}: {}", word(&flow), answer.pid, exit.reason));
        context.say(&format!("\nhint: relive compose status {}", answer.pid));
    }
    Ok(Followed { code, reported: Ok(()) })
}

/// Reports from time to time which processes of a tree are suspended, unless the tree itself is.
async fn report_suspended(context: &Context, id: &str, said: &RefCell<Told<'_>>) -> Infallible {
    if context.json {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // No daemon is started for this: the wait itself does that.
        let Some(client) = Client::beside(context).await else { continue };
        let Ok(tree) = client.process(id).await else { continue };
        if tree.paused_at.is_some() {
            continue;
        }
        for below in &tree.suspended {
            let process = client.process(&below.pid.to_string()).await.ok();
            said.borrow_mut().waits(process);
        }
    }
}

/// Reports an event of a tree. The daemon is asked before anything is borrowed: its answer may take long.
async fn report_event(client: &Client<'_>, id: &str, line: &Line, said: &RefCell<Told<'_>>) {
    match line.kind.as_str() {
        "node" => {
            let (Some(node), Some(state)) = (line.field::<String>("node"), line.field::<String>("state")) else {
                return;
            };
            let (exit, reason) = (line.field::<Exit>("exit"), line.field::<String>("reason"));
            said.borrow_mut().state(&node, &state, line.field("child"), (exit.as_ref(), reason.as_deref()));
            // The status of the run has the command as well.
            if line.field::<bool>("at_limit") == Some(true)
                && let Ok(flow) = client.flow(id).await
                && let Some(hint) = flow.nodes.into_iter().find(|found| found.name == node).and_then(|node| node.hint)
            {
                client.context().say(&format!("to continue it: {hint}"));
            }
        }
        "suspended_below" => {
            if let Some(pid) = line.field::<Pid>("pid") {
                let process = client.process(&pid.to_string()).await.ok();
                said.borrow_mut().waits(process);
            }
        }
        "paused" => {
            let process = client.process(id).await.ok();
            said.borrow_mut().waits(process);
        }
        _ => {}
    }
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

impl<'a> Told<'a> {
    fn new(context: &'a Context, uuid: Uuid) -> Self {
        Self { context, uuid, states: HashMap::new(), waits: HashMap::new() }
    }

    /// Says that a process of the tree, or the tree itself, waits for something, if it still does.
    fn waits(&mut self, found: Option<Process>) {
        // What it waits for is told by every other command as well.
        let Some(process) = found else { return };
        let said = match (process.uuid == self.uuid, process.paused_at.filter(|_| process.dead_at.is_none())) {
            (true, Some(_)) => Some(told_of_tree(&process)),
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
        if self.states.get(node).is_some_and(|told| told == state) {
            return;
        }
        self.states.insert(node.to_owned(), state.to_owned());
        let pid = pid.map(|pid| format!(" (PID {pid})")).unwrap_or_default();
        let reason = match exit.filter(|exit| exit.code != 0) {
            Some(exit) if was_ended(state) => format!(": {}", one_line(&exit.reason)),
            Some(exit) if exit.reason == "exited" => format!(": exit {}", exit.code),
            Some(exit) => format!(": exit {}, {}", exit.code, one_line(&exit.reason)),
            None => reason.map(|reason| format!(": {}", one_line(reason))).unwrap_or_default(),
        };
        let state = if state == "due" { "is tried again" } else { state };
        self.context.say(&format!("{node} {state}{pid}{reason}"));
    }
}
