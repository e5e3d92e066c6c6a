//! Whole conversations. The server refuses a conversation that was changed.

use relive_fake_model::{FakeModel, Turn};
use relive_llm::Message;
use serde_json::json;

use crate::support::{Heard, MODELS, ask, model, user};

fn turns() -> Vec<Turn> {
    vec![
        Turn::text("I look.")
            .thinking("First the files.")
            .and_calls("read", json!({"path": "a"}))
            .and_calls("read", json!({"path": "b"})),
        Turn::calls("write", json!({"path": "c"})).thinking("Now write it."),
        Turn::text("All done."),
        Turn::text("You are welcome."),
    ]
}

/// Adds an answer and the results of its calls.
fn take_in(messages: &mut Vec<Message>, heard: &Heard) {
    messages.push(heard.message());
    for (number, call) in heard.calls.iter().enumerate() {
        let (id, result) = (call.id.clone(), format!("result {number} of {}", call.name));
        messages.push(Message::Tool { id, ok: number == 0, result });
    }
}

#[tokio::test]
async fn a_conversation_with_tools_and_thinking_is_accepted_to_its_end() {
    for name in MODELS {
        let server = FakeModel::start(turns());
        let model = model(name, &server);
        let mut messages = vec![user("do it")];
        for step in 0..2 {
            let heard = ask(&model, &messages).await;
            assert_eq!(heard.error, None, "{name}");
            assert_eq!(heard.calls.len(), 2 - step, "{name}");
            take_in(&mut messages, &heard);
        }
        // The user wrote a message while the tools ran.
        messages.push(user("and quickly"));
        let heard = ask(&model, &messages).await;
        assert_eq!((heard.text.as_str(), heard.error.as_ref()), ("All done.", None), "{name}");
        take_in(&mut messages, &heard);
        messages.push(user("thank you"));
        let heard = ask(&model, &messages).await;
        assert_eq!((heard.text.as_str(), heard.error), ("You are welcome.", None), "{name}");
        let refused: Vec<_> = server.requests().into_iter().filter_map(|request| request.refused).collect();
        assert_eq!(refused, Vec::<String>::new(), "{name}");
        let last = server.requests().pop().unwrap().body.to_string();
        for said in ["result 0 of read", "result 1 of read", "result 0 of write", "and quickly", "thank you"] {
            assert_eq!(last.matches(said).count(), 1, "{name}: {said} in {last}");
        }
    }
}

#[tokio::test]
async fn thinking_of_another_provider_is_not_sent() {
    let server = FakeModel::start([Turn::text("hi").thinking("secret thoughts")]);
    let heard = ask(&model("anthropic/claude-sonnet-4-5", &server), &[user("go")]).await;
    let other = FakeModel::start([]);
    let messages = [user("go"), heard.message(), user("on")];
    let heard = ask(&model("gemini/gemini-2.5-flash", &other), &messages).await;
    assert_eq!(heard.error, None);
    let body = other.requests().pop().unwrap().body.to_string();
    assert!(!body.contains("secret thoughts") && !body.contains("thoughtSignature"), "{body}");
}

#[tokio::test]
async fn an_empty_answer_is_left_out_of_the_conversation() {
    for name in MODELS {
        let server = FakeModel::start([]);
        let nothing = Heard { text: " \n".to_owned(), ..Heard::default() }.message();
        let heard = ask(&model(name, &server), &[user("go"), nothing, user("on")]).await;
        assert_eq!((heard.text.as_str(), heard.error), ("done", None), "{name}");
    }
}

#[tokio::test]
async fn a_failed_tool_is_told_to_anthropic_as_an_error() {
    let server = FakeModel::start(turns());
    let model = model(MODELS[0], &server);
    let mut messages = vec![user("do it")];
    let heard = ask(&model, &messages).await;
    take_in(&mut messages, &heard);
    ask(&model, &messages).await;
    let body = server.requests().pop().unwrap().body;
    let results = body["messages"][2]["content"].as_array().unwrap();
    assert_eq!((&results[0]["is_error"], &results[1]["is_error"]), (&json!(null), &json!(true)));
    assert_eq!(results[1]["cache_control"]["type"], "ephemeral", "the next question begins with this one");
}
