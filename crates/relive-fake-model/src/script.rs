//! The scripted answers of the server.

use serde_json::Value;

/// Returns the signature of the thinking of a turn.
pub(crate) fn signature(turn: usize) -> String {
    format!("c2lnbmF0dXJl/{turn}+=")
}

/// One answer, and the failures before it is given.
#[derive(Debug, Clone)]
pub struct Turn {
    pub(crate) failures: Vec<Failure>,
    pub(crate) thinking: Option<String>,
    pub(crate) text: Vec<String>,
    pub(crate) calls: Vec<(String, Value)>,
    pub(crate) usage: Option<TokenCounts>,
    /// After how many pieces the answer waits until it is let go.
    pub(crate) waits_after: Option<usize>,
}

/// The token counts of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenCounts {
    pub(crate) input: u64,
    pub(crate) output: u64,
    /// The part of the input that came from the cache.
    pub(crate) cached: u64,
}

/// The way in which an attempt fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// This status, with this `Retry-After`.
    Status(u16, Option<String>),
    /// The question is too long.
    ContextFull,
    /// The connection breaks after this many pieces.
    Cut(usize),
    /// This many pieces arrive, then nothing.
    Stall(usize),
    /// Nothing arrives at all.
    Silence,
}

impl Default for Turn {
    fn default() -> Self {
        let usage = TokenCounts { input: 100, output: 20, cached: 0 };
        Self {
            failures: Vec::new(),
            thinking: None,
            text: Vec::new(),
            calls: Vec::new(),
            usage: Some(usage),
            waits_after: None,
        }
    }
}

impl Turn {
    /// Answers with this text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::default().then(text)
    }

    /// Calls a tool.
    #[must_use]
    pub fn calls(name: &str, args: Value) -> Self {
        Self::default().and_calls(name, args)
    }

    /// Adds another piece of text.
    #[must_use]
    pub fn then(mut self, text: &str) -> Self {
        self.text.push(text.to_owned());
        self
    }

    /// Calls another tool.
    #[must_use]
    pub fn and_calls(mut self, name: &str, args: Value) -> Self {
        self.calls.push((name.to_owned(), args));
        self
    }

    /// Thinks first, and signs the thinking if the provider does.
    #[must_use]
    pub fn thinking(mut self, thinking: &str) -> Self {
        self.thinking = Some(thinking.to_owned());
        self
    }

    /// Reports this many tokens; `cached` of the input came from the cache.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        self.usage = Some(TokenCounts { input, output, cached });
        self
    }

    /// Reports no usage.
    #[must_use]
    pub fn without_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Sends this many pieces of the answer, and the rest when the server lets it go.
    #[must_use]
    pub fn waits_after(mut self, pieces: usize) -> Self {
        self.waits_after = Some(pieces);
        self
    }

    /// Fails this way first. Several failures follow each other.
    #[must_use]
    pub fn after(mut self, failure: Failure) -> Self {
        self.failures.push(failure);
        self
    }
}
