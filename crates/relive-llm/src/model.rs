//! The `Model` trait, its messages and its answers, common to all providers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use relive_types::{Usage, Usd};

use crate::conversation::Conversation;

/// One message of the conversation, with its payloads loaded.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    User {
        text: String,
    },
    /// Stands for the older part of the conversation.
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
        /// The [`ToolCall::id`] it answers.
        id: String,
        ok: bool,
        result: String,
    },
}

/// A tool call that a model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Chosen by the provider; the result is sent back under it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON text, an object.
    pub args: String,
}

/// One request to a model.
#[derive(Debug, Clone)]
pub struct Question {
    /// The step that the answer is for.
    pub step: u32,
    /// Sent before the messages.
    pub system_prompt: Arc<str>,
    /// The definitions of the tools, a JSON array.
    pub tools: Arc<str>,
    /// The conversation, oldest first.
    pub messages: Conversation,
    /// How many answers the process has received so far, including those no longer among the messages.
    pub answers: u64,
    /// What the answer is used for.
    pub purpose: Purpose,
}

/// What an answer is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The next step.
    Step,
    /// A summary of the older part of the conversation.
    Summary,
}

/// A piece of an answer, in the order in which the provider sends them.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// Reasoning that is not part of the answer's text.
    Thinking(String),
    /// Text for the user.
    Text(String),
    /// A complete tool call.
    Call(ToolCall),
    /// JSON that the provider wants back with this answer, unchanged; the last one counts.
    Carry(String),
    /// What the call used; the last one counts.
    Usage(Usage),
    /// A sign of life without content, such as a part of a call that is not complete yet.
    Progress,
}

impl Message {
    /// Returns its length in bytes, without the parts that only its provider can read.
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
    /// Estimates its tokens from its length, for providers that do not report them.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        estimated_tokens(self.system_prompt.len() + self.messages.bytes())
    }
}

/// Estimates the tokens in a text of this many bytes.
#[must_use]
pub fn estimated_tokens(bytes: usize) -> u64 {
    const BYTES_PER_TOKEN: u64 = 4;
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// The reason why there is no answer, or only part of one. The texts name the provider and never contain a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The key is wrong, or may not use this model.
    #[error("{0}")]
    Unauthorized(String),
    /// Too many requests; `retry_after` is the provider's own wish.
    #[error("{text}")]
    RateLimited { text: String, retry_after: Option<Duration> },
    /// The provider is overloaded or broken for the moment.
    #[error("{text}")]
    Overloaded { text: String, retry_after: Option<Duration> },
    /// The provider sent nothing for the duration `after`.
    #[error("{text}")]
    TimedOut { text: String, after: Duration },
    /// The provider could not be reached, or the connection broke in the middle of the answer.
    #[error("{0}")]
    Cut(String),
    /// The answer exceeded a limit and was cut: asking again would not help.
    #[error("{0}")]
    TooLong(String),
    /// The answer is complete and has neither text nor a call.
    #[error("{0}")]
    Empty(String),
    /// The conversation is longer than the model can read.
    #[error("{0}")]
    ContextFull(String),
    /// A failure that a retry would not help.
    #[error("{0}")]
    Failed(String),
    /// The file of a scripted model cannot be read.
    #[error("{0}")]
    BadScript(String),
}

/// The pieces of an answer. Dropping the stream cancels the call.
pub type Answer = BoxStream<'static, Result<Delta, ModelError>>;

/// A model that answers questions: of a provider, or scripted.
pub trait Model: Send + Sync + std::fmt::Debug {
    /// Returns the tokens to count for a call whose end is never learned: the most that one call may use.
    fn reserved_tokens(&self) -> u64;

    /// Returns how many tokens fit into one call, read and written together; `None` if there is no limit.
    fn context_tokens(&self) -> Option<u64> {
        None
    }

    /// Returns the price of a call that reads and writes this many tokens; `None` if the price is not known.
    fn cost(&self, _tokens_in: u64, _tokens_out: u64) -> Option<Usd> {
        None
    }

    /// Returns whether the cost of its calls is known, so that a limit in dollars can be enforced.
    fn has_price(&self) -> bool {
        self.cost(1, 1).is_some()
    }

    /// Sends the question. The answer is a stream, so that it can be shown while it is being written.
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Answer, ModelError>>;
}
