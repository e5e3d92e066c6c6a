//! Servers that send too much, too deep, or nonsense.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use relive_llm::ModelError;
use serde_json::{Value, json};

use crate::any_stream::{NAMES, check, serve, serve_status};

/// Frames of one wire format: the beginning of a call, one piece of its arguments, and the end.
struct Wire {
    begin: String,
    end: String,
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn wire(name: &str) -> Wire {
    let chat = |delta: &Value| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
    let item = |arguments: &str| json!({"type": "function_call", "id": "i", "call_id": "c", "name": "write", "arguments": arguments});
    match name.split('/').next().unwrap() {
        "anthropic" => Wire {
            begin: event("message_start", &json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}))
                + &event(
                    "content_block_start",
                    &json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "tool_use", "id": "c", "name": "write", "input": {}}}),
                ),
            end: event("content_block_stop", &json!({"type": "content_block_stop", "index": 0}))
                + &event("message_stop", &json!({"type": "message_stop"})),
        },
        "openai-responses" => Wire {
            begin: event(
                "response.output_item.added",
                &json!({"type": "response.output_item.added", "output_index": 0, "item": item("")}),
            ),
            end: event(
                "response.completed",
                &json!({"type": "response.completed",
                "response": {"id": "r", "status": "completed", "model": "m", "output": []}}),
            ),
        },
        _ => Wire {
            begin: chat(&json!({"tool_calls": [{"index": 0, "id": "c", "type": "function",
                "function": {"name": "write", "arguments": ""}}]})),
            end: chat(&json!({})) + "data: [DONE]\n\n",
        },
    }
}

/// One piece of the arguments of a call.
fn piece(name: &str, args: &str) -> String {
    match name.split('/').next().unwrap() {
        "anthropic" => event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": args}}),
        ),
        "openai-responses" => event(
            "response.function_call_arguments.delta",
            &json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": args}),
        ),
        _ => {
            let delta = json!({"tool_calls": [{"index": 0, "function": {"arguments": args}}]});
            format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
        }
    }
}

/// The formats that send arguments in pieces.
const IN_PIECES: [&str; 4] = [NAMES[0], NAMES[1], NAMES[2], NAMES[5]];

#[tokio::test]
async fn the_pieces_of_a_call_are_progress_and_make_one_call() {
    for name in IN_PIECES {
        let Wire { begin, end } = wire(name);
        let args = [r#"{"path":"#, r#""a","#, r#""content":"b"}"#].map(|args| piece(name, args)).concat();
        let outcome = serve(name, vec![(begin + &args + &end).into_bytes()], false).await;
        assert_eq!(outcome.error, None, "{name}");
        assert_eq!(outcome.calls, [("write".to_owned(), r#"{"path":"a","content":"b"}"#.to_owned())], "{name}");
        assert!(outcome.progress >= 3, "{name}: {}", outcome.progress);
    }
}

#[tokio::test]
async fn an_argument_of_16_mib_is_cut_at_2_mib_so_that_the_tool_refuses_it() {
    for name in IN_PIECES {
        let Wire { begin, .. } = wire(name);
        let mut pieces = vec![begin.into_bytes(), piece(name, r#"{"path":"a","content":""#).into_bytes()];
        pieces.extend((0..256).map(|_| piece(name, &"x".repeat(64 << 10)).into_bytes()));
        let begun = Instant::now();
        let outcome = serve(name, pieces, false).await;
        let took = begun.elapsed();
        assert_eq!(outcome.error, None, "{name}");
        let [(tool, args)] = &outcome.calls[..] else { panic!("{name}: {} calls", outcome.calls.len()) };
        assert!(tool == "write" && (2 << 20..=(2 << 20) + (128 << 10)).contains(&args.len()), "{name}: {}", args.len());
        assert!(took < Duration::from_secs(5), "{name}: {took:?}");
    }
}

#[tokio::test]
async fn a_huge_call_index_allocates_no_memory() {
    for name in [NAMES[1], NAMES[5]] {
        let delta =
            json!({"tool_calls": [{"index": u32::MAX, "id": "c", "function": {"name": "read", "arguments": "{}"}}]});
        let frame = format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
        let outcome = serve(name, vec![frame.into_bytes()], false).await;
        assert_eq!(outcome.calls, [("read".to_owned(), "{}".to_owned())], "{name}");
    }
}

#[tokio::test]
async fn deeply_nested_arguments_are_passed_on_or_fail_without_a_retry() {
    let nested = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for name in IN_PIECES {
        let Wire { begin, end } = wire(name);
        let outcome = serve(name, vec![(begin + &piece(name, &nested) + &end).into_bytes()], false).await;
        assert_eq!(outcome.calls, [("write".to_owned(), nested.clone())], "{name}");
    }
    let gemini = format!(
        "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{{\"name\":\"a\",\"args\":{nested}}}}}]}}}}]}}\n\n"
    );
    let ollama =
        format!("{{\"message\":{{\"tool_calls\":[{{\"function\":{{\"name\":\"a\",\"arguments\":{nested}}}}}]}}}}\n");
    for (name, frame) in [(NAMES[3], gemini), (NAMES[4], ollama)] {
        let outcome = serve(name, vec![frame.into_bytes()], false).await;
        assert!(matches!(outcome.error, Some(ModelError::TooLong(_))), "{name}: {:?}", outcome.error);
    }
}

#[tokio::test]
async fn an_endless_frame_is_cut() {
    let begun = Instant::now();
    let outcome = serve(NAMES[0], vec![b"data: ".to_vec(), vec![b'x'; 1 << 20]], true).await;
    assert!(matches!(outcome.error, Some(ModelError::TooLong(_))), "{:?}", outcome.error);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_endless_refusal_is_cut_and_keeps_its_status() {
    for name in NAMES {
        let (outcome, sent) = serve_status(name, "503 No", vec![vec![b'x'; 1 << 20]], 256 << 20).await;
        let Some(ModelError::Overloaded { text, .. }) = &outcome.error else { panic!("{name}: {:?}", outcome.error) };
        assert!(text.contains("answered 503"), "{name}: {text}");
        assert!(sent < 64 << 20, "{name}: {sent} bytes were read");
    }
}

#[tokio::test]
#[ignore = "sends 128 MiB"]
async fn endless_empty_frames_are_cut() {
    let ping = event("ping", &json!({"type": "ping", "padding": "x".repeat(100_000)}));
    let outcome = serve(NAMES[0], vec![ping.into_bytes()], true).await;
    assert!(matches!(outcome.error, Some(ModelError::TooLong(_))), "{:?}", outcome.error);
}

/// Returns frames that resemble those of a provider: whole, cut or changed.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "\"choices\"",
        "\"delta\"",
        "\"tool_calls\"",
        "\"index\"",
        "\"function\"",
        "\"arguments\"",
        "\"type\"",
        "\"content_block_start\"",
        "\"content_block\"",
        "\"tool_use\"",
        "\"candidates\"",
        "\"parts\"",
        "\"message\"",
        "\"functionCall\"",
        "\"response.completed\"",
        "\"output\"",
        "\"usage\"",
        "\"done\"",
        "true",
        "null",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "-1",
        "1e999",
        "4294967295",
        "\n\n",
        "\ndata: ",
        "event: content_block_delta\n",
        "event: message_stop\n",
        "data: [DONE]\n\n",
        "\r",
        "\u{fffd}",
        "\\u0000",
    ]);
    let made = prop::collection::vec(word, 0..60).prop_map(|words| words.concat().into_bytes());
    let real = (prop::sample::select(IN_PIECES.to_vec()), any::<prop::sample::Index>(), any::<u8>()).prop_map(
        |(name, place, byte)| {
            let Wire { begin, end } = wire(name);
            let mut bytes = (begin + &piece(name, "{\"a\":1}") + &end).into_bytes();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            bytes
        },
    );
    prop_oneof![made, real, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_bytes_give_an_answer_or_an_error(name in prop::sample::select(NAMES.to_vec()), bytes in frames()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(name, &bytes));
    }
}
