//! The wire formats, one file each: reading a request and writing an answer.

mod anthropic;
mod chat;
mod gemini;
mod ollama;
mod responses;

use hyper::HeaderMap;
use serde_json::{Value, json};

use crate::history::History;
use crate::script::Turn;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    Chat,
    Responses,
    Gemini,
    Ollama,
}

impl Wire {
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/messages" => Some(Self::Anthropic),
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/api/chat" => Some(Self::Ollama),
            _ if path.starts_with("/v1beta/models/") && path.ends_with(":streamGenerateContent") => Some(Self::Gemini),
            _ => None,
        }
    }

    /// Counts the answers in a conversation, whatever else is in it.
    pub(crate) fn answers(self, body: &Value) -> usize {
        let list = |name: &str| body[name].as_array().map(Vec::as_slice).unwrap_or_default().iter();
        match self {
            Self::Responses => {
                let is_answer = |item: &Value| {
                    matches!(item["type"].as_str(), Some("reasoning" | "function_call")) || item["role"] == "assistant"
                };
                let begins = |(place, item): (usize, &Value)| {
                    let before = place.checked_sub(1).and_then(|before| body["input"].get(before));
                    is_answer(item) && !before.is_some_and(is_answer)
                };
                list("input").enumerate().filter(|entry| begins(*entry)).count()
            }
            Self::Anthropic | Self::Chat | Self::Ollama => {
                list("messages").filter(|message| message["role"] == "assistant").count()
            }
            Self::Gemini => list("contents").filter(|message| message["role"] == "model").count(),
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Chat | Self::Responses | Self::Gemini => "text/event-stream",
            Self::Ollama => "application/x-ndjson",
        }
    }

    /// Returns the key of a request; an empty one counts as absent.
    pub(crate) fn key(self, headers: &HeaderMap) -> Option<String> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let key = match self {
            Self::Anthropic => header("x-api-key"),
            Self::Chat | Self::Responses => header("authorization").and_then(|value| value.strip_prefix("Bearer ")),
            Self::Gemini => header("x-goog-api-key"),
            Self::Ollama => None,
        };
        key.filter(|key| !key.is_empty()).map(str::to_owned)
    }

    /// Returns whether requests without a key are refused.
    pub(crate) fn wants_key(self) -> bool {
        match self {
            Self::Anthropic | Self::Chat | Self::Responses | Self::Gemini => true,
            Self::Ollama => false,
        }
    }

    /// Returns the conversation of a request, or why it is malformed.
    pub(crate) fn read(self, headers: &HeaderMap, body: &Value) -> Result<History, String> {
        match self {
            Self::Anthropic => anthropic::read(headers, body),
            Self::Chat => chat::read(body),
            Self::Responses => responses::read(body),
            Self::Gemini => gemini::read(body),
            Self::Ollama => ollama::read(body),
        }
    }

    /// Returns the pieces of an answer.
    pub(crate) fn write(self, number: usize, turn: &Turn) -> Vec<String> {
        match self {
            Self::Anthropic => anthropic::write(number, turn),
            Self::Chat => chat::write(number, turn),
            Self::Responses => responses::write(number, turn),
            Self::Gemini => gemini::write(number, turn),
            Self::Ollama => ollama::write(turn),
        }
    }

    /// Returns the body of a failure.
    pub(crate) fn error(self, status: u16, message: &str) -> Value {
        let kind = match status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        match self {
            Self::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
            Self::Chat | Self::Responses => json!({"error": {"message": message, "type": kind, "code": null}}),
            Self::Gemini => json!([{"error": {"code": status, "message": message, "status": gemini::status(status)}}]),
            Self::Ollama => json!({"error": message}),
        }
    }
}

/// Formats a server-sent event.
fn event(name: Option<&str>, data: &Value) -> String {
    name.map_or_else(|| format!("data: {data}\n\n"), |name| format!("event: {name}\ndata: {data}\n\n"))
}

/// Splits a text in two halves, as a stream may cut it.
fn halves(text: &str) -> [&str; 2] {
    let (first, second) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [first, second]
}

/// Returns a required list.
fn list<'a>(body: &'a Value, name: &str) -> Result<&'a [Value], String> {
    body[name].as_array().map(Vec::as_slice).ok_or_else(|| format!("`{name}` is missing"))
}

fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("{value} is no text"))
}

fn must_stream(body: &Value) -> Result<(), String> {
    if body["stream"] == true { Ok(()) } else { Err("`stream` is not true".to_owned()) }
}
