//! A text that was sent and may be refused: whoever typed it does not type it again.

use crate::state::{Overlay, Prompt, State};

/// A text that was sent, and is not accepted yet.
#[derive(Debug)]
pub(crate) struct Draft {
    prompt: Prompt,
    typed: String,
    /// The command that sends it.
    command: String,
    is_refused: bool,
}

impl State {
    /// Keeps a text that the command on the status line sends.
    pub(crate) fn keep_draft(&mut self, prompt: Prompt, typed: &str) {
        let (command, typed) = (self.status.clone(), typed.to_owned());
        self.draft = Some(Draft { prompt, typed, command, is_refused: false });
    }

    /// Takes in that a command has ended, which may have sent the text.
    pub(crate) fn end_draft(&mut self, command: &str, ok: bool) {
        let ended = self.draft.take_if(|draft| draft.command == command);
        if let Some(draft) = ended.filter(|_| !ok) {
            self.draft = Some(Draft { is_refused: true, ..draft });
        }
    }

    /// Asks for a text, beginning with the one that was refused for the same.
    pub(crate) fn type_for(&mut self, prompt: Prompt) {
        let draft = self.draft.take_if(|draft| draft.is_refused && draft.prompt == prompt);
        let typed = draft.map(|draft| draft.typed).unwrap_or_default();
        self.overlay = Some(Overlay::Typing { prompt, typed });
    }
}
