//! Waits for a tree, and says what happens to its nodes.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use relive_api::{Exit, NodeStatus, SignalRequest};
use relive_client::{Event, Source};
use relive_core::{Pid, Uuid};
use tokio::signal::unix::{SignalKind, signal};

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
    let mut told = Told { context, states: HashMap::new() };
    let answer = {
        let tell = async |event: Event| {
            told.event(&event);
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
    for node in client.flow(&id).await?.nodes {
        told.node(&node);
    }
    if let Some(exit) = answer.exit.filter(|exit| exit.code != 0) {
        context.say(&format!("error: run {} {}", answer.pid, exit.reason));
        context.say(&format!("\nhint: relive compose status {}", answer.pid));
    }
    Ok(answer.exit_code)
}

/// The last reported state of each node.
struct Told<'a> {
    context: &'a Context,
    states: HashMap<String, String>,
}

impl Told<'_> {
    fn event(&mut self, event: &Event) {
        let Some(line) = Line::parse(&event.data).filter(|line| line.kind == "node") else { return };
        if let (Some(node), Some(state)) = (line.field::<String>("node"), line.field::<String>("state")) {
            self.state(&node, &state, line.field("child"), line.field::<Exit>("exit").as_ref());
        }
    }

    fn node(&mut self, node: &NodeStatus) {
        if node.state != "waiting" {
            self.state(&node.name, &node.state, node.pid, node.exit.as_ref());
        }
    }

    fn state(&mut self, node: &str, state: &str, pid: Option<Pid>, exit: Option<&Exit>) {
        if self.context.json || self.states.get(node).is_some_and(|told| told == state) {
            return;
        }
        self.states.insert(node.to_owned(), state.to_owned());
        let pid = pid.map(|pid| format!(" (PID {pid})")).unwrap_or_default();
        let reason = exit.filter(|exit| exit.code != 0);
        let reason = reason.map(|exit| match exit.reason.as_str() {
            "exited" => format!(": exit {}", exit.code),
            reason => format!(": exit {}, {}", exit.code, one_line(reason)),
        });
        let reason = reason.unwrap_or_default();
        self.context.say(&format!("{node} {state}{pid}{reason}"));
    }
}
