//! The tabs of a process: its journal, steps, events, context and lineage, as the commands of these names show them.

use std::future::Future;
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use relive_api::{Item, Process};
use relive_client::Source;
use relive_core::{Body, Generation, Uuid};
use relive_top::{Compared, Content, Line as Shown, Outcome as TopOutcome, Part, Tab};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc::Sender;

use super::context::Filling;
use crate::client::Client;
use crate::commands::answered::Waiting;
use crate::commands::run::questions;
use crate::error::Outcome;
use crate::render::event;
use crate::render::journal::Journal;
use crate::render::line::Line;
use crate::render::processes::dollars;
use crate::render::steps::{Step, Steps};
use crate::render::time::Clock;
use crate::terminal::Look;

/// How long it takes to continue a stream that ended before its process.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How many lines of a program's output are read first.
const OUTPUT_LINES: &str = "500";

/// Reads the tabs from the daemon.
pub(super) struct Pages<'a> {
    pub(super) client: &'a Client<'a>,
}

impl Content for Pages<'_> {
    fn outcome(&self, item: Item, generation: Generation) -> TopOutcome<'_> {
        Box::pin(async move { Waiting::listed(&item, generation).outcome(self.client).await })
    }

    fn compare(&self, process: Process) -> Compared<'_> {
        Box::pin(async move {
            // A file system may take its time.
            tokio::task::spawn_blocking(move || questions::compared(&process)).await.ok().flatten()
        })
    }

    fn read<'a>(&'a self, uuid: Uuid, tab: Tab, lines: Sender<Part>) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(async move {
            #[cfg(feature = "faults")]
            panic_if_asked(tab);
            let read = match tab {
                Tab::Log => self.log(uuid, &lines).await,
                Tab::Timeline => self.timeline(uuid, &lines).await,
                Tab::Events => self.events(uuid, &lines).await,
                Tab::Context => self.context(uuid, &lines).await,
                Tab::Lineage => self.lineage(uuid, &lines).await,
            };
            if let Err(error) = read {
                let _ = lines.send(Part::More(vec![Shown::plain(format!("error: {error}"))])).await;
            }
        })
    }
}

/// Panics in the Lineage tab, for the test of what a panic leaves behind.
#[cfg(feature = "faults")]
#[expect(clippy::panic, reason = "it was asked for")]
fn panic_if_asked(tab: Tab) {
    if tab == Tab::Lineage && std::env::var("RELIVE_FAULTS").is_ok_and(|on| on == "dashboard-panic") {
        panic!("asked for");
    }
}

/// How much of a line of output is shown.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Cuts output into lines, and lines that are too long.
#[derive(Debug, Default)]
struct Cutter {
    /// The line that has no end yet, as far as it is shown.
    line: Vec<u8>,
    /// Whether more of that line is not shown.
    is_cut: bool,
}

impl Cutter {
    /// Takes in output, and returns the lines that end in it.
    fn cut(&mut self, bytes: &[u8]) -> Vec<Shown> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = LINE_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            self.is_cut |= text.len() > room;
            if ends {
                lines.push(self.take());
            }
        }
        lines
    }

    /// Returns what is after the last end of a line.
    fn rest(&mut self) -> Option<Shown> {
        (!self.line.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> Shown {
        let sign = if std::mem::take(&mut self.is_cut) { "..." } else { "" };
        let line = std::mem::take(&mut self.line);
        Shown::plain(format!("{}{sign}", String::from_utf8_lossy(&line).trim_end()))
    }
}

/// Splits a text into lines of a tab.
fn split(text: &str) -> Vec<Shown> {
    text.lines().map(Shown::plain).collect()
}

impl Pages<'_> {
    /// Reads a stream, and follows it until the process has ended; a lost daemon is waited for.
    async fn follow(
        &self,
        uuid: Uuid,
        source: Source,
        mut each: impl AsyncFnMut(Option<relive_client::Event>) -> Outcome<()>,
    ) -> Outcome<()> {
        let (id, mut last) = (uuid.to_string(), None);
        self.client.read(&id, source, &mut last, async |event| each(Some(event)).await).await?;
        each(None).await?;
        loop {
            if self.client.process(&id).await?.dead_at.is_some() {
                return self.client.read(&id, source, &mut last, async |event| each(Some(event)).await).await;
            }
            let read = self.client.follow_while_it_lasts(&id, source, &mut last, async |event| {
                each(Some(event)).await?;
                each(None).await
            });
            // The daemon may have gone: it is asked again.
            let _ = read.await;
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    async fn log(&self, uuid: Uuid, lines: &Sender<Part>) -> Outcome<()> {
        if self.client.process(&uuid.to_string()).await?.body == Body::Exec {
            return self.output(uuid, lines).await;
        }
        let mut journal = Journal::new(uuid, None);
        let mut ready = Vec::new();
        self.follow(uuid, Source::Journal, async |event| {
            match event {
                Some(event) => ready.extend(split(&journal.show(&event.data, &Look::plain()))),
                None => drop(lines.send(Part::More(std::mem::take(&mut ready))).await),
            }
            Ok(())
        })
        .await?;
        let _ = lines.send(Part::More(ready)).await;
        Ok(())
    }

    /// Reads the output of a program, which is in its session and not in its journal.
    async fn output(&self, uuid: Uuid, lines: &Sender<Part>) -> Outcome<()> {
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command.args(["logs", "-f", "-n", OUTPUT_LINES, &uuid.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let Some(output) = child.stdout.take() else { return Ok(()) };
        let mut reader = BufReader::new(output);
        let mut cutter = Cutter::default();
        loop {
            let bytes = reader.fill_buf().await?;
            let (read, mut ready) = (bytes.len(), cutter.cut(bytes));
            reader.consume(read);
            if read == 0 {
                ready.extend(cutter.rest());
            }
            if !ready.is_empty() && lines.send(Part::More(ready)).await.is_err() || read == 0 {
                return Ok(());
            }
        }
    }

    async fn timeline(&self, uuid: Uuid, lines: &Sender<Part>) -> Outcome<()> {
        let (mut folded, mut shown) = (Steps::default(), Vec::new());
        self.follow(uuid, Source::Journal, async |event| {
            match event {
                Some(event) => folded.fold(&event.data),
                None => {
                    let now: Vec<Shown> = folded.rows.iter().flat_map(of_step).collect();
                    if now != shown {
                        let _ = lines.send(Part::All(now.clone())).await;
                        shown = now;
                    }
                }
            }
            Ok(())
        })
        .await
    }

    async fn events(&self, uuid: Uuid, lines: &Sender<Part>) -> Outcome<()> {
        let clock = Clock::local();
        let mut ready = Vec::new();
        self.follow(uuid, Source::Events, async |event| {
            match event {
                Some(event) => {
                    let line = Line::parse(&event.data);
                    ready.extend(line.map(|line| Shown::plain(event::line(&event.id, &line, &clock, &Look::plain()))));
                }
                None => drop(lines.send(Part::More(std::mem::take(&mut ready))).await),
            }
            Ok(())
        })
        .await?;
        let _ = lines.send(Part::More(ready)).await;
        Ok(())
    }

    async fn context(&self, uuid: Uuid, lines: &Sender<Part>) -> Outcome<()> {
        let (mut filling, mut is_new) = (Filling::default(), true);
        self.follow(uuid, Source::Journal, async |event| {
            match event {
                Some(event) => is_new |= filling.take(&event.data),
                None if std::mem::take(&mut is_new) => drop(lines.send(Part::All(split(&filling.shown()))).await),
                None => {}
            }
            Ok(())
        })
        .await
    }

    async fn lineage(&self, uuid: Uuid, lines: &Sender<Part>) -> Outcome<()> {
        let lineage = self.client.lineage(&uuid.to_string()).await?;
        let mut shown = vec![Shown::plain(lineage.uuid.to_string())];
        for ancestor in &lineage.ancestors {
            let gone = if ancestor.gone { "  (garbage collected)" } else { "" };
            shown.push(Shown::plain(format!("  forked at step {} of {}{gone}", ancestor.step, ancestor.uuid)));
        }
        if lineage.ancestors.is_empty() {
            shown.push(Shown::plain("  not a fork"));
        }
        let _ = lines.send(Part::All(shown)).await;
        Ok(())
    }
}

/// Returns the lines of a step: what it cost, did and changed, and what the model said.
fn of_step(step: &Step) -> Vec<Shown> {
    let at = step.at.map(|at| Clock::local().time(at)).unwrap_or_default();
    let files = step.files_shown().map(|files| format!("  {files}")).unwrap_or_default();
    let calls = if step.calls.is_empty() { String::new() } else { format!("  {}", step.calls.join(",")) };
    let cost = step.cost_usd.map(|cost| format!("  {}", dollars(cost))).unwrap_or_default();
    let head = format!("{:>3} {at}  {} tok{cost}{calls}{files}", step.step, step.tokens_in + step.tokens_out);
    // Of one that is not done nothing can be forked or put back: keys are for the step before it.
    let (of, open) = if step.is_open { (None, "  (not done)") } else { (Some(step.step), "") };
    let mut lines = vec![Shown { text: format!("{head}{open}"), step: of }];
    if !step.text.is_empty() {
        lines.push(Shown { text: format!("      {}", step.text.lines().next().unwrap_or_default()), step: of });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_for_the_last_step_that_is_done() {
        let step = |step, is_open| Step { step, text: "I do".to_owned(), is_open, ..Step::default() };
        let lines: Vec<Shown> = [step(1, false), step(2, true)].iter().flat_map(of_step).collect();
        assert_eq!(lines.iter().map(|line| line.step).collect::<Vec<_>>(), [Some(1), Some(1), None, None]);
        assert!(lines[2].text.ends_with("(not done)"), "{lines:?}");
    }

    #[test]
    fn output_is_cut_into_lines_and_a_line_without_end_costs_no_more_than_a_long_one() {
        let mut cutter = Cutter::default();
        let texts = |lines: Vec<Shown>| lines.into_iter().map(|line| line.text).collect::<Vec<_>>();
        assert_eq!(texts(cutter.cut(b"a\nb\r\nc")), ["a", "b"]);
        assert_eq!(texts(cutter.cut(b"d\n\n")), ["cd", ""]);
        for _ in 0..10_000 {
            assert!(cutter.cut(&[b'x'; 1000]).is_empty());
        }
        assert_eq!(cutter.line.len(), LINE_BYTES_MAX);
        let lines = texts(cutter.cut(b"\nnext\n"));
        assert_eq!((lines[0].len(), lines[1].as_str()), (LINE_BYTES_MAX + 3, "next"));
        assert!(lines[0].ends_with("x..."));
        cutter.cut(b"last");
        assert_eq!(cutter.rest().unwrap().text, "last");
    }
}
