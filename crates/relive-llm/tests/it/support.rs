//! The providers, each with a server of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use relive_fake_model::{FakeModel, Turn};
use relive_llm::{Access, Prices, Secret, Timeouts, Windows};
use relive_llm::{Delta, Message, Model, ModelError, Purpose, Question, ToolCall};
use relive_types::Usage;

/// One model of each provider, all of which think.
pub(crate) const MODELS: [&str; 6] = [
    "anthropic/claude-sonnet-4-5",
    "openai-chat/gpt-5",
    "openai-responses/gpt-5",
    "gemini/gemini-2.5-flash",
    "ollama/qwen3",
    "deepseek/deepseek-reasoner",
];

/// No error may hold it.
pub(crate) const KEY: &str = "sk-this-is-the-key";

pub(crate) fn model(name: &str, server: &FakeModel) -> Arc<dyn Model> {
    let timeouts = Timeouts { first_byte: Duration::from_secs(20), idle: Duration::from_secs(20) };
    patient(name, server, timeouts)
}

pub(crate) fn patient(name: &str, server: &FakeModel, timeouts: Timeouts) -> Arc<dyn Model> {
    let base_url = if name.starts_with("openai") { server.openai_base_url() } else { server.base_url() };
    let access = Access { base_url: Some(base_url), key: Some(Secret::new(KEY)) };
    relive_llm::open_with(name, access, &Prices::builtin(), &Windows::builtin(), timeouts).unwrap()
}

/// The pieces of an answer.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Heard {
    pub(crate) thinking: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) carry: Option<String>,
    pub(crate) usage: Option<Usage>,
    pub(crate) error: Option<ModelError>,
}

impl Heard {
    pub(crate) fn message(&self) -> Message {
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        Message::Model {
            thinking: some(&self.thinking),
            text: some(&self.text),
            calls: self.calls.clone(),
            carry: self.carry.clone(),
        }
    }
}

pub(crate) fn question(messages: Vec<Message>) -> Question {
    let tool = |name: &str| {
        serde_json::json!({"name": name, "description": "does it", "input_schema":
            {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}})
    };
    let tools = serde_json::json!([tool("read"), tool("write")]).to_string();
    let purpose = Purpose::Step;
    Question {
        step: 1,
        system_prompt: "Be brief.".into(),
        tools: tools.into(),
        messages: messages.into(),
        answers: 0,
        purpose,
    }
}

pub(crate) fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

pub(crate) async fn ask(model: &Arc<dyn Model>, messages: &[Message]) -> Heard {
    let mut heard = Heard::default();
    let mut answer = match model.ask(question(messages.to_vec())).await {
        Ok(answer) => answer,
        Err(error) => return Heard { error: Some(error), ..heard },
    };
    while let Some(delta) = answer.next().await {
        match delta {
            Ok(Delta::Thinking(piece)) => heard.thinking.push_str(&piece),
            Ok(Delta::Text(piece)) => heard.text.push_str(&piece),
            Ok(Delta::Call(call)) => heard.calls.push(call),
            Ok(Delta::Carry(carry)) => heard.carry = Some(carry),
            Ok(Delta::Usage(usage)) => heard.usage = Some(usage),
            Ok(Delta::Progress) => {}
            Err(error) => heard.error = Some(error),
        }
    }
    if let Some(error) = &heard.error {
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
    }
    heard
}

/// Asks one question, answered by one turn.
pub(crate) async fn hear(name: &str, turn: Turn) -> Heard {
    let server = FakeModel::start([turn]);
    ask(&model(name, &server), &[user("go")]).await
}
