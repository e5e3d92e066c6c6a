//! Context windows: how many tokens a model can read and write in one call.
//!
//! If the table's number is too small, a conversation is only summarized early. If it is too large, the provider refuses
//! a call or, like Ollama, silently drops the beginning. So a model that is not in the table gets a small window.

use std::collections::BTreeMap;

use crate::prices::undated;

/// Tokens for a model that is not in the table.
const UNKNOWN: u64 = 64_000;
/// The same for a server that may be a small machine.
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
    /// Returns the built-in windows.
    #[must_use]
    pub fn builtin() -> Self {
        Self { table: BUILTIN.into_iter().map(|(name, tokens)| (name.to_owned(), tokens)).collect() }
    }

    /// Sets the window of a model, `provider/model`.
    pub fn set(&mut self, name: impl Into<String>, tokens: u64) {
        self.table.insert(name.into(), tokens);
    }

    /// Returns the window of a model, or of the model that it is a dated version of, or a small one.
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
    fn configured_windows_override_built_in_ones_and_unknown_models_get_a_small_one() {
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
