//! `relive strace`: the events, as they happened.

use relive_client::{Event, Source};

use super::incarnations::Incarnations;
use super::logs::Last;
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::event;
use crate::render::line::Line;

/// Show the events of a process, one line each
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive strace 5
  relive strace -f 5   also what comes, until the process ends; Ctrl-C only leaves
  relive strace 5 --json | jq 'select(.kind==\"call\")'")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// Keep showing new events until the process ends
    #[arg(short, long)]
    follow: bool,
    /// Only the last so many events
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    let uuid = process.uuid.to_string();
    let mut incarnations = Incarnations::new(uuid.clone(), process.generation.0, process.pid);
    if context.json && process.generation.0 > 1 {
        // Before the events are read, so that both are read on one connection.
        incarnations.read(&client).await?;
    }
    let mut last = None;
    if args.lines.is_some() || !args.follow {
        let mut kept = Last::new(args.lines);
        client
            .read(&uuid, Source::Events, &mut last, async |event| {
                let text = text(context, &client, &mut incarnations, &event).await?;
                kept.push(text).map_or(Ok(()), |text| context.print(&text))
            })
            .await?;
        kept.rest().try_for_each(|text| context.print(&text))?;
    }
    if args.follow {
        let each = async |event: Event| {
            let text = text(context, &client, &mut incarnations, &event).await?;
            context.print(&text)
        };
        client.follow(&uuid, Source::Events, &mut last, each).await?;
    }
    Ok(0)
}

async fn text(
    context: &Context,
    client: &Client<'_>,
    incarnations: &mut Incarnations,
    event: &Event,
) -> Outcome<String> {
    let Some(line) = Line::parse(&event.data) else { return Ok(String::new()) };
    let text = if context.json {
        line.to_json(&event.id, incarnations.pid_of(client, &event.id).await?)
    } else {
        event::line(&event.id, &line, &context.out)
    };
    Ok(text + "\n")
}
