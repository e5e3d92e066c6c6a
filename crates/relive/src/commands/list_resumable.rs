//! `relive list-resumable`: lists resumable processes.

use relive_api::{ListQuery, Resumable, ResumableList};
use relive_core::Timestamp;
use relive_types::short_id::short;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::Outcome;
use crate::render;
use crate::render::table::{Align, Cell, Column, Table};
use crate::render::time::age;
use crate::terminal::one_line;

/// How many processes are requested at a time.
const PAGE: usize = 256;

/// List the processes that can be resumed
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

/// Returns why it does not run, in the words of `ps`.
fn reason(process: &Resumable) -> String {
    let Some(reason) = &process.reason else { return "-".to_owned() };
    if process.status.is_some() {
        return render::exit::reason(process.status.as_ref(), reason);
    }
    match serde_json::from_value(reason.as_str().into()) {
        Ok(reason) => render::processes::suspension(reason),
        Err(_) => one_line(reason),
    }
}

fn table(context: &Context, list: &ResumableList) -> String {
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns = [right("PID"), left("ID"), left("STATE"), right("STEP"), right("AGE"), left("NAME"), left("REASON")];
    let now = Timestamp::now();
    let rows: Vec<Vec<Cell>> = list
        .processes
        .iter()
        .map(|process| {
            vec![
                Cell::plain(process.pid.to_string()),
                Cell::plain(short(process.uuid)),
                Cell::plain(process.display.clone()),
                Cell::plain(process.step.to_string()),
                Cell::plain(age(process.last_active, now)),
                Cell::plain(one_line(process.name.as_ref().unwrap_or(&process.intent))),
                Cell::plain(reason(process)),
            ]
        })
        .collect();
    let (name, reason) = (columns.len() - 2, columns.len() - 1);
    Table::cutting(&columns, &[name, reason]).draw(&rows, &context.out)
}
