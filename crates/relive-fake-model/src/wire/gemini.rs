//! Gemini's `streamGenerateContent`. Its calls have no ids: results are matched by name and order.

use serde_json::{Value, json};

use super::{event, halves, list, text};
use crate::history::{Answer, Entry, History, Returned};
use crate::script::{Turn, signature};

pub(super) fn status(code: u16) -> &'static str {
    match code {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    }
}

pub(super) fn read(body: &Value) -> Result<History, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for content in list(body, "contents")? {
        let parts = list(content, "parts")?;
        match content["role"].as_str() {
            Some("user") => {
                let results = parts.iter().filter(|part| part["functionResponse"].is_object());
                let results = results.map(|part| text(&part["functionResponse"]["name"]));
                let results = results.collect::<Result<Vec<_>, _>>()?;
                if results.is_empty() {
                    entries.push(Entry::User);
                } else {
                    entries.push(Entry::Results(results));
                }
            }
            Some("model") => entries.push(Entry::Answer(answer(parts)?)),
            other => return Err(format!("contents: role {other:?}")),
        }
    }
    Ok(History { entries, returned: Returned::Signature })
}

fn answer(parts: &[Value]) -> Result<Answer, String> {
    let mut answer = Answer::default();
    for part in parts {
        if let Some(signature) = part["thoughtSignature"].as_str() {
            answer.signature.get_or_insert(signature.to_owned());
        }
        let call = &part["functionCall"];
        if call.is_object() {
            let name = text(&call["name"])?;
            answer.calls.push(name.clone());
            answer.names.push(name);
        }
    }
    Ok(answer)
}

pub(super) fn write(number: usize, turn: &Turn) -> Vec<String> {
    let usage = turn.usage.map(|used| {
        json!({"promptTokenCount": used.input, "candidatesTokenCount": used.output,
            "totalTokenCount": used.input + used.output, "cachedContentTokenCount": used.cached})
    });
    let chunk = |parts: Value, stop: Option<&str>| {
        let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
        if let Some(stop) = stop {
            candidate["finishReason"] = json!(stop);
        }
        let mut whole = json!({"candidates": [candidate], "modelVersion": "fake"});
        if let Some(usage) = &usage {
            whole["usageMetadata"] = usage.clone();
        }
        event(None, &whole)
    };
    // The first part after the thinking is signed.
    let mut unsigned = turn.thinking.as_ref().map(|_| signature(number));
    let mut signed = |mut part: Value| {
        if let Some(signature) = unsigned.take() {
            part["thoughtSignature"] = json!(signature);
        }
        part
    };
    let mut pieces = Vec::new();
    if let Some(thinking) = &turn.thinking {
        pieces.extend(halves(thinking).map(|half| chunk(json!([{"text": half, "thought": true}]), None)));
    }
    for piece in &turn.text {
        let part = if turn.calls.is_empty() { signed(json!({"text": piece})) } else { json!({"text": piece}) };
        pieces.push(chunk(json!([part]), None));
    }
    let calls = turn.calls.iter().map(|(name, args)| signed(json!({"functionCall": {"name": name, "args": args}})));
    let calls: Vec<Value> = calls.collect();
    if !calls.is_empty() {
        pieces.push(chunk(json!(calls), None));
    }
    pieces.push(chunk(json!([{"text": ""}]), Some("STOP")));
    pieces
}
