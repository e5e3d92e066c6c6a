//! `logs -f` of an agent: its records as they come, the output of its commands while they run, and why it waits.

use std::time::Duration;

use relive_api::Process;
use relive_client::{Event, Source};

use super::Shown;
use crate::client::Client;
use crate::commands::output::Output;
use crate::commands::watched::{Seen, Watched};
use crate::error::{CommandError, Outcome};
use crate::render::line::Line;
use crate::render::live;
use crate::terminal::Paint;

/// How often the output of a command that runs is looked at.
const OUTPUT_EVERY: Duration = Duration::from_millis(100);
/// How often it is read once more at the end of the command.
const LAST_READS: usize = 16;

/// Shows records after `last` until the process ends.
pub(super) async fn run(
    client: &Client<'_>,
    process: &Process,
    shown: &mut Shown<'_>,
    last: Option<String>,
) -> Outcome<()> {
    let uuid = process.uuid;
    let mut watched = Watched::new(client);
    watched.add(uuid, Source::Journal, last);
    if !client.context().json {
        let mut last = None;
        // What happened before is in the journal.
        client.read(&uuid.to_string(), Source::Events, &mut last, async |_| Ok::<_, CommandError>(())).await?;
        watched.add(uuid, Source::Events, last);
    }
    let mut running = Running { client, process, output: None };
    let mut ticks = tokio::time::interval(OUTPUT_EVERY);
    loop {
        tokio::select! {
            seen = watched.next() => match seen {
                Seen::Event(_, Source::Journal, event) => {
                    running.record(&event)?;
                    client.context().print(&shown.text(client, &event).await?)?;
                }
                Seen::Event(_, Source::Events, event) => running.event(&event)?,
                Seen::Ended(_, Source::Journal, answer) => return answer.map(|_| ()),
                Seen::Ended(_, Source::Events, _) => {}
            },
            _ = ticks.tick(), if running.output.is_some() => drop(running.read()?),
        }
    }
}

/// The command that runs.
struct Running<'a> {
    client: &'a Client<'a>,
    process: &'a Process,
    output: Option<Output>,
}

impl Running<'_> {
    /// A record begins or ends a command.
    fn record(&mut self, event: &Event) -> Outcome<()> {
        let context = self.client.context();
        let Some(line) = Line::parse(&event.data).filter(|_| !context.json) else { return Ok(()) };
        match line.kind.as_str() {
            "call_started" if live::is_command(&line) => {
                let sessions = context.paths.data.join("steps").join(self.process.uuid.to_string()).join("sessions");
                let seq = event.id.rsplit('.').next().unwrap_or_default();
                self.output = Output::new(sessions, &format!("call-{seq}"));
            }
            "call_ended" | "doubt" | "ended" => {
                for _ in 0..LAST_READS {
                    if !self.read()? {
                        break;
                    }
                }
                if let Some(rest) = self.output.take().and_then(|mut output| output.rest()) {
                    self.print(&rest)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows why it waits, which only the events say.
    fn event(&self, event: &Event) -> Outcome<()> {
        let context = self.client.context();
        let line = Line::parse(&event.data).filter(|line| matches!(line.kind.as_str(), "model_retry" | "stalled"));
        match line.and_then(|line| live::line(&line, self.process.uuid)) {
            Some((text, _)) => context.print_line(&context.out.paint(Paint::Yellow, &format!("-- {text}"))),
            None => Ok(()),
        }
    }

    /// Shows what the command has printed. Returns whether there may be more at once.
    fn read(&mut self) -> Outcome<bool> {
        let Some(output) = &mut self.output else { return Ok(false) };
        let (lines, more) = output.lines();
        lines.iter().try_for_each(|line| self.print(line))?;
        Ok(more)
    }

    fn print(&self, line: &str) -> Outcome<()> {
        let context = self.client.context();
        context.print_line(&context.out.paint(Paint::Dim, &format!("{}{line}", live::OUTPUT_BAR)))
    }
}
