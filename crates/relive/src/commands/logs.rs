//! `relive logs`: the journal of an agent, for a person; the output of a program.

mod printer;
mod program;

use std::collections::VecDeque;

use relive_client::{Event, Source};

use super::incarnations::Incarnations;
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::journal::Journal;
use crate::render::line::Line;

/// Show what an agent was asked, said and did, or what a program printed
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive logs 5
  relive logs -f -n 20 fixer   the last 20 records or lines, and what comes; Ctrl-C only leaves
  relive logs 5 --json | jq 'select(.kind==\"call_ended\")'")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// Keep showing what comes until the process ends
    #[arg(short, long)]
    follow: bool,
    /// Only the last so many records, of a program lines
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// The time of each line
    #[arg(short, long)]
    timestamps: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    if let Some(session) = &process.session {
        return program::run(context, args, &process, session).await;
    }
    let uuid = process.uuid.to_string();
    let mut shown = Shown {
        context,
        journal: Journal::new(args.timestamps),
        incarnations: Incarnations::new(uuid.clone(), process.generation.0, process.pid),
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
        let each = async |event: Event| {
            let text = shown.text(&client, &event).await?;
            context.print(&text)
        };
        client.follow(&uuid, Source::Journal, &mut last, each).await?;
    }
    Ok(0)
}

struct Shown<'a> {
    context: &'a Context,
    journal: Journal,
    incarnations: Incarnations,
}

impl Shown<'_> {
    async fn text(&mut self, client: &Client<'_>, event: &Event) -> Outcome<String> {
        if !self.context.json {
            return Ok(self.journal.show(&event.data, &self.context.out));
        }
        self.incarnations.learn(&event.id, &event.data);
        let Some(line) = Line::parse(&event.data) else { return Ok(String::new()) };
        let pid = self.incarnations.pid_of(client, &event.id).await?;
        Ok(line.to_json(&event.id, pid) + "\n")
    }
}

/// The last so many of what is not empty; all of it, at once, where there is no number.
pub(crate) struct Last {
    max: Option<usize>,
    kept: VecDeque<String>,
}

impl Last {
    pub(crate) fn new(max: Option<usize>) -> Self {
        Self { max, kept: VecDeque::new() }
    }

    /// What can be shown already.
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
    fn the_last_so_many() {
        let mut last = Last::new(Some(2));
        for text in ["a", "b", "", "c"] {
            assert_eq!(last.push(text.into()), None);
        }
        assert_eq!(last.rest().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(Last::new(None).push("a".into()).as_deref(), Some("a"));
    }
}
