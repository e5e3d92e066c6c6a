//! One process: what is known of it, and where in its life it is.
//!
//! The data of a state is inside the variant of that state, so that nothing can be paused before it runs or have an
//! end before it ended. Dead is not among the variants: a dead process has left the table, and its completion record
//! answers for it. Rarely used and long facts are boxed, because a suspended process must stay cheap.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::arena::Links;
use crate::ids::{Generation, Incarnation, Pid, Uuid};
use crate::limits::{Limits, Usd};
use crate::signal::{Signal, SignalSet};
use crate::status::{Cause, End, SuspendReason};
use crate::table::release::Release;

/// The four states of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// It is in the table and has not been started.
    Created = 0,
    /// It runs, or is paused.
    Running = 1,
    /// It has ended and is being released.
    Zombie = 2,
    /// It has been released.
    Dead = 3,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Zombie => "zombie",
            Self::Dead => "dead",
        })
    }
}

/// What a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// The native reasoning loop.
    #[default]
    Agent,
    /// Any program, in a session.
    Exec,
    /// A command line agent, in a session.
    Cli,
    /// A graph of processes.
    Compose,
    /// Keeps its children running.
    Supervisor,
}

/// What a process has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Steps done.
    pub step: u32,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
    /// Money spent.
    pub cost_usd: Usd,
}

/// Where a fork came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Whose history it starts with.
    #[serde(rename = "origin_uuid")]
    pub uuid: Uuid,
    /// The last step of that history that is its own as well.
    #[serde(rename = "origin_step")]
    pub step: u32,
}

/// A process to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Above every PID ever used.
    pub pid: Pid,
    /// Whose history it writes.
    pub uuid: Uuid,
    /// Above every generation that wrote it before.
    pub generation: Generation,
    /// 0, or a running process.
    pub parent: Pid,
    /// The parent at the beginning of its history, where that is not `parent`.
    pub parent_uuid: Option<Uuid>,
    /// Set for a fork.
    pub origin: Option<Origin>,
    /// What it runs.
    pub body: Body,
    /// Need not be unique.
    pub name: Option<String>,
    /// What it is for.
    pub intent: String,
    /// Its working folder.
    pub cwd: String,
    /// `provider/model`.
    pub model: Option<String>,
    /// What it may spend.
    pub limits: Limits,
    /// What it has used, where it goes on from a history.
    pub usage: Usage,
    /// When it was created.
    pub created_at: Timestamp,
}

impl Spec {
    /// A first incarnation with nothing but its names; set the other fields as needed.
    #[must_use]
    pub fn new(pid: Pid, uuid: Uuid, parent: Pid, created_at: Timestamp) -> Self {
        Self {
            pid,
            uuid,
            generation: Generation(1),
            parent,
            parent_uuid: None,
            origin: None,
            body: Body::default(),
            name: None,
            intent: String::new(),
            cwd: String::new(),
            model: None,
            limits: Limits::default(),
            usage: Usage::default(),
            created_at,
        }
    }
}

/// A pause that an earlier daemon left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspension {
    /// When the pause was asked for.
    pub asked_at: Timestamp,
    /// Why it is paused.
    pub reason: SuspendReason,
    /// Pauses before this one.
    pub paused_total_ms: u64,
}

/// How soon a pause takes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Urgency {
    /// At the next boundary: what is under way is finished first.
    #[default]
    Boundary,
    /// What is under way is cancelled.
    Now,
}

/// How the body ended, as its driver saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It stopped because it was asked to.
    Cancelled,
    /// It ended like this. Where somebody had asked it to end and it names no cause itself, that is the cause.
    Ended(End),
}

/// What stays the same, or nearly, from spawn to completion record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) incarnation: Incarnation,
    pub(crate) body: Body,
    pub(crate) uuid: Uuid,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) about: Box<About>,
    pub(crate) usage: Usage,
    pub(crate) created_at: Timestamp,
    /// Pauses that are over.
    pub(crate) paused_total_ms: u64,
}

/// What only a detailed view asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct About {
    pub(crate) parent_uuid: Option<Uuid>,
    pub(crate) origin: Option<Origin>,
    pub(crate) intent: Box<str>,
    pub(crate) cwd: Box<str>,
    pub(crate) model: Option<Box<str>>,
    pub(crate) limits: Limits,
}

impl Facts {
    pub(crate) fn new(spec: Spec, parent_uuid: Option<Uuid>) -> Self {
        let about = About {
            parent_uuid,
            origin: spec.origin,
            intent: spec.intent.into(),
            cwd: spec.cwd.into(),
            model: spec.model.map(Into::into),
            limits: spec.limits,
        };
        Self {
            incarnation: Incarnation { pid: spec.pid, generation: spec.generation },
            body: spec.body,
            uuid: spec.uuid,
            name: spec.name.map(Into::into),
            about: Box::new(about),
            usage: spec.usage,
            created_at: spec.created_at,
            paused_total_ms: 0,
        }
    }
}

/// Where in its life a process is that is in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Life {
    Created,
    Running(Running),
    Zombie(Box<Zombie>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) started_at: Timestamp,
    pub(crate) last_progress: Timestamp,
    pub(crate) stalled: bool,
    pub(crate) pause: Pause,
    pub(crate) ending: Option<Ending>,
}

impl Running {
    pub(crate) fn since(now: Timestamp) -> Self {
        Self { started_at: now, last_progress: now, stalled: false, pause: Pause::None, ending: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    Pausing { asked_at: Timestamp, reason: SuspendReason, urgency: Urgency },
    Suspended { asked_at: Timestamp, reason: SuspendReason },
}

impl Pause {
    pub(crate) fn asked(self) -> Option<(Timestamp, SuspendReason)> {
        match self {
            Self::None => None,
            Self::Pausing { asked_at, reason, urgency: _ } | Self::Suspended { asked_at, reason } => {
                Some((asked_at, reason))
            }
        }
    }
}

/// It was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) signal: Signal,
    pub(crate) cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Zombie {
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Timestamp,
    pub(crate) end: End,
    pub(crate) release: Release,
}

/// Signals that were sent while blocked. A pending PAUSE and a pending RESUME are never both in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pending {
    causes: [Option<Cause>; Signal::LANDING_ORDER.len()],
    /// Of a pending PAUSE.
    pub(crate) urgency: Urgency,
}

impl Pending {
    fn cause_mut(&mut self, signal: Signal) -> Option<&mut Option<Cause>> {
        let at = Signal::LANDING_ORDER.iter().position(|candidate| *candidate == signal)?;
        self.causes.get_mut(at)
    }

    /// Is there anything new in it? The first cause stays.
    pub(crate) fn add(&mut self, signal: Signal, cause: Cause, urgency: Urgency) -> bool {
        let Some(kept) = self.cause_mut(signal) else { return false };
        let is_new = kept.is_none();
        kept.get_or_insert(cause);
        let is_sooner = signal == Signal::Pause && (is_new || urgency > self.urgency);
        if is_sooner {
            self.urgency = urgency;
        }
        is_new || is_sooner
    }

    pub(crate) fn take(&mut self, signal: Signal) -> Option<Cause> {
        self.cause_mut(signal)?.take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.causes.iter().all(Option::is_none)
    }

    pub(crate) fn signals(&self) -> SignalSet {
        let pending = Signal::LANDING_ORDER.into_iter().zip(&self.causes);
        pending.filter(|(_, cause)| cause.is_some()).map(|(signal, _)| signal).collect()
    }
}

/// A process in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) facts: Facts,
    pub(crate) life: Life,
    pub(crate) links: Links,
    pub(crate) mask: SignalSet,
    pub(crate) handlers: SignalSet,
    pub(crate) pending: Option<Box<Pending>>,
    /// Paused processes below this one.
    pub(crate) suspended_below: u32,
}

impl Entry {
    pub(crate) fn new(facts: Facts, life: Life) -> Self {
        Self {
            facts,
            life,
            links: Links::default(),
            mask: SignalSet::EMPTY,
            handlers: SignalSet::EMPTY,
            pending: None,
            suspended_below: 0,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.facts.incarnation.pid
    }

    pub(crate) fn state(&self) -> State {
        match self.life {
            Life::Created => State::Created,
            Life::Running(_) => State::Running,
            Life::Zombie(_) => State::Zombie,
        }
    }

    /// It has not ended.
    pub(crate) fn is_living(&self) -> bool {
        match self.life {
            Life::Created | Life::Running(_) => true,
            Life::Zombie(_) => false,
        }
    }

    pub(crate) fn running(&self) -> Option<&Running> {
        match &self.life {
            Life::Running(running) => Some(running),
            Life::Created | Life::Zombie(_) => None,
        }
    }

    pub(crate) fn running_mut(&mut self) -> Option<&mut Running> {
        match &mut self.life {
            Life::Running(running) => Some(running),
            Life::Created | Life::Zombie(_) => None,
        }
    }

    /// When and why it was paused, if it is.
    pub(crate) fn paused(&self) -> Option<(Timestamp, SuspendReason)> {
        self.running().and_then(|running| running.pause.asked())
    }
}

/// Milliseconds from one moment to a later one; none where the clock went back.
pub(crate) fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.as_millisecond() - from.as_millisecond()).unwrap_or(0)
}
