//! What the loop wants of a tool, and what a tool may want of the runtime.
//!
//! A call has two halves. [`Tool::prepare`] looks at the world, changes nothing, and says how the call could be settled
//! after a crash; that goes to the journal. Then [`Tool::run`] does it. Whatever `prepare` saw is not trusted by `run`
//! after a crash: it looks again.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::Pool;
use relive_journal::recovery::{Finding, Recovery};
use relive_session::sessions::Sessions;
use relive_types::{Signal, Timestamp, Uuid};

/// What a call may use.
#[derive(Debug, Clone)]
pub struct Context {
    /// Whose call it is.
    pub uuid: Uuid,
    /// The folder the agent works in; file tools do not leave it.
    pub cwd: PathBuf,
    /// The runtime, as this process sees it.
    pub host: Arc<dyn Host>,
    /// Threads for blocking I/O.
    pub pool: Pool,
    /// Programs run in these.
    pub sessions: Arc<Sessions>,
    /// Where the sessions of this process have their folders.
    pub folder: PathBuf,
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether it worked.
    pub ok: bool,
    /// What the model is told.
    pub text: String,
    /// Whether the agent has said that it is done.
    pub done: bool,
    /// Whether nobody can tell how it went: the call is in doubt, whatever the text says.
    pub lost: bool,
}

impl ToolResult {
    /// It worked.
    #[must_use]
    pub fn ok(text: impl Into<String>) -> Self {
        Self { ok: true, text: text.into(), done: false, lost: false }
    }

    /// It did not, and the model is told why.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self { ok: false, text: text.into(), done: false, lost: false }
    }

    /// Nobody can tell whether it worked.
    #[must_use]
    pub fn lost(why: impl Into<String>) -> Self {
        Self { lost: true, ..Self::failed(why) }
    }
}

/// Whether a call can be left in the middle and taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It is brief, or changes something: a pause waits for it.
    Finish,
    /// It only waits: a pause leaves it open, and a resume takes it up again.
    Leave,
    /// It runs in a session: a pause freezes that and leaves it open, and a resume joins it again.
    Session,
}

/// What a tool that runs in a session is told meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Everything of it shall stand still.
    StandStill,
    /// It shall end; with KILL, all of it and now.
    End(Signal),
}

/// A tool.
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Its definition as models get it: a JSON object with `name`, `description` and `input_schema`.
    fn definition(&self) -> serde_json::Value;

    /// Whether a pause waits for it.
    fn patience(&self) -> Patience {
        Patience::Finish
    }

    /// Looks, changes nothing, and says how the call could be settled after a crash. An error is the call's result.
    fn prepare(&self, context: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>>;

    /// Does it. `recovery` is what `prepare` said, this time or before a crash; `key` names the call and no other.
    fn run(&self, context: Context, args: String, recovery: Recovery, key: String) -> BoxFuture<'static, ToolResult>;

    /// After a crash: looks what became of the call. Only tools that are settled by `check`, `lookup` or `join` are
    /// asked.
    fn look(&self, _context: Context, _recovery: Recovery, _key: String) -> BoxFuture<'static, Finding> {
        std::future::ready(Finding::Lost).boxed()
    }

    /// While it runs: passes an order on to its session. Only tools that run in one are asked. Says whether there was one;
    /// if not, nothing of the call has run yet.
    fn order(&self, _context: Context, _key: String, _order: Order) -> BoxFuture<'static, bool> {
        std::future::ready(true).boxed()
    }

    /// After a crash: the result of a call that looking found to be done.
    fn found_done(&self, _args: String, _recovery: Recovery) -> ToolResult {
        ToolResult::failed("the call was interrupted")
    }
}

/// A child agent to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each name says it")]
pub struct ChildRequest {
    pub uuid: Uuid,
    pub parent: Uuid,
    pub name: Option<String>,
    pub intent: String,
    /// As its parent's if absent.
    pub model: Option<String>,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildEnd {
    /// As `wait` would exit.
    pub code: u8,
    /// The plain reason.
    pub reason: String,
    /// The last text of its model.
    pub last_text: Option<String>,
}

/// What a tool may want of the runtime. A process may name itself, what is below it, and what it was handed.
pub trait Host: Send + Sync + std::fmt::Debug {
    /// The time.
    fn now(&self) -> Timestamp;

    /// A new UUID.
    fn new_uuid(&self) -> Uuid;

    /// The environment of the programs that tools run: what is harmless of the process's own.
    fn environment(&self) -> BoxFuture<'static, Result<Vec<(String, String)>, String>>;

    /// Begins a child; one with this UUID that is there already is that child.
    fn spawn_agent(&self, request: ChildRequest) -> BoxFuture<'static, Result<(), String>>;

    /// Whether there is such a process.
    fn exists(&self, uuid: Uuid) -> BoxFuture<'static, bool>;

    /// Waits until a process ends.
    fn wait_agent(&self, caller: Uuid, uuid: Uuid) -> BoxFuture<'static, Result<ChildEnd, String>>;
}
