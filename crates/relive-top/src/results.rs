//! What became of commands, and of what was read for an item.

use relive_api::Item;
use unicode_width::UnicodeWidthStr as _;

use crate::state::{Effect, Overlay, State};

/// How much of a command is shown at least beside what came of it.
const COMMAND_MIN: usize = 24;
/// How a command begins the line that says that there is nothing to do.
const NOTHING_TO_DO: &str = "nothing to do: ";
/// How much of what came of it is shown at least beside a command that fits.
const RESULT_MIN: usize = 24;

/// The end of a command that the dashboard started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub command: String,
    pub ok: bool,
    pub text: String,
    pub output: Output,
}

/// Where the output of a command goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Into a window, if it has more than a line: it is what was asked for.
    Window,
    /// Its first line to the status line.
    StatusLine,
    /// To the status line, for how many of several processes it did something.
    Each { count: usize },
    /// It says what another command would do, which is run if the person agrees.
    Plan { then: Vec<String> },
}

impl Output {
    /// Returns where the output of a command about so many processes goes.
    pub(crate) fn of_each(count: usize) -> Self {
        if count > 1 { Self::Each { count } } else { Self::StatusLine }
    }
}

impl State {
    /// Takes in the end of a command.
    pub(crate) fn finished(&mut self, finished: Finished) {
        let Finished { command, ok, text, output } = finished;
        self.own.end(&command, self.now_ms);
        if !ok && self.answering.as_ref().is_some_and(|(_, answering)| *answering == command) {
            // It was not accepted.
            self.answering = None;
        }
        self.end_draft(&command, ok);
        let lines: Vec<String> = text.lines().map(crate::text::clean).collect();
        let said = match output {
            Output::Each { count } => &told_of_each(&lines, count, ok),
            Output::Window if ok => telling(&lines).unwrap_or("it has printed nothing"),
            Output::Window | Output::StatusLine | Output::Plan { .. } => {
                telling(&lines).unwrap_or(if ok { "done" } else { "failed" })
            }
        };
        // A command that is cut cannot be typed again; of one that is cut anyway, what came of it is worth more room.
        let beside = |result: usize| self.drawn.width.saturating_sub(result + ": ".len());
        let whole = Some(beside(RESULT_MIN)).filter(|room| command.width() <= *room);
        let room = whole.unwrap_or_else(|| beside(said.width()).max(COMMAND_MIN));
        let is_known = self.drawn.width > 0;
        let typed = if is_known { crate::text::fit(&command, room, self.look.ascii) } else { command.clone() };
        self.status = format!("{typed}: {said}");
        self.status_since = None;
        match output {
            // It would change nothing, and says so.
            Output::Plan { .. } if ok && lines.iter().any(|line| line.starts_with(NOTHING_TO_DO)) => {}
            Output::Plan { then } if ok => {
                if self.overlay.is_some() {
                    "not asked, because a window was open: press r again".clone_into(&mut self.status);
                    return;
                }
                let mut lines = lines;
                lines.push("a running process is paused first; what is there now is kept, and can be put back".into());
                self.overlay = Some(Overlay::Confirm { lines, from: 0, then, since_ms: self.now_ms });
            }
            Output::Window if lines.len() > 1 => {
                self.overlay = Some(Overlay::Text { title: command, lines, from: 0 });
            }
            // What went wrong is read in full, unless the person is in the middle of something.
            Output::Plan { .. } | Output::Window | Output::StatusLine | Output::Each { .. } => {
                let fits = lines.len() <= 1 && self.status.width() <= self.drawn.width;
                if !ok && !fits && self.overlay.is_none() {
                    self.overlay = Some(Overlay::Text { title: command, lines, from: 0 });
                }
            }
        }
    }

    /// Asks what the selected item would change, once for each that writes a file.
    pub(crate) fn compare(&mut self) -> Option<Effect> {
        let item = self.item()?;
        let process = &self.known.get(&item.uuid)?.process;
        process.approval.as_ref().filter(|call| call.tool == "write")?;
        if self.compared.as_ref().is_some_and(|(id, _)| *id == item.id) {
            return None;
        }
        let (id, process) = (item.id.clone(), Box::new(process.clone()));
        self.compared = Some((id.clone(), None));
        Some(Effect::Compare { id, process })
    }

    /// Returns what an item would change in a file, as far as it was compared with the disk.
    pub(crate) fn compared(&self, item: &Item) -> Option<&[String]> {
        let (id, lines) = self.compared.as_ref()?;
        lines.as_deref().filter(|_| *id == item.id)
    }
}

/// Says for how many of several processes a command did something, and which is the first for which it did nothing.
fn told_of_each(lines: &[String], count: usize, ok: bool) -> String {
    let results = lines.iter().filter(|line| !line.is_empty() && !line.starts_with("hint: ")).count();
    if !ok && results < count {
        // One error for all of them, as of a daemon that does not answer.
        return telling(lines).unwrap_or("failed").to_owned();
    }
    let mut undone = lines.iter().filter(|line| line.starts_with("error: ") || changed_nothing(line));
    match undone.next() {
        None if ok => format!("done for all {count}"),
        None => telling(lines).unwrap_or("failed").to_owned(),
        Some(first) => format!("done for {} of {count}; {first}", count.saturating_sub(1 + undone.count())),
    }
}

fn changed_nothing(line: &str) -> bool {
    line.ends_with("nothing changed") || line.ends_with("nothing to do")
}

/// Returns the line that tells most of what a command did: one that says that nothing changed tells less than any other.
fn telling(lines: &[String]) -> Option<&str> {
    let told = || lines.iter().map(String::as_str).filter(|line| !line.is_empty());
    told().find(|line| !changed_nothing(line)).or_else(|| told().next())
}
