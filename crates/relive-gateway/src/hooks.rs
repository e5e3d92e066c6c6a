//! What a CLI reports of itself at its port: the bodies of its hooks, kept for the daemon. They are not passed on.

use std::collections::VecDeque;

use jiff::Timestamp;
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
/// The longest name of a field that is kept.
const NAME_MAX: usize = 128;
/// The longest body that is kept.
const SHORT_MAX: usize = 16 << 10;
/// How many bytes of bodies the daemon is told at once. A single body is told whatever its length, so that it does not block
/// the ones after it.
const TOLD_MAX: usize = 256 << 10;

/// The body of a hook, shortened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// From 1.
    pub number: u64,
    /// When the gateway received it; absent from an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
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

    /// Keeps hooks that another gateway has received.
    pub(crate) fn inherit(&mut self, hooks: Vec<Hook>) {
        for hook in hooks {
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.last = self.last.max(hook.number);
            self.kept.push_back(hook);
        }
    }

    /// Keeps the body of a hook; `false` if it is none.
    pub(crate) fn add(&mut self, body: &[u8]) -> bool {
        self.add_at(body, Timestamp::now())
    }

    fn add_at(&mut self, body: &[u8], at: Timestamp) -> bool {
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
        self.kept.push_back(Hook { number: self.last, at: Some(at), body });
        true
    }

    /// Returns hooks after a number, the first ones first; at least one if there is any.
    pub(crate) fn after(&self, number: u64) -> Vec<Hook> {
        let mut told = 0;
        let fits = |hook: &&Hook| {
            let is_first = told == 0;
            told += hook.body.len();
            is_first || told <= TOLD_MAX
        };
        self.kept.iter().filter(|hook| hook.number > number).take_while(fits).cloned().collect()
    }
}

fn shorten(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > TEXT_MAX => Value::String(cut(&text, TEXT_MAX)),
        Value::Array(list) => list.into_iter().take(LIST_MAX).map(shorten).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (cut(&name, NAME_MAX), shorten(value))).collect()
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

fn cut(text: &str, max: usize) -> String {
    text[..text.floor_char_boundary(max)].to_owned()
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

    #[test]
    fn a_hook_with_long_names_does_not_hide_the_ones_after_it() {
        let mut hooks = Hooks::default();
        let long = |number: usize| format!("{number}{}", "\u{1}".repeat(TOLD_MAX / 16));
        let wide: Value = (0..LIST_MAX).map(|number| (long(number), json!(long(number)))).collect();
        assert!(hooks.add(wide.to_string().as_bytes()) && hooks.add(b"{\"hook_event_name\":\"Stop\"}"));
        let all = hooks.after(0);
        assert!(all[0].body.len() <= TOLD_MAX, "{}", all[0].body.len());
        assert_eq!(all.iter().map(|hook| hook.number).collect::<Vec<_>>(), [1, 2]);
        // The daemon reads a line up to this length.
        let line = serde_json::to_string(&all).unwrap();
        assert!(line.len() < crate::protocol::LINE_MAX, "{}", line.len());
    }

    #[test]
    fn a_hook_that_is_longer_than_an_answer_is_told_alone() {
        let hook = |number, length| Hook { number, at: None, body: "x".repeat(length) };
        let hooks = Hooks { last: 3, kept: [hook(1, TOLD_MAX + 1), hook(2, TOLD_MAX), hook(3, 1)].into() };
        let told = |after| hooks.after(after).iter().map(|hook| hook.number).collect::<Vec<_>>();
        assert_eq!((told(0), told(1), told(2), told(3)), (vec![1], vec![2], vec![3], vec![]));
    }

    #[test]
    fn a_hook_has_the_time_at_which_it_came_and_one_of_an_earlier_gateway_has_none() {
        let mut hooks = Hooks::default();
        let at = Timestamp::from_second(4_711).unwrap();
        assert!(hooks.add_at(b"{}", at));
        let text = serde_json::to_string(&hooks.after(0)).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Hook>>(&text).unwrap()[0].at, Some(at));
        assert_eq!(serde_json::from_str::<Hook>(r#"{"number":1,"body":"{}"}"#).unwrap().at, None);
    }
}
