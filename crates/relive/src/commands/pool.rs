//! `relive pool`: the CLI agents that run or wait.

use relive_api::{PoolReport, PooledAgent};

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::Outcome;
use crate::render::size::bytes;
use crate::render::table::{Align, Cell, Column, Table};
use crate::terminal::one_line;

/// Show the CLI agents that run or wait for a place
///
/// `pool: {max_running: 8, max_memory_mb: 0, idle_timeout: 30m}` in config.yaml sets the limits; 0 means none. If all places
/// are taken, the agent that has been idle longest is ended for the first one that waits, and continues with its next
/// message.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive pool
  relive pool --json | jq '.agents[] | select(.state == \"queued\").pid'")]
pub(crate) struct Args {}

pub(crate) async fn run(context: &Context, _: &Args) -> Outcome<u8> {
    let report = match Client::open(context, Start::IfHistories).await? {
        Some(client) => client.agent_pool().await?,
        None => PoolReport::default(),
    };
    if context.json {
        context.print_json(&report)?;
    } else if report.agents.is_empty() {
        context.say("no CLI agent runs or waits");
    } else {
        context.print(&table(context, &report.agents))?;
        context.say(&summary(&report));
    }
    Ok(0)
}

fn table(context: &Context, agents: &[PooledAgent]) -> String {
    let column = |header, align| Column { header, align };
    let columns = [
        column("PID", Align::Right),
        column("ID", Align::Left),
        column("NAME", Align::Left),
        column("STATE", Align::Left),
        column("MEMORY", Align::Right),
        column("DOING", Align::Left),
        column("INTENT", Align::Left),
    ];
    let cells = |agent: &PooledAgent| -> Vec<Cell> {
        let shown = |text: Option<&str>| text.map_or("-".to_owned(), one_line);
        [
            agent.pid.to_string(),
            agent.short.clone(),
            shown(agent.name.as_deref()),
            agent.state.clone(),
            agent.memory_mb.map_or("-".to_owned(), |mb| bytes(mb << 20)),
            shown(agent.doing.as_deref()),
            one_line(&agent.intent),
        ]
        .map(Cell::plain)
        .into()
    };
    let rows: Vec<Vec<Cell>> = agents.iter().map(cells).collect();
    Table::cutting(&columns, &[2, 5, 6]).draw(&rows, &context.out)
}

/// Describes the pool in one line.
fn summary(report: &PoolReport) -> String {
    let PoolReport { limits, running, queued, memory_mb, .. } = report;
    let of = |limit: Option<u64>| limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
    let memory = match limits.max_memory_mb {
        Some(max) => format!(", {} of {}", bytes(memory_mb << 20), bytes(max << 20)),
        None if *memory_mb > 0 => format!(", {}", bytes(memory_mb << 20)),
        None => String::new(),
    };
    format!("{running}{} running{memory}, {queued} queued", of(limits.max_running))
}

#[cfg(test)]
mod tests {
    use relive_api::PoolLimits;

    use super::*;

    #[test]
    fn the_summary_names_limits_where_there_are_some() {
        let check = |limits: (Option<u64>, Option<u64>), memory_mb, expect: &str| {
            let limits = PoolLimits { max_running: limits.0, max_memory_mb: limits.1, idle_timeout_ms: None };
            let report = PoolReport { limits, running: 2, queued: 1, memory_mb, agents: Vec::new() };
            assert_eq!(summary(&report), expect);
        };
        check((Some(8), None), 0, "2 of 8 running, 1 queued");
        check((None, None), 300, "2 running, 300 MiB, 1 queued");
        check((Some(8), Some(2048)), 300, "2 of 8 running, 300 MiB of 2 GiB, 1 queued");
    }
}
