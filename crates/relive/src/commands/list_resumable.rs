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
    if let Some(status) = &process.status {
        let words = render::exit::reason(Some(status), reason);
        return match process.exit_code {
            Some(code) => render::exit::brief(code.into(), &words),
            None => words,
        };
    }
    match serde_json::from_value(reason.as_str().into()) {
        Ok(reason) => render::processes::suspension(reason),
        Err(_) => one_line(reason),
    }
}

fn table(context: &Context, list: &ResumableList) -> String {
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
                Cell::plain(render::processes::name(process.name.as_deref())),
                Cell::plain(one_line(&process.intent)),
                Cell::plain(reason(process)),
            ]
        })
        .collect();
    let reason = columns.len() - 1;
    Table::cutting(&columns, &[reason - 2, reason - 1, reason]).draw(&rows, &context.out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reason_has_its_exit_code() {
        let check = |status: serde_json::Value, code: Option<u8>, given: &str, expect: &str| {
            let process: Resumable = serde_json::from_value(json!({
                "uuid": "0198f3c1-0000-7000-8000-000000000005", "pid": 5, "name": null, "intent": "x", "step": 1,
                "display": "dead", "last_active": "2026-11-15T12:00:00Z", "reason": given, "status": status,
                "exit_code": code,
            }))
            .unwrap();
            assert_eq!(reason(&process), expect);
        };
        let killed = json!({ "kind": "killed", "signal": "SIGTERM" });
        check(json!({ "kind": "exited", "code": 2 }), Some(2), "exited", "exit 2");
        check(json!({ "kind": "exited", "code": 0 }), Some(0), "completed", "exit 0, completed");
        check(killed.clone(), Some(1), "interrupted", "exit 1, SIGTERM");
        check(killed.clone(), Some(1), "timed out", "exit 1, timed out");
        check(killed, Some(2), "budget_exceeded", "exit 2, budget exceeded");
        check(json!({ "kind": "faulted", "fault": "no answer" }), Some(1), "no answer", "exit 1, no answer");
        let absent = json!({ "kind": "startup_failed", "stage": "execve", "errno": "ENOENT", "code": 2 });
        check(absent, Some(127), "execve: ENOENT", "exit 127, program not found");
        check(serde_json::Value::Null, None, "user", "paused");
    }
}
