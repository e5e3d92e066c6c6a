//! `relive inbox`: what waits for a person.

mod ack;
mod daemon;
mod step;
mod watch;

use relive_api::{INBOX_ENDED_MAX, Inbox, Item, ItemKind};
use relive_core::Timestamp;
use serde_json::json;

use self::step::After;
use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::Outcome;
use crate::render::approval::exact;
use crate::render::table::{Align, Cell, Column, Table};
use crate::render::time::age;
use crate::terminal::{Look, Paint};

/// Show what waits for you, and answer it
///
/// On a terminal, each item is shown in full, one after the other, with the keys that answer it. A key acts at once, without
/// Enter; only an answer in your own words is ended with Enter. Space skips an item, which keeps waiting, and q leaves.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive inbox                     step through the items; one key answers each
  relive inbox --list              only list them
  relive inbox --json | jq '.items[].text'
  relive inbox --here              only processes of this directory
  relive inbox ack 5               process 5 has ended, and you have seen it
  relive inbox ack --all           the same for everything that has ended")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only list the items, also on a terminal: no key answers
    #[arg(short, long)]
    list: bool,
    /// Print only the ids of the processes, one per line
    #[arg(short, long)]
    quiet: bool,
    /// Only processes that were started in or below this directory
    #[arg(long)]
    here: bool,
    /// Only list the items, again every second until q or Ctrl-C; with --json print each change as one line
    #[arg(long, conflicts_with = "quiet")]
    watch: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Ack(ack::Args),
}

/// Show the first item of the inbox, and answer it with one key
///
/// First is the process that has been waiting for you longest; what has ended comes last. A key acts at once, without Enter.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive next                      show the first item, and answer it
  relive next --json")]
pub(crate) struct NextArgs {
    /// Only processes that were started in or below this directory
    #[arg(long)]
    here: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    if let Some(Command::Ack(args)) = &args.command {
        return ack::run(context, args).await;
    }
    let here = if args.here { Some(super::run::current_directory()?) } else { None };
    if args.watch {
        return watch::run(context, here.as_deref()).await;
    }
    let Some(client) = Client::open(context, Start::IfHistories).await? else {
        return show(context, args, &Inbox::default());
    };
    let inbox = client.inbox().await?;
    say_incomplete(context, &inbox);
    let inbox = within(inbox, here.as_deref());
    let steps = !args.list && !args.quiet && !context.json && context.out.is_terminal && context.can_ask();
    if steps && !inbox.items.is_empty() {
        return step::through(context, &client, inbox.items, After::Newer { here: here.as_deref() }).await;
    }
    show(context, args, &inbox)
}

pub(crate) async fn next(context: &Context, args: &NextArgs) -> Outcome<u8> {
    let here = if args.here { Some(super::run::current_directory()?) } else { None };
    let client = Client::open(context, Start::IfHistories).await?;
    let inbox = match &client {
        Some(client) => client.inbox().await?,
        None => Inbox::default(),
    };
    say_incomplete(context, &inbox);
    let is_complete = !inbox.incomplete;
    let first = within(inbox, here.as_deref()).items.into_iter().next();
    if context.json {
        context.print_json(&json!({ "item": first }))?;
        return Ok(0);
    }
    let (Some(client), Some(item)) = (client, first) else {
        if is_complete {
            context.say("nothing waits for you");
        }
        return Ok(0);
    };
    if context.out.is_terminal && context.can_ask() {
        return step::through(context, &client, vec![item], After::Nothing).await;
    }
    let process = client.process(&item.uuid.to_string()).await?;
    context.print(&step::described(context, &process, &item).text)?;
    Ok(0)
}

fn say_incomplete(context: &Context, inbox: &Inbox) {
    if let Some(note) = incomplete(inbox) {
        context.say(&note);
    }
}

/// Says why there may be more than is listed.
fn incomplete(inbox: &Inbox) -> Option<String> {
    if !inbox.incomplete {
        return None;
    }
    let ended = inbox.items.iter().filter(|item| item.has_ended()).count();
    Some(if ended >= INBOX_ENDED_MAX {
        format!("note: only the newest {INBOX_ENDED_MAX} ended processes are listed")
    } else {
        let more = if inbox.items.is_empty() { "nothing waits for you so far" } else { "there may be more" };
        format!("note: {more}: the list of ended processes is not complete yet")
    })
}

/// Returns the items of processes that were started in or below a directory.
fn within(mut inbox: Inbox, here: Option<&str>) -> Inbox {
    if let Some(here) = here {
        inbox.items.retain(|item| std::path::Path::new(&item.cwd).starts_with(here));
    }
    inbox
}

fn show(context: &Context, args: &Args, inbox: &Inbox) -> Outcome<u8> {
    if context.json {
        context.print_json(inbox)?;
    } else if args.quiet {
        let ids: String =
            inbox.items.iter().map(|item| format!("{}\n", relive_types::short_id::short(item.uuid))).collect();
        context.print(&ids)?;
    } else if inbox.items.is_empty() && !inbox.incomplete {
        context.say("nothing waits for you");
    } else if !inbox.items.is_empty() {
        context.print(&listed(&inbox.items, Timestamp::now(), &context.out))?;
    }
    Ok(0)
}

const COLUMNS: [Column; 6] = [
    Column { header: "PID", align: Align::Right },
    Column { header: "NAME", align: Align::Left },
    Column { header: "KIND", align: Align::Left },
    Column { header: "SINCE", align: Align::Right },
    Column { header: "TEXT", align: Align::Left },
    Column { header: "ANSWER", align: Align::Left },
];
const NAME_COLUMN: usize = 1;
const TEXT_COLUMN: usize = 4;

/// Lists items as a table.
fn listed(items: &[Item], now: Timestamp, look: &Look) -> String {
    let rows: Vec<Vec<Cell>> = items
        .iter()
        .map(|item| {
            let paint = match item.kind {
                ItemKind::Approval | ItemKind::Question | ItemKind::InDoubt | ItemKind::Failed | ItemKind::Damaged => {
                    Some(Paint::Red)
                }
                ItemKind::Budget | ItemKind::Quota | ItemKind::Credentials | ItemKind::Stalled => Some(Paint::Yellow),
                ItemKind::Finished => Some(Paint::Green),
            };
            vec![
                Cell::plain(item.pid.to_string()),
                Cell::plain(item.name.as_deref().map(exact).unwrap_or_else(|| "-".to_owned())),
                Cell {
                    text: format!("{}{}", item.kind.word(), if item.pause_kept { ", then paused" } else { "" }),
                    paint,
                },
                Cell::plain(age(item.since, now)),
                Cell::plain(exact(&item.text)),
                Cell::plain(item.usual_answer().map(|answer| exact(&answer.command)).unwrap_or_default()),
            ]
        })
        .collect();
    Table::cutting(&COLUMNS, &[NAME_COLUMN, TEXT_COLUMN]).draw(&rows, look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_does_not_hide_what_is_asked() {
        let item = json!({ "id": "5:1", "uuid": "0198f3c1-0000-7000-8000-000000000005", "pid": 5, "name": "x".repeat(64),
            "kind": "approval", "since": "2026-11-15T12:00:00Z", "text": "shell `make`", "cwd": "/w", "answers": [
                { "key": "a", "text": "allow", "command": "relive resolve 5 --allow", "kind": "command" }] });
        let item: Item = serde_json::from_value(item).unwrap();
        let now = "2026-11-15T12:01:00Z".parse().unwrap();
        let shown = listed(&[item], now, &Look { width: Some(80), ascii: true, ..Look::plain() });
        for part in ["PID  NAME ", "TEXT", "ANSWER", "shell `make`", "relive resolve 5 --allow"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(shown.lines().all(|line| line.len() <= 80), "{shown}");
    }

    #[test]
    fn a_list_that_is_not_complete_does_not_say_that_nothing_waits() {
        let inbox = |incomplete| Inbox { items: Vec::new(), incomplete };
        assert_eq!(incomplete(&inbox(false)), None);
        let note = "note: nothing waits for you so far: the list of ended processes is not complete yet";
        assert_eq!(incomplete(&inbox(true)).as_deref(), Some(note));
    }
}
