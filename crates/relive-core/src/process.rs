//! The parts of a process, and its entry in the table.
//!
//! Rarely used and long fields are boxed, because a suspended process must stay cheap.

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// In the table, not started.
    Created = 0,
    /// Running or paused.
    Running = 1,
    /// Ended, being released.
    Zombie = 2,
    /// Released.
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

/// The kind of work that a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// The native agent loop.
    #[default]
    Agent,
    /// Any program, in a session.
    Exec,
    /// A command line agent, in a session.
    Cli,
    /// A graph of processes.
    Compose,
    /// A process that keeps its children running.
    Supervisor,
}

/// Everything that a process has used so far, over all its incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Completed steps.
    pub step: u32,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// The cost; absent where a price is not known.
    pub cost_usd: Option<Usd>,
    /// Whether some of it is an estimate, because a provider did not report it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// The origin of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The process whose journal the fork begins with.
    #[serde(rename = "origin_uuid")]
    pub uuid: Uuid,
    /// The last step that both have in common.
    #[serde(rename = "origin_step")]
    pub step: u32,
}

/// The description of a process to spawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Higher than every PID ever used.
    pub pid: Pid,
    pub uuid: Uuid,
    /// Higher than every earlier generation of this UUID.
    pub generation: Generation,
    /// PID 0, or a running process.
    pub parent: Pid,
    /// The parent at the beginning of the journal, if it is not `parent`.
    pub parent_uuid: Option<Uuid>,
    /// Set for a fork.
    pub origin: Option<Origin>,
    pub body: Body,
    pub name: Option<String>,
    /// What it is to do, or the beginning of that.
    pub intent: String,
    /// Whether `intent` is only the beginning.
    pub intent_cut: bool,
    pub cwd: String,
    /// `provider/model`.
    pub model: Option<String>,
    pub limits: Limits,
    /// The usage of earlier incarnations.
    pub usage: UsageTotals,
    pub created_at: Timestamp,
    pub stopwatch: Stopwatch,
}

impl Spec {
    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation { pid: self.pid, generation: self.generation }
    }

    /// Returns a first incarnation that begins now, with ids and parent only; set the other fields as needed.
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
            intent_cut: false,
            cwd: String::new(),
            model: None,
            limits: Limits::default(),
            usage: UsageTotals::default(),
            created_at: now.at,
            stopwatch: Stopwatch::started(0, now.up_ms),
        }
    }
}

/// How soon a pause takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Urgency {
    /// At the next boundary: work in progress is finished first.
    #[default]
    Boundary,
    /// At once: work in progress is cancelled.
    Now,
}

/// The end of the body, as its driver saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It stopped because it was asked to.
    Cancelled,
    /// It ended like this. If it names no cause and somebody had asked it to end, that request is the cause.
    Ended(End),
    /// Its end is already in the journal; requests made since then change nothing.
    Recorded(End),
}

/// The fields that hardly change from spawn to completion record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) body: Body,
    pub(crate) uuid: Uuid,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) about: Box<About>,
    pub(crate) usage: UsageTotals,
    pub(crate) created_at: Timestamp,
}

/// The fields that only a detailed view shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct About {
    pub(crate) parent_uuid: Option<Uuid>,
    pub(crate) origin: Option<Origin>,
    pub(crate) intent: Box<str>,
    pub(crate) intent_cut: bool,
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
            intent_cut: spec.intent_cut,
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

/// A process in the table: the part that its owner controls, and the part that changes without the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) machine: Machine,
    pub(crate) facts: Facts,
    pub(crate) links: Links,
    /// The number of paused descendants.
    pub(crate) suspended_below: u32,
    /// In milliseconds since boot; counts only while the process runs and is not paused.
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

    pub(crate) fn is_living(&self) -> bool {
        self.machine.end().is_none()
    }
}
