//! Answers arrive complete.

use relive_fake_model::{FakeModel, Turn};
use relive_llm::{Message, ToolCall};
use serde_json::{Value, json};

use crate::support::{KEY, MODELS, ask, hear, model, user};

fn args(call: &ToolCall) -> Value {
    serde_json::from_str(&call.args).unwrap()
}

#[tokio::test]
async fn text_arrives_in_pieces_and_with_its_usage() {
    for name in MODELS {
        let heard = hear(name, Turn::text("Hello, ").then("wörld\n").then("!").usage(1000, 50, 0)).await;
        assert_eq!(heard.error, None, "{name}");
        assert_eq!(heard.text, "Hello, wörld\n!", "{name}");
        let usage = heard.usage.unwrap();
        assert_eq!((usage.tokens_in, usage.tokens_out, usage.estimated), (1000, 50, false), "{name}");
        assert!(heard.calls.is_empty() && heard.carry.is_none(), "{name}: {heard:?}");
    }
}

#[tokio::test]
async fn the_cost_is_set_only_if_the_price_is_known() {
    let cost = async |name: &str, cached| {
        let heard = hear(name, Turn::text("x").usage(1000, 100, cached)).await;
        heard.usage.unwrap().cost_usd.map(relive_types::Usd::nanos)
    };
    // 3 and 15 dollars a million.
    assert_eq!(cost("anthropic/claude-sonnet-4-5-20250929", 0).await, Some(3_000_000 + 1_500_000));
    // 600 of them at 0.30.
    assert_eq!(cost("anthropic/claude-sonnet-4-5", 600).await, Some(1_200_000 + 180_000 + 1_500_000));
    assert_eq!(cost("openai-chat/gpt-5", 0).await, Some(1_250_000 + 1_000_000));
    assert_eq!(cost("anthropic/claude-unheard-of", 0).await, None);
    assert_eq!(cost("ollama/qwen3", 0).await, None);
}

#[tokio::test]
async fn cached_tokens_are_reported() {
    for name in MODELS.into_iter().filter(|name| !name.starts_with("ollama")) {
        let usage = hear(name, Turn::text("x").usage(1000, 10, 400)).await.usage.unwrap();
        assert_eq!((usage.tokens_in, usage.cache_read), (1000, 400), "{name}");
    }
}

#[tokio::test]
async fn a_missing_usage_is_reported_as_missing() {
    for name in MODELS {
        let heard = hear(name, Turn::text("said").without_usage()).await;
        assert_eq!((heard.text.as_str(), heard.usage, heard.error), ("said", None, None), "{name}");
    }
}

#[tokio::test]
async fn calls_arrive_whole_and_in_order() {
    for name in MODELS {
        let turn = Turn::text("Two files.")
            .and_calls("read", json!({"path": "a \"quoted\" näme"}))
            .and_calls("write", json!({"path": "b", "deep": {"list": [1, 2.5, null, true]}}))
            .and_calls("read", json!({}));
        let heard = hear(name, turn).await;
        assert_eq!(heard.error, None, "{name}");
        let names: Vec<&str> = heard.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["read", "write", "read"], "{name}");
        assert_eq!(args(&heard.calls[0]), json!({"path": "a \"quoted\" näme"}), "{name}");
        assert_eq!(args(&heard.calls[1])["deep"]["list"], json!([1, 2.5, null, true]), "{name}");
        assert_eq!(args(&heard.calls[2]), json!({}), "{name}");
    }
}

#[tokio::test]
async fn thinking_arrives_from_providers_that_show_it() {
    for name in MODELS {
        let heard = hear(name, Turn::text("So.").thinking("Let me think. Yes.")).await;
        let hidden = name.starts_with("openai-responses");
        assert_eq!(heard.thinking, if hidden { "" } else { "Let me think. Yes." }, "{name}");
        assert_eq!(heard.text, "So.", "{name}");
        let signs = ["anthropic", "openai-responses", "gemini"].iter().any(|signer| name.starts_with(signer));
        assert_eq!(heard.carry.is_some(), signs, "{name}: {:?}", heard.carry);
    }
}

#[tokio::test]
async fn a_request_has_prompt_tools_and_messages_and_the_key_only_in_the_header() {
    for name in MODELS {
        let server = FakeModel::start([]);
        ask(&model(name, &server), &[user("the question"), Message::Summary { text: "the summary".to_owned() }]).await;
        let [request] = &server.requests()[..] else { panic!("{name}") };
        let body = request.body.to_string();
        for said in ["the question", "the summary", "Be brief.", "\"read\"", "does it"] {
            assert!(body.contains(said), "{name}: no {said} in {body}");
        }
        assert!(!body.contains(KEY) && !request.path.contains(KEY), "{name}");
    }
}
