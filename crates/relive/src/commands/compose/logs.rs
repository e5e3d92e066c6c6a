//! `relive compose logs`: the output of the nodes of a run.

use std::time::Duration;

use jiff::Timestamp;
use relive_api::{FlowStatus, NodeStatus};
use relive_core::{Body, ErrorCode};

use super::waits::word;
use crate::client::Client;
use crate::commands::logs;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::one_line;

/// How often a node that is followed is looked at while it has no process.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn run(context: &Context, run: &str, node: Option<&str>, follow: bool) -> Outcome<u8> {
    let client = Client::about(context, run).await?;
    let flow = client.flow(run).await?;
    match node {
        Some(node) if follow => follow_node(context, &client, run, &known(&flow, node)?.name).await,
        Some(node) => {
            let node = known(&flow, node)?;
            if node.uuid.is_none() {
                context.say(&no_output(&flow, node));
            }
            match show(context, node, None, Marks::No).await {
                Err(error) if never_was(node, &error) => {
                    context.say(&no_output(&flow, node));
                    Ok(0)
                }
                shown => shown,
            }
        }
        None => {
            let mut code = 0;
            for node in &flow.nodes {
                code = match show(context, node, None, Marks::Yes).await {
                    Ok(shown) => shown.max(code),
                    Err(error) if never_was(node, &error) => {
                        context.say(&no_output(&flow, node));
                        code
                    }
                    // The others have their output all the same.
                    Err(error) if error.code() == Some(ErrorCode::NotFound) => {
                        context.say(&format!("{}: {error}", node.name));
                        code
                    }
                    Err(error) => return Err(error),
                };
            }
            Ok(code)
        }
    }
}

/// Whether the name of a node stands before its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marks {
    Yes,
    No,
}

fn known<'a>(flow: &'a FlowStatus, node: &str) -> Outcome<&'a NodeStatus> {
    flow.nodes.iter().find(|other| other.name == node).ok_or_else(|| {
        let meant = relive_types::suggest::closest(node, flow.nodes.iter().map(|other| other.name.as_str()));
        let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
        let error = CommandError::new(ErrorCode::NotFound, format!("run {} has no node `{node}`{meant}", flow.pid));
        error.with_hint(format!("relive compose status {}", flow.pid))
    })
}

/// Says why a node has no output that could be shown.
fn no_output(flow: &FlowStatus, node: &NodeStatus) -> String {
    let NodeStatus { name, state, reason, .. } = node;
    let reason = reason.as_ref().map(|reason| format!(": {}", one_line(reason))).unwrap_or_default();
    match (state.as_str(), is_over(flow, node)) {
        ("skipped", _) => format!("{name} was skipped{reason}"),
        (_, true) => format!("{name} was not started{reason}"),
        (_, false) if let Some(why) = &flow.reason => {
            let (what, pid) = (word(flow), flow.pid);
            let next = flow.resume.as_ref().map(|resume| format!("\nto continue the {what}: {resume}"));
            let why = one_line(why.strip_prefix("suspended: ").unwrap_or(why));
            format!("{name} has not started yet: {what} {pid} is suspended: {why}{}", next.unwrap_or_default())
        }
        (_, false) => {
            let waits = match node.depends_on.as_slice() {
                _ if state == "running" => ": its process is being created".to_owned(),
                [] => reason,
                on if node.uuid.is_none() => format!(": it waits for {}", on.join(", ")),
                _ => reason,
            };
            format!(
                "{name} has not started yet{waits}\nto follow it: relive compose logs {} --node {name} -f",
                flow.pid
            )
        }
    }
}

/// Tells whether a node is not started any more.
fn is_over(flow: &FlowStatus, node: &NodeStatus) -> bool {
    let is_over = matches!(node.state.as_str(), "succeeded" | "failed" | "stopped" | "halted" | "skipped");
    is_over || matches!(flow.state.as_str(), "succeeded" | "failed")
}

/// Tells whether a node has no output because its process could not be created, or is just being created.
fn never_was(node: &NodeStatus, error: &CommandError) -> bool {
    node.pid.is_none() && error.code() == Some(ErrorCode::NotFound) && error.message.contains("never existed")
}

/// Shows the output of the last process of a node; with `since`, follows what comes after that.
async fn show(context: &Context, node: &NodeStatus, since: Option<Since>, marks: Marks) -> Outcome<u8> {
    let Some(uuid) = node.uuid else { return Ok(0) };
    let is_marked = marks == Marks::Yes && !context.json;
    if is_marked {
        context.print_line(&format!("==> {} <==", node.name))?;
    }
    let (id, name) = (uuid.to_string(), Some(node.name.clone()));
    let (follow, since) = (since.is_some(), since.and_then(|since| since.0));
    logs::run(context, &logs::Args { id, follow, since, node: name, whole_lines: is_marked, ..Default::default() })
        .await
}

/// The moment after which output is shown; all of it if absent.
#[derive(Debug, Clone, Copy)]
struct Since(Option<Timestamp>);

/// Follows a node through all its processes, until it is not started any more.
async fn follow_node(context: &Context, client: &Client<'_>, run: &str, name: &str) -> Outcome<u8> {
    let (mut shown, mut since, mut code, mut told) = (0, None, 0, String::new());
    loop {
        let flow = client.flow(run).await?;
        let node = known(&flow, name)?;
        let is_over = is_over(&flow, node);
        // One that runs and has no PID is just being created.
        let has_process = node.pid.is_some() || is_over || node.state == "due";
        if let Some(uuid) = node.uuid.filter(|_| node.starts > shown && has_process) {
            let process = match client.process(&uuid.to_string()).await {
                Err(error) if never_was(node, &error) => {
                    shown = node.starts;
                    context.say(&no_output(&flow, node));
                    continue;
                }
                process => process?,
            };
            let is_program = process.body == Body::Exec;
            if is_program && process.session.is_none() && process.dead_at.is_none() {
                // Its program is just being started.
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            shown = node.starts;
            let after = since.take_if(|(last, _)| *last == uuid).map(|(_, at)| at);
            code = code.max(show(context, node, Some(Since(after)), Marks::No).await?);
            // An agent that is resumed continues its journal; each run of a program has a log of its own.
            since = (!is_program).then(|| (uuid, Timestamp::now()));
            continue;
        }
        if node.uuid.is_none() {
            let said = no_output(&flow, node);
            // It is followed already, so only a suspended run has a command that helps.
            let said = if flow.reason.is_some() { &said } else { said.lines().next().unwrap_or_default() };
            if told != said {
                context.say(said);
                said.clone_into(&mut told);
            }
        }
        if is_over {
            return Ok(code);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
