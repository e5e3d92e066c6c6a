//! `relive list-resumable`: what `resume` can take up.

use relive_api::{ListQuery, ResumableList};

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::Outcome;
use crate::render::table::{Align, Cell, Column, draw};
use crate::terminal::one_line;

/// How many processes are asked for at a time.
const PAGE: usize = 256;

/// List the processes that `resume` can take up
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive list-resumable
  relive list-resumable --json | jq -r '.processes[].uuid'")]
pub(crate) struct Args {}

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    let mut list = ResumableList { processes: Vec::new(), next: None };
    if let Some(client) = Client::open(context, Start::IfHistories).await? {
        let mut query = ListQuery { limit: Some(PAGE), ..ListQuery::default() };
        loop {
            let page = client.resumable(&query).await?;
            list.processes.extend(page.processes);
            if page.next.is_none() {
                break;
            }
            query.cursor = page.next;
        }
    }
    if context.json {
        context.print_json(&list)?;
    } else if list.processes.is_empty() {
        context.say("nothing to resume");
    } else {
        context.print(&table(context, &list))?;
    }
    Ok(0)
}

fn table(context: &Context, list: &ResumableList) -> String {
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns =
        [left("UUID"), right("PID"), left("STATE"), right("STEP"), left("REASON"), left("LAST ACTIVE"), left("NAME")];
    let rows: Vec<Vec<Cell>> = list
        .processes
        .iter()
        .map(|process| {
            vec![
                Cell::plain(process.uuid.to_string()),
                Cell::plain(process.pid.to_string()),
                Cell::plain(process.display.clone()),
                Cell::plain(process.step.to_string()),
                Cell::plain(process.reason.as_deref().map_or("-".into(), one_line)),
                Cell::plain(process.last_active.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
                Cell::plain(one_line(process.name.as_ref().unwrap_or(&process.intent))),
            ]
        })
        .collect();
    draw(&columns, columns.len() - 1, &rows, &context.out)
}
