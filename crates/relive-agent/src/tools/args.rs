//! The arguments of a call. Each refusal names the field.

use std::time::Duration;

use relive_journal::payload::Json;
use relive_types::{Uuid, duration};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::tool::ToolResult;

/// The only field of arguments that the loop refused. No tool has it, so the model gets its text as the result.
const REFUSED: &str = "refused_arguments";

/// Creates arguments that every tool refuses with this text.
pub(crate) fn refused_arguments(text: &str) -> Json {
    let args = serde_json::json!({ REFUSED: text }).to_string();
    // The text of a JSON value is JSON.
    Json::parse(&args).unwrap_or_else(|_| Json::Inline(RawValue::NULL.to_owned()))
}

/// The arguments of one call, taken out one by one.
#[derive(Debug)]
pub(super) struct Args {
    tool: &'static str,
    fields: Map<String, Value>,
}

impl Args {
    /// Parses them. Every field must be one of `known`.
    pub(super) fn parse(tool: &'static str, text: &str, known: &[&str]) -> Result<Self, ToolResult> {
        let fields = match serde_json::from_str(if text.trim().is_empty() { "{}" } else { text }) {
            Ok(Value::Object(fields)) => fields,
            Ok(other) => return Err(refused(tool, &format!("the arguments must be an object, not {}", kind(&other)))),
            Err(error) => return Err(refused(tool, &format!("the arguments are not JSON: {error}"))),
        };
        if let Some(Value::String(text)) = fields.get(REFUSED) {
            return Err(refused(tool, text));
        }
        match fields.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(Self { tool, fields }),
            Some(unknown) => {
                Err(refused(tool, &format!("unknown field `{unknown}`; the fields are {}", known.join(", "))))
            }
        }
    }

    /// Takes a required text.
    pub(super) fn text(&mut self, name: &str) -> Result<String, ToolResult> {
        self.optional_text(name)?.ok_or_else(|| refused(self.tool, &format!("`{name}` is missing")))
    }

    /// Takes an optional text, which may be null.
    pub(super) fn optional_text(&mut self, name: &str) -> Result<Option<String>, ToolResult> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    /// Takes an optional list of texts.
    pub(super) fn optional_texts(&mut self, name: &str) -> Result<Option<Vec<String>>, ToolResult> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let texts = value
            .as_array()
            .and_then(|list| list.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>());
        texts.map(Some).ok_or_else(|| self.wrong(name, "a list of strings", &value))
    }

    /// Takes a whole number.
    pub(super) fn optional_count(&mut self, name: &str) -> Result<Option<u64>, ToolResult> {
        self.take(name)
            .map(|value| value.as_u64().ok_or_else(|| self.wrong(name, "a whole number of zero or more", &value)))
            .transpose()
    }

    /// Takes a flag, false by default.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, ToolResult> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(self.wrong(name, "true or false", &other)),
        }
    }

    /// Takes a duration: text, or a number of seconds.
    pub(super) fn optional_duration(&mut self, name: &str) -> Result<Option<Duration>, ToolResult> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let parsed = match &value {
            Value::String(text) => duration::parse(text).ok(),
            Value::Number(seconds) => seconds.as_f64().and_then(duration::from_seconds),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let expected = format!("{}, or a number of seconds", duration::EXPECTED);
        parsed.map(Some).ok_or_else(|| self.wrong(name, &expected, &value))
    }

    /// Takes the UUID of a process.
    pub(super) fn uuid(&mut self, name: &str) -> Result<Uuid, ToolResult> {
        let text = self.text(name)?;
        text.parse().map_err(|_| self.wrong(name, "a UUID", &Value::String(text)))
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, expected: &str, value: &Value) -> ToolResult {
        refused(self.tool, &format!("`{name}` must be {expected}, not {}", kind(value)))
    }
}

fn refused(tool: &str, text: &str) -> ToolResult {
    ToolResult::failed(format!("{tool}: {text}"))
}

/// Describes a value briefly.
fn kind(value: &Value) -> String {
    const SHOWN_MAX: usize = 40;
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.chars().count() <= SHOWN_MAX => value.to_string(),
        Value::String(text) => format!("{:?}...", text.chars().take(SHOWN_MAX).collect::<String>()),
    }
}
