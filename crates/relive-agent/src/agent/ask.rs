//! Asking the model, and keeping what it says.
//!
//! A call that fails is recorded as partial, with what was said until then, and made again if that can help. Between
//! two attempts the agent stands at a boundary: it can be paused, killed and spoken to.

use futures_util::StreamExt as _;
use relive_journal::Durability;
use relive_journal::payload::{Json, Text};
use relive_journal::record::{Body, Call, ModelEnded, ModelStarted, Partial, Usage};
use serde_json::json;

use super::retry::{Attempts, Verdict};
use super::{Exit, Loop, Step, Wait};
use crate::model::{Answer, Delta, Message, ModelError, Question, ToolCall, estimated_tokens};

/// The most that one event says: also escaped, it is well within the longest line.
const EVENT_TEXT_MAX: usize = 128 * 1024;

/// What came of an answer so far.
#[derive(Debug, Default)]
struct Heard {
    thinking: String,
    text: String,
    calls: Vec<ToolCall>,
    carry: Option<String>,
    usage: Option<Usage>,
}

/// Why there is no whole answer.
enum Unanswered {
    /// An order, or the end of its time.
    Exit(Exit),
    Failed(ModelError),
}

impl From<Exit> for Unanswered {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

impl Loop {
    pub(super) async fn ask(&mut self, step: u32) -> Step {
        let mut attempts = Attempts::default();
        loop {
            // What is said from here on the model has not heard.
            let asked = self.messages.len();
            let question = self.question(step).await?;
            let asked_tokens = question.estimated_tokens();
            let mut heard = Heard::default();
            let error = match self.ask_once(question, &mut heard).await {
                Ok(()) => return self.heard(heard, asked, asked_tokens).await,
                Err(Unanswered::Exit(exit)) => {
                    self.carry.push(self.partial(heard, asked_tokens));
                    return Err(exit);
                }
                Err(Unanswered::Failed(error)) => error,
            };
            self.carry.push(self.partial(heard, asked_tokens));
            // On the disk before the wait: what was billed is not forgotten, and the step is at a boundary.
            self.flush().await?;
            self.back_off(&mut attempts, error).await?;
            self.within_limits(step).await?;
        }
    }

    async fn question(&mut self, step: u32) -> Step<Question> {
        let started =
            ModelStarted { model: self.agent.meta.model.clone(), reserved_tokens: self.agent.model.reserved_tokens() };
        self.record(vec![Body::ModelStarted(started)], Durability::Written).await?;
        // The last result of the step before went with this record, so that step is complete only now.
        self.progressed();
        self.event("model", json!({"model": self.agent.meta.model})).await;
        Ok(Question {
            step,
            system_prompt: self.agent.meta.system_prompt.clone(),
            tools: self.agent.meta.tools.get().to_owned(),
            messages: self.messages.clone(),
        })
    }

    async fn ask_once(&mut self, question: Question, heard: &mut Heard) -> Result<(), Unanswered> {
        let asked = self.agent.model.ask(question);
        match self.attend(Wait::Model, asked).await? {
            Ok(answer) => self.listen(answer, heard).await,
            Err(error) => Err(Unanswered::Failed(error)),
        }
    }

    async fn listen(&mut self, mut answer: Answer, heard: &mut Heard) -> Result<(), Unanswered> {
        while let Some(delta) = self.attend(Wait::Model, answer.next()).await? {
            match delta {
                Err(error) => return Err(Unanswered::Failed(error)),
                Ok(Delta::Thinking(piece)) => {
                    heard.thinking.push_str(&piece);
                    self.show("thinking", &piece).await;
                }
                Ok(Delta::Text(piece)) => {
                    heard.text.push_str(&piece);
                    self.show("text", &piece).await;
                }
                Ok(Delta::Call(call)) => heard.calls.push(call),
                Ok(Delta::Carry(carry)) => heard.carry = Some(carry),
                Ok(Delta::Usage(usage)) => heard.usage = Some(usage),
            }
        }
        Ok(())
    }

    /// Waits until it may be asked again, or says why not.
    async fn back_off(&mut self, attempts: &mut Attempts, error: ModelError) -> Step {
        let host = &self.agent.context.host;
        match attempts.failed(error, host.new_uuid()) {
            Verdict::Again { after, error } => {
                let body = json!({
                    "attempt": attempts.made() + 1, "after_ms": after.as_millis(), "text": error.to_string(),
                });
                self.event("model_retry", body).await;
                self.attend(Wait::Retry, tokio::time::sleep(after)).await
            }
            Verdict::Later { after, error } => {
                let resume_at = host.now().checked_add(after).unwrap_or(relive_core::Timestamp::MAX);
                self.event("model_error", json!({"text": error.to_string(), "resume_at": resume_at})).await;
                Err(Exit::Quota { resume_at })
            }
            Verdict::NeedsCredentials(error) => {
                self.event("model_error", json!({"text": error.to_string()})).await;
                Err(Exit::NeedsCredentials)
            }
            Verdict::Never(fault) => Err(Exit::Faulted(fault)),
        }
    }

    /// What the model says, for those who watch. A model may say more at once than an event can hold.
    async fn show(&mut self, kind: &'static str, mut said: &str) {
        while !said.is_empty() {
            let (piece, rest) = said.split_at(said.floor_char_boundary(EVENT_TEXT_MAX));
            self.event(kind, json!({"text": piece})).await;
            said = rest;
        }
    }

    /// What was said until it was cut off. The step is asked again if the process goes on.
    fn partial(&self, heard: Heard, asked_tokens: u64) -> Body {
        let usage = match heard.usage {
            Some(usage) => usage,
            // Refused, as far as anybody knows: nothing was used.
            None if heard.is_nothing() => Usage { cost_usd: self.agent.model.cost(0, 0), ..Usage::default() },
            None => self.estimate(&heard, asked_tokens),
        };
        Body::Partial(Partial { thinking: text(heard.thinking), text: text(heard.text), usage })
    }

    fn estimate(&self, heard: &Heard, tokens_in: u64) -> Usage {
        let calls = heard.calls.iter().map(|call| call.args.len()).sum::<usize>();
        let tokens_out = estimated_tokens(heard.thinking.len() + heard.text.len() + calls);
        let cost_usd = self.agent.model.cost(tokens_in, tokens_out);
        Usage { tokens_in, tokens_out, cost_usd, estimated: true, ..Usage::default() }
    }

    /// The answer is whole. It is recorded with the first intent, or, without calls, by itself. `asked` is how many
    /// messages the model has seen: what was said since comes after its answer, as it does in the journal.
    async fn heard(&mut self, heard: Heard, asked: usize, asked_tokens: u64) -> Step {
        let usage = heard.usage.unwrap_or_else(|| self.estimate(&heard, asked_tokens));
        let Heard { thinking, text: said, calls, carry, usage: _ } = heard;
        let mut recorded = Vec::new();
        for call in &calls {
            let args = parse(&call.args, "the model's arguments")?;
            recorded.push(Call { id: call.id.clone(), name: call.name.clone(), args });
        }
        let body = ModelEnded {
            thinking: text(thinking.clone()),
            text: text(said.clone()),
            calls: recorded,
            usage,
            carry: carry.as_deref().map(|carry| parse(carry, "what the model wants back")).transpose()?,
        };
        let is_last_word = body.calls.is_empty();
        let mut since = self.messages.split_off(asked.min(self.messages.len()));
        self.messages.push(Message::Model { thinking: some(thinking), text: some(said), calls, carry });
        if is_last_word {
            self.messages.append(&mut since);
            self.record(vec![Body::ModelEnded(body)], Durability::Synced).await?;
            Ok(())
        } else {
            self.meanwhile.append(&mut since);
            self.carry.push(Body::ModelEnded(body));
            self.run_calls(0).await
        }
    }
}

impl Heard {
    fn is_nothing(&self) -> bool {
        self.thinking.is_empty() && self.text.is_empty() && self.calls.is_empty()
    }
}

fn parse(json: &str, what: &str) -> Step<Json> {
    Json::parse(json).map_err(|error| Exit::Faulted(format!("{what} are no JSON: {error}")))
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn text(text: String) -> Option<Text> {
    some(text).map(Text::Inline)
}
