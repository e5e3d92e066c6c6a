//! Items that are answered elsewhere: the dashboard says so, unless one of its own commands was the answer.

use std::collections::VecDeque;

use relive_api::{Change, Item, Process};

use crate::state::{Effect, Overlay, Prompt, State};

/// How long after its end a command may be why something changed: the change is told on another connection.
const AFTERWARDS_MS: u64 = 2_000;
/// How many commands are remembered: more do not run at once.
const OWN_MAX: usize = 32;

/// Commands that run or have just ended.
#[derive(Debug, Default)]
pub(crate) struct OwnCommands(VecDeque<OwnCommand>);

#[derive(Debug)]
struct OwnCommand {
    /// As it is shown.
    shown: String,
    words: Vec<String>,
    ended_ms: Option<u64>,
}

impl OwnCommands {
    pub(crate) fn begin(&mut self, shown: String, commands: &[Vec<String>]) {
        if self.0.len() == OWN_MAX {
            self.0.pop_front();
        }
        self.0.push_back(OwnCommand { shown, words: commands.concat(), ended_ms: None });
    }

    pub(crate) fn end(&mut self, shown: &str, now_ms: u64) {
        let ended = self.0.iter_mut().find(|command| command.shown == shown && command.ended_ms.is_none());
        if let Some(command) = ended {
            command.ended_ms = Some(now_ms);
        }
    }

    /// Tells whether one runs that is shown like this.
    pub(crate) fn runs(&self, shown: &str) -> bool {
        self.0.iter().any(|command| command.shown == shown && command.ended_ms.is_none())
    }

    /// Tells whether one of them may be the answer to an item.
    pub(crate) fn concerns(&mut self, item: &Item, process: &Process, now_ms: u64) -> bool {
        let is_over =
            |command: &OwnCommand| command.ended_ms.is_some_and(|ended| now_ms.saturating_sub(ended) > AFTERWARDS_MS);
        self.0.retain(|command| !is_over(command));
        let (pid, uuid) = (process.pid.to_string(), process.uuid.to_string());
        let names = [process.short.as_str(), &pid, &uuid, &item.id, process.name.as_deref().unwrap_or(&pid)];
        // What is below a process that is named is not named.
        let concerns = |word: &String| names.contains(&word.as_str()) || word == "--subtree" || word == "--all";
        self.0.iter().any(|command| command.words.iter().any(concerns))
    }
}

impl State {
    /// Takes in that the item on the screen waits no more, unless a command of this dashboard was the answer.
    pub(crate) fn answered_elsewhere(&mut self, change: &Change) -> Option<Effect> {
        let shown = self.item().filter(|item| item.uuid == change.uuid)?.clone();
        if change.item.as_ref().is_some_and(|item| item.id == shown.id) {
            return None;
        }
        let known = self.known.get(&change.uuid)?;
        let generation = known.process.generation;
        if self.own.concerns(&shown, &known.process, self.now_ms) {
            return None;
        }
        self.answered = Some((shown.id.clone(), format!("{} of PID {}", shown.kind.word(), shown.pid)));
        self.told_outcome(&shown.id, "it is not asked any more");
        Some(Effect::FindOutcome { item: Box::new(shown), generation })
    }

    /// Says how an item was answered elsewhere, and withdraws the prompt for an answer to it.
    pub(crate) fn told_outcome(&mut self, id: &str, text: &str) {
        let Some((_, name)) = self.answered.as_ref().filter(|(answered, _)| answered == id) else { return };
        let why = format!("{name}: {text}");
        if let Some(Overlay::Typing { prompt, .. }) = &mut self.overlay
            && matches!(prompt, Prompt::Answer { id: of, .. } | Prompt::Withdrawn { id: of, .. } if of == id)
        {
            *prompt = Prompt::Withdrawn { id: id.to_owned(), why: why.clone() };
        }
        self.status = why;
    }
}
