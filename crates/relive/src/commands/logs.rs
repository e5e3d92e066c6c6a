//! `relive logs`: shows the journal of an agent, or the output of a program.

mod follow;
mod printer;
mod program;
mod secrets;
mod spawns;

use std::collections::VecDeque;
use std::path::PathBuf;

use jiff::Timestamp;
use relive_api::Process;
use relive_client::{Event, Source};
use relive_core::{Body, ErrorCode};
use relive_types::program::quote;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::incarnations::Incarnations;
use crate::client::{Client, loses_sight};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::journal::Journal;
use crate::render::line::Line;
use crate::render::time::{Clock, parse_since};
use crate::stdout::while_read;

/// Show the conversation and tool calls of an agent, or the output of a program
#[derive(Debug, Default, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive logs 5
  relive logs -f -n 20 fixer     the last 20 records, then new ones as they come
  relive logs -t --since 10m 5   the last ten minutes, with times
  relive logs --spawns fixer     each start of the program of a CLI agent
  relive logs 5 --json | jq 'select(.kind==\"call_ended\")'")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    pub(super) id: String,
    /// Show new output as it comes, until the process ends; Ctrl-C stops showing it
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Only the last N records of an agent, or lines of a program
    #[arg(short = 'n', long, value_name = "N")]
    pub(super) lines: Option<usize>,
    /// Only what came after this time, such as 10m (ago), 22:00 or 2026-11-15T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    pub(super) since: Option<Timestamp>,
    /// Show the time of each line
    #[arg(short, long)]
    pub(super) timestamps: bool,
    /// Show times in UTC instead of local time
    #[arg(long)]
    pub(super) utc: bool,
    /// Show each start of a CLI agent's program instead: its arguments, its directory, the names of its environment variables,
    /// and how it ended; secrets are masked
    #[arg(long, conflicts_with_all = ["follow", "lines", "timestamps"])]
    pub(super) spawns: bool,
    /// The node of a run that the process is, for JSON.
    #[arg(skip)]
    pub(super) node: Option<String>,
    /// Whether output that ends in the middle of a line is followed by a newline.
    #[arg(skip)]
    pub(super) whole_lines: bool,
}

impl Args {
    /// What is written in front of each line, if anything is.
    fn clock(&self) -> Option<Clock> {
        self.timestamps.then(|| if self.utc { Clock::utc() } else { Clock::local() })
    }
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    if args.spawns {
        return spawns::run(&client, args, &process).await;
    }
    // Of a CLI agent its conversation is shown, not the lines that it is made of.
    if let Some(session) = process.session.as_ref().filter(|_| process.body != Body::Cli) {
        return tokio::select! {
            shown = while_read(program::run(context, args, &process, session)) => shown,
            refused = loses_sight(&client, &args.id, process.uuid), if args.follow => Err(refused),
        };
    }
    let uuid = process.uuid.to_string();
    let mut shown = Shown {
        context,
        journal: Journal::new(process.pid, args.clock()),
        since: args.since,
        node: args.node.as_deref(),
        incarnations: Incarnations::new(uuid.clone(), process.generation.0, process.pid),
        any: false,
    };
    let mut last = None;
    if args.lines.is_some() || !args.follow {
        let mut kept = Last::new(args.lines);
        client
            .read(&uuid, Source::Journal, &mut last, async |event| {
                let text = shown.text(&client, &event).await?;
                kept.push(text).map_or(Ok(()), |text| context.print(&text))
            })
            .await?;
        kept.rest().try_for_each(|text| context.print(&text))?;
    }
    if args.follow {
        while_read(follow::run(&client, &process, &mut shown, last)).await?;
    }
    if !shown.any {
        refuse_unreadable(context, &process)?;
        // A journal begins with two records before anybody can know its process.
        let path = directory_of(context, &process).join("steps.jsonl");
        let message = format!("the journal of PID {} is missing or empty: {}", process.pid, path.display());
        let error = CommandError::new(ErrorCode::NotFound, message);
        return Err(error.with_hint(format!("relive strace {}", process.pid)));
    }
    Ok(0)
}

/// Refuses to show nothing of a process whose journal may not be read.
pub(super) fn refuse_unreadable(context: &Context, process: &Process) -> Outcome<()> {
    let directory = directory_of(context, process);
    let path = directory.join("steps.jsonl");
    let Err(error @ Errno::ACCESS) = access(&path, Access::READ_OK) else { return Ok(()) };
    let message = format!("{}: the journal of PID {} cannot be read", path.display(), process.pid);
    let hint = format!("chmod -R u+rwX {}", quote(&directory.display().to_string()));
    Err(CommandError::internal(message).because(std::io::Error::from(error)).with_hint(hint))
}

fn directory_of(context: &Context, process: &Process) -> PathBuf {
    context.paths.data.join("steps").join(process.uuid.to_string())
}

struct Shown<'a> {
    context: &'a Context,
    journal: Journal,
    since: Option<Timestamp>,
    node: Option<&'a str>,
    incarnations: Incarnations,
    /// Whether there was any record.
    any: bool,
}

impl Shown<'_> {
    async fn text(&mut self, client: &Client<'_>, event: &Event) -> Outcome<String> {
        self.any = true;
        // What is left out is read all the same: a result is named by its call.
        let text = if self.context.json { String::new() } else { self.journal.show(&event.data, &self.context.out) };
        self.incarnations.learn(&event.id, &event.data);
        let Some(line) = Line::parse(&event.data) else { return Ok(String::new()) };
        if self.since.zip(line.at).is_some_and(|(since, at)| at < since) {
            return Ok(String::new());
        }
        if !self.context.json {
            return Ok(text);
        }
        let pid = self.incarnations.pid_of(client, &event.id).await?;
        let object = line.to_json(&event.id, pid);
        Ok(match (self.node, object.strip_prefix('{')) {
            (Some(node), Some(fields)) => format!("{{\"node\":{},{fields}\n", serde_json::Value::from(node)),
            (None, _) | (_, None) => object + "\n",
        })
    }
}

/// Keeps the last items that are not empty; without a number, passes everything on at once.
pub(crate) struct Last {
    max: Option<usize>,
    kept: VecDeque<String>,
}

impl Last {
    pub(crate) fn new(max: Option<usize>) -> Self {
        Self { max, kept: VecDeque::new() }
    }

    /// Returns what can already be shown.
    pub(crate) fn push(&mut self, text: String) -> Option<String> {
        let Some(max) = self.max else { return Some(text) };
        if !text.is_empty() {
            self.kept.push_back(text);
        }
        if self.kept.len() > max {
            self.kept.pop_front();
        }
        None
    }

    pub(crate) fn rest(self) -> impl Iterator<Item = String> {
        self.kept.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut last = Last::new(Some(2));
        for text in ["a", "b", "", "c"] {
            assert_eq!(last.push(text.into()), None);
        }
        assert_eq!(last.rest().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(Last::new(None).push("a".into()).as_deref(), Some("a"));
    }
}
