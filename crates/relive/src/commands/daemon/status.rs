//! `relive daemon status`.

use relive_api::DaemonStatus;
use serde::Serialize;
use serde_json::json;

use crate::client::{Client, Start, refuse_unreached};
use crate::context::Context;
use crate::error::Outcome;
use crate::render::time::Clock;
use crate::terminal::without_controls;

/// The same as for `systemctl status`.
const NOT_RUNNING: u8 = 3;

#[derive(Serialize)]
struct Running<'a> {
    running: bool,
    daemon: &'a DaemonStatus,
}

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    let Some(client) = Client::open(context, Start::Never).await? else {
        refuse_unreached(context)?;
        if context.json {
            context.print_json(&json!({ "running": false }))?;
        } else {
            context.print_line("the daemon is not running")?;
        }
        return Ok(NOT_RUNNING);
    };
    let status = client.daemon().await?;
    if context.json {
        print_json(context, &status)?;
    } else {
        context.print(&text(&status))?;
    }
    Ok(0)
}

pub(super) fn print_json(context: &Context, status: &DaemonStatus) -> Outcome<()> {
    context.print_json(&Running { running: true, daemon: status })
}

fn text(status: &DaemonStatus) -> String {
    let mut lines = vec![
        format!(
            "the daemon is running (OS pid {}, version {}, since {})",
            status.os_pid,
            status.version,
            Clock::local().second(status.started_at)
        ),
        format!("data       {}", status.data_dir),
        format!("socket     {}", status.socket),
        format!("processes  {} running, {} suspended", status.running, status.suspended),
        format!("disk       {} free", crate::render::size::bytes(status.free_bytes)),
    ];
    lines.extend(status.warnings.iter().map(|warning| format!("warning: {}", without_controls(warning))));
    lines.join("\n") + "\n"
}
