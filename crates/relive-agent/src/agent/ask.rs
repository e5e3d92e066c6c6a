//! Asks the model and records its answer.
//!
//! A call that fails, that passes a bound or whose answer is empty is recorded as `partial`, with the text until then, and
//! made again if that can help. Between two attempts the agent is at a boundary: it can be paused, killed and spoken to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use relive_journal::payload::Text;
use relive_journal::record::{AskedFor, Body, Git, ModelEnded, ModelStarted, Partial, Usage};
use relive_journal::{Durability, events};
use serde_json::json;
use tokio::task::JoinHandle;

use super::compact::Measured;
use super::heard::Heard;
use super::retry::{Attempts, Verdict};
use super::{Exit, Loop, Step, Wait};
use crate::git;
use crate::pulse::Owing;
use relive_llm::{Answer, Delta, Message, ModelError, Purpose, Question};

/// The longest text of one event. Even escaped it is well within the longest line.
const EVENT_TEXT_MAX: usize = 128 * 1024;

/// How much of the cause of a failed call is recorded.
const CAUSE_MAX_BYTES: usize = 1000;

/// How long a commit that was seen counts, while the agent itself changes nothing.
const COMMIT_SEEN_WITHIN: Duration = Duration::from_secs(1);

/// The commit that the repository of the working directory had.
#[derive(Debug)]
pub(super) struct SeenCommit {
    at: Instant,
    git: Option<Git>,
}

/// Whether an answer is shown as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aloud {
    Yes,
    No,
}

/// Why there is no complete answer.
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
            // Before a summary is asked for, which may take as long as the answer.
            self.look_at_files(step);
            self.make_room(step).await?;
            let question = self.question(step).await?;
            let asked_tokens = question.estimated_tokens();
            // Git is looked at while the model thinks, so that it costs the step nothing.
            let git = self.look_at_git();
            let mut heard = Heard::default();
            let error = match self.ask_once(question, &mut heard, Aloud::Yes).await {
                Ok(()) if heard.is_empty() => {
                    ModelError::Empty("the model answered with neither text nor a call".to_owned())
                }
                Ok(()) => {
                    let git = self.git_noted(git).await;
                    return self.answer(heard, asked_tokens, git).await;
                }
                Err(Unanswered::Exit(exit)) => {
                    self.cut_off(heard, asked_tokens, exit_cause(&exit)).await?;
                    return Err(exit);
                }
                Err(Unanswered::Failed(error)) => error,
            };
            // Synced before the wait, so that the bill is not lost and the step is at a boundary.
            self.cut_off(heard, asked_tokens, Some(error.to_string())).await?;
            let refused_tokens = self.context_tokens();
            if matches!(error, ModelError::ContextFull(_)) && self.shrink_window(refused_tokens) {
                // The estimate was wrong. There is room once the conversation is compacted.
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
        let purpose = match purpose {
            Purpose::Step => None,
            Purpose::Summary => Some(AskedFor::Summary),
        };
        let model = self.agent.meta.model.clone();
        let started = ModelStarted { model, reserved_tokens, reserved_cost_usd, purpose };
        self.record(Body::ModelStarted(started), Durability::Deferred).await
    }

    /// Looks at the Git repository of the working directory, if wanted and if it may have changed. Also returns how long
    /// it took.
    fn look_at_git(&self) -> Option<JoinHandle<(Option<Git>, Duration)>> {
        if self.seen_commit.as_ref().is_some_and(|seen| seen.at.elapsed() < COMMIT_SEEN_WITHIN) {
            return None;
        }
        let (pool, cwd) = (self.agent.context.pool.clone(), self.agent.context.cwd.clone());
        self.agent.git_notes.then(|| {
            tokio::spawn(async move {
                let begun = Instant::now();
                (git::look(&pool, cwd).await, begun.elapsed())
            })
        })
    }

    async fn git_noted(&mut self, look: Option<JoinHandle<(Option<Git>, Duration)>>) -> Option<Git> {
        let Some(look) = look else { return self.seen_commit.as_ref().and_then(|seen| seen.git.clone()) };
        let (git, took) = look.await.ok()?;
        if took >= git::WITHIN {
            // The next look would occupy another thread.
            self.agent.git_notes = false;
        }
        self.seen_commit = Some(SeenCommit { at: Instant::now(), git: git.clone() });
        git
    }

    async fn question(&mut self, step: u32) -> Step<Question> {
        self.model_started(Purpose::Step).await?;
        Ok(Question {
            step,
            system_prompt: Arc::clone(&self.system_prompt),
            tools: Arc::clone(&self.tool_definitions),
            messages: self.dialogue.messages.clone(),
            answers: self.standing.answers,
            purpose: Purpose::Step,
        })
    }

    pub(super) async fn ask_once(&self, question: Question, heard: &mut Heard, aloud: Aloud) -> Result<(), Unanswered> {
        let owing = self.agent.pulse.owe();
        let asked = self.agent.model.ask(question);
        match self.attend(Wait::Model, asked).await? {
            Ok(answer) => self.listen(answer, heard, aloud, &owing).await,
            Err(error) => Err(Unanswered::Failed(error)),
        }
    }

    async fn listen(
        &self,
        mut answer: Answer,
        heard: &mut Heard,
        aloud: Aloud,
        owing: &Owing<'_>,
    ) -> Result<(), Unanswered> {
        while let Some(delta) = self.attend(Wait::Model, answer.next()).await? {
            owing.alive();
            let delta = delta.map_err(Unanswered::Failed)?;
            if aloud == Aloud::Yes {
                match &delta {
                    Delta::Thinking(piece) => self.show(events::THINKING, piece),
                    Delta::Text(piece) => self.show(events::TEXT, piece),
                    Delta::Call(_) | Delta::Carry(_) | Delta::Usage(_) | Delta::Progress => {}
                }
            }
            heard.take(delta).map_err(Unanswered::Failed)?;
        }
        Ok(())
    }

    /// Waits until the model may be asked again, or returns why it is not.
    pub(super) async fn back_off(&mut self, attempts: &mut Attempts, error: ModelError) -> Step {
        let host = &self.agent.context.host;
        match attempts.failed(error, host.new_uuid()) {
            Verdict::Again { after, error } => {
                let body = json!({
                    "attempt": attempts.made() + 1, "after_ms": after.as_millis(), "text": error.to_string(),
                });
                self.event("model_retry", body);
                let _again = self.agent.pulse.ask_again(after);
                self.attend(Wait::Retry, tokio::time::sleep(after)).await
            }
            Verdict::Later { after, error } => {
                let resume_at = host.now().checked_add(after).unwrap_or(relive_core::Timestamp::MAX);
                self.event("model_error", json!({"text": error.to_string(), "resume_at": resume_at}));
                Err(Exit::Quota { resume_at })
            }
            Verdict::NeedsCredentials(error) => {
                self.event("model_error", json!({"text": error.to_string()}));
                Err(Exit::NeedsCredentials(error.to_string()))
            }
            Verdict::Never(fault) => Err(Exit::Faulted(fault)),
        }
    }

    /// Shows a piece of the answer as events. A piece may be longer than an event can hold.
    fn show(&self, kind: &'static str, mut said: &str) {
        while !said.is_empty() {
            let (piece, rest) = said.split_at(said.floor_char_boundary(EVENT_TEXT_MAX));
            self.event(kind, json!({"text": piece}));
            said = rest;
        }
    }

    /// Records an answer that was cut off, or that is none. The step is asked again when the process continues.
    pub(super) async fn cut_off(&mut self, heard: Heard, asked_tokens: u64, cause: Option<String>) -> Step {
        let usage = match heard.usage {
            Some(usage) => usage,
            // The provider refused, as far as can be known, so nothing was used.
            None if heard.is_nothing() => Usage { cost_usd: self.agent.model.cost(0, 0), ..Usage::default() },
            None => self.estimate(&heard, asked_tokens),
        };
        let partial =
            Partial { thinking: text(heard.thinking), text: text(heard.text), usage, cause: cause.map(shortened) };
        self.record(Body::Partial(partial), Durability::Synced).await
    }

    pub(super) fn estimate(&self, heard: &Heard, tokens_in: u64) -> Usage {
        let tokens_out = heard.estimated_tokens();
        let cost_usd = self.agent.model.cost(tokens_in, tokens_out);
        Usage { tokens_in, tokens_out, cost_usd, estimated: true, ..Usage::default() }
    }

    /// Records a complete answer. One without calls may be the last, so it is synced; the others are written with the
    /// intent of their first call.
    async fn answer(&mut self, mut heard: Heard, asked_tokens: u64, git: Option<Git>) -> Step {
        let usage = heard.usage.unwrap_or_else(|| self.estimate(&heard, asked_tokens));
        let answer = ModelEnded {
            text: text(heard.take_text()),
            calls: heard.take_calls(),
            usage,
            carry: heard.take_carry(),
            git,
            thinking: text(heard.thinking),
        };
        let durability = if answer.calls.is_empty() { Durability::Synced } else { Durability::Deferred };
        let mut batch = Vec::from_iter(self.files_seen().await);
        batch.push(Body::ModelEnded(answer));
        self.record_batch(batch, durability).await?;
        // The answer is the last message but for those that came while it was given, which the next question counts.
        let answer_at = self.dialogue.messages.iter().rposition(|message| matches!(message, Message::Model { .. }));
        let later = self.dialogue.messages.get(answer_at.map_or(0, |at| at + 1)..).unwrap_or_default();
        let bytes = self.dialogue.messages.bytes() - later.iter().map(Message::bytes).sum::<usize>();
        let tokens = usage.tokens_in.saturating_add(usage.tokens_out);
        self.measured = (!usage.estimated).then_some(Measured { bytes, tokens });
        Ok(())
    }
}

/// Says which order, or which limit, cut the model off.
pub(super) fn exit_cause(exit: &Exit) -> Option<String> {
    let cause = match exit {
        Exit::Stopped => "the process was paused",
        Exit::Cancelled => "the process was told to end",
        Exit::TimedOut => "the time of the process was up",
        Exit::MaxSteps | Exit::OverBudget | Exit::SuspendedBudget => "the budget of the process was used up",
        Exit::Completed
        | Exit::Faulted(_)
        | Exit::InDoubt
        | Exit::Approval
        | Exit::Quota { .. }
        | Exit::NeedsCredentials(_)
        | Exit::Question
        | Exit::Unrecorded(_) => return None,
    };
    Some(cause.to_owned())
}

/// A cause that is short enough for the line of a record.
fn shortened(mut cause: String) -> String {
    cause.truncate(cause.floor_char_boundary(CAUSE_MAX_BYTES));
    cause
}

fn text(text: String) -> Option<Text> {
    (!text.is_empty()).then_some(Text::Inline(text))
}
