//! OpenAI's Responses API, without state on the server.

use serde_json::{Value, json};

use super::{event, halves, list, must_stream, text};
use crate::history::{Answer, Entry, History, Returned};
use crate::script::{Turn, signature};

pub(super) fn read(body: &Value) -> Result<History, String> {
    must_stream(body)?;
    if body["store"] != false {
        return Err("`store` is not false".to_owned());
    }
    let mut entries: Vec<Entry> = Vec::new();
    // An answer is several items: its reasoning, what it says, its calls.
    let mut open = None::<Answer>;
    for item in list(body, "input")? {
        let kind = item["type"].as_str().unwrap_or("message");
        match (kind, item["role"].as_str()) {
            ("reasoning", _) => {
                let answer = open.get_or_insert_default();
                answer.signature = Some(text(&item["encrypted_content"])?);
            }
            ("message", Some("assistant")) => drop(open.get_or_insert_default()),
            ("function_call", _) => {
                let answer = open.get_or_insert_default();
                answer.calls.push(text(&item["call_id"])?);
                answer.names.push(text(&item["name"])?);
            }
            ("function_call_output", _) => {
                entries.extend(open.take().map(Entry::Answer));
                let id = text(&item["call_id"])?;
                match entries.last_mut() {
                    Some(Entry::Results(results)) => results.push(id),
                    Some(_) | None => entries.push(Entry::Results(vec![id])),
                }
            }
            ("message", Some("user")) => {
                entries.extend(open.take().map(Entry::Answer));
                entries.push(Entry::User);
            }
            other => return Err(format!("input: an item {other:?}")),
        }
    }
    entries.extend(open.map(Entry::Answer));
    let asked =
        body["include"].as_array().is_some_and(|include| include.contains(&json!("reasoning.encrypted_content")));
    Ok(History { entries, returned: if asked { Returned::Signature } else { Returned::Nothing } })
}

pub(super) fn write(number: usize, turn: &Turn) -> Vec<String> {
    let say = |data: Value| event(data["type"].as_str(), &data);
    let response = json!({"id": format!("resp_{number}"), "object": "response", "model": "fake", "output": [],
        "status": "in_progress", "usage": null});
    let mut pieces = vec![say(json!({"type": "response.created", "response": response}))];
    let mut output = Vec::new();
    if turn.thinking.is_some() {
        output.push((
            json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [],
                "encrypted_content": signature(number)}),
            Vec::new(),
        ));
    }
    if !turn.text.is_empty() {
        let id = format!("msg_{number}");
        let said = json!({"type": "output_text", "text": turn.text.concat(), "annotations": []});
        let deltas = turn.text.iter().map(|piece| json!({"type": "response.output_text.delta", "delta": piece}));
        let item = json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [said]});
        output.push((item, deltas.collect()));
    }
    for (place, (name, args)) in turn.calls.iter().enumerate() {
        let args = args.to_string();
        let deltas = halves(&args).map(|half| json!({"type": "response.function_call_arguments.delta", "delta": half}));
        let item = json!({"type": "function_call", "id": format!("fc_{number}_{place}"), "name": name,
            "call_id": format!("call_{number}_{place}"), "arguments": args, "status": "completed"});
        output.push((item, deltas.to_vec()));
    }
    for (index, (item, deltas)) in output.iter().enumerate() {
        let mut begun = item.clone();
        if begun["type"] == "function_call" {
            begun["arguments"] = json!("");
        }
        pieces.push(say(json!({"type": "response.output_item.added", "output_index": index, "item": begun})));
        for delta in deltas {
            let mut delta = delta.clone();
            delta["output_index"] = json!(index);
            delta["item_id"] = item["id"].clone();
            pieces.push(say(delta));
        }
        pieces.push(say(json!({"type": "response.output_item.done", "output_index": index, "item": item})));
    }
    let usage = turn.usage.map(|used| {
        json!({"input_tokens": used.input, "input_tokens_details": {"cached_tokens": used.cached},
            "output_tokens": used.output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used.input + used.output})
    });
    let items: Vec<&Value> = output.iter().map(|(item, _)| item).collect();
    let done = json!({"id": format!("resp_{number}"), "object": "response", "model": "fake", "output": items,
        "status": "completed", "usage": usage});
    pieces.push(say(json!({"type": "response.completed", "response": done})));
    pieces
}
