//! The price of a model, and its context window.

use relive_types::Usd;
use relive_types::suggest::closest;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

use crate::check::{Checker, Expected, Node};

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: Usd,
    pub output: Usd,
    /// Tokens read from the provider's cache; the price of `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Usd>,
    /// Tokens written to the provider's cache; the price of `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Usd>,
}

/// The keys of a price, and whether each is required.
const KEYS: [(&str, bool); 4] = [("input", true), ("output", true), ("cache_read", false), ("cache_write", false)];

/// The highest price of a million tokens: a higher one is a mistake.
const MAX: f64 = 10_000.0;

/// The smallest context window: the agent's own instructions do not fit into less.
const WINDOW_MIN: u64 = 4096;
const WINDOW_MAX: u64 = 1 << 40;

impl Checker<'_> {
    pub(crate) fn prices(&mut self, found: &Spanned<Node>) {
        for (model, price) in self.entries("prices", found) {
            self.model(model);
            self.price(&model.value, price);
        }
    }

    pub(crate) fn windows(&mut self, found: &Spanned<Node>) {
        for (model, tokens) in self.entries("context_window", found) {
            self.model(model);
            self.value(Expected::Number(WINDOW_MIN, WINDOW_MAX), &model.value, tokens);
        }
    }

    fn model(&mut self, model: &Spanned<String>) {
        if !model.value.contains('/') {
            let message = format!("`{0}` is not a model: write it as PROVIDER/{0}", model.value);
            self.wrong(&model.referenced, message);
        }
    }

    fn price(&mut self, model: &str, found: &Spanned<Node>) {
        let Node::Map(fields) = &found.value else {
            let message =
                format!("the price of `{model}` must look like `{{input: 3, output: 15}}`, not {}", found.value.name());
            return self.wrong(&found.referenced, message);
        };
        let names = KEYS.map(|(name, _)| name);
        for (key, value) in fields {
            if !names.contains(&key.value.as_str()) {
                let meant = closest(&key.value, names);
                let meant = meant.map_or_else(
                    || format!("expected one of {}", names.join(", ")),
                    |meant| format!("did you mean `{meant}`?"),
                );
                self.wrong(&key.referenced, format!("no such key in a price: `{}` ({meant})", key.value));
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "only its size is looked at")]
            let amount = match &value.value {
                Node::Number(number) => Some(*number as f64),
                Node::Fraction(number) => Some(*number),
                Node::Nothing | Node::Truth(_) | Node::Text(_) | Node::List(_) | Node::Map(_) => None,
            };
            if !amount.is_some_and(|amount| (0.0..=MAX).contains(&amount)) {
                let message = format!("`{}` must be dollars for a million tokens, from 0 to {MAX}", key.value);
                self.wrong(&value.referenced, message);
            }
        }
        for (name, needed) in KEYS {
            if needed && !fields.iter().any(|(key, _)| key.value == name) {
                self.wrong(&found.referenced, format!("the price of `{model}` has no `{name}`"));
            }
        }
    }
}
