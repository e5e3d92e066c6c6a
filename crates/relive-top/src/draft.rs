//! A text that was sent and may be refused: whoever typed it does not type it again.

use crate::actions::shown;
use crate::state::{Effect, Overlay, Prompt, State};

/// A text that is not accepted yet.
#[derive(Debug)]
pub(crate) struct Draft {
    prompt: Prompt,
    typed: String,
    /// The command that sends it; `None` if it was refused, or not sent at all.
    command: Option<String>,
}

impl State {
    /// Keeps a text that these effects send.
    pub(crate) fn keep_draft(&mut self, prompt: Prompt, typed: &str, effects: &[Effect]) {
        let command = effects
            .iter()
            .find_map(|effect| if let Effect::Run { commands, .. } = effect { Some(shown(commands)) } else { None });
        self.draft = Some(Draft { prompt, typed: typed.to_owned(), command });
    }

    /// Takes in that a command has ended, which may have sent the text.
    pub(crate) fn end_draft(&mut self, command: &str, ok: bool) {
        let ended = self.draft.take_if(|draft| draft.command.as_deref() == Some(command));
        if let Some(draft) = ended.filter(|_| !ok) {
            self.draft = Some(Draft { command: None, ..draft });
        }
    }

    /// Asks for a text, beginning with the one that was refused for the same.
    pub(crate) fn type_for(&mut self, prompt: Prompt) {
        let draft = self.draft.take_if(|draft| draft.command.is_none() && draft.prompt == prompt);
        let typed = draft.map(|draft| draft.typed).unwrap_or_default();
        self.overlay = Some(Overlay::Typing { prompt, typed });
    }
}
