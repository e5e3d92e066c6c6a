//! Lines that are sent now or not at all: one that arrives later could be an answer to something that its writer does not
//! see any more.

use std::time::{Duration, Instant};

use relive_client::{Error, RequestDeadlines, Retry};
use relive_core::ErrorCode;

use super::{Foreground, NOT_SENT};
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::typed::{Keyboard, Typed, Untaken};

/// How long a line may wait for the daemon: one that has crashed is started again by whoever watches.
const WITHIN: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(50);

/// How long a line may be unanswered. A daemon that did not take it within [`WITHIN`] does not take it any more.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// Returns a client for one line. It starts no daemon, and gives up soon.
pub(super) async fn daemon_now(context: &Context) -> Outcome<relive_client::Client> {
    let begun = Instant::now();
    loop {
        if let Some(daemon) = Client::beside(context).await {
            let deadlines = RequestDeadlines { accept_within: Some(WITHIN), answer_within: Some(ANSWERED_WITHIN) };
            return Ok(daemon.with_retry(Retry { within: WITHIN, every: AGAIN }).with_deadlines(deadlines));
        }
        if begun.elapsed() > WITHIN {
            return Err(CommandError::unavailable("no daemon is running (to start it: relive daemon start)"));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Says of a line without an answer that it does not act later.
pub(super) fn delivered<T>(answer: Result<T, Error>) -> Outcome<T> {
    answer.map_err(|error| {
        // It came too late: the daemon answers, and has done nothing.
        if error.code() == Some(ErrorCode::Timeout) {
            return CommandError::unavailable(error.to_string());
        }
        let Error::Silent(within) = error else { return error.into() };
        let silence = format!("the daemon has not answered for {} s", within.as_secs());
        let message = format!("{silence}: it is not known whether the line was sent; it will not be sent again");
        CommandError::new(ErrorCode::Timeout, message)
    })
}

impl Foreground<'_> {
    /// Returns what was typed, unless it is several lines at once: each is a message, and none answers a question, because one
    /// of them could be `y`.
    pub(super) fn single(&mut self, typed: Typed) -> Option<Typed> {
        let context = self.client.context();
        match typed {
            Typed::Lines(_) if self.questions.is_asking() => {
                context.say("not taken: several lines at once answer nothing; type one line, then Enter");
                self.questions.show_prompt();
                None
            }
            Typed::Lines(lines) => {
                if let Some(keyboard) = &mut self.keyboard {
                    keyboard.take_each(lines);
                }
                None
            }
            Typed::TooLong => {
                context
                    .say("not sent: a terminal cuts lines at 4095 bytes; relive inbox takes an answer of up to 64 KiB");
                if self.questions.is_asking() {
                    self.questions.show_prompt();
                }
                None
            }
            Typed::Unended => {
                context.say(&format!("\n{NOT_SENT}"));
                Some(Typed::End)
            }
            typed @ (Typed::Line(_) | Typed::Detach(_) | Typed::End) => Some(typed),
        }
    }

    /// Gives the terminal back, and says what of the last lines was not sent.
    pub(super) async fn end_typing(&mut self, has_ended: bool) {
        let context = self.client.context();
        let untaken = self.keyboard.take().map_or(Untaken::Nothing, Keyboard::close);
        if self.is_sending {
            // An agent that ends while a line is on its way refuses it. Whoever leaves does not wait for that.
            let sent =
                if has_ended { tokio::time::timeout(ANSWERED_WITHIN, &mut self.sending).await.ok() } else { None };
            match sent {
                Some(Ok(said)) => said.iter().for_each(|said| self.show.say(said)),
                Some(Err(error)) if error.code() == Some(ErrorCode::Timeout) => context.say(&error.to_string()),
                Some(Err(error)) => context.say(&format!("not sent: {error}")),
                None => context.say("the line that was typed last may not have been sent"),
            }
        }
        if untaken == Untaken::Dropped {
            context.say(&format!("\n{NOT_SENT}"));
        }
    }
}
