//! `relive strace`: shows the events of a process.

use relive_client::{Event, Source};

use super::incarnations::Incarnations;
use super::logs::{self, Last};
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::event;
use crate::render::line::Line;
use crate::render::time::Clock;

/// Show the events of a process, one per line
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive strace 5
  relive strace -f 5   follow new events until the process ends
  relive strace 5 --json | jq 'select(.kind==\"call\")'")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// Show new events as they come, until the process ends; Ctrl-C stops showing them
    #[arg(short, long)]
    follow: bool,
    /// Only the last N events
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Show times in UTC instead of local time
    #[arg(long)]
    utc: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    let uuid = process.uuid.to_string();
    let mut incarnations = Incarnations::new(uuid.clone(), process.generation.0, process.pid);
    if context.json && process.generation.0 > 1 {
        // Before the events are read, so that both use one connection.
        incarnations.read(&client).await?;
    }
    let clock = if args.utc { Clock::utc() } else { Clock::local() };
    let mut last = None;
    if args.lines.is_some() || !args.follow {
        let mut kept = Last::new(args.lines);
        client
            .read(&uuid, Source::Events, &mut last, async |event| {
                let text = text(&client, &mut incarnations, &clock, &event).await?;
                kept.push(text).map_or(Ok(()), |text| context.print(&text))
            })
            .await?;
        kept.rest().try_for_each(|text| context.print(&text))?;
    }
    if last.is_none() {
        logs::refuse_unreadable(context, &process)?;
    }
    if args.follow {
        let each = async |event: Event| {
            let text = text(&client, &mut incarnations, &clock, &event).await?;
            context.print(&text)
        };
        crate::stdout::while_read(client.follow(&uuid, Source::Events, &mut last, each)).await?;
    }
    Ok(0)
}

async fn text(client: &Client<'_>, incarnations: &mut Incarnations, clock: &Clock, event: &Event) -> Outcome<String> {
    let Some(line) = Line::parse(&event.data) else { return Ok(String::new()) };
    let context = client.context();
    let text = if context.json {
        line.to_json(&event.id, incarnations.pid_of(client, &event.id).await?)
    } else {
        event::line(&event.id, &line, clock, &context.out)
    };
    Ok(text + "\n")
}
