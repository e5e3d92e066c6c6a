//! The start: what an earlier daemon left is found, and goes on.

mod survey;

use std::collections::HashMap;
use std::sync::Arc;

use relive_config::Recovery;
use relive_core::{
    Cause, Effects, End, Past, Pid, ProcessStatus, Signal, Spec, SuspendReason, Suspension, Timestamp, Uuid, Why,
};
use relive_journal::record::{Body, OpenedBy, Paused};
use relive_journal::{Durability, Opening, Writer};
use survey::{Found, Left, Survey, survey};

use crate::error::{Error, Result};
use crate::run::next_generation;
use crate::runtime::Runtime;

/// What becomes of a process that an earlier daemon left.
enum Fate {
    /// It goes on.
    Continue(Box<Writer>),
    /// It stands still, and has a body all the same: its session may end.
    Held(Suspension, Box<Writer>),
    /// It stays suspended, until then if there is a moment, and its journal as it is.
    Suspended(Suspension, Option<Timestamp>),
    /// It is suspended now; its journal says so under its new PID.
    Paused(Suspension),
    /// It is left dead, for a person to resume.
    Dead,
}

impl Runtime {
    /// Takes up everything that has not ended. Parents come before their children, and nobody runs before all are there:
    /// a parent that waits for its child has to find it.
    pub async fn recover(self: &Arc<Self>) -> Result<()> {
        let Survey { found, unknown } = self.on_disk(survey).await??;
        for (uuid, error) in unknown {
            self.warn(format!("{uuid} cannot be taken up: {error}"));
        }
        let mut pids: HashMap<Uuid, Pid> = HashMap::new();
        let mut launches = Effects::new();
        for found in found {
            let uuid = found.spec.uuid;
            match self.recover_one(found, &pids).await {
                Ok(Some((pid, effects))) => {
                    pids.insert(uuid, pid);
                    launches.extend(effects);
                }
                Ok(None) => {}
                Err(error) => self.warn(format!("{uuid} cannot be taken up: {}", error.to_string())),
            }
        }
        // Not before all are in the table: who waits for a child must find it.
        self.carry_out(&mut self.lock(), launches);
        Ok(())
    }

    async fn recover_one(self: &Arc<Self>, found: Found, pids: &HashMap<Uuid, Pid>) -> Result<Option<(Pid, Effects)>> {
        let Found { spec, pid, past, left, paused_total_ms, kin } = found;
        let (uuid, pid) = (spec.uuid, pid?);
        let parent = spec.parent_uuid.and_then(|uuid| pids.get(&uuid).copied()).unwrap_or(Pid::KERNEL);
        if let Some(past) = past {
            self.recall(past);
        }
        let fate = self.fate(uuid, pid, left, paused_total_ms).await?;
        let spec = Spec { pid, parent, ..spec };
        match fate {
            Fate::Dead => return Ok(None),
            Fate::Continue(writer) => {
                let effects = self.admit(&mut self.lock(), next_generation(spec), *writer)?;
                return Ok(Some((pid, effects)));
            }
            Fate::Held(suspension, writer) => {
                let spec = next_generation(spec);
                let of = relive_core::Incarnation { pid, generation: spec.generation };
                let mut state = self.lock();
                state.table.restore(spec, suspension, self.now())?;
                state.ready.insert(pid, *writer);
                return Ok(Some((pid, vec![relive_core::Effect::Launch { of }])));
            }
            Fate::Suspended(suspension, resume_at) => {
                let mut state = self.lock();
                if let Some(resume_at) = resume_at {
                    state.set_alarm(pid, resume_at, suspension.asked_at);
                }
                state.table.restore(next_generation(spec), suspension, self.now())?;
                state.placeholders.insert(pid);
            }
            Fate::Paused(suspension) => {
                self.lock().table.restore(next_generation(spec), suspension, self.now())?;
            }
        }
        if let Some(kin) = kin {
            self.lock().trees.join(kin);
        }
        Ok(Some((pid, Effects::new())))
    }

    async fn fate(self: &Arc<Self>, uuid: Uuid, pid: Pid, left: Left, paused_total_ms: u64) -> Result<Fate> {
        let now = self.now();
        let suspension = |reason, asked_at| Suspension { asked_at, reason, paused_total_ms };
        match left {
            Left::Unwritable(hole) => {
                self.warn(format!("{uuid} is suspended: its journal cannot be written, {hole}"));
                return Ok(Fate::Suspended(suspension(SuspendReason::IoError, now), None));
            }
            Left::Suspended { reason, asked_at, resume_at } => {
                return Ok(Fate::Suspended(suspension(reason, asked_at), resume_at));
            }
            Left::Program { suspended: Some((reason, asked_at)) } => {
                let writer = self.open(uuid, pid, OpenedBy::Recovery).await?;
                return Ok(Fate::Held(suspension(reason, asked_at), Box::new(writer)));
            }
            Left::Interrupted { crash_loop: true } => {
                self.pause_on_disk(uuid, pid, SuspendReason::CrashLoop).await?;
                return Ok(Fate::Paused(suspension(SuspendReason::CrashLoop, now)));
            }
            Left::Interrupted { crash_loop: false } if self.settings.recovery == Recovery::Manual => {
                self.end_interrupted(uuid, pid).await?;
                return Ok(Fate::Dead);
            }
            Left::Interrupted { crash_loop: false } | Left::Stopped | Left::Program { suspended: None } => {}
        }
        let writer = self.open(uuid, pid, OpenedBy::Recovery).await?;
        Ok(Fate::Continue(Box::new(writer)))
    }

    async fn open(&self, uuid: Uuid, pid: Pid, by: OpenedBy) -> Result<Writer> {
        let opening = Opening { pid, by, boot_id: self.clock.boot_id(), at: self.now() };
        Ok(self.opened(move |data| data.open_writer(uuid, &opening)).await??)
    }

    /// Three resumes and nothing to show for them: it waits for a person.
    async fn pause_on_disk(&self, uuid: Uuid, pid: Pid, reason: SuspendReason) -> Result<()> {
        let mut writer = self.open(uuid, pid, OpenedBy::Recovery).await?;
        let now = self.now();
        let paused = Body::Paused(Paused { reason, asked_at: now, resume_at: None });
        Ok(self.pool.run(move || writer.append(now, vec![paused], Durability::Synced)).await??)
    }

    /// `recovery: manual`: it was interrupted, and says so.
    async fn end_interrupted(&self, uuid: Uuid, pid: Pid) -> Result<()> {
        let mut writer = self.open(uuid, pid, OpenedBy::Recovery).await?;
        let now = self.now();
        let ended = self.on_disk(move |data| {
            writer.append(now, vec![Body::Ended(interrupted())], Durability::Synced)?;
            data.retire(uuid, writer.history())?;
            Ok::<_, Error>(())
        });
        ended.await?
    }

    fn recall(&self, past: Past) {
        let pid = past.spec.pid;
        if let Err(refusal) = self.lock().table.recall(past, self.now()) {
            eprintln!("PID {pid} cannot be remembered: {refusal}");
        }
    }
}

pub(crate) fn interrupted() -> End {
    let status = ProcessStatus::Killed { signal: Signal::Kill.into() };
    End { cause: Some(Cause::kernel(Why::HostLost)), ..End::of(status) }
}
