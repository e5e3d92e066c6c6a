//! `relive compose down`.

use std::collections::HashSet;
use std::time::Duration;

use relive_api::{Affected, FlowStatus, ListQuery, Process, SignalRequest};
use relive_core::{ErrorCode, Settings, Uuid};

use super::follow::DOWN_WITHIN;
use super::waits::{node_of, word};
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};

pub(super) async fn run(context: &Context, run: &str) -> Outcome<u8> {
    let client = Client::about(context, run).await?;
    // Not every process is a run.
    let flow = client.flow(run).await?;
    let mut affected = end(&client, flow.uuid, &format!("{} {}", word(&flow), flow.pid)).await?;
    let ended_run = affected.affected > 0;
    let after = client.flow(&flow.uuid.to_string()).await?;
    // The processes of a run that somebody has resumed meanwhile belong to that run.
    let alone = if has_ended(&after) { living_below(&client, &after).await? } else { Vec::new() };
    for process in &alone {
        let Affected { pids, failed, .. } = end(&client, process.uuid, &named(process, flow.uuid)).await?;
        affected.pids.extend(pids);
        affected.failed.extend(failed);
    }
    affected.affected = affected.pids.len();
    if context.json {
        context.print_json(&affected)?;
        return Ok(0);
    }
    context.say(&match (ended_run, &after.resume) {
        (false, _) => format!("{} {} has ended already", word(&flow), flow.pid),
        (true, Some(undo)) => format!("ended {} {} (undo: {undo})", word(&flow), flow.pid),
        (true, None) => format!("ended {} {}", word(&flow), flow.pid),
    });
    for process in alone {
        let (process, run) = (named(&process, flow.uuid), word(&flow));
        context.say(&format!("ended {process}, which was alive after the {run} had ended"));
    }
    Ok(0)
}

/// Returns the name of a process in its run with its PID, or the PID alone.
fn named(process: &Process, run: Uuid) -> String {
    let node = node_of(process, run);
    if process.name.is_some() { format!("{node} (PID {})", process.pid) } else { node }
}

/// Ends a process and all below it, and waits for that.
async fn end(client: &Client<'_>, uuid: Uuid, whom: &str) -> Outcome<Affected> {
    /// How often it is told to end, if somebody resumes it meanwhile.
    const TRIES: u32 = 3;
    let (id, request) = (uuid.to_string(), SignalRequest { signal: "SIGTERM".to_owned(), subtree: true });
    let mut affected = Affected::default();
    for _ in 0..TRIES {
        affected = client.signal(&id, &request).await?;
        if affected.affected > 0 {
            break;
        }
        if client.process(&id).await?.dead_at.is_some() {
            return Ok(affected);
        }
    }
    let mut left = DOWN_WITHIN;
    if blocks_term(client, &id).await {
        // The grace period of a signal begins when it is delivered, and one that is blocked never is.
        let grace = Duration::from_millis(Settings::default().grace_ms);
        let grace_s = grace.as_secs();
        client.context().say(&format!("{whom} blocks SIGTERM: it is killed if it is still there after {grace_s} s"));
        if has_ended_within(client, &id, grace).await? {
            return Ok(affected);
        }
        client.signal(&id, &SignalRequest { signal: "SIGKILL".to_owned(), ..request }).await?;
        left -= grace;
    }
    if has_ended_within(client, &id, left).await? {
        return Ok(affected);
    }
    let error = CommandError::new(ErrorCode::Timeout, format!("{whom} has not ended yet"));
    Err(error.with_hint(format!("relive kill -9 --subtree -y {id}")))
}

async fn has_ended_within(client: &Client<'_>, id: &str, within: Duration) -> Outcome<bool> {
    Ok(match client.wait(id, id, Some(within)).await? {
        relive_client::Waited::Answer(answer) => !answer.timed_out,
        relive_client::Waited::TimedOut => false,
    })
}

/// Tells whether a process was sent TERM and blocks it. One that has ended blocks nothing; one that a new daemon has not
/// started again yet has the signal pending and need not block it.
async fn blocks_term(client: &Client<'_>, id: &str) -> bool {
    let has_term = |signals: &[String]| signals.iter().any(|signal| signal == "SIGTERM");
    client.signals(id).await.is_ok_and(|signals| has_term(&signals.pending) && has_term(&signals.blocked))
}

fn has_ended(flow: &FlowStatus) -> bool {
    matches!(flow.state.as_str(), "succeeded" | "failed")
}

/// Returns the living processes below a run that has ended: nodes that a person has resumed by themselves, and children
/// of nodes.
async fn living_below(client: &Client<'_>, flow: &FlowStatus) -> Outcome<Vec<Process>> {
    let mut above: HashSet<Uuid> = flow.nodes.iter().filter_map(|node| node.uuid).collect();
    above.insert(flow.uuid);
    let mut living = client.list(&ListQuery::default()).await?.processes;
    living.retain(|process| {
        let is_below = process.parent_uuid.is_some_and(|parent| above.contains(&parent));
        is_below && process.dead_at.is_none()
    });
    Ok(living)
}
