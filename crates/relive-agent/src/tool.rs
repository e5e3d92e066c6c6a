//! What the loop expects of a tool, and what a tool may ask of the runtime.
//!
//! A call has two halves. [`Tool::prepare`] looks at the world, changes nothing, and says how the call could be settled
//! after a crash; the journal records that. Then [`Tool::run`] acts. After a crash `run` does not trust what `prepare` saw:
//! it looks again.
//!
//! Dropping the future of a tool cancels it. That is how the loop leaves a tool that only reads or waits.

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
    /// The process that makes the call.
    pub uuid: Uuid,
    /// The directory the agent works in; file tools do not leave it.
    pub cwd: PathBuf,
    /// Directories of Relive's own that are below the working directory, or above it, without symbolic links: file tools
    /// do not touch them.
    pub private: Arc<[PathBuf]>,
    /// The runtime, as this process sees it.
    pub host: Arc<dyn Host>,
    /// Threads for blocking I/O.
    pub pool: Pool,
    /// Threads for reads and searches that take long.
    pub slow_pool: Pool,
    /// Where programs run.
    pub sessions: Arc<Sessions>,
    /// Where the sessions of this process have their directories.
    pub folder: PathBuf,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether it worked.
    pub ok: bool,
    /// The text for the model.
    pub text: String,
    /// Whether the agent has said that it is done.
    pub done: bool,
    /// Whether the outcome cannot be known: the call is in doubt, whatever the text says.
    pub lost: bool,
}

impl ToolResult {
    /// Makes the result of a call that worked.
    #[must_use]
    pub fn ok(text: impl Into<String>) -> Self {
        Self { ok: true, text: text.into(), done: false, lost: false }
    }

    /// Makes the result of a call that failed, with the reason for the model.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self { ok: false, text: text.into(), done: false, lost: false }
    }

    /// Makes the result of a call whose outcome cannot be known.
    #[must_use]
    pub fn lost(why: impl Into<String>) -> Self {
        Self { lost: true, ..Self::failed(why) }
    }
}

/// Whether a call can be left in the middle and continued later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It changes something: every order waits for it.
    Finish,
    /// It only reads: a pause gives it a second to finish and then leaves it, any other order leaves it at once. It is
    /// made again after a resume.
    Read,
    /// It only waits: every order leaves it, and a resume continues the wait.
    Leave,
    /// It runs in a session: a pause freezes the session and leaves the call open, and a resume joins it again.
    Session,
}

/// An order to a tool that runs in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Freeze.
    StandStill,
    /// End; with KILL, at once and with all its processes.
    End(Signal),
}

/// A tool.
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// Returns its name.
    fn name(&self) -> &'static str;

    /// Returns its definition for models: a JSON object with `name`, `description` and `input_schema`.
    fn definition(&self) -> serde_json::Value;

    /// Returns which orders wait for it.
    fn patience(&self) -> Patience {
        Patience::Finish
    }

    /// Looks, changes nothing, and says how the call could be settled after a crash. An error is the call's result.
    fn prepare(&self, context: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>>;

    /// Acts. `recovery` is what `prepare` returned, now or before a crash; `key` names this call and no other.
    fn run(&self, context: Context, args: String, recovery: Recovery, key: String) -> BoxFuture<'static, ToolResult>;

    /// Looks what became of a call after a crash. Only called for tools that `check`, `lookup` or `join` settles.
    fn look(&self, _context: Context, _recovery: Recovery, _key: String) -> BoxFuture<'static, Finding> {
        std::future::ready(Finding::Lost).boxed()
    }

    /// Passes an order on to its session while it runs. Returns whether there is a session; if not, nothing of the call
    /// has run yet.
    fn order(&self, _context: Context, _key: String, _order: Order) -> BoxFuture<'static, bool> {
        std::future::ready(true).boxed()
    }

    /// Returns the result of a call that [`Tool::look`] found to be done.
    fn found_done(&self, _args: String, _recovery: Recovery) -> ToolResult {
        ToolResult::failed("the call was interrupted")
    }
}

/// A request for a child agent.
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
    /// The exit code of `wait`.
    pub code: u8,
    /// The reason in plain words.
    pub reason: String,
    /// The last text of its model.
    pub last_text: Option<String>,
}

/// The runtime as tools see it. A process may name itself, what is below it, and what it was handed.
pub trait Host: Send + Sync + std::fmt::Debug {
    /// Returns the time.
    fn now(&self) -> Timestamp;

    /// Returns a new UUID.
    fn new_uuid(&self) -> Uuid;

    /// Returns the environment of the programs that tools run: the harmless part of the process's own.
    fn environment(&self) -> BoxFuture<'static, Result<Vec<(String, String)>, String>>;

    /// Starts a child, unless one with this UUID exists already.
    fn spawn_agent(&self, request: ChildRequest) -> BoxFuture<'static, Result<(), String>>;

    /// Returns whether the process exists.
    fn exists(&self, uuid: Uuid) -> BoxFuture<'static, bool>;

    /// Waits until a process ends.
    fn wait_agent(&self, caller: Uuid, uuid: Uuid) -> BoxFuture<'static, Result<ChildEnd, String>>;
}
