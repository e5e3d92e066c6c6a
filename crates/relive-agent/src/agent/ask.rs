//! Asking the model, and keeping what it says.
//!
//! A call that fails is recorded as partial, with what was said until then, and made again if that can help. Between
//! two attempts the agent stands at a boundary: it can be paused, killed and spoken to.

use futures_util::StreamExt as _;
use relive_journal::Durability;
use relive_journal::payload::{Json, Text};
use relive_journal::record::{Body, Call, Git, ModelEnded, ModelStarted, Partial, Usage};
use serde_json::json;
use tokio::task::JoinHandle;

use super::compact::Measured;
use super::retry::{Attempts, Verdict};
use super::{Exit, Loop, Step, Wait};
use crate::git;
use relive_llm::{Answer, Delta, ModelError, Purpose, Question, ToolCall, estimated_tokens};

/// The most that one event says: also escaped, it is well within the longest line.
const EVENT_TEXT_MAX: usize = 128 * 1024;

/// What came of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Heard {
    thinking: String,
    pub(super) text: String,
    calls: Vec<ToolCall>,
    carry: Option<String>,
    pub(super) usage: Option<Usage>,
}

/// Whether those who watch hear an answer as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aloud {
    Yes,
    No,
}

/// Why there is no whole answer.
pub(super) enum Unanswered {
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
            self.make_room(step).await?;
            let question = self.question(step).await?;
            let asked_tokens = question.estimated_tokens();
            // Looked at while the model thinks, so that it costs the step nothing.
            let git = self.look_at_git();
            let mut heard = Heard::default();
            let error = match self.ask_once(question, &mut heard, Aloud::Yes).await {
                Ok(()) => {
                    let git = git.await.ok().flatten();
                    if git.as_ref().is_some_and(|git| git.dirty.is_none()) {
                        // It would not be quicker next time.
                        self.git_status = git::Status::Leave;
                    }
                    return self.answer(heard, asked_tokens, git).await;
                }
                Err(Unanswered::Exit(exit)) => {
                    self.cut_off(heard, asked_tokens).await?;
                    return Err(exit);
                }
                Err(Unanswered::Failed(error)) => error,
            };
            // On the disk before the wait: what was billed is not forgotten, and the step is at a boundary.
            self.cut_off(heard, asked_tokens).await?;
            let refused_tokens = self.context_tokens();
            if matches!(error, ModelError::ContextFull(_)) && self.shrink_window(refused_tokens) {
                // The estimate was wrong. There is room once the conversation was summed up.
                self.event("model_error", json!({"text": error.to_string()}));
            } else {
                self.back_off(&mut attempts, error).await?;
            }
            self.catch_up().await?;
            self.boundary()?;
            self.within_limits(step).await?;
        }
    }

    pub(super) async fn model_started(&mut self, purpose: Purpose) -> Step {
        let (reserved_tokens, reserved_cost_usd) = self.reservation();
        let started = ModelStarted { model: self.agent.meta.model.clone(), reserved_tokens, reserved_cost_usd };
        let durability = if self.unsynced { Durability::Synced } else { Durability::Written };
        self.record(Body::ModelStarted(started), durability).await?;
        let mut body = json!({"model": self.agent.meta.model});
        if purpose == Purpose::Summary {
            body["for"] = "summary".into();
        }
        self.event("model", body);
        Ok(())
    }

    /// Looks at the Git repository of the working directory. It is bounded in time.
    fn look_at_git(&self) -> JoinHandle<Option<Git>> {
        let (pool, folder) = (self.agent.context.pool.clone(), self.agent.context.cwd.clone());
        let (wanted, status) = (self.agent.git_notes, self.git_status);
        tokio::spawn(async move { if wanted { git::look(&pool, folder, status).await } else { None } })
    }

    async fn question(&mut self, step: u32) -> Step<Question> {
        self.model_started(Purpose::Step).await?;
        Ok(Question {
            step,
            system_prompt: self.agent.meta.system_prompt.clone(),
            tools: self.agent.meta.tools.get().to_owned(),
            messages: self.dialogue.messages.clone(),
            answers: self.standing.answers,
            purpose: Purpose::Step,
        })
    }

    pub(super) async fn ask_once(&self, question: Question, heard: &mut Heard, aloud: Aloud) -> Result<(), Unanswered> {
        let asked = self.agent.model.ask(question);
        match self.attend(Wait::Model, asked).await? {
            Ok(answer) => self.listen(answer, heard, aloud).await,
            Err(error) => Err(Unanswered::Failed(error)),
        }
    }

    async fn listen(&self, mut answer: Answer, heard: &mut Heard, aloud: Aloud) -> Result<(), Unanswered> {
        while let Some(delta) = self.attend(Wait::Model, answer.next()).await? {
            match delta {
                Err(error) => return Err(Unanswered::Failed(error)),
                Ok(Delta::Thinking(piece)) => {
                    heard.thinking.push_str(&piece);
                    self.show("thinking", &piece, aloud);
                }
                Ok(Delta::Text(piece)) => {
                    heard.text.push_str(&piece);
                    self.show("text", &piece, aloud);
                }
                Ok(Delta::Call(call)) => heard.calls.push(call),
                Ok(Delta::Carry(carry)) => heard.carry = Some(carry),
                Ok(Delta::Usage(usage)) => heard.usage = Some(usage),
            }
        }
        Ok(())
    }

    /// Waits until it may be asked again, or says why not.
    pub(super) async fn back_off(&mut self, attempts: &mut Attempts, error: ModelError) -> Step {
        let host = &self.agent.context.host;
        match attempts.failed(error, host.new_uuid()) {
            Verdict::Again { after, error } => {
                let body = json!({
                    "attempt": attempts.made() + 1, "after_ms": after.as_millis(), "text": error.to_string(),
                });
                self.event("model_retry", body);
                self.attend(Wait::Retry, tokio::time::sleep(after)).await
            }
            Verdict::Later { after, error } => {
                let resume_at = host.now().checked_add(after).unwrap_or(relive_core::Timestamp::MAX);
                self.event("model_error", json!({"text": error.to_string(), "resume_at": resume_at}));
                Err(Exit::Quota { resume_at })
            }
            Verdict::NeedsCredentials(error) => {
                self.event("model_error", json!({"text": error.to_string()}));
                Err(Exit::NeedsCredentials)
            }
            Verdict::Never(fault) => Err(Exit::Faulted(fault)),
        }
    }

    /// What the model says, for those who watch. A model may say more at once than an event can hold.
    fn show(&self, kind: &'static str, mut said: &str, aloud: Aloud) {
        while aloud == Aloud::Yes && !said.is_empty() {
            let (piece, rest) = said.split_at(said.floor_char_boundary(EVENT_TEXT_MAX));
            self.event(kind, json!({"text": piece}));
            said = rest;
        }
    }

    /// Records what was said until the model was cut off. The step is asked again when the process continues.
    pub(super) async fn cut_off(&mut self, heard: Heard, asked_tokens: u64) -> Step {
        let usage = match heard.usage {
            Some(usage) => usage,
            // Refused, as far as anybody knows: nothing was used.
            None if heard.is_nothing() => Usage { cost_usd: self.agent.model.cost(0, 0), ..Usage::default() },
            None => self.estimate(&heard, asked_tokens),
        };
        let partial = Partial { thinking: text(heard.thinking), text: text(heard.text), usage };
        self.record(Body::Partial(partial), Durability::Synced).await
    }

    pub(super) fn estimate(&self, heard: &Heard, tokens_in: u64) -> Usage {
        let calls = heard.calls.iter().map(|call| call.args.len()).sum::<usize>();
        let tokens_out = estimated_tokens(heard.thinking.len() + heard.text.len() + calls);
        let cost_usd = self.agent.model.cost(tokens_in, tokens_out);
        Usage { tokens_in, tokens_out, cost_usd, estimated: true, ..Usage::default() }
    }

    /// Records a whole answer. One without calls may be the last word, so it is synced; the others are with the intent
    /// of their first call.
    async fn answer(&mut self, heard: Heard, asked_tokens: u64, git: Option<Git>) -> Step {
        let usage = heard.usage.unwrap_or_else(|| self.estimate(&heard, asked_tokens));
        let Heard { thinking, text: said, calls, carry, usage: _ } = heard;
        let mut recorded = Vec::new();
        for call in calls {
            recorded.push(Call { args: parse(&call.args, "the model's arguments")?, id: call.id, name: call.name });
        }
        let durability = if recorded.is_empty() { Durability::Synced } else { Durability::Written };
        let answer = ModelEnded {
            thinking: text(thinking),
            text: text(said),
            calls: recorded,
            usage,
            carry: carry.as_deref().map(|carry| parse(carry, "what the model wants back")).transpose()?,
            git,
        };
        let seen = self.dialogue.messages.len() + 1;
        self.record(Body::ModelEnded(answer), durability).await?;
        let tokens = usage.tokens_in.saturating_add(usage.tokens_out);
        self.measured = (!usage.estimated).then_some(Measured { messages: seen, tokens });
        Ok(())
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

fn text(text: String) -> Option<Text> {
    (!text.is_empty()).then_some(Text::Inline(text))
}
