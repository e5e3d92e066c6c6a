//! What the loop wants of a model, whoever it is.

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use relive_journal::record::Usage;

/// One message of the conversation, whole: payloads are loaded.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "as in relive_journal::conversation")]
pub enum Message {
    User { text: String },
    Summary { text: String },
    Model { thinking: Option<String>, text: Option<String>, calls: Vec<ToolCall> },
    Tool { id: String, ok: bool, result: String },
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
    /// What it used; the last one counts.
    Usage(Usage),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it")]
pub enum ModelError {
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

    /// Asks it.
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Answer, ModelError>>;
}
