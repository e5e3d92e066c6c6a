//! Questions of an agent to whoever watches it on a terminal.
//!
//! The answer is read by a thread of its own, which nobody waits for: a question that was answered elsewhere, and the end
//! of the agent, need no key to be pressed.

use std::io::BufRead as _;

use relive_api::{Resolution, ResolveRequest};
use relive_core::SuspendReason;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::error::Outcome;
use crate::render::parked;

/// Who answers.
pub(super) struct Prompt<'a> {
    client: &'a Client<'a>,
    uuid: &'a str,
    /// Lines that were typed; none before the first question.
    lines: Option<mpsc::Receiver<String>>,
    /// The question that is asked.
    asking: Option<u64>,
}

impl<'a> Prompt<'a> {
    pub(super) fn new(client: &'a Client<'a>, uuid: &'a str) -> Self {
        Self { client, uuid, lines: None, asking: None }
    }

    /// It was suspended, or resumed.
    pub(super) async fn suspended(&mut self, reason: Option<SuspendReason>) -> Outcome<()> {
        self.asking = None;
        let context = self.client.context();
        if reason != Some(SuspendReason::Approval) || context.json || !context.can_ask() {
            return Ok(());
        }
        // Somebody else may have answered already.
        let Some(asked) = self.client.process(self.uuid).await?.approval else { return Ok(()) };
        self.asking = Some(asked.id);
        // What was typed before the question is no answer to it.
        let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
        context.say_on(&format!("allow {}? [y]es [n]o [a]lways ", parked::call(&asked)));
        if self.lines.is_none() {
            self.lines = Some(listen());
        }
        Ok(())
    }

    /// The next line that answers a question. What is typed while there is none is passed over.
    pub(super) async fn answer(&mut self) -> Option<ResolveRequest> {
        let Some(lines) = &mut self.lines else { return std::future::pending().await };
        loop {
            let Some(line) = lines.recv().await else {
                // Nobody is there any more: it keeps waiting, and `resolve` answers it.
                self.lines = None;
                return None;
            };
            let Some(id) = self.asking else { continue };
            if let Some(request) = parse(&line) {
                self.asking = None;
                return Some(ResolveRequest { id: Some(id), ..request });
            }
            self.client.context().say_on("[y]es, [n]o or [a]lways? ");
        }
    }
}

fn parse(line: &str) -> Option<ResolveRequest> {
    let (outcome, always) = match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => (Resolution::Allow, false),
        "a" | "always" => (Resolution::Allow, true),
        "n" | "no" => (Resolution::Deny, false),
        _ => return None,
    };
    Some(ResolveRequest { outcome, always, reason: None, id: None })
}

fn listen() -> mpsc::Receiver<String> {
    let (typed, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if typed.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_is_one() {
        let check = |line: &str, expect| assert_eq!(parse(line).map(|it| (it.outcome, it.always)), expect, "{line:?}");
        check("y\n", Some((Resolution::Allow, false)));
        check(" Always", Some((Resolution::Allow, true)));
        check("no", Some((Resolution::Deny, false)));
        check("", None);
        check("yesterday", None);
    }
}
