//! The events of a running agent, for the one who watches: its words on stdout, all else on stderr.

use relive_api::{Created, WaitAnswer};
use relive_client::Event;
use relive_core::SuspendReason;
use relive_journal::payload::{Json, Text};
use serde::Serialize;
use tokio::sync::watch;

use crate::client::Client;
use crate::commands::incarnations::Incarnations;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::line::Line;
use crate::render::table::fit;
use crate::terminal::{Paint, one_line, without_controls};

pub(super) struct Show<'a> {
    client: &'a Client<'a>,
    context: &'a Context,
    created: Created,
    incarnations: Incarnations,
    /// Why it is suspended, for whoever answers its questions.
    suspended: watch::Sender<Option<SuspendReason>>,
    /// The last thing on stdout was no newline.
    mid_line: bool,
    /// Nor on stderr, in the middle of a thought.
    mid_thought: bool,
}

/// The last line of `run --json`.
#[derive(Serialize)]
struct ExitLine<'a> {
    kind: &'static str,
    #[serde(flatten)]
    answer: &'a WaitAnswer,
}

impl<'a> Show<'a> {
    pub(super) fn new(
        client: &'a Client<'a>,
        created: Created,
        suspended: watch::Sender<Option<SuspendReason>>,
    ) -> Self {
        let incarnations = Incarnations::new(created.uuid.to_string(), 1, created.pid);
        let context = client.context();
        Self { client, context, created, incarnations, suspended, mid_line: false, mid_thought: false }
    }

    pub(super) fn begun(&mut self) {
        if self.context.err.is_terminal && !self.context.json {
            self.aside(&format!("PID {} {}", self.created.pid, self.created.uuid), Paint::Dim);
        }
    }

    pub(super) async fn event(&mut self, event: &Event) -> Outcome<()> {
        let Some(line) = Line::parse(&event.data) else { return Ok(()) };
        if line.kind == "paused" {
            self.client.set_stopped(line.field::<String>("reason").as_deref() == Some("daemon_stop"));
        } else if line.kind == "resumed" {
            self.client.set_stopped(false);
        }
        if self.context.json {
            let pid = self.incarnations.pid_of(self.client, &event.id).await?;
            return self.context.print_line(&line.to_json(&event.id, pid));
        }
        match line.kind.as_str() {
            "text" => self.text(&line)?,
            "thinking" if self.context.err.is_terminal => self.thought(&payload(&line, "text")),
            "call" => self.aside(&format!("-> {} {}", word(&line, "name"), args(&line)), Paint::Dim),
            "call_result" => self.aside(&result(&line), Paint::Dim),
            "paused" => {
                let reason: Option<SuspendReason> = line.field("reason");
                let verb = match reason {
                    Some(SuspendReason::Approval | SuspendReason::InDoubt) => "resolve",
                    Some(_) | None => "resume",
                };
                let go_on = format!("relive {verb} {}", self.created.uuid);
                let hint = line.field::<String>("hint").map_or(go_on, |hint| one_line(&hint));
                let until =
                    line.field::<String>("resume_at").map(|moment| format!(" until {moment}")).unwrap_or_default();
                let how = format!("paused ({}){until}: {hint}", word(&line, "reason"));
                self.aside(&how, Paint::Yellow);
                self.suspended.send_replace(reason);
            }
            "resumed" => {
                self.aside("resumed", Paint::Yellow);
                self.suspended.send_replace(None);
            }
            "approval" => {
                let what = format!("asks for your approval: {} {}", word(&line, "name"), args(&line));
                self.aside(&what, Paint::Red);
            }
            "model_retry" => {
                let seconds = line.field::<u64>("after_ms").unwrap_or(0).div_ceil(1000);
                self.aside(&format!("{}: asked again in {seconds} s", payload(&line, "text")), Paint::Yellow);
            }
            "compacted" => self.aside("the conversation was too long, and its older part was summed up", Paint::Dim),
            "model_error" => self.aside(&payload(&line, "text"), Paint::Red),
            "in_doubt" => {
                let what = format!("in doubt: {} {}", word(&line, "name"), payload(&line, "reason"));
                self.aside(&what, Paint::Red);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn ended(&mut self, answer: &WaitAnswer) -> Outcome<()> {
        if self.context.json {
            return self.context.print_json(&ExitLine { kind: "exit", answer });
        }
        self.end_thought();
        if std::mem::take(&mut self.mid_line) {
            self.context.print("\n")?;
        }
        if let Some(exit) = answer.exit.as_ref().filter(|exit| exit.code != 0) {
            let how = format!("PID {} ended: {} (resume: relive resume {})", answer.pid, exit.reason, answer.uuid);
            self.aside(&how, Paint::Red);
        }
        Ok(())
    }

    pub(super) fn left(&mut self) {
        let uuid = self.created.uuid;
        self.aside(&format!("left before its end was known: relive wait {uuid}"), Paint::Yellow);
    }

    fn text(&mut self, line: &Line) -> Outcome<()> {
        let chunk = match line.field::<Text>("text") {
            Some(Text::Inline(text)) => text,
            Some(Text::Blob(blob)) => blob.head,
            None => return Ok(()),
        };
        let Some(end) = chunk.chars().last() else { return Ok(()) };
        self.end_thought();
        self.mid_line = end != '\n';
        // A pipe gets every byte; a terminal nothing it would act on.
        if self.context.out.is_terminal {
            self.context.print(&without_controls(&chunk))
        } else {
            self.context.print(&chunk)
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

    /// On a terminal nothing of ours begins in the middle of the agent's line.
    fn end_line(&mut self) {
        if self.mid_line && self.context.out.is_terminal && self.context.err.is_terminal {
            self.mid_line = self.context.print("\n").is_err();
        }
    }

    /// One line on stderr; what is only in passing fits the width.
    fn aside(&mut self, text: &str, paint: Paint) {
        self.end_line();
        self.end_thought();
        let err = &self.context.err;
        let line = match err.width {
            Some(width) if paint == Paint::Dim => fit(&one_line(text), width, err),
            Some(_) | None => one_line(text),
        };
        self.context.say(&err.paint(paint, &line));
    }
}

fn word(line: &Line, name: &str) -> String {
    line.field::<String>(name).unwrap_or_default()
}

fn payload(line: &Line, name: &str) -> String {
    line.field::<Text>(name).map(|text| text.head(usize::MAX).to_owned()).unwrap_or_default()
}

fn args(line: &Line) -> String {
    match line.field::<Json>("args") {
        Some(Json::Inline(raw)) => serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned()),
        Some(Json::Blob(blob)) => blob.head,
        None => String::new(),
    }
}

fn result(line: &Line) -> String {
    let ok = match line.field::<bool>("ok") {
        Some(false) => "failed",
        Some(true) | None => "ok",
    };
    let said = ["result", "summary", "text"].into_iter().map(|name| payload(line, name)).find(|said| !said.is_empty());
    format!("<- {} {ok} {}", word(line, "name"), said.unwrap_or_default())
}
