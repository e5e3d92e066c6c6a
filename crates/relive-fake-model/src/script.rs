//! What the server says.

use serde_json::Value;

/// What the thinking of every turn is signed with.
pub(crate) fn signature(turn: usize) -> String {
    format!("c2lnbmF0dXJl/{turn}+=")
}

/// One answer, and how it fails before it is given.
#[derive(Debug, Clone)]
pub struct Turn {
    pub(crate) failures: Vec<Failure>,
    pub(crate) thinking: Option<String>,
    pub(crate) text: Vec<String>,
    pub(crate) calls: Vec<(String, Value)>,
    pub(crate) usage: Option<Usage>,
}

/// What an answer used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) output: u64,
    /// Of the input.
    pub(crate) cached: u64,
}

/// How an attempt fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// With this status, and this `Retry-After`.
    Status(u16, Option<String>),
    /// Because the question is too long.
    ContextFull,
    /// The connection breaks after so many pieces.
    Cut(usize),
    /// So many pieces come, and then nothing.
    Stall(usize),
    /// Nothing comes at all.
    Silence,
}

impl Default for Turn {
    fn default() -> Self {
        let usage = Usage { input: 100, output: 20, cached: 0 };
        Self { failures: Vec::new(), thinking: None, text: Vec::new(), calls: Vec::new(), usage: Some(usage) }
    }
}

impl Turn {
    /// Says this.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::default().then(text)
    }

    /// Calls a tool.
    #[must_use]
    pub fn calls(name: &str, args: Value) -> Self {
        Self::default().and_calls(name, args)
    }

    /// Says this as one more piece.
    #[must_use]
    pub fn then(mut self, text: &str) -> Self {
        self.text.push(text.to_owned());
        self
    }

    /// Calls one more tool.
    #[must_use]
    pub fn and_calls(mut self, name: &str, args: Value) -> Self {
        self.calls.push((name.to_owned(), args));
        self
    }

    /// Thinks first, and signs it where the provider does.
    #[must_use]
    pub fn thinking(mut self, thinking: &str) -> Self {
        self.thinking = Some(thinking.to_owned());
        self
    }

    /// Used so many tokens; `cached` of the input came from the cache.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        self.usage = Some(Usage { input, output, cached });
        self
    }

    /// Does not say what it used.
    #[must_use]
    pub fn without_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Fails so first. Several failures come one after the other.
    #[must_use]
    pub fn after(mut self, failure: Failure) -> Self {
        self.failures.push(failure);
        self
    }
}
