//! What a CLI reports of itself at its port: the bodies of its hooks, kept for the daemon. They are not passed on.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where a CLI posts its hooks.
pub const HOOKS_PATH: &str = "/relive/hooks";

/// The longest body that is read.
pub(crate) const BODY_MAX: usize = 16 << 20;
/// How many bodies are kept: a daemon that comes later derives the state from them.
const KEPT_MAX: usize = 256;
/// The longest text in a body, and the longest list, that is kept.
const TEXT_MAX: usize = 1024;
const LIST_MAX: usize = 32;
/// The longest body that is kept.
const SHORT_MAX: usize = 16 << 10;
/// How many bytes of bodies the daemon is told at once.
const TOLD_MAX: usize = 256 << 10;

/// The body of a hook, shortened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// From 1.
    pub number: u64,
    /// One JSON object, without a line break.
    pub body: String,
}

/// The hooks of one process.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    last: u64,
    kept: VecDeque<Hook>,
}

impl Hooks {
    /// Returns the number of the last hook.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Keeps the body of a hook; `false` if it is none.
    pub(crate) fn add(&mut self, body: &[u8]) -> bool {
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return false };
        let shortened = shorten(Value::Object(fields.clone())).to_string();
        let body = if shortened.len() <= SHORT_MAX {
            shortened
        } else {
            // The names are what matters most.
            let is_plain = |value: &Value| !value.is_object() && !value.is_array();
            let plain = fields.into_iter().filter(|(_, value)| is_plain(value)).take(LIST_MAX);
            shorten(Value::Object(plain.collect())).to_string()
        };
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.last += 1;
        self.kept.push_back(Hook { number: self.last, body });
        true
    }

    /// Returns hooks after a number, the first ones first.
    pub(crate) fn after(&self, number: u64) -> Vec<Hook> {
        let mut left = TOLD_MAX;
        let fits = |hook: &&Hook| {
            let fits = hook.body.len() <= left;
            left = left.saturating_sub(hook.body.len());
            fits
        };
        self.kept.iter().filter(|hook| hook.number > number).take_while(fits).cloned().collect()
    }
}

fn shorten(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > TEXT_MAX => {
            let end = (0..=TEXT_MAX).rfind(|end| text.is_char_boundary(*end)).unwrap_or(0);
            Value::String(text[..end].to_owned())
        }
        Value::Array(list) => list.into_iter().take(LIST_MAX).map(shorten).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, shorten(value))).collect(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hooks_are_numbered_shortened_and_the_last_ones_are_kept() {
        let mut hooks = Hooks::default();
        assert!(!hooks.add(b"[1]") && !hooks.add(b"{\"cut"));
        let long = "ä".repeat(5_000);
        assert!(
            hooks.add(json!({"hook_event_name": "Stop", "text": long, "list": vec![1; 100]}).to_string().as_bytes())
        );
        let kept: Value = serde_json::from_str(&hooks.after(0)[0].body).unwrap();
        assert_eq!(kept["hook_event_name"], "Stop");
        assert!(kept["text"].as_str().unwrap().len() <= TEXT_MAX && kept["list"].as_array().unwrap().len() == LIST_MAX);
        let wide: Value = (0..2_000).map(|number| (format!("k{number}"), json!({"x": long}))).collect();
        assert!(hooks.add(json!({"hook_event_name": "PreToolUse", "tool_input": wide}).to_string().as_bytes()));
        assert_eq!(hooks.after(1)[0].body, r#"{"hook_event_name":"PreToolUse"}"#);
        for _ in 0..KEPT_MAX {
            hooks.add(b"{}");
        }
        assert_eq!((hooks.last(), hooks.after(0)[0].number), (258, 3));
        assert!(hooks.after(258).is_empty());
    }
}
