//! The reasoning loop: asks the model, makes the calls of its answer, and records each before it counts.
//!
//! One step is one model call and the tool calls it asked for. The journal's plan alone decides what comes next: the
//! loop reads it, acts, appends what it did, and reads it again. It ends at a boundary: between two records, never
//! between an intent and the act. It knows nothing of PIDs or parents; what it may do is in its [`Orders`].

mod ask;
mod calls;
mod compact;
mod dialogue;
mod files;
mod heard;
mod reads;
mod retry;
mod session;
mod settle;
mod transcript;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use relive_core::{Signal, Timestamp, Urgency, Usd};
use relive_journal::record::Body;
use relive_journal::{Durability, Journal, JournalError, Next, ProcessMeta, Progress};
use tokio::sync::watch;

use crate::pulse::Pulse;
use crate::snapshots::Snapshots;
use crate::tool::{Context, Patience, Tool};
use ask::SeenCommit;
use dialogue::Dialogue;
use relive_llm::Model;

/// How long a pause waits for a tool that only reads.
const READ_GRACE: Duration = Duration::from_secs(1);

/// The orders to a body. The latest ones count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orders {
    /// Stop at the next boundary, or now.
    pub stop: Option<Urgency>,
    /// Leave sessions running when it stops, because it is the daemon that stops.
    pub leave_sessions: bool,
    /// End.
    pub end: Option<Signal>,
    /// When its time is up.
    pub deadline: Option<tokio::time::Instant>,
}

/// Reserves what model calls may use.
pub trait Budget: Send + Sync {
    /// Reserves tokens and dollars for a model call, which is settled when its end is recorded; waits where others have
    /// reserved what is left. `false` if nothing is left.
    fn reserve(&self, tokens: u64, cost: Usd) -> BoxFuture<'static, bool>;
}

/// How often a checkpoint is written.
#[derive(Debug, Clone, Copy)]
pub struct Cadence {
    /// After so many steps.
    pub steps: u32,
    /// Or so much time.
    pub time: Duration,
}

/// A native agent, ready to run.
pub struct Agent {
    /// Where it records.
    pub journal: Arc<dyn Journal>,
    /// System prompt, tool definitions and model, as they were at the start.
    pub meta: ProcessMeta,
    /// The model it asks.
    pub model: Arc<dyn Model>,
    /// The tools that its model may call.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What these tools may use.
    pub context: Context,
    /// The runtime's orders.
    pub orders: watch::Receiver<Orders>,
    /// Where it reserves the tokens and dollars of a model call.
    pub budget: Arc<dyn Budget>,
    /// The task, in the words of the user.
    pub intent: String,
    /// How often a checkpoint is written.
    pub cadence: Cadence,
    /// Whether a spent budget suspends it instead of ending it.
    pub suspend_on_budget: bool,
    /// Whether it notes the commit of the Git repository in its working directory.
    pub git_notes: bool,
    /// Takes snapshots of the files; absent where none are wanted.
    pub snapshots: Option<Arc<dyn Snapshots>>,
    /// Where it publishes since when it owes progress.
    pub pulse: Pulse,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// Why the loop ended. The owner records it, because only the owner knows who asked for it.
#[derive(Debug)]
pub enum Exit {
    /// The model answered without a call, or called `done`.
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
    /// It has used up its tokens, money, steps or time, and waits for more.
    SuspendedBudget,
    /// It stopped at a boundary, as ordered.
    Stopped,
    /// The outcome of a call cannot be known, and a person has to say.
    InDoubt,
    /// A person was asked whether a call may be made.
    Approval,
    /// It has asked a person something.
    Question,
    /// The provider refuses questions for a while.
    Quota {
        /// When it may be asked again.
        resume_at: Timestamp,
    },
    /// The provider does not accept the key.
    NeedsCredentials(String),
    /// It cannot record what it does, so it does nothing.
    Unrecorded(JournalError),
}

impl From<JournalError> for Exit {
    fn from(error: JournalError) -> Self {
        match error {
            // The orders say which it is; its owner looks at them again.
            JournalError::Held => Self::Stopped,
            JournalError::Write(_) | JournalError::Read(_) | JournalError::Lost(_) => Self::Unrecorded(error),
        }
    }
}

type Step<T = ()> = Result<T, Exit>;

/// What the loop waits for, which says what may interrupt the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// A model's answer. An order to end, or to stop now, interrupts it.
    Model,
    /// The time until a model is asked again. Any order interrupts it.
    Retry,
    /// A tool. Its patience decides.
    Tool(Patience),
}

impl Wait {
    /// Tells whether the wait can be given up at any moment.
    fn can_be_left(self) -> bool {
        match self {
            Self::Model | Self::Retry | Self::Tool(Patience::Leave | Patience::Read) => true,
            Self::Tool(Patience::Finish | Patience::Session) => false,
        }
    }
}

/// The loop while it runs.
struct Loop {
    agent: Agent,
    /// The journal's state after the last append.
    standing: Progress,
    dialogue: Dialogue,
    system_prompt: Arc<str>,
    /// The definitions of the tools, a JSON array.
    tool_definitions: Arc<str>,
    /// The commit that was seen last, while nothing has happened that could have changed it.
    seen_commit: Option<SeenCommit>,
    files: files::FileWatch,
    /// Whether a result was written that is not synced yet.
    unsynced: bool,
    /// How many tokens the model can read and write in one call, as far as is known.
    window: Option<u64>,
    measured: Option<compact::Measured>,
    steps_since_checkpoint: u32,
    last_checkpoint: Instant,
}

impl Agent {
    /// Runs to the end, or until an order, and returns why it ended.
    pub async fn run(self) -> Exit {
        let suspend_on_budget = self.suspend_on_budget;
        let exit = match Loop::begin(self).await {
            Ok(mut running) => {
                let Err(exit) = running.go().await;
                running.last_look(&exit).await;
                exit
            }
            Err(error) => error.into(),
        };
        let spent = matches!(exit, Exit::MaxSteps | Exit::TimedOut | Exit::OverBudget);
        if suspend_on_budget && spent { Exit::SuspendedBudget } else { exit }
    }
}

impl Loop {
    async fn begin(agent: Agent) -> Result<Self, JournalError> {
        let dialogue = Dialogue::of(agent.journal.conversation().await?);
        let standing = agent.journal.state().await?;
        let mut begun = Self {
            window: agent.model.context_tokens(),
            system_prompt: agent.meta.system_prompt.as_str().into(),
            tool_definitions: agent.meta.tools.get().into(),
            agent,
            standing: Progress { said: Vec::new(), ..standing.clone() },
            dialogue,
            seen_commit: None,
            files: files::FileWatch::default(),
            unsynced: false,
            measured: None,
            steps_since_checkpoint: 0,
            last_checkpoint: Instant::now(),
        };
        begun.take_in(standing);
        Ok(begun)
    }

    async fn go(&mut self) -> Step<std::convert::Infallible> {
        loop {
            self.catch_up().await?;
            if let Some(open) = self.standing.plan.open.first().cloned() {
                self.settle(open).await?;
                continue;
            }
            match self.standing.plan.next {
                Next::Calls { call, .. } => {
                    self.boundary()?;
                    if !self.read_together(call).await? {
                        self.start_call(call).await?;
                    }
                }
                Next::Input => return Err(Exit::Completed),
                Next::Ask { step, .. } => {
                    self.boundary()?;
                    self.within_limits(step).await?;
                    self.ask(step).await?;
                    self.steps_since_checkpoint += 1;
                }
            }
            self.checkpoint_if_due().await;
        }
    }

    /// Takes in the records of others.
    async fn catch_up(&mut self) -> Step {
        let standing = self.agent.journal.state().await?;
        self.take_in(standing);
        Ok(())
    }

    fn take_in(&mut self, mut standing: Progress) {
        for text in std::mem::take(&mut standing.said) {
            self.dialogue.hear(text);
        }
        self.standing = standing;
    }

    /// Appends one record, and takes in those that came before it.
    async fn record(&mut self, body: Body, durability: Durability) -> Step {
        self.record_batch(vec![body], durability).await
    }

    /// Appends records in one write, and takes in those that came before them.
    async fn record_batch(&mut self, batch: Vec<Body>, durability: Durability) -> Step {
        let spoken = batch.clone();
        let standing = self.agent.journal.append(batch, durability).await?;
        self.take_in(standing);
        self.unsynced = match durability {
            Durability::Synced => false,
            Durability::Beside | Durability::Written => true,
            // Nothing in the world depends on it.
            Durability::Deferred => self.unsynced,
        };
        spoken.into_iter().for_each(|body| self.dialogue.take(body));
        Ok(())
    }

    /// Syncs results that were only written, so that a wait does not keep them from the disk.
    async fn sync_results(&mut self) -> Step {
        if std::mem::take(&mut self.unsynced) {
            self.agent.journal.sync().await?;
        }
        Ok(())
    }

    fn event(&self, kind: &'static str, body: serde_json::Value) {
        self.agent.journal.event(kind, body);
    }

    /// Obeys orders between two records.
    fn boundary(&mut self) -> Step {
        let orders = *self.agent.orders.borrow_and_update();
        if orders.end.is_some() {
            return Err(Exit::Cancelled);
        }
        if orders.stop.is_some() {
            return Err(Exit::Stopped);
        }
        if orders.deadline.is_some_and(|deadline| deadline <= tokio::time::Instant::now()) {
            return Err(Exit::TimedOut);
        }
        Ok(())
    }

    /// Waits for `work`, and meanwhile for orders and the end of its time. Leaving drops `work`, which cancels it.
    async fn attend<T>(&self, wait: Wait, work: impl Future<Output = T>) -> Step<T> {
        tokio::pin!(work);
        let mut orders = self.agent.orders.clone();
        let mut told_at = None;
        loop {
            let now = *orders.borrow_and_update();
            let leave_at = match interrupts(now, wait) {
                Some(Interrupt::AtOnce(exit)) => return Err(exit),
                Some(Interrupt::Soon) => Some(*told_at.get_or_insert_with(tokio::time::Instant::now) + READ_GRACE),
                None => None,
            };
            tokio::select! {
                biased;
                outcome = &mut work => return Ok(outcome),
                changed = orders.changed() => {
                    if changed.is_err() {
                        // Its owner has gone with the daemon.
                        return Err(Exit::Cancelled);
                    }
                }
                () = until(now.deadline), if wait.can_be_left() => return Err(Exit::TimedOut),
                () = until(leave_at) => return Err(Exit::Stopped),
            }
        }
    }

    /// Reserves what the call for this step may use, if the limits allow it.
    async fn within_limits(&mut self, step: u32) -> Step {
        if self.standing.limits.max_steps.is_some_and(|max| step > max) {
            return Err(Exit::MaxSteps);
        }
        let (tokens, cost) = self.reservation();
        let mut reserved = self.agent.budget.reserve(tokens, cost.unwrap_or_default());
        if let Some(reserved) = futures_util::FutureExt::now_or_never(&mut reserved) {
            return if reserved { Ok(()) } else { Err(Exit::OverBudget) };
        }
        self.sync_results().await?;
        if self.attend(Wait::Retry, reserved).await? { Ok(()) } else { Err(Exit::OverBudget) }
    }

    /// Returns the most a call may use, in tokens and dollars: priced as output, the dearer half.
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

/// Waits for a deadline, or forever if there is none.
async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// When a wait is left.
enum Interrupt {
    AtOnce(Exit),
    /// After [`READ_GRACE`], because of a pause.
    Soon,
}

fn interrupts(orders: Orders, wait: Wait) -> Option<Interrupt> {
    match (wait, orders.end, orders.stop) {
        // The act would continue without us, and change the world after somebody has looked at it.
        (Wait::Tool(Patience::Finish | Patience::Session), _, _) => None,
        (Wait::Model | Wait::Retry | Wait::Tool(Patience::Leave | Patience::Read), Some(_), _) => {
            Some(Interrupt::AtOnce(Exit::Cancelled))
        }
        (Wait::Retry | Wait::Tool(Patience::Leave), None, Some(_))
        | (Wait::Model | Wait::Tool(Patience::Read), None, Some(Urgency::Now)) => {
            Some(Interrupt::AtOnce(Exit::Stopped))
        }
        (Wait::Tool(Patience::Read), None, Some(Urgency::Boundary)) => Some(Interrupt::Soon),
        (Wait::Retry | Wait::Tool(Patience::Leave | Patience::Read), None, None)
        | (Wait::Model, None, Some(Urgency::Boundary) | None) => None,
    }
}
