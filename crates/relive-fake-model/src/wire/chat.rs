//! OpenAI's chat completions, as used by OpenAI, DeepSeek and many other servers.

use serde_json::{Value, json};

use super::{event, halves, list, must_stream, text};
use crate::history::{Answer, Entry, History, Returned};
use crate::script::Turn;

pub(super) fn read(body: &Value) -> Result<History, String> {
    must_stream(body)?;
    let mut entries: Vec<Entry> = Vec::new();
    for message in list(body, "messages")? {
        match message["role"].as_str() {
            Some("system") if entries.is_empty() => {}
            Some("user") => entries.push(Entry::User),
            Some("assistant") => entries.push(Entry::Answer(answer(message)?)),
            Some("tool") => {
                let id = text(&message["tool_call_id"])?;
                match entries.last_mut() {
                    Some(Entry::Results(results)) => results.push(id),
                    Some(_) | None => entries.push(Entry::Results(vec![id])),
                }
            }
            other => return Err(format!("messages: role {other:?}")),
        }
    }
    let is_deepseek = body["model"].as_str().is_some_and(|model| model.starts_with("deepseek"));
    let returned = if is_deepseek { Returned::Thinking } else { Returned::Nothing };
    Ok(History { entries, returned })
}

fn answer(message: &Value) -> Result<Answer, String> {
    let mut answer = Answer { thinking: message["reasoning_content"].as_str().map(str::to_owned), ..Answer::default() };
    for call in message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let arguments = text(&call["function"]["arguments"])?;
        if !serde_json::from_str::<Value>(&arguments).is_ok_and(|value| value.is_object()) {
            return Err(format!("the arguments `{arguments}` are no JSON object"));
        }
        answer.calls.push(text(&call["id"])?);
        answer.names.push(text(&call["function"]["name"])?);
    }
    Ok(answer)
}

pub(super) fn write(number: usize, turn: &Turn) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        event(
            None,
            &json!({"id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk", "created": 1, "model": "fake",
                "choices": choices, "usage": usage}),
        )
    };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
    let mut pieces = vec![delta(json!({"role": "assistant", "content": ""}))];
    if let Some(thinking) = &turn.thinking {
        pieces.extend(halves(thinking).map(|half| delta(json!({"reasoning_content": half}))));
    }
    pieces.extend(turn.text.iter().map(|piece| delta(json!({"content": piece}))));
    for (index, (name, args)) in turn.calls.iter().enumerate() {
        let id = format!("call_{number}_{index}");
        let function = json!({"name": name, "arguments": ""});
        pieces
            .push(delta(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})));
        let args = args.to_string();
        pieces.extend(
            halves(&args).map(|half| delta(json!({"tool_calls": [{"index": index, "function": {"arguments": half}}]}))),
        );
    }
    let stop = if turn.calls.is_empty() { "stop" } else { "tool_calls" };
    pieces.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": stop}]), Value::Null));
    if let Some(used) = turn.usage {
        let usage = json!({"prompt_tokens": used.input, "completion_tokens": used.output,
            "total_tokens": used.input + used.output, "prompt_tokens_details": {"cached_tokens": used.cached}});
        pieces.push(chunk(json!([]), usage));
    }
    pieces.push("data: [DONE]\n\n".to_owned());
    pieces
}
