//! The view of a process that `ps` and `info` show.
//!
//! A view borrows: listing a hundred thousand processes copies no text. The caller adds what only a body knows (its
//! session, the activity of a command line agent).

use std::ops::Bound;

use jiff::Timestamp;
use serde::Serialize;

use crate::arena::Slot;
use crate::ids::{Generation, Incarnation, Pid, Uuid};
use crate::limits::Usd;
use crate::machine::{Life, Pause, Running};
use crate::process::{Body, Entry, Facts, State};
use crate::signal::Signal;
use crate::status::{Cause, End, Exit, ProcessStatus, SuspendReason, Why};
use crate::table::completion::Record;
use crate::table::{Found, Table};
use crate::time::Moment;

/// The state that a table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Display {
    Loading,
    Running,
    /// A program that is held at its gate: whoever has its session says so.
    Ready,
    Pausing,
    Suspended,
    InDoubt,
    Approval,
    Question,
    Stalled,
    Zombie,
    Dead,
    /// The journal cannot be read, so nothing else is known.
    Damaged,
}

impl Display {
    pub const ALL: [Self; 12] = [
        Self::Loading,
        Self::Running,
        Self::Ready,
        Self::Pausing,
        Self::Suspended,
        Self::InDoubt,
        Self::Approval,
        Self::Question,
        Self::Stalled,
        Self::Zombie,
        Self::Dead,
        Self::Damaged,
    ];

    /// Parses a state as [`Self::word`] writes it.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|display| display.word() == word)
    }

    /// Returns the state as in JSON, such as `running`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Pausing => "pausing",
            Self::Suspended => "suspended",
            Self::InDoubt => "in_doubt",
            Self::Approval => "approval",
            Self::Question => "question",
            Self::Stalled => "stalled",
            Self::Zombie => "zombie",
            Self::Dead => "dead",
            Self::Damaged => "damaged",
        }
    }
}

/// A snapshot of one process. Its JSON has the published fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct View<'a> {
    pub pid: Pid,
    pub ppid: Pid,
    pub uuid: Uuid,
    pub parent_uuid: Option<Uuid>,
    pub origin_uuid: Option<Uuid>,
    pub origin_step: Option<u32>,
    pub generation: Generation,
    pub successor_pid: Option<Pid>,
    pub name: Option<&'a str>,
    pub body: Body,
    pub intent: &'a str,
    /// Whether `intent` is only the beginning.
    pub intent_cut: bool,
    pub cwd: &'a str,
    pub state: State,
    pub paused: bool,
    pub paused_at: Option<Timestamp>,
    pub display: Display,
    pub suspend_reason: Option<SuspendReason>,
    /// Who asked for the pause, if somebody did.
    pub paused_by: Option<Cause>,
    /// Whether the process is paused by a user as soon as the present pause ends.
    pub pause_kept: bool,
    /// The signal that asked the process to end, until it has ended.
    pub ending: Option<Signal>,
    pub status: Option<&'a ProcessStatus>,
    pub why: Option<Why>,
    /// The process that ended it, 0 for the runtime.
    pub killed_by: Option<Pid>,
    /// The root of the tree that was signalled.
    pub killed_from: Option<Pid>,
    /// By whom it was ended, or is being ended.
    pub ended_by: Option<Cause>,
    pub exit: Option<Exit<'a>>,
    /// The exit code of `wait`, once it ended.
    pub exit_code: Option<u8>,
    pub step: u32,
    pub max_steps: Option<u32>,
    pub timeout_ms: Option<u64>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub estimated: bool,
    pub max_tokens: Option<u64>,
    pub cost_usd: Option<Usd>,
    pub model: Option<&'a str>,
    pub suspended_below: u32,
    pub resumable: bool,
    pub stalled: bool,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub dead_at: Option<Timestamp>,
    pub elapsed_ms: u64,
}

/// The state of a process with the data that belongs to it.
enum Phase<'a> {
    Created,
    Running { running: &'a Running, stalled: bool },
    Zombie { started_at: Timestamp, ended_at: Timestamp, end: &'a End },
    Dead { started_at: Timestamp, ended_at: Timestamp, end: &'a End, successor: Option<Pid> },
}

impl Phase<'_> {
    fn display(&self) -> Display {
        match *self {
            Self::Created => Display::Loading,
            Self::Running { running, stalled } => match running.pause {
                Pause::None if stalled => Display::Stalled,
                Pause::None => Display::Running,
                Pause::Pausing { .. } => Display::Pausing,
                Pause::Suspended { reason, .. } => display_suspended(reason),
            },
            Self::Zombie { .. } => Display::Zombie,
            Self::Dead { .. } => Display::Dead,
        }
    }

    fn state(&self) -> State {
        match self {
            Self::Created => State::Created,
            Self::Running { .. } => State::Running,
            Self::Zombie { .. } => State::Zombie,
            Self::Dead { .. } => State::Dead,
        }
    }
}

fn display_suspended(reason: SuspendReason) -> Display {
    match reason {
        SuspendReason::InDoubt => Display::InDoubt,
        SuspendReason::Approval => Display::Approval,
        SuspendReason::Question => Display::Question,
        SuspendReason::User
        | SuspendReason::BudgetExceeded
        | SuspendReason::DiskFull
        | SuspendReason::IoError
        | SuspendReason::CrashLoop
        | SuspendReason::Quota
        | SuspendReason::NeedsCredentials
        | SuspendReason::DaemonStop
        | SuspendReason::Stalled => Display::Suspended,
    }
}

/// The parts of a view apart from the phase.
struct Parts<'a> {
    incarnation: Incarnation,
    facts: &'a Facts,
    ppid: Pid,
    suspended_below: u32,
    elapsed_ms: u64,
}

impl Table {
    /// Returns the view of a process, in the table or ended.
    #[must_use]
    pub fn view(&self, pid: Pid, now: Moment) -> Option<View<'_>> {
        match self.find(pid).ok()? {
            Found::Living(slot) => Some(self.view_of(slot, now)),
            Found::Ended(record) => Some(view_of_record(record)),
        }
    }

    /// Returns every process in the table, by PID.
    pub fn processes(&self, now: Moment) -> impl Iterator<Item = View<'_>> {
        self.by_pid.values().map(move |slot| self.view_of(*slot, now))
    }

    /// Returns every process in the table with a higher PID, by PID.
    pub fn processes_after(&self, pid: Pid, now: Moment) -> impl Iterator<Item = View<'_>> {
        let after = self.by_pid.range((Bound::Excluded(pid), Bound::Unbounded));
        after.map(move |(_, slot)| self.view_of(*slot, now))
    }

    /// Returns every remembered process that has left the table, by PID.
    pub fn ended(&self) -> impl Iterator<Item = View<'_>> {
        self.records.values().map(|record| view_of_record(record))
    }

    fn view_of(&self, slot: Slot, now: Moment) -> View<'_> {
        let Entry { facts, machine, suspended_below, stalled, .. } = &self.arena[slot];
        let ppid = self.arena.parent(slot).map_or(Pid::RUNTIME, |parent| self.arena[parent].pid());
        let phase = match machine.life() {
            Life::Created => Phase::Created,
            Life::Running(running) => Phase::Running { running, stalled: *stalled },
            Life::Zombie(zombie) => {
                Phase::Zombie { started_at: zombie.started_at, ended_at: zombie.ended_at, end: &zombie.end }
            }
        };
        let (incarnation, elapsed_ms) = (machine.incarnation(), machine.stopwatch().elapsed_ms(now.up_ms));
        let parts = Parts { incarnation, facts, ppid, suspended_below: *suspended_below, elapsed_ms };
        View { pause_kept: machine.kept_pause().is_some(), ..view(&parts, &phase) }
    }
}

fn view_of_record(record: &Record) -> View<'_> {
    let Record { incarnation, facts, elapsed_ms, parent, started_at, ended_at, end, successor, keep_until_ms: _ } =
        record;
    let phase = Phase::Dead { started_at: *started_at, ended_at: *ended_at, end, successor: *successor };
    let (incarnation, elapsed_ms) = (*incarnation, *elapsed_ms);
    view(&Parts { incarnation, facts, ppid: *parent, suspended_below: 0, elapsed_ms }, &phase)
}

fn view<'a>(parts: &Parts<'a>, phase: &Phase<'a>) -> View<'a> {
    let Parts { incarnation, facts, ppid, suspended_below, elapsed_ms } = *parts;
    let (started_at, dead_at, end, successor_pid) = match *phase {
        Phase::Created => (None, None, None, None),
        Phase::Running { running, .. } => (Some(running.started_at), None, None, None),
        Phase::Zombie { started_at, ended_at, end } => (Some(started_at), Some(ended_at), Some(end), None),
        Phase::Dead { started_at, ended_at, end, successor } => {
            (Some(started_at), Some(ended_at), Some(end), successor)
        }
    };
    let (paused, paused_by, ending) = match *phase {
        Phase::Running { running, .. } => (running.pause.asked(), running.pause.cause(), running.ending),
        Phase::Created | Phase::Zombie { .. } | Phase::Dead { .. } => (None, None, None),
    };
    let (paused_at, suspend_reason) = paused.unzip();
    let display = phase.display();
    let cause = end.and_then(|end| end.cause);
    let about = &facts.about;
    View {
        pid: incarnation.pid,
        ppid,
        uuid: facts.uuid,
        parent_uuid: about.parent_uuid,
        origin_uuid: about.origin.map(|origin| origin.uuid),
        origin_step: about.origin.map(|origin| origin.step),
        generation: incarnation.generation,
        successor_pid,
        name: facts.name.as_deref(),
        body: facts.body,
        intent: &about.intent,
        intent_cut: about.intent_cut,
        cwd: &about.cwd,
        state: phase.state(),
        paused: paused.is_some(),
        paused_at,
        display,
        suspend_reason,
        paused_by,
        pause_kept: false,
        ending: ending.map(|(signal, _)| signal),
        status: end.map(|end| &end.status),
        why: cause.map(|cause| cause.why),
        killed_by: cause.map(|cause| cause.by),
        killed_from: cause.and_then(|cause| cause.root),
        ended_by: cause.or(ending.map(|(_, cause)| cause)),
        exit: end.map(End::exit),
        exit_code: end.map(End::exit_code),
        step: facts.usage.step,
        max_steps: about.limits.max_steps,
        timeout_ms: about.limits.timeout_ms,
        tokens_in: facts.usage.tokens_in,
        tokens_out: facts.usage.tokens_out,
        estimated: facts.usage.estimated,
        max_tokens: about.limits.max_tokens,
        cost_usd: facts.usage.cost_usd,
        model: about.model.as_deref(),
        suspended_below,
        resumable: paused.is_some() || end.is_some() && successor_pid.is_none(),
        stalled: display == Display::Stalled,
        created_at: facts.created_at,
        started_at,
        dead_at,
        elapsed_ms,
    }
}
