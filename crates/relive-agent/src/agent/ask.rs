//! Asking the model, and keeping what it says.

use futures_util::StreamExt as _;
use relive_journal::Durability;
use relive_journal::payload::{Json, Text};
use relive_journal::record::{Body, Call, ModelEnded, ModelStarted, Partial, Usage};
use serde_json::json;

use super::{Exit, Loop, Step, Wait};
use crate::model::{Answer, Delta, Message, ModelError, Question, ToolCall};

/// The most that one event says: also escaped, it is well within the longest line.
const EVENT_TEXT_MAX: usize = 128 * 1024;

/// What came of an answer so far.
#[derive(Debug, Default)]
struct Heard {
    thinking: String,
    text: String,
    calls: Vec<ToolCall>,
    usage: Usage,
}

impl Loop {
    pub(super) async fn ask(&mut self, step: u32) -> Step {
        let started =
            ModelStarted { model: self.agent.meta.model.clone(), reserved_tokens: self.agent.model.reserved_tokens() };
        self.record(vec![Body::ModelStarted(started)], Durability::Written).await?;
        // The last result of the step before went with this record, so that step is complete only now.
        self.progressed();
        self.event("model", json!({"model": self.agent.meta.model})).await;
        let question = Question {
            step,
            system_prompt: self.agent.meta.system_prompt.clone(),
            tools: self.agent.meta.tools.get().to_owned(),
            messages: self.messages.clone(),
        };
        let asked = self.agent.model.ask(question);
        let mut heard = Heard::default();
        let outcome = match self.attend(Wait::Model, asked).await {
            Ok(Ok(answer)) => self.listen(answer, &mut heard).await,
            Ok(Err(error)) => Err(fault(&error)),
            Err(exit) => Err(exit),
        };
        match outcome {
            Ok(()) => self.heard(heard).await,
            Err(exit) => {
                // What was said is kept, marked as partial; the step is asked again if the process goes on.
                self.carry.push(Body::Partial(Partial {
                    thinking: text(heard.thinking),
                    text: text(heard.text),
                    usage: heard.usage,
                }));
                Err(exit)
            }
        }
    }

    async fn listen(&mut self, mut answer: Answer, heard: &mut Heard) -> Step {
        while let Some(delta) = self.attend(Wait::Model, answer.next()).await? {
            match delta {
                Err(error) => return Err(fault(&error)),
                Ok(Delta::Thinking(piece)) => {
                    heard.thinking.push_str(&piece);
                    self.show("thinking", &piece).await;
                }
                Ok(Delta::Text(piece)) => {
                    heard.text.push_str(&piece);
                    self.show("text", &piece).await;
                }
                Ok(Delta::Call(call)) => heard.calls.push(call),
                Ok(Delta::Usage(usage)) => heard.usage = usage,
            }
        }
        Ok(())
    }

    /// What the model says, for those who watch. A model may say more at once than an event can hold.
    async fn show(&mut self, kind: &'static str, mut said: &str) {
        while !said.is_empty() {
            let (piece, rest) = said.split_at(said.floor_char_boundary(EVENT_TEXT_MAX));
            self.event(kind, json!({"text": piece})).await;
            said = rest;
        }
    }

    /// The answer is whole. It is recorded with the first intent, or, without calls, by itself.
    async fn heard(&mut self, heard: Heard) -> Step {
        let Heard { thinking, text: said, calls, usage } = heard;
        let mut recorded = Vec::new();
        for call in &calls {
            let args = Json::parse(&call.args)
                .map_err(|error| Exit::Faulted(format!("the model's arguments are no JSON: {error}")))?;
            recorded.push(Call { id: call.id.clone(), name: call.name.clone(), args });
        }
        let body = ModelEnded { thinking: text(thinking.clone()), text: text(said.clone()), calls: recorded, usage };
        let is_last_word = body.calls.is_empty();
        self.messages.push(Message::Model { thinking: some(thinking), text: some(said), calls });
        if is_last_word {
            self.record(vec![Body::ModelEnded(body)], Durability::Synced).await?;
            Ok(())
        } else {
            self.carry.push(Body::ModelEnded(body));
            self.run_calls(0).await
        }
    }
}

fn fault(error: &ModelError) -> Exit {
    Exit::Faulted(error.to_string())
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn text(text: String) -> Option<Text> {
    some(text).map(Text::Inline)
}
