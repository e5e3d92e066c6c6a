//! Placeholders in a script's texts. Their values come from the question alone, so that a resumed process gives the
//! same answers.

use relive_llm::{Message, Question};
use relive_types::Uuid;
use serde_json::Value;

/// The values of the placeholders of one turn. The conversation is searched only for those that are used.
#[derive(Debug)]
pub(super) struct Values<'a> {
    pub(super) step: u32,
    pub(super) turn: u64,
    pub(super) uuid: Option<Uuid>,
    messages: &'a [Message],
}

impl<'a> Values<'a> {
    pub(super) fn of(question: &'a Question, turn: u64, uuid: Option<Uuid>) -> Self {
        Self { step: question.step, turn, uuid, messages: &question.messages }
    }

    /// Returns the result of the last call.
    fn result(&self) -> Option<String> {
        self.messages.iter().rev().find_map(|message| match message {
            Message::Tool { result, .. } => Some(result.clone()),
            Message::User { .. } | Message::Summary { .. } | Message::Model { .. } => None,
        })
    }

    /// Fills in the placeholders of `text`. One without a value stays as it is: files may contain braces.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            filled.push_str(before);
            match after.split_once("}}").and_then(|(name, after)| Some((self.value(name.trim())?, after))) {
                Some((value, after)) => {
                    filled.push_str(&value);
                    rest = after;
                }
                None => {
                    filled.push_str("{{");
                    rest = after;
                }
            }
        }
        filled.push_str(rest);
        filled
    }

    fn value(&self, name: &str) -> Option<String> {
        match name {
            "step" => Some(self.step.to_string()),
            "turn" => Some(self.turn.to_string()),
            "uuid" => self.uuid.map(|uuid| uuid.to_string()),
            "result" => self.result(),
            "child" => children(self.messages).pop(),
            _ => {
                let number: usize = name.strip_prefix("child.")?.parse().ok()?;
                children(self.messages).into_iter().nth(number.checked_sub(1)?)
            }
        }
    }

    /// Fills in every string inside `value`; keys stay unchanged.
    pub(super) fn fill_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(list) => list.iter().map(|value| self.fill_json(value)).collect(),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(name, value)| (name.clone(), self.fill_json(value))).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// Returns the UUIDs that `spawn_agent` returned, in order.
fn children(messages: &[Message]) -> Vec<String> {
    let mut asked = Vec::new();
    let mut children = Vec::new();
    for message in messages {
        match message {
            Message::Model { calls, .. } => {
                asked = calls.iter().filter(|call| call.name == "spawn_agent").map(|call| call.id.as_str()).collect();
            }
            Message::Tool { id, ok: true, result } if asked.contains(&id.as_str()) => {
                let answer: Option<Value> = serde_json::from_str(result).ok();
                children.extend(answer.as_ref().and_then(|answer| answer["uuid"].as_str()).map(str::to_owned));
            }
            Message::Tool { .. } | Message::User { .. } | Message::Summary { .. } => {}
        }
    }
    children
}
