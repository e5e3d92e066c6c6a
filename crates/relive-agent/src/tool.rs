//! The interface of a tool to the loop, and of the runtime to a tool.
//!
//! A call has two parts. [`Tool::prepare`] looks but changes nothing, and returns how the call could be settled after a
//! crash; the journal records that. Then [`Tool::run`] acts. After a crash `run` does not trust the result of
//! `prepare`: it looks again.
//!
//! Dropping the future of a tool cancels it, which is how the loop abandons a tool that only reads or waits.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::{Finding, Recovery};
use relive_journal::{Journal, Pool};
use relive_session::sessions::Sessions;
use relive_session::spec::{Inherited, Policy};
use relive_types::{Signal, Timestamp, Uuid};

/// The resources of a call.
#[derive(Debug, Clone)]
pub struct Context {
    /// The process that makes the call.
    pub uuid: Uuid,
    /// The directory the agent works in; file tools do not leave it.
    pub cwd: PathBuf,
    /// What file tools do not touch below or above the working directory, without symbolic links: Relive's own directories,
    /// and what is hidden from or protected against its commands.
    pub private: PrivatePaths,
    /// The runtime, with the view of this process.
    pub host: Arc<dyn Host>,
    /// Threads for blocking I/O.
    pub pool: Pool,
    /// Threads for reads and searches that take long.
    pub slow_pool: Pool,
    pub sessions: Arc<Sessions>,
    /// The settings of its programs, from the shell in which its command was typed.
    pub inherited: Option<Inherited>,
    /// What its programs may reach.
    pub isolation: Policy,
    /// The hosts that they reach through a proxy, if their network is a list.
    pub proxy: Option<relive_proxy::Settings>,
    /// Where the requests of its programs to that proxy are shown; absent if nobody looks.
    pub journal: Option<Arc<dyn Journal>>,
    /// The directory with the sessions of this process.
    pub folder: PathBuf,
}

/// Paths that are found when the first tool needs them: a process that waits for its model does not.
#[derive(Clone)]
pub struct PrivatePaths(Arc<Paths>);

struct Paths {
    found: OnceLock<Box<[PathBuf]>>,
    find: Box<dyn Fn() -> Box<[PathBuf]> + Send + Sync>,
}

impl PrivatePaths {
    /// `find` may block.
    pub fn new(find: impl Fn() -> Box<[PathBuf]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Paths { found: OnceLock::new(), find: Box::new(find) }))
    }

    /// Returns whether it is known that there are none.
    pub(crate) fn are_known_to_be_none(&self) -> bool {
        self.0.found.get().is_some_and(|found| found.is_empty())
    }

    /// Finds the paths, the first time. Blocks.
    pub fn get(&self) -> &[PathBuf] {
        self.0.found.get_or_init(|| (self.0.find)())
    }
}

impl std::fmt::Debug for PrivatePaths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PrivatePaths").field(&self.0.found.get()).finish()
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    pub ok: bool,
    pub text: String,
    /// Whether the agent declared its work done.
    pub done: bool,
    /// Whether the outcome cannot be known: the call is in doubt, whatever the text says.
    pub lost: bool,
    /// The host that its command waits to reach, until a person has answered: the call has no result yet.
    pub asks: Option<String>,
    /// Whether it was not made, because a person or a policy denied it.
    pub denied: bool,
}

impl ToolResult {
    /// Creates the result of a successful call.
    #[must_use]
    pub fn ok(text: impl Into<String>) -> Self {
        Self { ok: true, text: text.into(), done: false, lost: false, asks: None, denied: false }
    }

    /// Creates the result of a failed call, with the reason for the model.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self { ok: false, ..Self::ok(text) }
    }

    /// Creates the result of a call that was denied, with the reason for the model.
    #[must_use]
    pub fn denied(text: impl Into<String>) -> Self {
        Self { denied: true, ..Self::failed(text) }
    }

    /// Creates what stands for the result of a call whose command waits to reach a host.
    #[must_use]
    pub fn asks(host: String) -> Self {
        Self { asks: Some(host), ..Self::failed("") }
    }

    /// Creates the result of a call whose outcome cannot be known.
    #[must_use]
    pub fn lost(why: impl Into<String>) -> Self {
        Self { lost: true, ..Self::failed(why) }
    }
}

/// Whether a call can be interrupted and continued later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It has an effect: every order waits for it.
    Finish,
    /// It only reads: a pause waits a second for it and then abandons it, any other order abandons it at once. It is
    /// made again after a resume.
    Read,
    /// It only waits: every order interrupts it, and a resume continues the wait.
    Leave,
    /// It runs in a session: a pause freezes the session and leaves the call open, and a resume joins the session
    /// again.
    Session,
}

/// An order to a tool that runs in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Freeze the session.
    StandStill,
    /// Continue: an order to stand still may have been carried out in part.
    Continue,
    /// End it; with KILL, at once and with its whole process tree.
    End(Signal),
}

pub trait Tool: Send + Sync + std::fmt::Debug {
    fn name(&self) -> &'static str;

    /// Returns its definition for models: a JSON object with `name`, `description` and `input_schema`.
    fn definition(&self) -> serde_json::Value;

    /// Returns which orders wait for it.
    fn patience(&self) -> Patience {
        Patience::Finish
    }

    /// Returns the command that a call with these arguments would run, exactly: rules by command are held against it.
    fn command(&self, _args: &str) -> Option<String> {
        None
    }

    /// Tells whether its result is the answer of a person: it is never run.
    fn asks_person(&self) -> bool {
        false
    }

    /// Looks, changes nothing, and returns how the call could be settled after a crash. An error is the call's result.
    fn prepare(&self, context: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>>;

    /// Acts. `recovery` is the result of `prepare`, now or before a crash; `key` is unique to this call.
    fn run(&self, context: Context, args: String, recovery: Recovery, key: String) -> BoxFuture<'static, ToolResult>;

    /// Finds out what happened to a call after a crash. Only called for tools that `check`, `lookup` or `join` settles.
    fn look(&self, _context: Context, _recovery: Recovery, _key: String) -> BoxFuture<'static, Finding> {
        std::future::ready(Finding::Lost).boxed()
    }

    /// Passes an order to its session while it runs. Returns whether there is a session; if not, nothing of the call
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
pub struct ChildRequest {
    pub uuid: Uuid,
    pub parent: Uuid,
    pub name: Option<String>,
    pub intent: String,
    /// The model of its parent if absent.
    pub model: Option<String>,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildEnd {
    /// The exit code of `wait`.
    pub code: u8,
    pub reason: String,
    /// The last text of its model.
    pub last_text: Option<String>,
}

/// How an agent ends itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnEnd {
    /// With an exit code.
    Exit {
        /// 0 is success.
        code: u8,
        /// Why, for people.
        reason: Option<String>,
    },
    /// With what keeps it from doing its work.
    Fault {
        /// What went wrong.
        fault: String,
    },
    /// It gives itself up.
    Abandon,
}

/// The runtime for tools. A process may name itself, its descendants, and the targets of its handles.
pub trait Host: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Timestamp;

    fn new_uuid(&self) -> Uuid;

    /// Returns the environment for the programs that tools run: the harmless part of the process's own.
    fn environment(&self) -> BoxFuture<'static, Result<Vec<(String, String)>, String>>;

    /// Starts a child, unless one with this UUID exists already.
    fn spawn_agent(&self, request: ChildRequest) -> BoxFuture<'static, Result<(), String>>;

    /// Returns whether the process exists.
    fn exists(&self, uuid: Uuid) -> BoxFuture<'static, bool>;

    /// Ends the process that asks. On return that is on the disk, and an order to end is on its way.
    fn end_self(&self, how: OwnEnd) -> BoxFuture<'static, Result<(), String>>;

    /// Waits until a process ends.
    fn wait_agent(&self, caller: Uuid, uuid: Uuid) -> BoxFuture<'static, Result<ChildEnd, String>>;
}
