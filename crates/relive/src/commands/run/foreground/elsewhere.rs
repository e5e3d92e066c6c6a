//! Questions on the screen that are answered elsewhere, and answers that come too late.

use std::time::{Duration, Instant};

use relive_client::Event;
use relive_core::{ErrorCode, Uuid};

use super::Foreground;
use crate::client::Client;
use crate::error::{Kind, Outcome};
use crate::render::line::Line;

/// How often it is checked whether a question was answered elsewhere, where no event tells of it.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Whether an event may tell of the answer to a question.
pub(super) fn may_be_answer(event: &Event) -> bool {
    let kinds = ["resolved", "answered", "resumed", "paused", "ended"];
    Line::parse(&event.data).is_some_and(|line| kinds.contains(&line.kind.as_str()))
}

impl Foreground<'_> {
    /// A message was sent, or an answer.
    pub(super) async fn sent(&mut self, sent: Outcome<Option<String>>) -> Outcome<()> {
        let answering = self.answering.take();
        match (sent, answering) {
            (Ok(said), _) => {
                self.questions.answer_accepted();
                said.iter().for_each(|said| self.show.say(said));
            }
            (Err(error), _) if error.code() == Some(ErrorCode::Timeout) => {
                // Whoever asks a daemon that does not answer would wait for it, and nobody could leave.
                self.client.context().say(&error.to_string());
                self.questions.ask_again();
                if self.questions.is_asking() {
                    self.ask();
                }
                return Ok(());
            }
            (Err(error), answering) => {
                self.client.context().say(&format!("not sent: {error}"));
                self.questions.ask_again();
                if let Some(uuid) = answering {
                    self.look_for_next(uuid).await;
                }
            }
        }
        self.next_question().await
    }

    /// Looks for another question of a process whose answer was refused: if somebody was faster, it may ask something else
    /// by now, and events that a daemon has not written do not tell of it. If there is no daemon, they do so later.
    async fn look_for_next(&mut self, uuid: Uuid) {
        if Client::beside(self.client.context()).await.is_none() {
            return;
        }
        match self.questions.waiting(uuid).await {
            Ok(_) => {}
            // It was removed, and asks nothing.
            Err(error) if error.kind == Kind::Code(ErrorCode::NotFound) => {}
            Err(error) => {
                let message = format!("cannot look up whether it still waits for an answer: {error}");
                self.client.context().say(&format!("{message}\nhint: relive resolve {uuid}"));
            }
        }
    }

    /// Finds out from now on whether the question on the screen was answered elsewhere. Events tell of it at once, but a
    /// daemon that is killed may not have written them.
    pub(super) fn check_answered(&mut self, first: Duration) {
        let client = self.client;
        self.answered = match self.questions.asked().cloned() {
            Some(waiting) => Box::pin(async move { waiting.until_answered(client, first, CHECK_EVERY).await }),
            None => Box::pin(std::future::pending()),
        };
    }

    /// Says why the question on the screen is not asked any more, and continues with what came since.
    pub(super) async fn withdrawn(&mut self, said: &str) -> Outcome<()> {
        self.answered = Box::pin(std::future::pending());
        self.withdrawn_at = Some(Instant::now());
        self.client.context().say(&format!("\n{said}"));
        self.next_question().await
    }
}
