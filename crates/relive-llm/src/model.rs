//! What the loop wants of a model, whoever it is.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use relive_types::{Usage, Usd};

/// One message of the conversation, whole: payloads are loaded.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "as in relive_journal::conversation")]
pub enum Message {
    User {
        text: String,
    },
    Summary {
        text: String,
    },
    Model {
        thinking: Option<String>,
        text: Option<String>,
        calls: Vec<ToolCall>,
        /// JSON that its provider wants back unchanged.
        carry: Option<String>,
    },
    Tool {
        id: String,
        ok: bool,
        result: String,
    },
}

/// A call the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The provider's name for it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON text, an object.
    pub args: String,
}

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The step this is for.
    pub step: u32,
    /// The system prompt.
    pub system_prompt: String,
    /// The tools' definitions, a JSON array.
    pub tools: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// How often a model has answered so far, whether or not the answers are still among the messages.
    pub answers: u64,
    /// What for.
    pub purpose: Purpose,
}

/// What a model is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The next step.
    Step,
    /// What the older part of the conversation amounts to.
    Summary,
}

/// A piece of an answer, as it comes.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// Thinking aloud.
    Thinking(String),
    /// Text for the user.
    Text(String),
    /// A call, whole.
    Call(ToolCall),
    /// JSON that the model wants back with this answer, unchanged; the last one counts.
    Carry(String),
    /// What it used; the last one counts.
    Usage(Usage),
}

impl Message {
    /// How long it is, without what only its provider can read.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::User { text } | Self::Summary { text } => text.len(),
            Self::Model { thinking, text, calls, carry: _ } => {
                let said = thinking.iter().chain(text).map(String::len).sum::<usize>();
                said + calls.iter().map(|call| call.args.len()).sum::<usize>()
            }
            Self::Tool { result, .. } => result.len(),
        }
    }
}

impl Question {
    /// How many tokens it has, by its length: for where nobody else says.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        estimated_tokens(self.system_prompt.len() + self.messages.iter().map(Message::bytes).sum::<usize>())
    }
}

/// How many tokens so many bytes of text are, roughly.
#[must_use]
pub fn estimated_tokens(bytes: usize) -> u64 {
    const BYTES_PER_TOKEN: u64 = 4;
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Why there is no answer. The texts name the provider and never hold a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it")]
pub enum ModelError {
    /// The key is wrong, or may not use this model.
    #[error("{0}")]
    Unauthorized(String),
    /// Too much was asked for; again after so long, where the provider says it.
    #[error("{text}")]
    RateLimited { text: String, retry_after: Option<Duration> },
    /// The provider has too much to do, or is broken for the moment.
    #[error("{text}")]
    Overloaded { text: String, retry_after: Option<Duration> },
    /// Nothing came for so long.
    #[error("{text}")]
    TimedOut { text: String, after: Duration },
    /// It could not be reached, or the connection broke in the middle of its answer.
    #[error("{0}")]
    Cut(String),
    /// The conversation is longer than the model can read.
    #[error("{0}")]
    ContextFull(String),
    /// Asking again would not help.
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    BadScript(String),
}

/// A stream of an answer's pieces. Dropping it cancels the call.
pub type Answer = BoxStream<'static, Result<Delta, ModelError>>;

/// A model.
pub trait Model: Send + Sync + std::fmt::Debug {
    /// What one call may use at most, counted if its end is never learned.
    fn reserved_tokens(&self) -> u64;

    /// How many tokens it can read and write in one call; absent where nothing is too long for it.
    fn context_tokens(&self) -> Option<u64> {
        None
    }

    /// What so many tokens cost, in and out; absent where nobody knows the price.
    fn cost(&self, _tokens_in: u64, _tokens_out: u64) -> Option<Usd> {
        None
    }

    /// Asks it.
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Answer, ModelError>>;
}
