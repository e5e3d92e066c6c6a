//! Resume: a suspended process, and a dead one in a new incarnation.

use std::sync::Arc;

use relive_api::{Affected, ResumeRequest, Resumed};
use relive_core::{Aim, ErrorCode, Event, Limits, Pid, Signal, State, SuspendReason, Uuid};
use relive_journal::record::{Body, Input, NewLimits, OpenedBy, ResumedBy};
use relive_journal::{History, Opening, WriteError};

use crate::bodies::Hearing;
use crate::error::{Error, Result};
use crate::owner::{Change, Lane, Turn};
use crate::records::RecordDetails;
use crate::runtime::{ProcessRef, Runtime};
use crate::signal::{SignalOrder, is_being_ended};
use crate::spec;

impl Runtime {
    /// Resumes a process, or starts a fork of it.
    pub async fn resume(
        self: &Arc<Self>,
        id: &str,
        request: ResumeRequest,
        request_id: Option<String>,
    ) -> Result<Resumed> {
        if let Some(step) = request.from_step.filter(|_| request.fork.is_none()) {
            let message = format!("--from-step {step} would change the past of `{id}`");
            let hint = format!("relive resume --fork --from-step {step} {id}");
            return Err(Error::new(ErrorCode::Invalid, message).with_hint(hint));
        }
        crate::create::check_environment(&request.env)?;
        if request.fork.is_some() && request.subtree {
            return Err(Error::new(ErrorCode::Invalid, "--fork takes one process, not a subtree"));
        }
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            if let Some(fork) = request.fork {
                let found = runtime.look_up(&id).await.and_then(|found| runtime.identity_of(&found));
                let source = match found {
                    Ok((uuid, _)) => uuid,
                    // Sent again, and its source was collected since: the fork knows it.
                    Err(error) => runtime.origin_of(fork).await.ok_or(error)?,
                };
                return runtime.fork(source, fork, request).await;
            }
            let (uuid, note) = runtime.identity_of(&runtime.look_up_to_change(&id).await?)?;
            let answered = runtime.resume_process(uuid, request, request_id).await?;
            Ok(Resumed { note: note.or(answered.note), ..answered })
        })
        .await
    }

    async fn resume_process(
        self: &Arc<Self>,
        uuid: Uuid,
        request: ResumeRequest,
        request_id: Option<String>,
    ) -> Result<Resumed> {
        self.refuse_if_stopping()?;
        let request_id = request_id.map(|id| format!("resume:{id}"));
        self.prepare_resume(uuid, &request).await?;
        let refused = if request.input.is_some() { self.hears(uuid).await.err() } else { None };
        let mut turn = self.turn(uuid, Lane::Verb).await?;
        let Some(machine) = turn.machine() else { return turn.resume_dead(request, request_id).await };
        let process = ProcessRef { of: machine.incarnation(), uuid };
        let pid = process.of.pid;
        if turn.was_answered(request_id.as_deref()).await? {
            drop(turn);
            let affected = if request.subtree {
                let sent = SignalOrder { request: request_id, ..SignalOrder::new(Signal::Resume, None) };
                self.signal_tree(uuid, pid, sent).await?
            } else {
                Affected { affected: 1, pids: vec![pid], ..Affected::default() }
            };
            return Ok(self.resumed(process, None, affected));
        }
        if let Some((signal, _)) = machine.told_to_end() {
            // What it is told now nobody would hear. Its next incarnation can be.
            let hint = format!("relive wait {pid}; relive resume {pid}");
            return Err(Error::new(ErrorCode::Conflict, is_being_ended(pid, signal)).with_hint(hint));
        }
        if let Some(choices) = machine.pause().and_then(|(_, reason)| crate::answers::choices(reason)) {
            let message = format!("process {pid} waits for your answer");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resolve {pid} {choices}")));
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let mut change = Change::of(machine, RecordDetails { request: request_id.clone(), ..RecordDetails::default() });
        if change.draft().state() == State::Created && turn.owner.has_body() {
            change.apply(Event::Start, self)?;
        }
        let sent =
            SignalOrder { aim: Aim::Process, request: request_id.clone(), ..SignalOrder::new(Signal::Resume, None) };
        let resume = Event::Signal { signal: Signal::Resume, cause: sent.cause, urgency: sent.urgency, aim: sent.aim };
        let changed = change.apply(resume, self)?;
        let resumed = change.resumes();
        let limits = turn.look(|history| history.limits).await?;
        let extra = additions(limits, &request, None, request_id.as_deref(), &self.clock.new_uuid().to_string());
        let changed = changed || !extra.is_empty();
        change.last.extend(extra);
        turn.commit_additions(change, limits, &request).await?;
        drop(turn);
        let mut pids = Vec::from_iter(changed.then_some(pid));
        if request.subtree {
            let below = self.signal_tree(uuid, pid, sent.clone()).await?;
            pids.extend(below.pids.into_iter().filter(|below| *below != pid));
        }
        if resumed {
            pids.extend(self.resume_above(pid, &sent).await);
        }
        Ok(self.resumed(process, None, Affected { affected: pids.len(), pids, ..Affected::default() }))
    }

    /// Sees to it that a process has what it needs, before its turn: keys may take their time.
    async fn prepare_resume(&self, uuid: Uuid, request: &ResumeRequest) -> Result<()> {
        let (reason, model, pid) = {
            let state = self.lock();
            let pid = state.table.current_pid(uuid);
            let view = pid.and_then(|pid| state.table.view(pid, self.moment()));
            let view = view.filter(|view| view.dead_at.is_none());
            let known = view.map(|view| (view.suspend_reason, view.model.map(str::to_owned), Some(view.pid)));
            known.unwrap_or_default()
        };
        let Some(pid) = pid else {
            let model = self.on_journal(move |data| spec::model_of(data, uuid)).await?;
            return self.credentials.equip(uuid, uuid, None, model.as_deref(), &request.env).await;
        };
        if reason.is_some() {
            self.credentials.equip(uuid, uuid, reason, model.as_deref(), &request.env).await?;
            if request.subtree {
                // What still lacks credentials will say so when it is resumed.
                for (uuid, reason, model) in self.suspended_below(pid) {
                    let _ = self.credentials.equip(uuid, uuid, Some(reason), model.as_deref(), &request.env).await;
                }
            }
        }
        Ok(())
    }

    fn suspended_below(&self, root: Pid) -> Vec<(Uuid, SuspendReason, Option<String>)> {
        let state = self.lock();
        let below = state.table.subtree(root).into_iter().skip(1);
        let views = below.filter_map(|pid| state.table.view(pid, self.moment()));
        views.filter_map(|view| Some((view.uuid, view.suspend_reason?, view.model.map(str::to_owned)))).collect()
    }

    pub(crate) fn resumed(&self, process: ProcessRef, origin_uuid: Option<Uuid>, affected: Affected) -> Resumed {
        let state = self.lock();
        let pid = process.of.pid;
        let view = state.table.view(pid, self.moment());
        Resumed {
            pid,
            uuid: process.uuid,
            origin_uuid,
            resumed_from_step: view.as_ref().map_or(0, |view| view.step),
            max_steps: view.as_ref().and_then(|view| view.max_steps),
            model: view.as_ref().and_then(|view| view.model.map(str::to_owned)),
            changed: affected.affected > 0,
            affected: affected.affected,
            pids: affected.pids,
            note: affected.note,
        }
    }

    /// Resumes those that are suspended until a moment that has come.
    pub(crate) async fn end_pause(self: &Arc<Self>, uuid: Uuid, reason: SuspendReason, by: ResumedBy) -> Result<()> {
        let mut turn = self.turn(uuid, Lane::Own).await?;
        let Some(machine) = turn.machine() else { return Ok(()) };
        let mut change = Change::of(machine, RecordDetails { resumed_by: by, ..RecordDetails::default() });
        if change.apply(Event::EndPause { reason }, self)? { turn.commit(change).await } else { Ok(()) }
    }
}

impl Turn {
    /// Starts a new incarnation of a process that is dead: `opened` and what it is told are one write.
    async fn resume_dead(&mut self, request: ResumeRequest, request_id: Option<String>) -> Result<Resumed> {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        runtime.admit_one_more()?;
        // It may have been collected while this waited.
        runtime.is_here(uuid).await?;
        if self.was_answered(request_id.as_deref()).await? {
            // It was resumed by this request, and has ended since.
            let pid = self.look(|history| history.incarnation().map(|last| (last.pid, last.generation))).await?;
            let (pid, generation) = pid.unwrap_or((Pid::RUNTIME, relive_core::Generation(0)));
            let process = ProcessRef { of: relive_core::Incarnation { pid, generation }, uuid };
            return Ok(runtime.resumed(
                process,
                None,
                Affected { affected: 1, pids: vec![pid], ..Affected::default() },
            ));
        }
        let (model, body) = runtime
            .on_journal(move |data| {
                let (history, _) = data.history(uuid)?;
                let body = history.identity.and_then(|identity| spec::body_of(&identity.spawned.body));
                Ok::<_, std::io::Error>((spec::model_of(data, uuid), body))
            })
            .await??;
        let body = body.and_then(|kind| runtime.bodies.of(kind));
        let body = body.ok_or_else(|| Error::new(ErrorCode::Internal, "what it runs is not known here"))?;
        if request.input.is_some() {
            body.hears(uuid, Hearing::NextRun).await?;
        }
        let pid = runtime.on_journal(move |data| data.next_pid().inspect(|pid| data.note_pid(*pid, uuid))).await??;
        let opening = Opening {
            pid,
            by: OpenedBy::Resume,
            boot_id: runtime.clock.boot_id(),
            now: runtime.moment(),
            req: request_id.clone(),
            seen: None,
        };
        let say = self.look(|history| history.clone()).await?;
        let say = body.first_message(&say);
        let input_id = runtime.clock.new_uuid().to_string();
        let limits = self.look(|history| history.limits).await?;
        let batch = additions(limits, &request, say, request_id.as_deref(), &input_id);
        let opened = runtime
            .opened(move |data| {
                let batch = batch.clone();
                data.open_journal(uuid, &opening, None, move |_: &History| Ok::<_, std::convert::Infallible>(batch))
            })
            .await;
        let writer = match opened {
            Ok(writer) => writer,
            Err(Error::Journal(WriteError::Absent { .. })) => {
                // Collected since it was looked up, as a rule: then that is what is said.
                runtime.is_here(uuid).await?;
                return Err(Error::new(ErrorCode::NotFound, format!("process {uuid} is gone")));
            }
            Err(error) => return Err(error),
        };
        runtime.budgets.set_limits(uuid, writer.history().limits);
        let spec = spec::from_history(writer.history(), pid, runtime.parent_of(writer.history()), model)?;
        let process = ProcessRef { of: relive_core::Incarnation { pid, generation: spec.generation }, uuid };
        self.publish_new(spec, writer).await?;
        Ok(runtime.resumed(process, None, Affected { affected: 1, pids: vec![pid], ..Affected::default() }))
    }

    async fn commit_additions(&mut self, change: Change, limits: Limits, request: &ResumeRequest) -> Result<()> {
        let pid = change.draft().incarnation().pid;
        let said = request.input.clone();
        self.commit(change).await?;
        self.hand_over(pid, said);
        if request.limits != Limits::default() {
            let limits = spec::raised(limits, request.limits);
            self.runtime.lock().table.set_limits(pid, limits)?;
            self.runtime.budgets.set_limits(self.uuid(), limits);
            let deadline = self.deadline();
            self.owner.order(|orders| orders.deadline = deadline);
        }
        Ok(())
    }
}

impl Runtime {
    /// The living parent of a process, or PID 0.
    pub(crate) fn parent_of(&self, history: &History) -> Pid {
        let uuid = history.identity.as_ref().and_then(|identity| identity.spawned.parent_uuid);
        uuid.and_then(|uuid| self.living(uuid)).map_or(Pid::RUNTIME, |parent| parent.of.pid)
    }
}

/// What a resume adds to the journal: limits, and a message whose id is that of the request.
pub(crate) fn additions(
    limits: Limits,
    request: &ResumeRequest,
    say: Option<&str>,
    request_id: Option<&str>,
    fresh: &str,
) -> Vec<Body> {
    let mut batch = Vec::new();
    if request.limits != Limits::default() {
        let limits = spec::raised(limits, request.limits);
        batch.push(Body::Limits(NewLimits { limits, req: request_id.map(str::to_owned) }));
    }
    if let Some(text) = request.input.as_deref().or(say) {
        let id = request_id.map_or_else(|| format!("resume-{fresh}"), str::to_owned);
        batch.push(Body::Input(Input { id, from: None, text: text.into() }));
    }
    batch
}
