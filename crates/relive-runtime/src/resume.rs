//! Going on: what is suspended, what is dead, and forks of either.

use std::sync::Arc;

use relive_api::{Affected, InputRequest, ResumeRequest, Resumed as Answered};
use relive_core::{ErrorCode, Limits, Pid, ProcessStatus, Uuid};
use relive_journal::data::{ForkPoint, ForkRequest};
use relive_journal::record::{Body, Input, OpenedBy};
use relive_journal::{DataFolder, Durability, Opening, ProcessMeta, WriteError, Writer};

use crate::drive::is_program;
use crate::error::{Error, Result};
use crate::query::Target;
use crate::run::spec;
use crate::runtime::Runtime;

/// What a completed agent is told when nobody says anything.
const CONTINUE: &str = "Continue.";

impl Runtime {
    /// Goes on with a process, or with a fork of it.
    pub async fn resume(self: &Arc<Self>, id: &str, request: ResumeRequest) -> Result<Answered> {
        if let Some(step) = request.from_step
            && request.fork.is_none()
        {
            let message = format!("--from-step {step} would change the past of `{id}`");
            return Err(Error::new(ErrorCode::Invalid, message)
                .with_hint(format!("relive resume --fork --from-step {step} {id}")));
        }
        crate::run::check_environment(&request.env)?;
        if request.fork.is_some() && request.subtree {
            return Err(Error::new(ErrorCode::Invalid, "--fork takes one process, not a subtree"));
        }
        let target = self.resolve(id).await?;
        let (pid, uuid) = match &target {
            Target::Listed(pid) => (Some(*pid), self.who(*pid)?.uuid),
            Target::OnDisk(found) => (None, found.info.uuid),
        };
        if let Some(fork) = request.fork {
            return self.fork(uuid, fork, request).await;
        }
        let ended = {
            let state = self.lock();
            pid.and_then(|pid| state.table.view(pid, self.now())).is_none_or(|view| view.dead_at.is_some())
        };
        match pid {
            Some(pid) if !ended => self.wake(pid, request).await,
            Some(_) | None => self.revive(uuid, request).await,
        }
    }

    /// Goes on with a process that is in the table.
    async fn wake(self: &Arc<Self>, pid: Pid, request: ResumeRequest) -> Result<Answered> {
        let who = self.who(pid)?;
        let turn = self.turn(who.uuid).lock().await;
        let (bodiless, is_placeholder, reason, model) = {
            let state = self.lock();
            let view = state.table.view(pid, self.now());
            let (reason, model) =
                view.map(|view| (view.suspend_reason, view.model.map(str::to_owned))).unwrap_or_default();
            (!state.bodies.contains_key(&pid), state.placeholders.contains(&pid), reason, model)
        };
        if let Some(choices) = reason.and_then(crate::resolve::choices) {
            let message = format!("process {pid} waits for a decision");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resolve {pid} {choices}")));
        }
        if !bodiless && request.limits != Limits::default() {
            let message = format!("process {pid} is running: its limits are changed when it is resumed");
            return Err(
                Error::new(ErrorCode::Conflict, message).with_hint(format!("relive pause {pid}, then resume it"))
            );
        }
        let say = request.input.clone().filter(|_| !bodiless);
        if reason.is_some() {
            // Also where its body is still on its way to the boundary: it looks for its key again when it goes on.
            self.equip(who.uuid, who.uuid, reason, model.as_deref(), &request.env).await?;
            if request.subtree {
                self.equip_below(pid, &request.env).await;
            }
        }
        if bodiless && reason.is_some() {
            // Opened before anything changes, so that a journal that cannot be opened is said to whoever asks.
            let writer = self.writer(who, is_placeholder).await?;
            let mut journal = self.journal(who.uuid, writer);
            let batch = changes(journal.history().map(|history| history.limits), &request, None, self.now());
            if !batch.is_empty() {
                journal.append(self.now(), batch, Durability::Synced).await?;
            }
            let limits = journal.history().map(|history| history.limits).unwrap_or_default();
            let writer = journal.into_writer().ok_or_else(|| Error::new(ErrorCode::Internal, "the journal is lost"))?;
            let mut state = self.lock();
            state.placeholders.remove(&pid);
            state.ready.insert(pid, writer);
            state.table.set_limits(pid, limits)?;
            self.ledger.set_limits(who.uuid, limits);
        }
        let reached = {
            let mut state = self.lock();
            let reached = if request.subtree {
                state.table.resume_subtree(pid, self.now())
            } else {
                state.table.resume(pid, self.now())
            };
            let reached = reached.inspect_err(|_| drop(state.ready.remove(&pid)))?;
            let affected = self.reached(&mut state, pid, reached);
            // If somebody else was quicker the writer is not needed.
            state.ready.remove(&pid);
            affected
        };
        drop(turn);
        if let Some(text) = say {
            let id = format!("resume-{}", self.clock.new_uuid());
            self.send(&who.uuid.to_string(), InputRequest { id, text }).await?;
        }
        self.answer(pid, who.uuid, None, reached)
    }

    /// Goes on with a process that is dead: a new incarnation.
    async fn revive(self: &Arc<Self>, uuid: Uuid, request: ResumeRequest) -> Result<Answered> {
        self.admit_one_more()?;
        let _turn = self.turn(uuid).lock().await;
        // It may have been collected while this waited, or somebody else may have done it.
        self.is_here(uuid).await?;
        if let Ok(pid) = self.listed(&uuid.to_string()) {
            let alive = self.lock().table.view(pid, self.now()).is_some_and(|view| view.dead_at.is_none());
            if alive {
                return self.answer(pid, uuid, None, Affected::default());
            }
        }
        let at = self.now();
        let model = self.on_disk(move |data| model_of(data, uuid)).await?;
        self.equip(uuid, uuid, None, model.as_deref(), &request.env).await?;
        let (pid, mut writer) = self.open_dead(uuid).await?;
        let opened = self.pool.run(move || {
            let say = goes_on_when_told(writer.history()).then_some(CONTINUE);
            let batch = changes(Some(writer.history().limits), &request, say, at);
            if !batch.is_empty() {
                writer.append(at, batch, Durability::Synced)?;
            }
            Ok::<_, Error>(writer)
        });
        let writer = opened.await??;
        self.ledger.set_limits(uuid, writer.history().limits);
        self.insert_revived(pid, model, writer)?;
        self.answer(pid, uuid, None, Affected { affected: 1, pids: vec![pid], note: None })
    }

    /// Takes the journal of a process that is dead, under a new PID.
    async fn open_dead(&self, uuid: Uuid) -> Result<(Pid, Writer)> {
        let pid = self.on_disk(move |data| data.next_pid().inspect(|pid| data.note_pid(*pid, uuid))).await??;
        let opening = Opening { pid, by: OpenedBy::Resume, boot_id: self.clock.boot_id(), at: self.now() };
        match self.opened(move |data| data.open_writer(uuid, &opening)).await? {
            Ok(writer) => Ok((pid, writer)),
            Err(WriteError::Absent { .. }) => {
                // Collected since it was looked up, as a rule: then that is what is said.
                self.resolve(&uuid.to_string()).await?;
                Err(Error::new(ErrorCode::NotFound, format!("process {uuid} is gone")))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn fork(self: &Arc<Self>, source: Uuid, uuid: Uuid, request: ResumeRequest) -> Result<Answered> {
        self.admit_one_more()?;
        crate::run::check_name(request.name.as_deref())?;
        let _turn = self.turn(uuid).lock().await;
        if let Some(created) = self.begun_before(uuid).await? {
            return self.answer(created.pid, uuid, Some(source), Affected::default());
        }
        let reason = {
            let state = self.lock();
            let original = state.table.resolve(relive_core::Caller::Person, &source.to_string()).ok();
            original.and_then(|pid| state.table.view(pid, self.now())?.suspend_reason)
        };
        let model = self.on_disk(move |data| model_of(data, source)).await?;
        self.equip(source, uuid, reason, model.as_deref(), &request.env).await?;
        let environments = Arc::clone(&self.environments);
        let (boot_id, at) = (self.clock.boot_id(), self.now());
        let point = request.from_step.map_or(ForkPoint::End, ForkPoint::Step);
        let forked = self.on_disk(move |data| {
            let pid = data.next_pid()?;
            data.note_pid(pid, uuid);
            let (origin, _) = data.history(source)?;
            let forked = data.fork(ForkRequest {
                uuid,
                opening: Opening { pid, by: OpenedBy::Spawn, boot_id, at },
                source,
                point,
                name: request.name.clone(),
                parent_uuid: None,
                limits: Some(raised(origin.limits, request.limits)),
                input: None,
            });
            let mut writer = forked.inspect_err(|_| {
                let _ = environments.remove(uuid);
            })?;
            let say = waits_for_input(writer.history()).then_some(CONTINUE);
            let input = request.input.as_deref().or(say);
            if let Some(text) = input {
                writer.append(at, vec![Body::Input(said(text, at))], Durability::Synced)?;
            }
            Ok::<_, Error>((pid, writer))
        });
        let (pid, writer) = forked.await??;
        // Before the fork itself can change anything.
        let note = self.compare_files(source, writer.history()).await;
        self.insert_revived(pid, model, writer)?;
        let answered = self.answer(pid, uuid, Some(source), Affected { affected: 1, pids: vec![pid], note: None })?;
        Ok(Answered { note, ..answered })
    }

    /// Into the table, below its parent if that still lives.
    pub(crate) fn insert_revived(self: &Arc<Self>, pid: Pid, model: Option<String>, writer: Writer) -> Result<()> {
        let parent_uuid = writer.history().identity.as_ref().and_then(|identity| identity.spawned.parent_uuid);
        let parent = parent_uuid.and_then(|uuid| self.listed(&uuid.to_string()).ok()).unwrap_or(Pid::KERNEL);
        let spec = spec(writer.history(), pid, parent, model)?;
        self.insert(spec, writer)
    }

    fn answer(&self, pid: Pid, uuid: Uuid, origin_uuid: Option<Uuid>, affected: Affected) -> Result<Answered> {
        let state = self.lock();
        let view = state.table.view(pid, self.now());
        Ok(Answered {
            pid,
            uuid,
            origin_uuid,
            resumed_from_step: view.as_ref().map_or(0, |view| view.step),
            max_steps: view.as_ref().and_then(|view| view.max_steps),
            model: view.as_ref().and_then(|view| view.model.map(str::to_owned)),
            changed: affected.affected > 0,
            affected: affected.affected,
            pids: affected.pids,
            note: None,
        })
    }
}

/// Whether an agent that is dead says nothing more unless it is told something. A program is told nothing.
fn goes_on_when_told(history: &relive_journal::History) -> bool {
    waits_for_input(history) || (!is_program(history) && was_completed(history))
}

fn waits_for_input(history: &relive_journal::History) -> bool {
    !is_program(history) && history.plan().next == relive_journal::Next::Input
}

/// Whether the incarnation before the last one came to its end by itself, having done what it was to do.
fn was_completed(history: &relive_journal::History) -> bool {
    let before = history.incarnations.iter().rev().nth(1);
    let ended = before.and_then(|incarnation| incarnation.ended.as_ref());
    ended.is_some_and(|(_, end)| matches!(end.status, ProcessStatus::Exited { .. }))
}

/// What a resume adds to the journal.
fn changes(
    limits: Option<Limits>,
    request: &ResumeRequest,
    say: Option<&str>,
    at: relive_core::Timestamp,
) -> Vec<Body> {
    let mut batch = Vec::new();
    if request.limits != Limits::default()
        && let Some(limits) = limits
    {
        batch.push(Body::Limits(raised(limits, request.limits)));
    }
    if let Some(text) = request.input.as_deref().or(say) {
        batch.push(Body::Input(said(text, at)));
    }
    batch
}

fn said(text: &str, at: relive_core::Timestamp) -> Input {
    Input { id: format!("resume-{}", at.as_millisecond()), from: None, text: text.into() }
}

/// The limits with those that were named replaced.
pub(crate) fn raised(limits: Limits, named: Limits) -> Limits {
    Limits {
        max_steps: named.max_steps.or(limits.max_steps),
        max_tokens: named.max_tokens.or(limits.max_tokens),
        max_cost_usd: named.max_cost_usd.or(limits.max_cost_usd),
        timeout_ms: named.timeout_ms.or(limits.timeout_ms),
    }
}

pub(crate) fn model_of(data: &DataFolder, uuid: Uuid) -> Option<String> {
    ProcessMeta::read(&data.folder(uuid)).ok().map(|meta| meta.model)
}
