//! The reasoning loop: ask the model, run what it asks for, and record each before it counts.
//!
//! One step is one model call and the tool calls it asked for. The order of records is that of the journal's protocol:
//! `model_started` rides along; the answer and the first intent are one synced write; each result is one with the next
//! intent; the last result is one with the next `model_started`. The loop ends at a boundary: between two records, never
//! between an intent and the act. It knows nothing of PIDs or parents; what it may do is in its [`Orders`].

mod ask;
mod calls;
mod compact;
mod retry;
mod session;
mod settle;
mod transcript;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use relive_core::Urgency;
use relive_journal::record::{Body, Input};
use relive_journal::{Durability, History, Next, ProcessMeta};
use relive_llm::{Message, Model};
use relive_types::{Signal, Timestamp, Usd};
use tokio::sync::{mpsc, oneshot, watch};

#[cfg(feature = "faults")]
pub(crate) use settle::switched_on;

use crate::journal::{Journal, JournalError};
use crate::tool::{Context, Patience, Tool};

/// What the kernel wants of a body. The latest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orders {
    /// Stop at the next boundary, or now.
    pub stop: Option<Urgency>,
    /// Sessions are left as they are when it stops: the daemon goes, and they go on.
    pub leave_sessions: bool,
    /// End.
    pub end: Option<Signal>,
}

/// Something for the agent to take in.
#[derive(Debug)]
pub enum Letter {
    /// A message for the model.
    Input {
        /// The message.
        input: Input,
        /// Answered when it is on the disk; `false` if it was there before.
        recorded: oneshot::Sender<Result<bool, String>>,
    },
    /// Something the kernel wants among its events.
    Event {
        /// Of this kind.
        kind: &'static str,
        /// With these fields.
        body: serde_json::Value,
    },
}

/// What comes back when the loop has ended.
#[derive(Debug)]
pub struct Returned {
    /// Why.
    pub exit: Exit,
    /// The journal, with everything recorded that was done.
    pub journal: Journal,
    /// For going on.
    pub orders: watch::Receiver<Orders>,
    /// For going on.
    pub inbox: mpsc::Receiver<Letter>,
}

/// Whom the loop tells how it gets on.
pub trait Watcher: Send + Sync {
    /// It got on; this is what it amounts to now.
    fn progressed(&self, history: &History);

    /// Reserves tokens and dollars for a model call, which is settled by the progress after it; waits where others have
    /// reserved what is left. `false` if nothing is left.
    fn reserve(&self, history: &History, tokens: u64, cost: Usd) -> BoxFuture<'static, bool>;

    /// It is changing a file itself, or no longer: signals wait while it does.
    fn changing_files(&self, changing: bool);
}

/// How often a checkpoint is written.
#[derive(Debug, Clone, Copy)]
pub struct Cadence {
    /// After so many steps.
    pub steps: u32,
    /// Or so much time.
    pub time: Duration,
}

/// Everything an agent runs with.
pub struct Agent {
    /// Its journal.
    pub journal: Journal,
    /// What it was told and given.
    pub meta: ProcessMeta,
    /// Its model.
    pub model: Arc<dyn Model>,
    /// Its tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What they may use.
    pub context: Context,
    /// What the kernel wants.
    pub orders: watch::Receiver<Orders>,
    /// What is said to it.
    pub inbox: mpsc::Receiver<Letter>,
    /// Who watches.
    pub watcher: Arc<dyn Watcher>,
    /// How often a checkpoint is written.
    pub cadence: Cadence,
    /// When its time is up.
    pub deadline: Option<tokio::time::Instant>,
    /// Whether a spent budget suspends it instead of ending it.
    pub suspend_on_budget: bool,
    /// Whether it notes how the repository of its folder stands.
    pub git_notes: bool,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// Why the loop ended. Nothing of this is recorded yet: that is the kernel's, which knows who asked for it.
#[derive(Debug)]
pub enum Exit {
    /// The model has said its last word.
    Completed,
    /// The model or the loop failed.
    Faulted(String),
    /// It has used up its steps.
    MaxSteps,
    /// It was told to end.
    Cancelled,
    /// Its time is up.
    TimedOut,
    /// It has used up its tokens or its money, or those of an ancestor, and ends.
    OverBudget,
    /// It has used up what it may, its steps and its time included, and waits for more.
    SuspendedBudget,
    /// It stands at a boundary, as it was told to.
    Stopped,
    /// A call's outcome cannot be known, and a person is to decide.
    InDoubt,
    /// A human has been asked whether a call may be made.
    Approval,
    /// The provider takes no more questions until then.
    Quota {
        /// Then.
        resume_at: Timestamp,
    },
    /// The provider does not accept the key.
    NeedsCredentials,
    /// It cannot record what it does, so it does nothing.
    Unrecorded(JournalError),
}

impl From<JournalError> for Exit {
    fn from(error: JournalError) -> Self {
        Self::Unrecorded(error)
    }
}

type Step<T = ()> = Result<T, Exit>;

/// What a wait may be interrupted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// A model's answer: an order to end, or to stop now.
    Model,
    /// For asking a model again: any order.
    Retry,
    /// A tool.
    Tool(Patience),
}

impl Wait {
    /// Whether what is waited for can be left at any moment.
    fn can_be_left(self) -> bool {
        match self {
            Self::Model | Self::Retry | Self::Tool(Patience::Leave) => true,
            Self::Tool(Patience::Finish | Patience::Session) => false,
        }
    }
}

/// The loop while it runs.
struct Loop {
    agent: Agent,
    messages: Vec<Message>,
    /// What was said during a step: it comes after the step's results.
    meanwhile: Vec<Message>,
    /// Records that go with the next batch.
    carry: Vec<Body>,
    done: bool,
    /// How many tokens the model can read and write in one call, as far as is known.
    window: Option<u64>,
    measured: Option<compact::Measured>,
    git_status: crate::git::Status,
    steps_since_checkpoint: u32,
    last_checkpoint: Instant,
}

impl Agent {
    /// Runs until there is a reason not to. The journal comes back with the reason.
    pub async fn run(self) -> Returned {
        let mut running = Loop {
            window: self.model.context_tokens(),
            measured: None,
            git_status: crate::git::Status::Ask,
            agent: self,
            messages: Vec::new(),
            meanwhile: Vec::new(),
            carry: Vec::new(),
            done: false,
            steps_since_checkpoint: 0,
            last_checkpoint: Instant::now(),
        };
        let Err(mut exit) = running.go().await;
        if running.agent.suspend_on_budget && matches!(exit, Exit::MaxSteps | Exit::TimedOut | Exit::OverBudget) {
            exit = Exit::SuspendedBudget;
        }
        if let Err(error) = running.flush().await {
            exit = Exit::Unrecorded(error);
        }
        let Self { journal, orders, inbox, .. } = running.agent;
        Returned { exit, journal, orders, inbox }
    }
}

impl Loop {
    async fn go(&mut self) -> Step<std::convert::Infallible> {
        self.messages = self.agent.journal.conversation().await?;
        self.settle().await?;
        // It may have said so, and been cut off before its end was recorded.
        self.done |= self.carry.is_empty() && self.history()?.plan().next == Next::Input;
        self.progressed();
        loop {
            match self.next()? {
                Next::Calls { call, .. } => self.run_calls(call).await?,
                Next::Input => return Err(Exit::Completed),
                Next::Ask { step, .. } => {
                    self.boundary().await?;
                    self.within_limits(step).await?;
                    self.ask(step).await?;
                    self.steps_since_checkpoint += 1;
                }
            }
            self.checkpoint_if_due().await;
        }
    }

    /// Where it goes on. What is carried is not in the history yet, so the messages decide.
    fn next(&self) -> Step<Next> {
        let history = self.history()?;
        let behind = if self.carry.is_empty() { history.completed_step } else { history.step };
        let (asked, answered) = self.calls_of_last_answer();
        if answered < asked {
            return Ok(Next::Calls { step: history.step, call: answered });
        }
        let last_word = match self.messages.last() {
            Some(Message::Model { .. }) | None => true,
            Some(Message::User { .. } | Message::Summary { .. } | Message::Tool { .. }) => false,
        };
        Ok(if self.done || last_word { Next::Input } else { Next::Ask { step: behind + 1, again: false } })
    }

    /// How many calls the last answer asked for, and how many of them have their outcome.
    fn calls_of_last_answer(&self) -> (u32, u32) {
        let mut outcomes = 0;
        for message in self.messages.iter().rev() {
            match message {
                Message::Tool { .. } => outcomes += 1,
                Message::Model { calls, .. } => return (u32::try_from(calls.len()).unwrap_or(u32::MAX), outcomes),
                Message::User { .. } | Message::Summary { .. } => return (0, 0),
            }
        }
        (0, 0)
    }

    fn history(&self) -> Step<&History> {
        let lost = || JournalError::Lost(relive_journal::JobLost);
        self.agent.journal.history().ok_or_else(|| lost().into())
    }

    fn progressed(&self) {
        if let Some(history) = self.agent.journal.history() {
            self.agent.watcher.progressed(history);
        }
    }

    /// Records what is carried together with `batch`. What is carried is synced; `model_started` alone need not be.
    async fn record(&mut self, batch: Vec<Body>, durability: Durability) -> Result<(), JournalError> {
        let durability = if self.carry.is_empty() { durability } else { Durability::Synced };
        let mut all = std::mem::take(&mut self.carry);
        all.extend(batch);
        let at = self.agent.context.host.now();
        self.agent.journal.append(at, all, durability).await?;
        self.progressed();
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), JournalError> {
        if self.carry.is_empty() { Ok(()) } else { self.record(Vec::new(), Durability::Synced).await }
    }

    async fn event(&mut self, kind: &'static str, body: serde_json::Value) {
        let at = self.agent.context.host.now();
        self.agent.journal.event(at, kind, body).await;
    }

    /// Between two records: is there an order, or a message?
    async fn boundary(&mut self) -> Step {
        while let Ok(letter) = self.agent.inbox.try_recv() {
            self.take_in(letter).await?;
        }
        let orders = *self.agent.orders.borrow_and_update();
        if orders.end.is_some() {
            return Err(Exit::Cancelled);
        }
        if orders.stop.is_some() {
            return Err(Exit::Stopped);
        }
        if self.agent.deadline.is_some_and(|deadline| deadline <= tokio::time::Instant::now()) {
            return Err(Exit::TimedOut);
        }
        Ok(())
    }

    /// Waits for something, and meanwhile for orders, messages and the end of its time.
    async fn attend<T>(&mut self, wait: Wait, work: impl Future<Output = T>) -> Step<T> {
        tokio::pin!(work);
        let mut orders = self.agent.orders.clone();
        let far = tokio::time::Instant::now() + Duration::from_secs(365 * 24 * 3600);
        let deadline = self.agent.deadline.unwrap_or(far);
        loop {
            if let Some(exit) = interrupts(*orders.borrow_and_update(), wait) {
                return Err(exit);
            }
            tokio::select! {
                biased;
                outcome = &mut work => return Ok(outcome),
                changed = orders.changed() => {
                    if changed.is_err() {
                        // The kernel has gone; so does the body.
                        return Err(Exit::Cancelled);
                    }
                }
                letter = self.agent.inbox.recv() => {
                    let Some(letter) = letter else { return Err(Exit::Cancelled) };
                    self.take_in(letter).await?;
                }
                () = tokio::time::sleep_until(deadline), if wait.can_be_left() => {
                    return Err(Exit::TimedOut);
                }
            }
        }
    }

    async fn take_in(&mut self, letter: Letter) -> Step {
        let (input, recorded) = match letter {
            Letter::Input { input, recorded } => (input, recorded),
            Letter::Event { kind, body } => {
                self.event(kind, body).await;
                return Ok(());
            }
        };
        if self.history()?.has_heard(&input.id) {
            // Sent again because the answer was lost, as a rule with an earlier daemon.
            let _ = recorded.send(Ok(false));
            return Ok(());
        }
        let text = match &input.text {
            relive_journal::payload::Text::Inline(text) => text.clone(),
            relive_journal::payload::Text::Blob(blob) => blob.head.clone(),
        };
        let (asked, answered) = self.calls_of_last_answer();
        let outcome = self.record(vec![Body::Input(input)], Durability::Synced).await;
        let answer = outcome.as_ref().map(|()| true).map_err(ToString::to_string);
        // Whoever sent it may have gone.
        let _ = recorded.send(answer);
        outcome?;
        let message = Message::User { text };
        if answered < asked {
            self.meanwhile.push(message)
        } else {
            self.messages.push(message)
        }
        self.done = false;
        Ok(())
    }

    /// Whether it may ask for this step. What the call may use is reserved then.
    async fn within_limits(&mut self, step: u32) -> Step {
        // An answer whose calls were all refused has not been recorded, nor counted, yet.
        if self.carry.iter().any(|body| matches!(body, Body::ModelEnded(_))) {
            self.flush().await?;
        }
        let history = self.history()?;
        if history.limits.max_steps.is_some_and(|max| step > max) {
            return Err(Exit::MaxSteps);
        }
        let (tokens, cost) = self.reservation();
        let reserved = self.agent.watcher.reserve(history, tokens, cost.unwrap_or_default());
        if self.attend(Wait::Retry, reserved).await? { Ok(()) } else { Err(Exit::OverBudget) }
    }

    /// What a call may use at most, in tokens and in dollars: all of it as if the model said it, the dearer half.
    fn reservation(&self) -> (u64, Option<Usd>) {
        let tokens = self.agent.model.reserved_tokens();
        (tokens, self.agent.model.cost(0, tokens))
    }

    async fn checkpoint_if_due(&mut self) {
        let cadence = self.agent.cadence;
        let due = self.steps_since_checkpoint >= cadence.steps || self.last_checkpoint.elapsed() >= cadence.time;
        if due {
            self.agent.journal.checkpoint().await;
            self.steps_since_checkpoint = 0;
            self.last_checkpoint = Instant::now();
        }
    }
}

fn interrupts(orders: Orders, wait: Wait) -> Option<Exit> {
    match (wait, orders.end, orders.stop) {
        // What is under way would go on without us, and change the world after somebody has looked at it.
        (Wait::Tool(Patience::Finish | Patience::Session), _, _) => None,
        (Wait::Model | Wait::Retry | Wait::Tool(Patience::Leave), Some(_), _) => Some(Exit::Cancelled),
        (Wait::Retry | Wait::Tool(Patience::Leave), None, Some(_)) | (Wait::Model, None, Some(Urgency::Now)) => {
            Some(Exit::Stopped)
        }
        (Wait::Retry | Wait::Tool(Patience::Leave), None, None)
        | (Wait::Model, None, Some(Urgency::Boundary) | None) => None,
    }
}
