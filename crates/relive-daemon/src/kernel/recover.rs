//! The start: what an earlier daemon left is found, and goes on.

use std::collections::HashMap;
use std::sync::Arc;

use relive_config::Recovery;
use relive_core::{Cause, Effects, End, Past, Pid, ProcessStatus, Signal, SuspendReason, Suspension, Uuid, Why};
use relive_journal::data::Live;
use relive_journal::record::{Body, OpenedBy, Paused};
use relive_journal::{DataFolder, Durability, Health, Opening, Writer};

use super::Kernel;
use super::resume::model_of;
use super::run::{next_generation, spec};
use crate::error::{Answer, ApiError};

/// A process that has not ended, and the PID it is to have.
struct Found {
    live: Live,
    pid: std::io::Result<Pid>,
    model: Option<String>,
}

/// What becomes of a process that an earlier daemon left.
enum Fate {
    /// It goes on.
    Continue(Box<Writer>),
    /// It stays suspended, and its journal as it is.
    Suspended(Suspension),
    /// It is suspended now; its journal says so under its new PID.
    Paused(Suspension),
    /// It is left dead, for a person to resume.
    Dead,
}

impl Kernel {
    /// Takes up everything that has not ended. Parents come before their children, and nobody runs before all are there:
    /// a parent that waits for its child has to find it.
    pub(crate) async fn recover(self: &Arc<Self>) -> Answer<()> {
        let live = self.on_disk(survey).await??;
        let mut pids: HashMap<Uuid, Pid> = HashMap::new();
        let mut launches = Effects::new();
        for found in live {
            let uuid = found.live.uuid;
            match self.recover_one(found, &pids).await {
                Ok(Some((pid, effects))) => {
                    pids.insert(uuid, pid);
                    launches.extend(effects);
                }
                Ok(None) => {}
                Err(error) => self.warn(format!("{uuid} cannot be taken up: {}", error.message)),
            }
        }
        // Not before all are in the table: who waits for a child must find it.
        self.carry_out(&mut self.lock(), launches);
        Ok(())
    }

    async fn recover_one(self: &Arc<Self>, found: Found, pids: &HashMap<Uuid, Pid>) -> Answer<Option<(Pid, Effects)>> {
        let Found { live: Live { uuid, history, health }, pid, model } = found;
        let pid = pid?;
        let parent_uuid = history.identity.as_ref().and_then(|identity| identity.spawned.parent_uuid);
        let parent = parent_uuid.and_then(|uuid| pids.get(&uuid).copied()).unwrap_or(Pid::KERNEL);
        self.recall(&history, model.clone());
        let fate = self.fate(uuid, pid, &history, &health).await?;
        let spec = spec(&history, pid, parent, model)?;
        match fate {
            Fate::Dead => return Ok(None),
            Fate::Continue(writer) => {
                let effects = self.admit(&mut self.lock(), next_generation(spec), *writer)?;
                return Ok(Some((pid, effects)));
            }
            Fate::Suspended(suspension) => {
                let mut state = self.lock();
                state.table.restore(next_generation(spec), suspension, self.now())?;
                state.placeholders.insert(pid);
            }
            Fate::Paused(suspension) => {
                self.lock().table.restore(next_generation(spec), suspension, self.now())?;
            }
        }
        Ok(Some((pid, Effects::new())))
    }

    async fn fate(
        self: &Arc<Self>,
        uuid: Uuid,
        pid: Pid,
        history: &relive_journal::History,
        health: &Health,
    ) -> Answer<Fate> {
        let now = self.now();
        let suspended = |reason, asked_at| {
            Fate::Suspended(Suspension { asked_at, reason, paused_total_ms: history.paused_total_ms })
        };
        match health {
            Health::Good | Health::Torn { .. } => {}
            Health::Damaged(hole) | Health::ReadOnly(hole) => {
                self.warn(format!("{uuid} is suspended: its journal cannot be written, {hole}"));
                return Ok(suspended(SuspendReason::IoError, now));
            }
        }
        if let Some(Paused { reason, asked_at, .. }) = history.paused
            && reason != SuspendReason::DaemonStop
        {
            return Ok(suspended(reason, asked_at));
        }
        let interrupted = history.paused.is_none();
        if interrupted && history.plan().crash_loop {
            self.pause_on_disk(uuid, pid, SuspendReason::CrashLoop).await?;
            let paused_total_ms = history.paused_total_ms;
            return Ok(Fate::Paused(Suspension { asked_at: now, reason: SuspendReason::CrashLoop, paused_total_ms }));
        }
        if interrupted && self.settings.recovery == Recovery::Manual {
            self.end_interrupted(uuid, pid).await?;
            return Ok(Fate::Dead);
        }
        let writer = self.open(uuid, pid, OpenedBy::Recovery).await?;
        Ok(Fate::Continue(Box::new(writer)))
    }

    async fn open(&self, uuid: Uuid, pid: Pid, by: OpenedBy) -> Answer<Writer> {
        let opening = Opening { pid, by, boot_id: self.clock.boot_id(), at: self.now() };
        Ok(self.on_disk(move |data| data.open_writer(uuid, &opening)).await??)
    }

    /// Three resumes and nothing to show for them: it waits for a person.
    async fn pause_on_disk(&self, uuid: Uuid, pid: Pid, reason: SuspendReason) -> Answer<()> {
        let (opening, now) = (self.opening(pid), self.now());
        let paused = Body::Paused(Paused { reason, asked_at: now, resume_at: None });
        let written = self.on_disk(move |data| {
            let mut writer = data.open_writer(uuid, &opening)?;
            writer.append(now, vec![paused], Durability::Synced)
        });
        Ok(written.await??)
    }

    /// `recovery: manual`: it was interrupted, and says so.
    async fn end_interrupted(&self, uuid: Uuid, pid: Pid) -> Answer<()> {
        let (opening, now) = (self.opening(pid), self.now());
        let ended = self.on_disk(move |data| {
            let mut writer = data.open_writer(uuid, &opening)?;
            writer.append(now, vec![Body::Ended(interrupted())], Durability::Synced)?;
            data.retire(uuid, writer.history())?;
            Ok::<_, ApiError>(())
        });
        ended.await?
    }

    fn opening(&self, pid: Pid) -> Opening {
        Opening { pid, by: OpenedBy::Recovery, boot_id: self.clock.boot_id(), at: self.now() }
    }

    /// The PID it had answers for its own end: interrupted, and followed by another.
    fn recall(&self, history: &relive_journal::History, model: Option<String>) {
        let Some(last) = history.incarnation() else { return };
        let Ok(mut spec) = spec(history, last.pid, Pid::KERNEL, model) else { return };
        spec.generation = last.generation;
        let past = Past {
            spec,
            started_at: last.at,
            ended_at: history.last_at.unwrap_or(last.at),
            end: interrupted(),
            paused_total_ms: history.paused_total_ms,
        };
        if let Err(refusal) = self.lock().table.recall(past, self.now()) {
            eprintln!("PID {} cannot be remembered: {refusal}", last.pid);
        }
    }
}

pub(super) fn interrupted() -> End {
    let status = ProcessStatus::Killed { signal: Signal::Kill.into() };
    End { cause: Some(Cause::kernel(Why::HostLost)), ..End::of(status) }
}

/// Reads all that has not ended, each after its parent, in one go: a job for each would take longer than its reading.
fn survey(data: &DataFolder) -> std::io::Result<Vec<Found>> {
    let live = parents_first(data.live()?);
    // Where there is no room for that, each is told so below.
    let _ = data.reserve_pids(live.len());
    let found = live.into_iter().map(|live| {
        let (pid, model) = (data.next_pid(), model_of(data, live.uuid));
        Found { live, pid, model }
    });
    let found: Vec<Found> = found.collect();
    data.note_pids(found.iter().filter_map(|found| Some((*found.pid.as_ref().ok()?, found.live.uuid))));
    Ok(found)
}

/// Each after its parent, if that is among them.
fn parents_first(live: Vec<Live>) -> Vec<Live> {
    let parent_of = |found: &Live| found.history.identity.as_ref().and_then(|identity| identity.spawned.parent_uuid);
    let mut waiting: HashMap<Uuid, Vec<Live>> = HashMap::new();
    let all: std::collections::HashSet<Uuid> = live.iter().map(|found| found.uuid).collect();
    let mut ready = std::collections::VecDeque::new();
    for found in live {
        match parent_of(&found).filter(|parent| all.contains(parent) && *parent != found.uuid) {
            Some(parent) => waiting.entry(parent).or_default().push(found),
            None => ready.push_back(found),
        }
    }
    let mut ordered = Vec::new();
    while let Some(found) = ready.pop_front() {
        ready.extend(waiting.remove(&found.uuid).unwrap_or_default());
        ordered.push(found);
    }
    // What is left claims to be its own ancestor; it is taken up all the same.
    ordered.extend(waiting.into_values().flatten());
    ordered
}
