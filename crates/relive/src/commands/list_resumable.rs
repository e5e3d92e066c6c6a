//! `relive list-resumable`: lists resumable processes.

use relive_api::{ListQuery, Process, ResumableList};
use relive_core::Timestamp;
use relive_types::short_id::short;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::Outcome;
use crate::render;
use crate::render::table::{Align, Cell, Column, Table, fit};
use crate::render::time::age;
use crate::terminal::{Look, one_line};

/// How many processes are requested at a time.
const PAGE: usize = 256;
/// How much of an intent is shown on a terminal that is narrower than this.
const INTENT_MAX: usize = 14;
const NARROW: usize = 110;

/// List the processes that can be resumed
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive list-resumable
  relive list-resumable --json | jq -r '.processes[].uuid'")]
pub(crate) struct Args {}

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    let client = Client::open(context, Start::IfHistories).await?;
    if context.json {
        context.print_json(&resumable(client.as_ref()).await?)?;
        return Ok(0);
    }
    let processes = processes(client.as_ref()).await?;
    if processes.is_empty() {
        context.say("nothing to resume");
    } else {
        context.print(&table(context, &processes))?;
    }
    Ok(0)
}

async fn resumable(client: Option<&Client<'_>>) -> Outcome<ResumableList> {
    let mut list = ResumableList { processes: Vec::new(), next: None };
    let mut query = ListQuery { limit: Some(PAGE), ..ListQuery::default() };
    while let Some(client) = client {
        let page = client.resumable(&query).await?;
        list.processes.extend(page.processes);
        if page.next.is_none() {
            break;
        }
        query.cursor = page.next;
    }
    Ok(list)
}

/// Returns the same as `ps` has them: a person reads the same words in both.
async fn processes(client: Option<&Client<'_>>) -> Outcome<Vec<Process>> {
    let mut processes = Vec::new();
    let mut query = ListQuery { all: true, limit: Some(PAGE), ..ListQuery::default() };
    while let Some(client) = client {
        let page = client.list(&query).await?;
        processes.extend(page.processes.into_iter().filter(|process| process.resumable));
        if page.next.is_none() {
            break;
        }
        query.cursor = page.next;
    }
    Ok(processes)
}

/// On a narrow terminal the reason needs the room.
fn intent(intent: &str, look: &Look) -> String {
    let is_narrow = look.width.is_some_and(|width| width < NARROW);
    if is_narrow { fit(intent, INTENT_MAX, look) } else { intent.to_owned() }
}

fn table(context: &Context, processes: &[Process]) -> String {
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns = [
        right("PID"),
        left("ID"),
        left("STATE"),
        right("STEP"),
        right("AGE"),
        left("NAME"),
        left("INTENT"),
        left("REASON"),
    ];
    let now = Timestamp::now();
    let rows: Vec<Vec<Cell>> = processes
        .iter()
        .map(|process| {
            let last_active = process.dead_at.or(process.paused_at).unwrap_or(process.created_at);
            vec![
                Cell::plain(process.pid.to_string()),
                Cell::plain(short(process.uuid)),
                Cell::plain(process.display.clone()),
                Cell::plain(process.step.to_string()),
                Cell::plain(age(last_active, now)),
                Cell::plain(render::processes::name(process.name.as_deref())),
                Cell::plain(intent(&one_line(&process.intent), &context.out)),
                render::processes::Column::Detail.cell("", process, now, &context.out),
            ]
        })
        .collect();
    let reason = columns.len() - 1;
    Table::cutting(&columns, &[reason - 2, reason - 1, reason]).draw(&rows, &context.out)
}
