//! Reading what an earlier daemon left, in one job: a job for each process would take longer than its reading.
//!
//! Of each journal only what the table will hold is kept, so that a start with many processes needs no more memory than
//! the daemon that follows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::num::NonZero;
use std::thread::Builder;

use relive_core::{Pid, Recovered, Rights, Signal, Spec, SuspendReason, Suspension, Timestamp, Uuid};
use relive_index::Row;
use relive_journal::data::Live;
use relive_journal::record::Paused;
use relive_journal::{DataDirectory, Health, History, Hole};

use super::running::Running;
use super::told::complete_events;
use crate::catalog::{BATCH, Catalog};
use crate::error::Result;
use crate::spec;
use crate::trees::TreePlace;
use crate::unrecovered::Failure;

/// How many threads read journals, and how many each reads at least: fewer take less time than starting a thread.
const READERS_MAX: usize = 8;
const SHARE_MIN: usize = 64;

/// A process that has not ended.
pub(super) struct Found {
    /// As its journal has it. The PID is its last one; the parent is looked for later.
    pub(super) spec: Spec,
    /// The PID it is to have.
    pub(super) pid: io::Result<Pid>,
    pub(super) left: PriorState,
    pub(super) recovered: Recovered,
    pub(super) place: Option<TreePlace>,
    /// Whether calls are open, whose sessions may be running.
    pub(super) open_calls: bool,
    /// What it holds a handle to.
    pub(super) handles: Vec<(Uuid, Rights)>,
    /// What its journal amounts to, for its writer, if it is to run.
    pub(super) history: Option<Box<History>>,
}

/// How an earlier daemon left a process.
pub(super) enum PriorState {
    /// Its journal cannot be written.
    Unwritable(Hole),
    /// Told to end: an acknowledged signal that the next daemon completes.
    Ending,
    /// Suspended, for a reason that still holds.
    Suspended { resume_at: Option<Timestamp> },
    /// Suspended because the daemon stopped.
    Stopped,
    /// In the middle of something.
    Interrupted { crash_loop: bool },
}

/// What was found, each after its parent, and what could not be read.
pub(super) struct Survey {
    pub(super) found: Vec<Found>,
    pub(super) unreadable: Vec<(Uuid, Failure)>,
}

pub(super) fn survey(data: &DataDirectory, boot_id: &str, catalog: &Catalog) -> io::Result<Survey> {
    let running = Running::look(data);
    let uuids = not_ended(data, &running)?;
    let (uuids, contradicted) = apart(data, &running, uuids);
    let (mut found, mut unreadable) = read_all(data, boot_id, catalog, &uuids)?;
    unreadable.extend(contradicted);
    found.sort_unstable_by_key(|found| found.spec.uuid);
    let mut found = parents_first(found);
    // Where there is no room for that, each is told so below.
    let _ = data.reserve_pids(found.len());
    for one in &mut found {
        one.pid = data.next_pid();
    }
    let pids = found.iter().filter_map(|found| Some((*found.pid.as_ref().ok()?, found.spec.uuid)));
    let pids: Vec<(Pid, Uuid)> = pids.collect();
    data.note_pids(pids.iter().copied());
    catalog.tell_pids(pids);
    Ok(Survey { found, unreadable })
}

/// Returns the processes that may not have ended: those with a marker, and those whose programs run. A program can remove its
/// marker.
fn not_ended(data: &DataDirectory, running: &Running) -> io::Result<Vec<Uuid>> {
    let mut uuids = data.marked()?;
    let marked: HashSet<Uuid> = uuids.iter().copied().collect();
    uuids.extend(running.with_shims().filter(|uuid| !marked.contains(uuid)));
    Ok(uuids)
}

/// Parts the processes whose programs run, although their directories say otherwise, from the others.
fn apart(data: &DataDirectory, running: &Running, uuids: Vec<Uuid>) -> (Vec<Uuid>, Vec<(Uuid, Failure)>) {
    let mut contradicted = Vec::new();
    let others = uuids.into_iter().filter(|uuid| match running.contradicts(data, *uuid) {
        Some(failure) => {
            contradicted.push((*uuid, failure));
            false
        }
        None => true,
    });
    let others = others.collect();
    (others, contradicted)
}

type Read = (Vec<Found>, Vec<(Uuid, Failure)>);

/// Reads all of these, shared among threads.
fn read_all(data: &DataDirectory, boot_id: &str, catalog: &Catalog, uuids: &[Uuid]) -> io::Result<Read> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(READERS_MAX);
    let share = uuids.len().div_ceil(threads).max(SHARE_MIN);
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for read in in_shares(uuids, share, Builder::new, |uuids| read_share(data, boot_id, catalog, uuids))? {
        found.extend(read.0);
        unreadable.extend(read.1);
    }
    Ok((found, unreadable))
}

/// Does a job for each share of some items: for the first one here, for the others on a thread each. A share for which
/// there is no thread is done here as well.
fn in_shares<T: Sync, R: Send>(
    items: &[T],
    share: usize,
    thread: impl Fn() -> Builder,
    job: impl Fn(&[T]) -> R + Sync,
) -> io::Result<Vec<R>> {
    let job = &job;
    std::thread::scope(|scope| {
        let mut shares = items.chunks(share);
        let first = shares.next().unwrap_or_default();
        let others: Vec<_> = shares.map(|share| (share, thread().spawn_scoped(scope, move || job(share)))).collect();
        let mut done = vec![job(first)];
        for (share, other) in others {
            done.push(match other {
                Ok(other) => other.join().map_err(|_| io::Error::other("a thread that read journals has panicked"))?,
                Err(_) => job(share),
            });
        }
        Ok(done)
    })
}

fn read_share(data: &DataDirectory, boot_id: &str, catalog: &Catalog, uuids: &[Uuid]) -> Read {
    let (mut found, mut unreadable, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for uuid in uuids {
        if rows.len() >= BATCH {
            catalog.tell_rows(std::mem::take(&mut rows));
        }
        match data.read_live_or(*uuid, |history| complete_events(data, history)) {
            Ok(Some(live)) => {
                rows.extend(Row::of(&live.history));
                match read(data, boot_id, live) {
                    Ok(one) => found.push(one),
                    Err(error) => unreadable.push((*uuid, Failure::damaged(&data.directory(*uuid), &error))),
                }
            }
            // It ended as the daemon before did, which may not have told that.
            Ok(None) => {
                if let Ok((history, _)) = data.history(*uuid) {
                    rows.extend(Row::of(&history));
                }
            }
            Err(error) => unreadable.push((*uuid, Failure::unreadable(&error))),
        }
    }
    catalog.tell_rows(rows);
    (found, unreadable)
}

/// Reads one process that could not be recovered before; nothing if it has ended. It keeps the PID that it was to have.
pub(super) fn survey_one(
    data: &DataDirectory,
    boot_id: &str,
    uuid: Uuid,
    pid: Option<Pid>,
) -> Result<Option<Found>, Failure> {
    if let Some(mut failure) = Running::look(data).contradicts(data, uuid) {
        failure.pid = pid;
        return Err(failure);
    }
    let Some(live) = data.read_live(uuid).map_err(|error| Failure::unreadable(&error))? else { return Ok(None) };
    let mut found = read(data, boot_id, live).map_err(|error| Failure::damaged(&data.directory(uuid), &error))?;
    found.pid = match pid {
        Some(pid) => Ok(pid),
        None => data.next_pid().inspect(|pid| data.note_pid(*pid, uuid)),
    };
    Ok(Some(found))
}

fn is_tree(body: relive_core::Body) -> bool {
    match body {
        relive_core::Body::Compose | relive_core::Body::Supervisor => true,
        relive_core::Body::Agent | relive_core::Body::Exec | relive_core::Body::Cli => false,
    }
}

fn read(data: &DataDirectory, boot_id: &str, live: Live) -> Result<Found> {
    let Live { uuid, history, health } = live;
    let last_pid = history.incarnation().map_or(Pid::RUNTIME, |last| last.pid);
    let model = spec::model_of(data, uuid, &history);
    let mut spec = spec::from_history(&history, last_pid, Pid::RUNTIME, model)?;
    // It does not run before its journal is open.
    spec.stopwatch = history.stopwatch().stopped_at(data.ran_ms(&history, boot_id));
    let is_good = health == Health::Good;
    let left = match (health, &history.paused) {
        (Health::Damaged(hole) | Health::ReadOnly(hole), _) => PriorState::Unwritable(hole),
        // One that handles TERM itself runs until its grace is over.
        _ if history.ending.as_ref().is_some_and(|ending| !is_handled(ending.signal, &history)) => PriorState::Ending,
        (_, Some(Paused { reason: SuspendReason::DaemonStop, .. })) => PriorState::Stopped,
        (_, Some(paused)) => PriorState::Suspended { resume_at: paused.resume_at },
        // A tree that only waits for its processes records nothing meanwhile, however often its daemon is killed.
        (_, None) if is_tree(spec.body) => PriorState::Interrupted { crash_loop: false },
        (_, None) => PriorState::Interrupted { crash_loop: history.plan().crash_loop },
    };
    let runs = matches!(left, PriorState::Interrupted { .. } | PriorState::Stopped);
    let open_calls = history.open_calls().next().is_some();
    Ok(Found {
        spec,
        pid: Err(io::ErrorKind::NotFound.into()),
        left,
        recovered: recovered(&history),
        place: history.identity.as_ref().and_then(|identity| TreePlace::of(&identity.spawned)),
        open_calls,
        handles: history.handles.iter().map(|(target, rights)| (*target, *rights)).collect(),
        history: (is_good && runs).then(|| Box::new(history)),
    })
}

fn is_handled(signal: Signal, history: &History) -> bool {
    signal == Signal::Term && history.handlers.contains(signal)
}

/// A process as its journal left it.
pub(crate) fn recovered(history: &History) -> Recovered {
    let suspension = history.paused.as_ref();
    Recovered {
        suspension: suspension.map(|paused| Suspension {
            asked_at: paused.asked_at,
            reason: paused.reason,
            cause: paused.cause,
        }),
        mask: history.mask,
        handlers: history.handlers,
        pending: history.pending.clone(),
        ending: history.ending.as_ref().map(|signalled| (signalled.signal, signalled.cause)),
        is_queued: history.is_queued(),
        own_end: history.ending.as_ref().and_then(|signalled| signalled.end.as_deref().cloned()),
    }
}

/// Each after its parent, if that is among them.
fn parents_first(all: Vec<Found>) -> Vec<Found> {
    let mut waiting: HashMap<Uuid, Vec<Found>> = HashMap::new();
    let uuids: HashSet<Uuid> = all.iter().map(|found| found.spec.uuid).collect();
    let mut ready = VecDeque::new();
    for found in all {
        match found.spec.parent_uuid.filter(|parent| uuids.contains(parent) && *parent != found.spec.uuid) {
            Some(parent) => waiting.entry(parent).or_default().push(found),
            None => ready.push_back(found),
        }
    }
    let mut ordered = Vec::new();
    while let Some(found) = ready.pop_front() {
        ready.extend(waiting.remove(&found.spec.uuid).unwrap_or_default());
        ordered.push(found);
    }
    // What is left claims to be its own ancestor; it is recovered all the same.
    ordered.extend(waiting.into_values().flatten());
    ordered
}

/// Parts what is in order, each after its parent, so that no part has a process and its parent.
pub(super) fn waves(found: Vec<Found>) -> Vec<Vec<Found>> {
    let (mut waves, mut wave, mut uuids) = (Vec::new(), Vec::new(), HashSet::new());
    for one in found {
        if one.spec.parent_uuid.is_some_and(|parent| uuids.contains(&parent)) {
            waves.push(std::mem::take(&mut wave));
            uuids.clear();
        }
        uuids.insert(one.spec.uuid);
        wave.push(one);
    }
    waves.push(wave);
    waves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_for_which_there_is_no_thread_is_read_all_the_same() {
        let items: Vec<u32> = (0..10).collect();
        let check = |thread: fn() -> Builder, apart: bool| {
            let here = std::thread::current().id();
            let job = |items: &[u32]| (items.to_vec(), std::thread::current().id() != here);
            let (read, is_apart): (Vec<_>, Vec<_>) = in_shares(&items, 4, thread, job).unwrap().into_iter().unzip();
            assert_eq!((read.concat(), is_apart), (items.clone(), vec![false, apart, apart]));
        };
        check(Builder::new, true);
        // No machine has room for such a stack.
        check(|| Builder::new().stack_size(1 << 62), false);
    }
}
