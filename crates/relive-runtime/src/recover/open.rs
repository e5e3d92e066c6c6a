//! Opening the journals of the processes that a start has found.
//!
//! What becomes of a process is decided first. The journals that have to be written for that are then opened by a few jobs,
//! each of which opens many: to hand each one to a thread of its own would cost more than to open it.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use relive_config::Recovery;
use relive_core::{
    Body as Kind, Cause, End, Incarnation, Moment, Pid, ProcessStatus, Recovered, Signal, Spec, SuspendReason,
    Suspension, Timestamp, Uuid, Why,
};
use relive_journal::record::{Body, Ended, OpenedBy, Paused, Resumed, ResumedBy};
use relive_journal::{DataDirectory, Durability, History, JobLost, OpenFailure, Opening, Seen, WriteError};

use super::survey::{Found, PriorState};
use super::{NextAction, Ready};
use crate::bodies::Prepared;
use crate::error::Result;
use crate::inbox;
use crate::runtime::{ProcessRef, Runtime};
use crate::spec::next_generation;
use crate::trees::TreePlace;
use crate::unrecovered::Failure;

/// How many jobs open journals at once. Some journals have to be synced, and wait for the disk together; the others only need
/// a processor, and more threads than that would cost more than they gain.
const JOBS_AT_ONCE: usize = 16;
/// How many journals one job opens at most: those before them can be published meanwhile.
const SHARE_MAX: usize = 32;

/// A process whose journal is open, if it is to be written, and that is not in the table yet.
pub(super) struct Opened {
    pub(super) process: ProcessRef,
    /// Its parent is looked for when it comes into the table.
    pub(super) spec: Spec,
    pub(super) recovered: Recovered,
    pub(super) place: Option<TreePlace>,
    pub(super) resume_at: Option<Timestamp>,
    pub(super) then: NextAction,
    pub(super) now: Moment,
}

/// What is decided about a process.
enum Decided {
    /// Nothing is written.
    Known(Box<Opened>),
    /// Its journal is opened.
    ToOpen(Box<ToOpen>),
}

/// A process whose journal is to be opened.
struct ToOpen {
    take: Take,
    spec: Spec,
    recovered: Recovered,
    place: Option<TreePlace>,
    /// When it continues by itself.
    resume_at: Option<Timestamp>,
    history: Option<Box<History>>,
}

/// How a journal is opened.
#[derive(Clone)]
struct Take {
    process: ProcessRef,
    body: Kind,
    now: Moment,
    first: FirstRecords,
    then: AfterOpening,
}

/// The first records of a recovered incarnation.
#[derive(Clone)]
struct FirstRecords {
    /// When the process was last seen to execute.
    seen: Option<Seen>,
    /// What follows `opened`.
    batch: Vec<Body>,
    durability: Durability,
}

/// What follows when the journal of a process is open.
#[derive(Clone, Copy)]
enum AfterOpening {
    /// Its body is started.
    Start,
    /// The same, after the daemon's own stop.
    Resume,
    /// It is suspended for this reason.
    Suspend(SuspendReason),
    /// It has ended.
    Retire,
}

/// The answer of a job for one journal.
type Taken = Result<Ready, OpenFailure<Infallible>>;

/// The outcome for each of several processes; nothing for one that has ended with that.
pub(super) type Outcomes = Vec<(Uuid, Result<Option<Opened>, Failure>)>;

impl Runtime {
    /// Opens processes none of which is the parent of another one, and returns the outcomes share by share, in order.
    pub(super) fn open_wave(self: &Arc<Self>, wave: Vec<Found>) -> BoxStream<'static, Outcomes> {
        let share = wave.len().div_ceil(JOBS_AT_ONCE).clamp(1, SHARE_MAX);
        let (runtime, mut wave) = (Arc::clone(self), wave.into_iter());
        let shares = std::iter::from_fn(move || Some(wave.by_ref().take(share).collect()));
        let shares = shares.take_while(|share: &Vec<Found>| !share.is_empty());
        let opening = stream::iter(shares).map(move |share| {
            let runtime = Arc::clone(&runtime);
            async move { runtime.open_share(share).await }
        });
        opening.buffered(JOBS_AT_ONCE).boxed()
    }

    /// Opens some processes, with one job.
    pub(super) async fn open_share(self: &Arc<Self>, share: Vec<Found>) -> Outcomes {
        let now = self.moment();
        let mut decided = Vec::with_capacity(share.len());
        for found in share {
            let (uuid, pid) = (found.spec.uuid, found.pid.as_ref().ok().copied());
            decided.push((uuid, pid, self.decide_below(found, now).await));
        }
        let mut outcomes = Vec::with_capacity(decided.len());
        let (mut to_open, mut places) = (Vec::new(), Vec::new());
        for (uuid, pid, decided) in decided {
            outcomes.push((
                uuid,
                match decided {
                    Ok(Decided::Known(opened)) => Ok(Some(*opened)),
                    Ok(Decided::ToOpen(one)) => {
                        places.push((outcomes.len(), pid));
                        to_open.push(*one);
                        Ok(None)
                    }
                    Err(failure) => Err(failure),
                },
            ));
        }
        for ((place, pid), opened) in places.into_iter().zip(self.open_all(to_open).await) {
            outcomes[place].1 = opened.map_err(|error| Failure::of(&error, pid));
        }
        outcomes
    }

    /// Decides about a process, unless its parent could not be recovered: signals to the subtree have to reach it.
    async fn decide_below(&self, found: Found, now: Moment) -> Result<Decided, Failure> {
        let pid = found.pid.as_ref().ok().copied();
        if let Some(parent) = found.spec.parent_uuid
            && let Some(above) = self.unrecovered.get(parent).filter(|failure| !failure.is_damage())
        {
            return Err(above.below(parent, pid));
        }
        self.decide(found, now).await.map_err(|error| Failure::of(&error, pid))
    }

    async fn decide(&self, found: Found, now: Moment) -> Result<Decided> {
        let Found { spec, pid, left, recovered, place, open_calls, handles: _, history } = found;
        let (uuid, pid) = (spec.uuid, pid?);
        let spec = next_generation(Spec { pid, ..spec });
        let process = ProcessRef { of: Incarnation { pid, generation: spec.generation }, uuid };
        let body = self.bodies.of(spec.body);
        let durability = match body {
            Some(body) if !body.acts_on_last_records() => Durability::Written,
            Some(_) | None => Durability::Synced,
        };
        let body = body.filter(|body| body.stays_when_suspended());
        let first = |batch| FirstRecords { seen: None, batch, durability };
        let synced = |batch| FirstRecords { seen: None, batch, durability: Durability::Synced };
        let until = if let PriorState::Suspended { resume_at } = &left { *resume_at } else { None };
        let (first, then) = match left {
            PriorState::Unwritable(hole) => {
                self.warn(format!("{uuid} is suspended: its journal cannot be written, {hole}"));
                let recovered = suspended(recovered, SuspendReason::IoError, now.at);
                return Ok(known(process, spec, recovered, place, (None, NextAction::Nothing), now));
            }
            // Its session may have ended or run on: its body looks, and passes the orders on.
            PriorState::Suspended { .. }
            | PriorState::Ending
            | PriorState::Interrupted { .. }
            | PriorState::Stopped
                if let Some(body) = body =>
            {
                let seen = body.last_seen(uuid, now).await;
                (FirstRecords { seen, ..first(Vec::new()) }, AfterOpening::Start)
            }
            PriorState::Ending => return Ok(known(process, spec, recovered, place, (None, NextAction::End), now)),
            PriorState::Suspended { resume_at } => {
                let then = if open_calls { NextAction::Freeze } else { NextAction::Nothing };
                return Ok(known(process, spec, recovered, place, (resume_at, then), now));
            }
            PriorState::Interrupted { crash_loop: true } => {
                let reason = SuspendReason::CrashLoop;
                let paused = Body::Paused(Paused { reason, asked_at: now.at, resume_at: None, cause: None, req: None });
                (synced(vec![paused]), AfterOpening::Suspend(reason))
            }
            // `recovery: manual` leaves resuming to a person.
            PriorState::Interrupted { crash_loop: false } if self.settings.recovery == Recovery::Manual => {
                let is_root = history.as_ref().is_some_and(|history| inbox::is_root(history));
                let ended = Body::Ended(Ended { end: interrupted(), unseen: is_root, req: None });
                (synced(vec![ended]), AfterOpening::Retire)
            }
            PriorState::Stopped => {
                let resumed = Body::Resumed(Resumed { by: ResumedBy::DaemonStart, cause: None, req: None });
                (first(vec![resumed]), AfterOpening::Resume)
            }
            PriorState::Interrupted { crash_loop: false } => (first(Vec::new()), AfterOpening::Start),
        };
        let take = Take { process, body: spec.body, now, first, then };
        Ok(Decided::ToOpen(Box::new(ToOpen { take, spec, recovered, place, resume_at: until, history })))
    }

    /// Opens journals on one thread.
    async fn open_all(self: &Arc<Self>, mut all: Vec<ToOpen>) -> Vec<Result<Option<Opened>>> {
        let count = all.len();
        if count == 0 {
            return Vec::new();
        }
        let (runtime, boot_id) = (Arc::clone(self), self.clock.boot_id());
        let opened = self.on_journal(move |data| {
            // A panic loses only the journal that it happens with.
            let take = |one: &mut ToOpen| {
                let known = one.history.take().map(|history| *history);
                let take = || runtime.take_journal(data, &one.take, &boot_id, known);
                catch_unwind(AssertUnwindSafe(take)).map_err(|_| JobLost)
            };
            let taken: Vec<Result<Taken, JobLost>> = all.iter_mut().map(take).collect();
            all.into_iter().zip(taken).collect::<Vec<_>>()
        });
        let opened = match opened.await {
            Ok(opened) => opened,
            Err(lost) => return (0..count).map(|_| Err(lost.into())).collect(),
        };
        let mut done = Vec::with_capacity(count);
        for (one, taken) in opened {
            done.push(match taken {
                Ok(taken) => self.after_opening(one, taken).await,
                Err(lost) => Err(lost.into()),
            });
        }
        done
    }

    /// Opens a journal with the first records of the next incarnation, and reads what its body needs at once. Blocks.
    fn take_journal(&self, data: &DataDirectory, take: &Take, boot_id: &str, known: Option<History>) -> Taken {
        let Take { process, body, now, first, then } = take;
        let opening = Opening {
            pid: process.of.pid,
            by: OpenedBy::Recovery,
            boot_id: boot_id.to_owned(),
            now: *now,
            req: None,
            seen: first.seen.clone(),
            cause: None,
        };
        let decide = |_: &History| Ok(first.batch.clone());
        let mut writer = data.open_surveyed(process.uuid, &opening, known, first.durability, decide)?;
        let prepared = match (then, self.bodies.of(*body)) {
            (AfterOpening::Start | AfterOpening::Resume, Some(body)) => body.read_ahead(&mut writer),
            (AfterOpening::Start | AfterOpening::Resume, None)
            | (AfterOpening::Suspend(_) | AfterOpening::Retire, _) => Prepared::default(),
        };
        Ok(Ready { writer, prepared })
    }

    /// Returns what becomes of a process now that its journal is open; nothing if it has ended.
    async fn after_opening(self: &Arc<Self>, one: ToOpen, taken: Taken) -> Result<Option<Opened>> {
        let ToOpen { take, spec, recovered, place, resume_at, history: _ } = one;
        let (process, now, then) = (take.process, take.now, take.then);
        let ready = match taken {
            Ok(ready) => ready,
            // No thread waits until it is free.
            Err(OpenFailure::Write(WriteError::Busy { .. })) => {
                let (runtime, boot_id) = (Arc::clone(self), self.clock.boot_id());
                self.opened(move |data| runtime.take_journal(data, &take, &boot_id, None)).await?
            }
            Err(OpenFailure::Write(error)) => return Err(error.into()),
            Err(OpenFailure::Refused(never)) => match never {},
        };
        let history = ready.writer.history();
        let spec = Spec { stopwatch: history.stopwatch(), ..spec };
        let (recovered, then) = match then {
            AfterOpening::Start => (recovered, NextAction::Start(Box::new(ready))),
            AfterOpening::Resume => (Recovered { suspension: None, ..recovered }, NextAction::Resume(Box::new(ready))),
            AfterOpening::Suspend(reason) => {
                self.catalog.tell(history);
                // The writer is put down at once: a suspended process holds no descriptor.
                (suspended(recovered, reason, now.at), NextAction::Nothing)
            }
            AfterOpening::Retire => {
                self.catalog.tell(history);
                let writer = ready.writer;
                self.on_journal(move |data| data.retire(process.uuid, writer.history())).await??;
                return Ok(None);
            }
        };
        Ok(Some(Opened { process, spec, recovered, place, resume_at, then, now }))
    }

    /// Shows a process that was opened in the table, below its parent.
    pub(super) fn publish_recovered(&self, opened: Opened) -> Result<(ProcessRef, NextAction), Failure> {
        let Opened { process, spec, recovered, place, resume_at, then, now } = opened;
        let pid = process.of.pid;
        let parent = spec.parent_uuid.and_then(|uuid| self.living(uuid)).map_or(Pid::RUNTIME, |parent| parent.of.pid);
        let mut state = self.lock();
        if let (Some(resume_at), Some(suspension)) = (resume_at, &recovered.suspension) {
            state.set_alarm(pid, resume_at, suspension.asked_at);
        }
        let recovered = state.table.recover(Spec { parent, ..spec }, recovered, now);
        recovered.map_err(|error| Failure::of(&error.into(), Some(pid)))?;
        if let Some(place) = place {
            state.trees.join(place);
        }
        Ok((process, then))
    }
}

fn known(
    process: ProcessRef,
    spec: Spec,
    recovered: Recovered,
    place: Option<TreePlace>,
    (resume_at, then): (Option<Timestamp>, NextAction),
    now: Moment,
) -> Decided {
    Decided::Known(Box::new(Opened { process, spec, recovered, place, resume_at, then, now }))
}

fn suspended(recovered: Recovered, reason: SuspendReason, asked_at: Timestamp) -> Recovered {
    let suspension = Some(Suspension { asked_at, reason, cause: None });
    Recovered { suspension, ending: None, own_end: None, ..recovered }
}

fn interrupted() -> End {
    let status = ProcessStatus::Killed { signal: Signal::Kill.into() };
    End { cause: Some(Cause::runtime(Why::HostLost)), ..End::of(status) }
}
