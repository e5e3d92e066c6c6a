//! How much a model can read and write in one call.
//!
//! A window that is thought too small only means that a conversation is summed up early; one that is thought too large,
//! that the provider refuses once, or, as Ollama does, forgets the beginning without a word. So a model that is not in
//! the table has a small one.

use std::collections::BTreeMap;

use crate::prices::undated;

/// Tokens of a model nobody has told us about.
const UNKNOWN: u64 = 64_000;
/// The same where the server may be a small one.
const UNKNOWN_LOCAL: u64 = 32_000;

/// As the providers published them in November 2025.
const BUILTIN: [(&str, u64); 16] = [
    ("anthropic/claude-opus-4-5", 200_000),
    ("anthropic/claude-opus-4-1", 200_000),
    ("anthropic/claude-sonnet-4-5", 200_000),
    ("anthropic/claude-haiku-4-5", 200_000),
    ("openai/gpt-5.1", 400_000),
    ("openai/gpt-5", 400_000),
    ("openai/gpt-5-mini", 400_000),
    ("openai/gpt-5-nano", 400_000),
    ("openai/gpt-4.1", 1_047_576),
    ("openai/gpt-4o", 128_000),
    ("gemini/gemini-3-pro-preview", 1_048_576),
    ("gemini/gemini-2.5-pro", 1_048_576),
    ("gemini/gemini-2.5-flash", 1_048_576),
    ("gemini/gemini-2.5-flash-lite", 1_048_576),
    ("deepseek/deepseek-chat", 128_000),
    ("deepseek/deepseek-reasoner", 128_000),
];

/// The windows, by `provider/model`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Windows {
    table: BTreeMap<String, u64>,
}

impl Windows {
    /// Those that are built in.
    #[must_use]
    pub fn builtin() -> Self {
        Self { table: BUILTIN.into_iter().map(|(name, tokens)| (name.to_owned(), tokens)).collect() }
    }

    /// Sets the window of a model, `provider/model`.
    pub fn set(&mut self, name: impl Into<String>, tokens: u64) {
        self.table.insert(name.into(), tokens);
    }

    /// The window of a model: its own, else that of the model it is a dated version of, else a small one.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        let known = self.table.get(name).or_else(|| self.table.get(undated(name)?)).copied();
        known.unwrap_or(if name.starts_with("ollama/") { UNKNOWN_LOCAL } else { UNKNOWN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_counts_before_what_is_built_in_and_what_nobody_knows_is_small() {
        let mut windows = Windows::builtin();
        windows.set("ollama/qwen3", 8000);
        let check = |name: &str, tokens: u64| assert_eq!(windows.of(name), tokens, "{name}");
        check("anthropic/claude-sonnet-4-5-20250929", 200_000);
        check("gemini/gemini-2.5-pro", 1_048_576);
        check("ollama/qwen3", 8000);
        check("ollama/llama3.2", UNKNOWN_LOCAL);
        check("openai/gpt-6", UNKNOWN);
    }
}
