//! What is shown over the list.

use relive_types::Uuid;

/// What is shown over the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlay {
    /// The keys of this place, from this line on.
    Help { from: usize },
    /// The signals to choose from, and the ids of the processes that they are for: the cursor may move meanwhile.
    Signals { targets: Vec<String> },
    /// All of what the selected item asks, from this line on.
    Asked {
        /// The item.
        id: String,
        from: usize,
    },
    /// A text that was asked for, from this line on.
    Text { title: String, lines: Vec<String>, from: usize },
    /// What a command would do, from this line on, and the command that does it.
    Confirm {
        lines: Vec<String>,
        from: usize,
        then: Vec<String>,
        /// When it was opened: what was typed before is no answer.
        since_ms: u64,
    },
    /// A line that is typed.
    Typing { prompt: Prompt, typed: String },
}

/// What a typed line is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    Filter,
    Command,
    Send(Uuid),
    /// The command of the answer, for the question that was shown when the prompt was opened.
    Answer {
        command: String,
        /// The item.
        id: String,
    },
    /// What was typed for a question that was answered elsewhere meanwhile: whoever types on does not give commands.
    Withdrawn {
        id: String,
        why: String,
    },
}
