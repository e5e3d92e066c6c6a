//! `relive list-resumable`: lists resumable processes.

use relive_api::{ListQuery, Resumable, ResumableList};
use relive_core::{KillSignal, ProcessStatus, Timestamp};
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
        let words = match status {
            // Its name is in the column before.
            ProcessStatus::StartupFailed { stage, errno, .. } => match (stage.as_str(), errno.as_str()) {
                ("execve", "ENOENT") => "program not found".to_owned(),
                ("execve", "EACCES") => "permission denied".to_owned(),
                _ => one_line(reason),
            },
            ProcessStatus::Exited { .. }
            | ProcessStatus::Abandoned
            | ProcessStatus::Killed { .. }
            | ProcessStatus::Faulted { .. } => render::exit::reason(Some(status), reason),
        };
        return match code(status, reason) {
            Some(code) => render::exit::brief(code, &words),
            None => words,
        };
    }
    match serde_json::from_value(reason.as_str().into()) {
        Ok(reason) => render::processes::suspension(reason),
        Err(_) => one_line(reason),
    }
}

/// Returns the exit code, where the status and the reason determine it: a limit has a code of its own.
fn code(status: &ProcessStatus, reason: &str) -> Option<i32> {
    let is_plain = ["interrupted", "context cancelled while paused"].contains(&reason);
    match status {
        ProcessStatus::Exited { code } => Some(*code),
        ProcessStatus::Abandoned | ProcessStatus::Faulted { .. } => Some(1),
        ProcessStatus::Killed { signal: KillSignal::Os(number) } if is_plain => Some(128 + i32::from(*number)),
        ProcessStatus::Killed { signal: KillSignal::Relive(_) } if is_plain => Some(1),
        ProcessStatus::StartupFailed { .. } if reason == "aborted" => None,
        ProcessStatus::StartupFailed { stage, errno, .. } if stage == "execve" && errno == "ENOENT" => Some(127),
        ProcessStatus::StartupFailed { .. } => Some(126),
        ProcessStatus::Killed { .. } => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reason_has_its_exit_code() {
        let check = |status: serde_json::Value, given: &str, expect: &str| {
            let process: Resumable = serde_json::from_value(json!({
                "uuid": "0198f3c1-0000-7000-8000-000000000005", "pid": 5, "name": null, "intent": "x", "step": 1,
                "display": "dead", "last_active": "2026-11-15T12:00:00Z", "reason": given, "status": status,
            }))
            .unwrap();
            assert_eq!(reason(&process), expect);
        };
        check(json!({ "kind": "exited", "code": 2 }), "exited", "exit 2");
        check(json!({ "kind": "exited", "code": 0 }), "completed", "exit 0, completed");
        check(json!({ "kind": "killed", "signal": "SIGTERM" }), "interrupted", "exit 1, SIGTERM");
        check(json!({ "kind": "killed", "signal": "SIGTERM" }), "timed out", "timed out");
        check(json!({ "kind": "faulted", "fault": "no answer" }), "no answer", "exit 1, no answer");
        let absent = json!({ "kind": "startup_failed", "stage": "execve", "errno": "ENOENT", "code": 2 });
        check(absent, "execve: ENOENT", "exit 127, program not found");
        check(serde_json::Value::Null, "user", "paused");
    }
}
