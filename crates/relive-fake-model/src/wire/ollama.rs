//! Ollama's `/api/chat`: one JSON object a line, calls without ids.

use serde_json::{Value, json};

use super::{list, must_stream, text};
use crate::history::{Answer, Entry, History, Returned};
use crate::script::Turn;

/// Stands for the id of every call: all results look alike.
const ANY: &str = "call";

pub(super) fn read(body: &Value) -> Result<History, String> {
    must_stream(body)?;
    let mut entries: Vec<Entry> = Vec::new();
    for message in list(body, "messages")? {
        match message["role"].as_str() {
            Some("system") if entries.is_empty() => {}
            Some("user") => entries.push(Entry::User),
            Some("assistant") => {
                let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
                if let Some(call) = calls.iter().find(|call| !call["function"]["arguments"].is_object()) {
                    return Err(format!("the arguments of {call} are no object"));
                }
                let names = calls.iter().map(|call| text(&call["function"]["name"])).collect::<Result<Vec<_>, _>>()?;
                entries.push(Entry::Answer(Answer {
                    calls: vec![ANY.to_owned(); names.len()],
                    names,
                    ..Answer::default()
                }));
            }
            Some("tool") => {
                text(&message["content"])?;
                match entries.last_mut() {
                    Some(Entry::Results(results)) => results.push(ANY.to_owned()),
                    Some(_) | None => entries.push(Entry::Results(vec![ANY.to_owned()])),
                }
            }
            other => return Err(format!("messages: role {other:?}")),
        }
    }
    Ok(History { entries, returned: Returned::Nothing })
}

pub(super) fn write(turn: &Turn) -> Vec<String> {
    let line = |message: Value| format!("{}\n", json!({"model": "fake", "message": message, "done": false}));
    let mut pieces = vec![line(json!({"role": "assistant", "content": ""}))];
    pieces.extend(
        turn.thinking.iter().map(|thinking| line(json!({"role": "assistant", "content": "", "thinking": thinking}))),
    );
    pieces.extend(turn.text.iter().map(|piece| line(json!({"role": "assistant", "content": piece}))));
    let calls = turn.calls.iter().map(|(name, args)| json!({"function": {"name": name, "arguments": args}}));
    let calls: Vec<Value> = calls.collect();
    if !calls.is_empty() {
        pieces.push(line(json!({"role": "assistant", "content": "", "tool_calls": calls})));
    }
    let mut end = json!({"model": "fake", "message": {"role": "assistant", "content": ""}, "done": true,
        "done_reason": "stop"});
    if let Some(used) = turn.usage {
        end["prompt_eval_count"] = json!(used.input);
        end["eval_count"] = json!(used.output);
    }
    pieces.push(format!("{end}\n"));
    pieces
}
