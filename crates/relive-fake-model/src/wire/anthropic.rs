//! Anthropic's Messages API.

use hyper::HeaderMap;
use serde_json::{Value, json};

use super::{event, halves, list, must_stream, text};
use crate::history::{Answer, Entry, History, Returned};
use crate::script::{Turn, signature};

pub(super) fn read(headers: &HeaderMap, body: &Value) -> Result<History, String> {
    must_stream(body)?;
    if !headers.contains_key("anthropic-version") {
        return Err("anthropic-version: header is required".to_owned());
    }
    if !body["max_tokens"].is_u64() {
        return Err("max_tokens: Field required".to_owned());
    }
    let mut entries: Vec<Entry> = Vec::new();
    for message in list(body, "messages")? {
        let blocks = match &message["content"] {
            Value::String(said) => vec![json!({"type": "text", "text": said})],
            Value::Array(blocks) if !blocks.is_empty() => blocks.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return Err("messages: no content".to_owned());
            }
        };
        if blocks.iter().any(|block| block["type"] == "text" && block["text"].as_str().is_none_or(is_blank)) {
            return Err("messages: text content blocks must contain non-whitespace text".to_owned());
        }
        match message["role"].as_str() {
            Some("user") => {
                let results = blocks.iter().filter(|block| block["type"] == "tool_result");
                let results = results.map(|block| text(&block["tool_use_id"])).collect::<Result<Vec<_>, _>>()?;
                let has_text = blocks.iter().any(|block| block["type"] == "text");
                if !results.is_empty() {
                    entries.push(Entry::Results(results));
                }
                if has_text {
                    entries.push(Entry::User);
                }
            }
            Some("assistant") => entries.push(Entry::Answer(answer(&blocks)?)),
            other => return Err(format!("messages: role {other:?}")),
        }
    }
    Ok(History { entries, returned: Returned::SignedThinking })
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn answer(blocks: &[Value]) -> Result<Answer, String> {
    let mut answer = Answer::default();
    for (place, block) in blocks.iter().enumerate() {
        match block["type"].as_str() {
            Some("thinking") if place == 0 => {
                answer.thinking = Some(text(&block["thinking"])?);
                answer.signature = Some(text(&block["signature"])?);
            }
            Some("text") => {}
            Some("tool_use") => {
                if !block["input"].is_object() {
                    return Err("messages: tool_use.input: Input should be a valid dictionary".to_owned());
                }
                answer.calls.push(text(&block["id"])?);
                answer.names.push(text(&block["name"])?);
            }
            other => return Err(format!("messages: a block {other:?} at place {place}")),
        }
    }
    Ok(answer)
}

pub(super) fn write(number: usize, turn: &Turn) -> Vec<String> {
    let say = |data: Value| event(data["type"].as_str(), &data);
    let mut usage = json!({});
    if let Some(used) = turn.usage {
        usage = json!({"input_tokens": used.input - used.cached, "cache_read_input_tokens": used.cached,
            "cache_creation_input_tokens": 0, "output_tokens": 1});
    }
    let mut pieces = vec![
        say(json!({"type": "message_start", "message": {"id": format!("msg_{number}"), "type": "message",
            "role": "assistant", "content": [], "model": "fake", "stop_reason": null, "usage": usage}})),
        say(json!({"type": "ping"})),
    ];
    let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
    if let Some(thinking) = &turn.thinking {
        let mut deltas: Vec<Value> =
            halves(thinking).iter().map(|half| json!({"type": "thinking_delta", "thinking": half})).collect();
        deltas.push(json!({"type": "signature_delta", "signature": signature(number)}));
        blocks.push((json!({"type": "thinking", "thinking": "", "signature": ""}), deltas));
    }
    if !turn.text.is_empty() {
        let deltas = turn.text.iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect();
        blocks.push((json!({"type": "text", "text": ""}), deltas));
    }
    for (place, (name, args)) in turn.calls.iter().enumerate() {
        let args = args.to_string();
        let deltas = halves(&args).map(|half| json!({"type": "input_json_delta", "partial_json": half}));
        let id = format!("toolu_{number}_{place}");
        blocks.push((json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas.to_vec()));
    }
    for (index, (block, deltas)) in blocks.into_iter().enumerate() {
        pieces.push(say(json!({"type": "content_block_start", "index": index, "content_block": block})));
        let deltas =
            deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta}));
        pieces.extend(deltas.map(say));
        pieces.push(say(json!({"type": "content_block_stop", "index": index})));
    }
    let stop = if turn.calls.is_empty() { "end_turn" } else { "tool_use" };
    let mut end = json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}});
    if let Some(used) = turn.usage {
        end["usage"] = json!({"output_tokens": used.output});
    }
    pieces.extend([say(end), say(json!({"type": "message_stop"}))]);
    pieces
}
