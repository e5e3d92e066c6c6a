//! The events of a running agent and of those below it, for the one who watches: its words on stdout, all else on stderr.

use std::collections::BTreeMap;

use relive_api::{Created, DiffQuery, WaitAnswer, WorkspaceKind};
use relive_client::{Event, Source};
use relive_core::Uuid;
use serde::Serialize;

use super::questions::is_asked_here;
use crate::client::Client;
use crate::commands::exec::have_one_output;
use crate::commands::incarnations::Incarnations;
use crate::commands::output::Output;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::files::summary_of;
use crate::render::line::Line;
use crate::render::table::fit;
use crate::render::{live, summary};
use crate::terminal::{Paint, without_controls};

/// How much of the output of a command that runs already is shown.
const RECENT_BYTES: u64 = 4096;
/// How often the output of a command is read once more at its end.
const LAST_READS: usize = 16;

/// Whether the events that are shown happened before we came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Now,
    Before,
}

pub(super) struct Show<'a> {
    client: &'a Client<'a>,
    context: &'a Context,
    created: Created,
    incarnations: Incarnations,
    views: BTreeMap<Uuid, View>,
    /// The last thing on stdout was no newline.
    mid_line: bool,
    /// Stdout and stderr are shown together, on a terminal or in one file.
    is_one_place: bool,
    /// Nor on stderr, in the middle of a thought.
    mid_thought: bool,
}

/// One process that is watched.
#[derive(Default)]
struct View {
    /// In front of each of its lines; empty for the one that was asked for.
    label: String,
    /// What it said since its last whole line, where that is shown line by line.
    said: String,
    /// The command that it runs.
    output: Option<Output>,
    /// Whether it waits for an approval: that it continues after the answer needs no line.
    asks: bool,
    /// The numbers of the calls of this step that were shown. A call with wrong arguments is answered and never made.
    called: Vec<u64>,
}

/// The last line of `run --json`.
#[derive(Serialize)]
struct ExitLine<'a> {
    kind: &'static str,
    #[serde(flatten)]
    answer: &'a WaitAnswer,
}

impl<'a> Show<'a> {
    pub(super) fn new(client: &'a Client<'a>, created: Created, generation: u32) -> Self {
        let incarnations = Incarnations::new(created.uuid.to_string(), generation, created.pid);
        let (context, views) = (client.context(), BTreeMap::from([(created.uuid, View::default())]));
        let is_one_place = have_one_output();
        Self { client, context, created, incarnations, views, mid_line: false, is_one_place, mid_thought: false }
    }

    /// Shows a process below the one that was asked for too.
    pub(super) fn add(&mut self, uuid: Uuid, label: String) {
        self.views.entry(uuid).or_insert(View { label, ..View::default() });
    }

    /// One line for whoever watches.
    pub(super) fn say(&mut self, text: &str) {
        self.aside(text, Paint::Dim);
    }

    /// Ends what was begun, so that a question begins at the left edge.
    pub(super) fn end(&mut self) {
        self.end_line();
        self.end_thought();
    }

    /// Ends what a process was saying, so that its question comes after it.
    pub(super) fn end_of(&mut self, who: Uuid) {
        self.end_text_below(who);
        if who == self.created.uuid {
            self.end_text();
        }
        self.end();
    }

    /// Says that a process below has ended.
    pub(super) fn child_ended(&mut self, who: Uuid, reason: &str) {
        self.line(who, &crate::terminal::one_line(reason), Paint::Dim);
    }

    pub(super) async fn event(&mut self, who: Uuid, event: &Event, when: When) -> Outcome<()> {
        let Some(line) = Line::parse(&event.data) else { return Ok(()) };
        let is_root = who == self.created.uuid;
        if is_root && line.kind == "paused" {
            self.client.set_stopped(line.field::<String>("reason").as_deref() == Some("daemon_stop"));
        } else if is_root && line.kind == "resumed" {
            self.client.set_stopped(false);
        }
        if self.context.json {
            if is_root {
                let pid = self.incarnations.pid_of(self.client, &event.id).await?;
                self.context.print_line(&line.to_json(&event.id, pid))?;
            }
            return Ok(());
        }
        if is_root && matches!(line.kind.as_str(), "model" | "call") {
            self.end_text();
        }
        match line.kind.as_str() {
            "text" if is_root => self.text(&live::payload(&line, "text"))?,
            "text" => self.text_below(who, &live::payload(&line, "text")),
            "thinking" if is_root && self.context.err.is_terminal => self.thought(&live::payload(&line, "text")),
            "call" => self.call(who, &line, when),
            "call_result" => self.result(who, &line),
            "resumed" if self.views.get_mut(&who).is_some_and(|view| std::mem::take(&mut view.asks)) => {}
            _ => {
                if let Some(view) = self.views.get_mut(&who).filter(|_| line.kind == "paused") {
                    view.asks = line.field("reason").is_some_and(is_asked_here);
                }
                if let Some((text, paint)) = live::line(&line, who) {
                    self.line(who, &text, paint);
                }
            }
        }
        Ok(())
    }

    /// Shows what commands have printed since the last time.
    pub(super) fn output(&mut self) {
        let running: Vec<Uuid> =
            self.views.iter().filter(|(_, view)| view.output.is_some()).map(|(uuid, _)| *uuid).collect();
        for uuid in running {
            self.read_output(uuid);
        }
    }

    /// Whether a command runs whose output can be shown.
    pub(super) fn has_output(&self) -> bool {
        !self.context.json && self.views.values().any(|view| view.output.is_some())
    }

    pub(super) async fn ended(&mut self, answer: &WaitAnswer) -> Outcome<()> {
        if self.context.json {
            return self.context.print_json(&ExitLine { kind: "exit", answer });
        }
        self.end_thought();
        if std::mem::take(&mut self.mid_line) {
            self.context.print("\n")?;
        }
        let failed = answer.exit.as_ref().is_some_and(|exit| exit.code != 0);
        let paint = if failed { Paint::Red } else { Paint::Dim };
        // What it used is for information only, so a failure to look is none.
        match self.client.process(&self.created.uuid.to_string()).await {
            Ok(process) => {
                self.aside(&summary::line(&process, answer.exit.as_ref()), paint);
                if let Some(hint) = live::resume_hint(&process).filter(|_| failed) {
                    self.aside(&format!("hint: {hint}"), Paint::Dim);
                }
            }
            Err(_) => self.aside(&summary::end(answer.pid, answer.status.as_ref(), answer.exit.as_ref()), paint),
        }
        Ok(())
    }

    /// Says what changed in the files, where that is known.
    pub(super) async fn changed_files(&mut self) {
        if self.context.json {
            return;
        }
        let uuid = self.created.uuid.to_string();
        let pid = self.created.pid;
        // Only for the words: the process has ended whatever becomes of this.
        let diff = self.client.diff(&uuid, DiffQuery::default()).await.ok().filter(|diff| !diff.files.is_empty());
        let workspace = self.client.process(&uuid).await.ok().and_then(|process| process.workspace);
        let copy = match workspace.as_ref().map(|workspace| workspace.kind) {
            Some(WorkspaceKind::Own) => format!(", in a copy (relive merge {pid})"),
            Some(WorkspaceKind::Here) | None => String::new(),
        };
        if let Some(diff) = diff {
            self.aside(&format!("{} (relive diff {pid}){copy}", summary_of(&diff.files)), Paint::Dim);
        }
        if workspace.is_some_and(|workspace| workspace.unknown_steps) {
            let steps = self.steps_without_snapshot(&uuid).await;
            self.aside(&summary::without_snapshot(pid, &steps), Paint::Yellow);
        }
    }

    /// Returns the steps after which no snapshot could be taken, as far as the events tell.
    async fn steps_without_snapshot(&self, uuid: &str) -> Vec<u32> {
        let mut steps = Vec::new();
        let each = async |event: Event| {
            let line = Line::parse(&event.data).filter(|line| line.kind == "snapshot_missing");
            steps.extend(line.and_then(|line| line.field::<u32>("after")));
            Ok::<_, relive_client::Error>(())
        };
        // Without the events the note names no steps.
        let _ = self.client.read(uuid, Source::Events, &mut None, each).await;
        steps
    }

    /// Says that the process was left, and how to come back to it.
    pub(super) fn left(&mut self, text: &str) {
        self.end_text();
        self.aside(text, Paint::Yellow);
    }

    fn call(&mut self, who: Uuid, line: &Line, when: When) {
        if let (Some(view), Some(number)) = (self.views.get_mut(&who), line.field("call")) {
            view.called.push(number);
        }
        self.call_lines(who, line, &live::call(line));
        let sessions = self.context.paths.data.join("steps").join(who.to_string()).join("sessions");
        let output = line.field::<String>("session").and_then(|name| Output::new(sessions, &name));
        if let Some(view) = self.views.get_mut(&who) {
            view.output = match when {
                When::Now => output,
                When::Before => output.map(|output| output.recent(RECENT_BYTES)),
            };
        }
    }

    /// Shows a call: a command completely, anything else as far as it fits.
    fn call_lines(&mut self, who: Uuid, line: &Line, lines: &[String]) {
        for (place, text) in lines.iter().enumerate() {
            if place == 0 && !live::is_command(line) {
                self.line(who, text, Paint::Dim);
            } else {
                self.whole_line(who, text);
            }
        }
    }

    fn result(&mut self, who: Uuid, line: &Line) {
        let mut streamed = false;
        if let (Some(view), Some(number)) = (self.views.get_mut(&who), line.field::<u64>("call")) {
            let open = view.called.iter().position(|call| *call == number);
            match open {
                Some(place) => drop(view.called.remove(place)),
                None => self.call_lines(who, line, &live::unmade_call(line)),
            }
        }
        for _ in 0..LAST_READS {
            if !self.read_output(who) {
                break;
            }
        }
        if let Some(mut output) = self.views.get_mut(&who).and_then(|view| view.output.take()) {
            streamed = output.any;
            if let Some(rest) = output.rest() {
                self.whole_line(who, &format!("{}{rest}", live::OUTPUT_BAR));
            }
        }
        self.line(who, &live::result(line, streamed), Paint::Dim);
    }

    /// Shows new output of a command. Returns whether there may be more at once.
    fn read_output(&mut self, who: Uuid) -> bool {
        let Some(output) = self.views.get_mut(&who).and_then(|view| view.output.as_mut()) else { return false };
        let (lines, more) = output.lines();
        for line in lines {
            self.whole_line(who, &format!("{}{line}", live::OUTPUT_BAR));
        }
        more
    }

    fn text(&mut self, chunk: &str) -> Outcome<()> {
        let Some(end) = chunk.chars().last() else { return Ok(()) };
        self.end_thought();
        self.mid_line = end != '\n';
        // A pipe gets every byte; a terminal nothing it would act on.
        if self.context.out.is_terminal {
            self.context.print(&without_controls(chunk))
        } else {
            self.context.print(chunk)
        }
    }

    /// What a process below says is shown line by line: others speak at the same time.
    fn text_below(&mut self, who: Uuid, chunk: &str) {
        let Some(view) = self.views.get_mut(&who) else { return };
        view.said.push_str(chunk);
        let Some(end) = view.said.rfind('\n') else { return };
        let rest = view.said.split_off(end + 1);
        let lines = std::mem::replace(&mut view.said, rest);
        lines.lines().for_each(|line| self.whole_line(who, &without_controls(line)));
    }

    fn end_text_below(&mut self, who: Uuid) {
        if let Some(said) = self.views.get_mut(&who).map(|view| std::mem::take(&mut view.said))
            && !said.is_empty()
        {
            let label = self.label(who);
            self.aside(&format!("{label}{}", without_controls(&said)), Paint::Dim);
        }
    }

    /// A piece of a thought, as it comes.
    fn thought(&mut self, chunk: &str) {
        self.end_line();
        if let Some(end) = chunk.chars().last() {
            self.context.say_on(&self.context.err.paint(Paint::Dim, &without_controls(chunk)));
            self.mid_thought = end != '\n';
        }
    }

    fn end_thought(&mut self) {
        if std::mem::take(&mut self.mid_thought) {
            self.context.say("");
        }
    }

    /// Nothing of ours begins in the middle of the agent's line where both are shown. Elsewhere its line goes on.
    fn end_line(&mut self) {
        if self.is_one_place {
            self.end_text();
        }
    }

    /// Ends what the agent has said: what it says next is another line.
    fn end_text(&mut self) {
        if self.mid_line {
            self.mid_line = self.context.print("\n").is_err();
        }
    }

    fn label(&self, who: Uuid) -> String {
        self.views.get(&who).map(|view| view.label.clone()).unwrap_or_default()
    }

    /// One line about a process; what is only in passing fits the width.
    fn line(&mut self, who: Uuid, text: &str, paint: Paint) {
        self.end_text_below(who);
        let text = format!("{}{text}", self.label(who));
        match self.context.err.resized().width {
            Some(width) if paint == Paint::Dim => self.aside(&fit(&text, width, &self.context.err), paint),
            Some(_) | None => self.aside(&text, paint),
        }
    }

    /// One line about a process, however long it is.
    fn whole_line(&mut self, who: Uuid, text: &str) {
        self.end_text_below(who);
        let text = format!("{}{text}", self.label(who));
        self.aside(&text, Paint::Dim);
    }

    /// One line on stderr. It must hold nothing that a terminal would act on.
    fn aside(&mut self, text: &str, paint: Paint) {
        self.end_line();
        self.end_thought();
        self.context.say(&self.context.err.paint(paint, text));
    }
}
