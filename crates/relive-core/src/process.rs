//! One process: the words for it, and its entry in the table.
//!
//! Rarely used and long facts are boxed, because a suspended process must stay cheap.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::arena::Links;
use crate::ids::{Generation, Incarnation, Pid, Uuid};
use crate::limits::{Limits, Usd};
use crate::machine::Machine;
use crate::status::End;
use crate::table::release::Release;
use crate::time::{Moment, Stopwatch};

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
    /// Money spent; none where a price is not known.
    pub cost_usd: Option<Usd>,
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
    /// Its working directory.
    pub cwd: String,
    /// `provider/model`.
    pub model: Option<String>,
    /// What it may spend.
    pub limits: Limits,
    /// What it has used, where it goes on from a history.
    pub usage: Usage,
    /// When it was created.
    pub created_at: Timestamp,
    /// How long it has executed, and whether it does.
    pub stopwatch: Stopwatch,
}

impl Spec {
    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation { pid: self.pid, generation: self.generation }
    }

    /// A first incarnation that begins now, with nothing but its names; set the other fields as needed.
    #[must_use]
    pub fn new(pid: Pid, uuid: Uuid, parent: Pid, now: Moment) -> Self {
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
            created_at: now.at,
            stopwatch: Stopwatch::started(0, now.up_ms),
        }
    }
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
    /// Its end is on record, word for word; what was asked for since then changes nothing.
    Recorded(End),
}

/// What stays the same, or nearly, from spawn to completion record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) body: Body,
    pub(crate) uuid: Uuid,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) about: Box<About>,
    pub(crate) usage: Usage,
    pub(crate) created_at: Timestamp,
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
            body: spec.body,
            uuid: spec.uuid,
            name: spec.name.map(Into::into),
            about: Box::new(about),
            usage: spec.usage,
            created_at: spec.created_at,
        }
    }
}

/// A process in the table: the part its owner decides on, and what changes without the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) machine: Machine,
    pub(crate) facts: Facts,
    pub(crate) links: Links,
    /// Paused processes below this one.
    pub(crate) suspended_below: u32,
    /// Since boot; only counts while it runs and is not paused.
    pub(crate) last_progress_ms: u64,
    pub(crate) stalled: bool,
    pub(crate) release: Release,
}

impl Entry {
    pub(crate) fn new(facts: Facts, machine: Machine, last_progress_ms: u64) -> Self {
        Self {
            machine,
            facts,
            links: Links::default(),
            suspended_below: 0,
            last_progress_ms,
            stalled: false,
            release: Release::default(),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.machine.incarnation().pid
    }

    /// It has not ended.
    pub(crate) fn is_living(&self) -> bool {
        self.machine.end().is_none()
    }
}
