//! Prices of tokens.
//!
//! A model that is not in the table has no price, rather than a price of zero.

use std::collections::BTreeMap;

use relive_types::{Usage, Usd};

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub input: Usd,
    pub output: Usd,
    /// Read from the provider's cache.
    pub cache_read: Usd,
    /// Put into the provider's cache.
    pub cache_write: Usd,
}

/// The prices, by `provider/model`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    table: BTreeMap<String, Price>,
}

/// In thousandths of a dollar a million tokens: in, out, cache read, cache write. As published in the autumn of 2026; what
/// was not checked then is left out, and so are models whose price depends on the hour or on the length of the question.
const BUILTIN: [(&str, [u64; 4]); 13] = [
    ("anthropic/claude-opus-5", [5_000, 25_000, 500, 6_250]),
    ("anthropic/claude-opus-4-8", [5_000, 25_000, 500, 6_250]),
    ("anthropic/claude-opus-4-7", [5_000, 25_000, 500, 6_250]),
    ("anthropic/claude-opus-4-6", [5_000, 25_000, 500, 6_250]),
    ("anthropic/claude-opus-4-5", [5_000, 25_000, 500, 6_250]),
    ("anthropic/claude-opus-4-1", [15_000, 75_000, 1_500, 18_750]),
    ("anthropic/claude-sonnet-4-6", [3_000, 15_000, 300, 3_750]),
    ("anthropic/claude-sonnet-4-5", [3_000, 15_000, 300, 3_750]),
    ("anthropic/claude-haiku-4-5", [1_000, 5_000, 100, 1_250]),
    ("openai/gpt-5.1", [1_250, 10_000, 125, 1_250]),
    ("openai/gpt-5", [1_250, 10_000, 125, 1_250]),
    ("openai/gpt-5-mini", [250, 2_000, 25, 250]),
    ("openai/gpt-4.1", [2_000, 8_000, 500, 2_000]),
];

const NANOS_PER_MILLI: u64 = 1_000_000;

impl Prices {
    /// Returns the built-in prices.
    #[must_use]
    pub fn builtin() -> Self {
        let price = |[input, output, cache_read, cache_write]: [u64; 4]| {
            let usd = |millis: u64| Usd::from_nanos(millis * NANOS_PER_MILLI);
            Price { input: usd(input), output: usd(output), cache_read: usd(cache_read), cache_write: usd(cache_write) }
        };
        Self { table: BUILTIN.into_iter().map(|(name, millis)| (name.to_owned(), price(millis))).collect() }
    }

    /// Sets the price of a model, `provider/model`.
    pub fn set(&mut self, name: impl Into<String>, price: Price) {
        self.table.insert(name.into(), price);
    }

    /// Returns the models that have a price, `provider/model`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.table.keys().map(String::as_str)
    }

    /// Returns the price of a model, or of the model that it is a dated version of.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<Price> {
        self.table.get(name).or_else(|| self.table.get(undated(name)?)).copied()
    }
}

/// Removes the version from a name, as in x-latest, x-20250929, x-001 and x-2025-08-07.
pub(crate) fn undated(name: &str) -> Option<&str> {
    fn cut(name: &str, digits: usize) -> Option<&str> {
        let (rest, last) = name.rsplit_once('-')?;
        (last.len() == digits && last.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
    }
    let date = || cut(cut(cut(name, 2)?, 2)?, 4);
    name.strip_suffix("-latest").or_else(|| cut(name, 8)).or_else(|| cut(name, 3)).or_else(date)
}

impl Price {
    /// Computes the price of a call. `tokens_in` includes the tokens of the cache.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Usd {
        let fresh = usage.tokens_in.saturating_sub(usage.cache_read).saturating_sub(usage.cache_write);
        let parts = [
            (fresh, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
            (usage.tokens_out, self.output),
        ];
        let nanos: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(price.nanos())).sum();
        Usd::from_nanos(u64::try_from(nanos / 1_000_000).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dated_version_has_the_price_of_its_model_and_a_smaller_model_does_not() {
        let prices = Prices::builtin();
        let check = |name: &str, like: Option<&str>| {
            assert_eq!(prices.of(name), like.map(|like| prices.table[like]), "{name}");
        };
        check("anthropic/claude-sonnet-4-5", Some("anthropic/claude-sonnet-4-5"));
        check("anthropic/claude-sonnet-4-5-20250929", Some("anthropic/claude-sonnet-4-5"));
        check("openai/gpt-5-2025-08-07", Some("openai/gpt-5"));
        check("openai/gpt-5-mini-2025-08-07", Some("openai/gpt-5-mini"));
        check("openai/gpt-4.1-001", Some("openai/gpt-4.1"));
        check("openai/gpt-5-pro", None);
        check("openai/gpt-5-codex-mini", None);
        check("anthropic/claude-sonnet-4", None);
        check("ollama/llama3.2", None);
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let price = Prices::builtin().of("anthropic/claude-sonnet-4-5").unwrap();
        let usage = Usage {
            tokens_in: 1_000_000,
            tokens_out: 100_000,
            cache_read: 500_000,
            cache_write: 100_000,
            ..Usage::default()
        };
        // 0.4 * 3 + 0.5 * 0.30 + 0.1 * 3.75 + 0.1 * 15
        assert_eq!(price.cost(&usage).nanos(), 3_225_000_000);
        assert_eq!(price.cost(&Usage { tokens_out: 1, ..Usage::default() }).nanos(), 15_000);
    }
}
