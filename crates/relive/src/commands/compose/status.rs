//! `relive compose status`.

use relive_api::NodeStatus;
use relive_types::short_id;

use super::waits::{was_ended, word};
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::table::{Align, Cell, Column, draw};
use crate::terminal::one_line;

/// Returns the exit code of a node that ended by itself. What was ended has a reason, and no code of its own.
fn exit_code(node: &NodeStatus) -> String {
    let exit = node.exit.as_ref().filter(|_| !was_ended(&node.state));
    exit.map_or_else(|| "-".to_owned(), |exit| exit.code.to_string())
}

pub(super) async fn run(context: &Context, run: &str) -> Outcome<u8> {
    let flow = Client::about(context, run).await?.flow(run).await?;
    if context.json {
        context.print_json(&flow)?;
        return Ok(0);
    }
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns = [
        left("NODE"),
        left("STATE"),
        right("PID"),
        left("ID"),
        right("STARTS"),
        left("AFTER"),
        left("EXIT"),
        left("REASON"),
    ];
    let row = |node: &NodeStatus| {
        let cells = [
            node.name.clone(),
            node.state.clone(),
            node.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            node.uuid.map_or_else(|| "-".to_owned(), short_id::short),
            node.starts.to_string(),
            if node.depends_on.is_empty() { "-".to_owned() } else { node.depends_on.join(", ") },
            exit_code(node),
            node.reason.as_ref().map_or_else(|| "-".to_owned(), |reason| one_line(reason).to_string()),
        ];
        cells.into_iter().map(Cell::plain).collect()
    };
    let rows: Vec<Vec<Cell>> = flow.nodes.iter().map(row).collect();
    context.print(&draw(&columns, 7, &rows, &context.out))?;
    let what = word(&flow);
    let reason = flow.reason.as_ref().map(|reason| format!(": {}", one_line(reason))).unwrap_or_default();
    context.say(&format!("{what} {} {}{reason}", flow.pid, flow.state));
    for (node, hint) in flow.nodes.iter().filter_map(|node| Some((&node.name, node.hint.as_ref()?))) {
        context.say(&format!("to continue {node}: {hint}"));
    }
    if let Some(resume) = flow.resume.filter(|_| flow.state == "failed" || flow.reason.is_some()) {
        context.say(&format!("to continue the {what}: {resume}"));
    }
    Ok(0)
}
