//! Reading what an earlier daemon left, in one go: a job for each would take longer than its reading.
//!
//! Of each history only what the table will hold is kept, so that a start with many processes needs no more memory than
//! it goes on with.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;

use relive_core::{Body, Past, Pid, Spec, SuspendReason, Timestamp, Uuid};
use relive_journal::data::Live;
use relive_journal::record::Paused;
use relive_journal::{DataFolder, Health, History, Hole};

use crate::error::Result;
use crate::recover::interrupted;
use crate::resume::model_of;
use crate::run::spec;
use crate::trees::Kin;

/// A process that has not ended.
pub(crate) struct Found {
    /// As its journal has it. The PID is its last one, the parent is not looked for yet.
    pub(crate) spec: Spec,
    /// The PID it is to have.
    pub(crate) pid: io::Result<Pid>,
    /// Its last incarnation.
    pub(crate) past: Option<Past>,
    pub(crate) left: Left,
    pub(crate) paused_total_ms: u64,
    pub(crate) kin: Option<Kin>,
}

/// How an earlier daemon left a process.
pub(crate) enum Left {
    /// Its journal cannot be written.
    Unwritable(Hole),
    /// Suspended, for a reason that still holds.
    Suspended { reason: SuspendReason, asked_at: Timestamp, resume_at: Option<Timestamp> },
    /// Suspended because the daemon stopped.
    Stopped,
    /// In the middle of something.
    Interrupted { crash_loop: bool },
    /// It is a program: it goes on without a daemon, and is looked for.
    Program { suspended: Option<(SuspendReason, Timestamp)> },
}

/// What there is, each after its parent, and what could not be made out.
pub(crate) struct Survey {
    pub(crate) found: Vec<Found>,
    pub(crate) unknown: Vec<(Uuid, String)>,
}

pub(crate) fn survey(data: &DataFolder) -> io::Result<Survey> {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    data.for_each_live(|live| {
        let uuid = live.uuid;
        match read(data, live) {
            Ok(one) => found.push(one),
            Err(error) => unknown.push((uuid, error.to_string())),
        }
    })?;
    found.sort_unstable_by_key(|found| found.spec.uuid);
    let mut found = parents_first(found);
    // Where there is no room for that, each is told so below.
    let _ = data.reserve_pids(found.len());
    for one in &mut found {
        one.pid = data.next_pid();
    }
    data.note_pids(found.iter().filter_map(|found| Some((*found.pid.as_ref().ok()?, found.spec.uuid))));
    Ok(Survey { found, unknown })
}

fn read(data: &DataFolder, live: Live) -> Result<Found> {
    let Live { uuid, history, health } = live;
    let last_pid = history.incarnation().map_or(Pid::KERNEL, |last| last.pid);
    let spec = spec(&history, last_pid, Pid::KERNEL, model_of(data, uuid))?;
    let past = past(&history, &spec);
    let left = match (health, &history.paused) {
        (Health::Damaged(hole) | Health::ReadOnly(hole), _) => Left::Unwritable(hole),
        (_, paused) if spec.body == Body::Exec => {
            Left::Program { suspended: paused.as_ref().map(|paused| (paused.reason, paused.asked_at)) }
        }
        (_, Some(Paused { reason: SuspendReason::DaemonStop, .. })) => Left::Stopped,
        (_, Some(paused)) => {
            Left::Suspended { reason: paused.reason, asked_at: paused.asked_at, resume_at: paused.resume_at }
        }
        (_, None) => Left::Interrupted { crash_loop: history.plan().crash_loop },
    };
    let pid = Err(io::ErrorKind::NotFound.into());
    let kin = history.identity.as_ref().and_then(|identity| Kin::of(&identity.spawned));
    Ok(Found { spec, pid, past, left, paused_total_ms: history.paused_total_ms, kin })
}

/// The PID it had answers for its own end: interrupted, and followed by another.
fn past(history: &History, spec: &Spec) -> Option<Past> {
    let last = history.incarnation()?;
    Some(Past {
        spec: Spec { generation: last.generation, ..spec.clone() },
        started_at: last.at,
        ended_at: history.last_at.unwrap_or(last.at),
        end: interrupted(),
        paused_total_ms: history.paused_total_ms,
    })
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
    // What is left claims to be its own ancestor; it is taken up all the same.
    ordered.extend(waiting.into_values().flatten());
    ordered
}
