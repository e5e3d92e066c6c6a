//! Bodies: what processes run.
//!
//! A body is fed by its orders, of which the latest counts, and records through its owner. It decides nothing about the
//! process: it runs until it has ended or has to stop, and says why.

mod agent;
mod cli;
mod exec;
mod flow;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use relive_agent::{Orders, Pulse};
use relive_core::{Body as Kind, End, Moment, Program, Signal, SuspendReason, Timestamp, Uuid};
use relive_journal::{History, Journal, JournalError, Seen, Writer};
use relive_llm::Model;
use relive_session::connection::Connection;
use relive_session::tree::Rungs;
use tokio::sync::watch;

use crate::drive::BodyOwner;
use crate::error::Result;
use crate::runtime::ProcessRef;
use crate::self_socket::SelfSocket;

pub(crate) use agent::{AgentBody, AgentFiles, AgentHost, real};
pub(crate) use cli::{
    ACP_PREFIX, BUILT_IN, CliBody, LiveAgent, NoRoute, PRICES_HINT, ShownAgent, Subagents, built_in, built_in_terminal,
    knows_state, provider_of, route, unpriced,
};
pub(crate) use exec::{ExecBody, ProgramFacts, last_session, left_ms};
pub(crate) use flow::{FlowBody, ProcessEnd};

/// What a process runs. Adding one touches no other body and no verb.
pub(crate) trait Body: Send + Sync + std::fmt::Debug {
    /// Refuses a verb that this kind of body cannot carry out.
    fn accepts(&self, verb: Verb) -> Result<()>;

    /// Refuses a fork of this process.
    fn accepts_fork(&self, _origin: &History, _from_step: Option<u32>) -> Result<()> {
        Ok(())
    }

    /// Refuses a message that the process cannot take in.
    fn accepts_message(&self, uuid: Uuid, when: DeliveryTime) -> BoxFuture<'_, Result<()>>;

    /// Tells whether the body reads messages from the journal. Otherwise they are handed to it with its next record.
    fn reads_journal(&self) -> bool;

    /// Says what a new run of a dead process is told, where its history waits for a message.
    fn first_message(&self, history: &History) -> Option<&'static str>;

    /// Runs until the process ends or has to stand still.
    fn run(&self, cx: Context) -> BoxFuture<'static, Exit>;

    /// Stops or ends what outlives the body, while there is no body.
    fn settle(&self, process: ProcessRef, how: Rest) -> BoxFuture<'_, std::io::Result<()>>;

    /// Tells whether the body stays while the process is suspended, to notice its end.
    fn stays_when_suspended(&self) -> bool;

    /// Tells when a process that needs no daemon was last seen to execute, before it is recovered. `None` where nobody
    /// can tell: then it executed as long as the daemon did.
    fn last_seen(&self, uuid: Uuid, now: Moment) -> BoxFuture<'_, Option<Seen>>;

    /// Tells whether a recovered body may act on a record that an earlier daemon wrote and did not sync: its journal is on the
    /// disk before it runs. A journal with an open call is so for every body.
    fn acts_on_last_records(&self) -> bool {
        true
    }

    /// Reads what the body needs at once, on the thread that has created or opened its journal. Blocks. What is not read
    /// here the body reads itself.
    fn read_ahead(&self, _journal: &mut Writer) -> Prepared {
        Prepared::default()
    }

    /// Tells whether what it started ends before it does, also while it has no body: other processes, or its own program.
    fn ends_others_first(&self) -> bool {
        false
    }

    /// Tells whether the process stops with the daemon.
    fn stops_with_daemon(&self) -> bool;

    /// Returns the message by which a process that handles a signal itself hears of it, if that is how.
    fn message_for(&self, signal: Signal) -> Option<&'static str>;

    /// Tells whether the body only records what a program does on its own, so that it also does so while it is to stop.
    fn is_observed(&self) -> bool {
        false
    }

    /// Passes a signal on to the session of a process that handles it itself.
    fn pass_on(&self, signal: Signal, session: LiveSession) -> BoxFuture<'static, ()>;
}

/// A verb that not every body can carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Opening or aborting its gate.
    Gate,
    /// A new process from a prefix of this one.
    Fork,
}

/// When a process is to take in a message.
#[derive(Debug)]
pub(crate) enum DeliveryTime {
    /// While it runs; with its session, if its body runs.
    Now(Option<watch::Receiver<Option<LiveSession>>>),
    /// In a run that is still to begin.
    NextRun,
}

/// How sessions are left while there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Frozen, because the process is suspended.
    Frozen,
    /// Ended, because the process ends.
    Ended,
}

/// What a body runs with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) process: ProcessRef,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) orders: watch::Receiver<Orders>,
    /// Where it says since when it owes progress.
    pub(crate) pulse: Pulse,
    pub(crate) owner: BodyOwner,
    /// Where a program's session is made known.
    pub(crate) session: watch::Sender<Option<LiveSession>>,
    pub(crate) prepared: Prepared,
}

/// What was prepared for a body before it starts. It prepares the rest itself.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// The model of an agent, built to see whether it can be.
    pub(crate) model: Option<Arc<dyn Model>>,
    /// What is in the files of an agent.
    pub(crate) files: Option<AgentFiles>,
    /// What the journal and the directory of sessions tell about a program.
    pub(crate) program: Option<ProgramFacts>,
    /// The socket of the process.
    pub(crate) socket: Option<SelfSocket>,
}

/// A session that its body has found or launched.
#[derive(Debug, Clone)]
pub(crate) struct LiveSession {
    pub(crate) process: ProcessRef,
    pub(crate) program: Arc<Program>,
    pub(crate) folder: PathBuf,
    pub(crate) shim: Shim,
}

/// The shim of a session that runs.
#[derive(Debug, Clone)]
pub(crate) enum Shim {
    Answers {
        connection: Connection,
        rungs: Box<Rungs>,
    },
    /// It speaks another version of the protocol: nothing can be asked of it.
    OtherVersion,
}

/// Why nothing can be asked of a shim of another version.
pub(crate) const OTHER_VERSION: &str = "its shim belongs to another version of Relive";

/// How long a verb waits for a session that is being launched or looked for. A client waits longer.
const SESSION_PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a body has found its session; none if the body exits without one, or takes too long.
pub(crate) async fn found_session(session: &mut watch::Receiver<Option<LiveSession>>) -> Option<LiveSession> {
    let found = tokio::time::timeout(SESSION_PATIENCE, session.wait_for(Option::is_some)).await;
    found.ok()?.ok()?.clone()
}

/// Waits until a body looks for the session that it had; `false` if it exits instead, or takes too long.
pub(crate) async fn is_looked_for(session: &mut watch::Receiver<Option<LiveSession>>) -> bool {
    matches!(tokio::time::timeout(SESSION_PATIENCE, session.changed()).await, Ok(Ok(())))
}

/// Why a body has stopped running.
#[derive(Debug)]
pub(crate) enum Exit {
    /// It said its last word. Something said meanwhile starts it again.
    Completed,
    /// The process ended like this.
    Ended(End),
    /// The same, and nothing that it started runs any more.
    Over(End),
    /// It was told to end, and has.
    Cancelled,
    /// It stands still, as it was told to.
    Stopped,
    /// It cannot continue for a reason of its own.
    Suspended {
        /// Why.
        reason: SuspendReason,
        /// When it can.
        resume_at: Option<Timestamp>,
    },
    /// It cannot record what it does.
    Unrecorded(JournalError),
    /// Its session cannot be looked at, so nobody can tell whether it runs.
    Unknown(std::io::Error),
    /// It panicked.
    Panicked,
}

/// The bodies there are.
#[derive(Debug)]
pub(crate) struct Bodies {
    pub(crate) agent: AgentBody,
    pub(crate) exec: ExecBody,
    pub(crate) cli: CliBody,
    pub(crate) flow: FlowBody,
}

impl Bodies {
    /// Returns what a process of this kind runs.
    pub(crate) fn of(&self, kind: Kind) -> Option<&dyn Body> {
        match kind {
            Kind::Agent => Some(&self.agent),
            Kind::Exec => Some(&self.exec),
            Kind::Compose | Kind::Supervisor => Some(&self.flow),
            Kind::Cli => Some(&self.cli),
        }
    }
}
