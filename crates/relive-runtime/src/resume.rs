//! Resume: a suspended process, and a dead one in a new incarnation.

mod above;

use std::sync::Arc;

use relive_api::{Affected, KeptPause, ResumeRequest, Resumed};
use relive_core::{Aim, Cause, ErrorCode, Event, Limits, Machine, Pid, Signal, State, SuspendReason, Uuid, Why};
use relive_journal::record::{Body, Input, NewLimits, NewModel, OpenedBy, ResumedBy};
use relive_journal::{History, Opening, WriteError};

use crate::bodies::DeliveryTime;
use crate::error::{Error, Result};
use crate::lookup::Presence;
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
        self.resume_for(Cause::runtime(Why::User), id, request, request_id).await
    }

    pub(crate) async fn resume_for(
        self: &Arc<Self>,
        cause: Cause,
        id: &str,
        request: ResumeRequest,
        request_id: Option<String>,
    ) -> Result<Resumed> {
        if let Some(step) = request.from_step.filter(|_| request.fork.is_none()) {
            let message = format!("`{id}`: --from-step {step} cannot be used without --fork");
            let hint = format!("relive resume --fork --from-step {step} {id}");
            return Err(Error::new(ErrorCode::Invalid, message).with_hint(hint));
        }
        crate::create::check_environment(&request.env)?;
        if request.fork.is_some() && request.subtree {
            return Err(Error::new(ErrorCode::Invalid, "--fork takes one process, not a subtree"));
        }
        if request.input.as_ref().is_some_and(|input| input.trim().is_empty()) {
            return Err(crate::send::empty_message(id));
        }
        if let Some(refusal) = self.limits_without_effect(id, &request).await {
            return Err(refusal);
        }
        if let Some(refusal) = self.model_without_effect(id, &request).await {
            return Err(refusal);
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
                if matches!(runtime.presence(fork).await?, Presence::Never)
                    && let Some(refusal) = runtime.stops_at_once(&id, source, &request).await
                {
                    return Err(refusal);
                }
                return runtime.fork(source, fork, request).await;
            }
            let (uuid, note) = runtime.identity_of(&runtime.look_up_to_change(&id).await?)?;
            // The run and the supervisor above a process report its end themselves.
            let is_person = cause.why != Why::Supervisor;
            let stops = match is_person {
                true => match runtime.belongs_to_run(uuid).await {
                    None => runtime.stops_at_once(&id, uuid, &request).await,
                    refusal @ Some(_) => refusal,
                },
                false => None,
            };
            let nodes = if is_person { runtime.nodes_to_start(uuid).await } else { None };
            let answered = runtime.resume_process(cause, uuid, (request, stops), request_id).await?;
            if is_person {
                runtime.rejoin_supervisor(uuid).await;
            }
            Ok(Resumed { note: note.or(answered.note), nodes, ..answered })
        })
        .await
    }

    /// Refuses a model that does not exist, cannot be reached, or cannot be paid.
    pub(crate) async fn check_model(&self, uuid: Uuid, model: &str, request: &ResumeRequest) -> Result<()> {
        let (history, _) = match self.on_journal(move |data| data.history(uuid)).await? {
            Ok(read) => read,
            Err(error) => return Err(self.unread_error(uuid, error).await?),
        };
        let Some(identity) = history.identity else {
            return Err(Error::new(ErrorCode::Internal, "the journal does not describe a process"));
        };
        let mut spawned = identity.spawned;
        if spec::body_of(&spawned.body) != Some(relive_core::Body::Agent) {
            let message = format!("process {uuid} is not an agent, so it has no model");
            return Err(Error::new(ErrorCode::Invalid, message));
        }
        let kept = self.environment_of(uuid);
        let environment = if kept.is_empty() { &request.env } else { &kept };
        let built = match self.credentials.model(model, spawned.cwd.as_ref(), uuid, environment).await {
            Err(_) if !request.env.is_empty() => {
                self.credentials.model(model, spawned.cwd.as_ref(), uuid, &request.env).await?
            }
            built => built?,
        };
        spawned.limits = spec::raised(history.limits, request.limits);
        self.can_be_paid(model, built.as_ref(), &spawned).await
    }

    pub(crate) async fn resume_process(
        self: &Arc<Self>,
        cause: Cause,
        uuid: Uuid,
        (request, stops): (ResumeRequest, Option<Error>),
        request_id: Option<String>,
    ) -> Result<Resumed> {
        self.refuse_if_stopping()?;
        self.reload_settings().await;
        let wrong_model = self.wrong_model(uuid, &request).await?;
        let request_id = request_id.map(|id| format!("resume:{id}"));
        self.prepare_resume(uuid, &request).await?;
        let refused = if request.input.is_some() { self.accepts_message(uuid).await.err() } else { None };
        let mut turn = self.turn(uuid, Lane::Verb).await?;
        let Some(machine) = turn.machine() else {
            if let Some(error) = wrong_model.or(stops)
                && !turn.was_answered(request_id.as_deref()).await?
            {
                return Err(error);
            }
            let resumed = turn.resume_dead(cause, request, request_id.clone(), Vec::new()).await?;
            drop(turn);
            return Ok(self.with_those_above(resumed, cause, request_id).await);
        };
        let process = ProcessRef { of: machine.incarnation(), uuid };
        let pid = process.of.pid;
        if turn.was_answered(request_id.as_deref()).await? {
            drop(turn);
            let affected = if request.subtree {
                let sent = SignalOrder { cause, request: request_id, ..SignalOrder::new(Signal::Resume, None) };
                self.signal_tree(uuid, pid, sent).await?
            } else {
                Affected { affected: 1, pids: vec![pid], ..Affected::default() }
            };
            return Ok(self.resumed(process, None, affected));
        }
        turn.refuse_resume(cause.by, &machine, &request, refused.or(wrong_model).or(stops))?;
        let not_paused_yet = self.not_paused_yet(pid, &request);
        if !turn.owner.has_body() {
            turn.check_directory().await?;
        }
        let details = RecordDetails { request: request_id.clone(), cause: Some(cause), ..RecordDetails::default() };
        let mut change = Change::of(machine, details);
        if change.draft().state() == State::Created && turn.owner.has_body() {
            change.apply(Event::Start, self)?;
        }
        let request_id_kept = request_id.clone();
        let sent = SignalOrder {
            cause,
            aim: Aim::Process,
            request: request_id_kept,
            ..SignalOrder::new(Signal::Resume, None)
        };
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
        let above = if resumed { self.resume_above(pid, &sent).await } else { Vec::new() };
        let note = above.last().and_then(|top| self.still_paused_below(*top));
        pids.extend(above);
        let pending = self.pending_of(Signal::Resume, pid, &pids);
        let kept = self.still_waiting(&not_paused_yet, &pids);
        let cancelled = not_paused_yet.into_iter().filter(|pid| pids.contains(pid) && !pending.contains(pid)).collect();
        let affected = Affected { affected: pids.len(), pids, pending, note, ..Affected::default() };
        Ok(Resumed { cancelled, kept, ..self.resumed(process, None, affected) })
    }

    /// Returns those of a resume that were told to pause and still run: their pause is pending, or they have not reached
    /// their boundary.
    fn not_paused_yet(&self, root: Pid, request: &ResumeRequest) -> Vec<Pid> {
        let state = self.lock();
        let meant = if request.subtree { state.table.subtree(root) } else { vec![root] };
        let is_told = |pid: &Pid| {
            state.table.machine(*pid).is_some_and(|machine| {
                let blocks = machine.pending().any(|(signal, _)| signal == Signal::Pause);
                let waits = machine.waiting_pause().is_some();
                machine.urgency().is_some() || (blocks && machine.pause().is_none()) || waits
            })
        };
        meant.into_iter().filter(is_told).collect()
    }

    /// Returns those whose pause was taken back before it began, because they waited for something else, as they do now.
    fn still_waiting(&self, not_paused_yet: &[Pid], resumed: &[Pid]) -> Vec<KeptPause> {
        let state = self.lock();
        let waits = |pid: &Pid| {
            let (_, reason) = state.table.machine(*pid)?.pause()?;
            Some(KeptPause { pid: *pid, reason })
        };
        not_paused_yet.iter().filter(|pid| resumed.contains(pid)).filter_map(waits).collect()
    }

    /// Returns what is wrong with the model of a request to a process that runs; fails with it for any other process. Of
    /// one that runs, the model cannot be changed at all: that is said first.
    async fn wrong_model(&self, uuid: Uuid, request: &ResumeRequest) -> Result<Option<Error>> {
        let Some(model) = &request.model else { return Ok(None) };
        let checked = self.check_model(uuid, model, request).await;
        if self.owners.find(uuid).is_some_and(|owner| owner.has_body()) {
            return Ok(checked.err());
        }
        checked.map(|()| None)
    }

    /// Sees to it that a process has what it needs, before its turn: keys may take their time.
    async fn prepare_resume(&self, uuid: Uuid, request: &ResumeRequest) -> Result<()> {
        let (reason, model, pid) = {
            let state = self.lock();
            let pid = state.table.current_pid(uuid);
            let view = pid.and_then(|pid| state.table.view(pid, self.moment()));
            let view = view.filter(|view| view.dead_at.is_none());
            let known = view.map(|view| {
                // A CLI agent has keys of its own.
                let model = view.model.filter(|_| view.body != relive_core::Body::Cli);
                (view.suspend_reason, model.map(str::to_owned), Some(view.pid))
            });
            known.unwrap_or_default()
        };
        let Some(pid) = pid else {
            let model = self
                .on_journal(move |data| Some(spec::keyed_model_of(data, uuid, &data.history(uuid).ok()?.0)))
                .await?;
            let model = request.model.clone().or(model.flatten());
            return self.credentials.equip(uuid, uuid, None, model.as_deref(), &request.env).await;
        };
        if reason.is_some() {
            let model = request.model.clone().or(model);
            let equipped = self.credentials.equip(uuid, uuid, reason, model.as_deref(), &request.env).await;
            equipped.map_err(|error| self.with_refusal(pid, error))?;
            if request.subtree {
                // What still lacks credentials will say so when it is resumed.
                for (uuid, reason, model) in self.suspended_below(pid) {
                    let _ = self.credentials.equip(uuid, uuid, Some(reason), model.as_deref(), &request.env).await;
                }
            }
        }
        Ok(())
    }

    /// Says of a missing key that it is to replace one that the provider has refused.
    fn with_refusal(&self, pid: Pid, error: Error) -> Error {
        match self.lock().refused_keys.get(&pid) {
            Some(refusal) if error.code() == ErrorCode::Invalid => {
                let message = format!("{refusal}, and this shell has no other key");
                Error::Said { code: ErrorCode::Invalid, message, hint: error.hint() }
            }
            Some(_) | None => error,
        }
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
            pending: affected.pending,
            cancelled: Vec::new(),
            kept: Vec::new(),
            note: affected.note,
            workspace: None,
            nodes: None,
        }
    }

    /// Resumes those that are suspended until a moment that has come.
    pub(crate) async fn end_pause(self: &Arc<Self>, uuid: Uuid, reason: SuspendReason, by: ResumedBy) -> Result<()> {
        let mut turn = self.turn(uuid, Lane::Own).await?;
        let Some(machine) = turn.machine() else { return Ok(()) };
        let mut change = Change::of(machine, RecordDetails { resumed_by: by, ..RecordDetails::default() });
        if turn.end_pause(&mut change, reason)? { turn.commit(change).await } else { Ok(()) }
    }
}

impl Turn {
    /// Ends a pause because its reason is gone. One that somebody has paused meanwhile stays suspended for them: without a
    /// body it stands still already. Returns whether anything changed.
    pub(crate) fn end_pause(&self, change: &mut Change, reason: SuspendReason) -> Result<bool> {
        let changed = change.apply(Event::EndPause { reason }, &self.runtime)?;
        if changed && change.draft().pause().is_some() && !self.owner.has_body() {
            change.apply(Event::BoundaryReached, &self.runtime)?;
        }
        Ok(changed)
    }

    /// Refuses to resume a living process that cannot be resumed so now, or for the reason that was `found` before.
    fn refuse_resume(&self, by: Pid, machine: &Machine, request: &ResumeRequest, found: Option<Error>) -> Result<()> {
        let pid = machine.incarnation().pid;
        if let Some((signal, _)) = machine.told_to_end() {
            // What it is told now nobody would hear. Its next incarnation can be.
            let hint = format!("relive wait {pid}; relive resume {pid}");
            return Err(Error::new(ErrorCode::Conflict, is_being_ended(pid, signal)).with_hint(hint));
        }
        let waits = machine.pause().is_some_and(|(_, reason)| reason.awaits_answer());
        if waits && machine.waiting_pause().is_none() {
            let message = format!("PID {pid} waits for your answer");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resolve {pid}")));
        }
        self.runtime.refuse_if_frozen_with(by, pid, self.uuid())?;
        if let Some(model) = request.model.as_ref().filter(|_| self.owner.has_body()) {
            let message = format!("PID {pid} is running: pause it before you resume it with the model {model}");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive pause {pid}")));
        }
        found.map_or(Ok(()), Err)
    }

    /// Starts a new incarnation of a process that is dead: `opened` and what it is told are one write.
    /// `first` comes before what it is told.
    pub(crate) async fn resume_dead(
        &mut self,
        cause: Cause,
        request: ResumeRequest,
        request_id: Option<String>,
        first: Vec<Body>,
    ) -> Result<Resumed> {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        runtime.admit_one_more()?;
        // It may have been collected while this waited.
        runtime.is_here(uuid).await?;
        if self.was_answered(request_id.as_deref()).await? {
            return self.resumed_before().await;
        }
        self.check_directory().await?;
        let (model, body, name) = runtime
            .on_journal(move |data| {
                let (history, _) = data.history(uuid)?;
                let model = spec::model_of(data, uuid, &history);
                let name = history.identity.as_ref().and_then(|identity| identity.spawned.name.clone());
                let body = history.identity.and_then(|identity| spec::body_of(&identity.spawned.body));
                Ok::<_, std::io::Error>((model, body, name))
            })
            .await??;
        let model = request.model.clone().or(model);
        let _name = runtime.hold_name(name.as_deref(), uuid).map_err(|error| {
            let free = format!("relive rename {uuid} NAME");
            Error::new(error.code(), format!("process {uuid} cannot be resumed: {error}")).with_hint(free)
        })?;
        let body = body.and_then(|kind| runtime.bodies.of(kind));
        let body = body.ok_or_else(unknown_body)?;
        if request.input.is_some() {
            body.accepts_message(uuid, DeliveryTime::NextRun).await?;
        }
        let pid = runtime.on_journal(move |data| data.next_pid().inspect(|pid| data.note_pid(*pid, uuid))).await??;
        let opening = Opening {
            pid,
            by: OpenedBy::Resume,
            boot_id: runtime.clock.boot_id(),
            now: runtime.moment(),
            req: request_id.clone(),
            seen: None,
            cause: Some(cause),
        };
        let say = self.look(|history| history.clone()).await?;
        let say = body.first_message(&say);
        let input_id = runtime.clock.new_uuid().to_string();
        let limits = self.look(|history| history.limits).await?;
        let files = self.look(|history| history.files.clone()).await?;
        let mut batch = first;
        batch.extend(crate::rewind::untold(&files, &input_id));
        batch.extend(additions(limits, &request, say, request_id.as_deref(), &input_id));
        batch.extend(runtime.lock().inherited.paused_start(uuid).and_then(|pause| pause.record(opening.now.at)));
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
        let note = at_gate(writer.history(), pid);
        self.publish_opened(spec, writer).await?;
        let who = runtime.in_words_now(cause, None);
        runtime.emit(&self.owner, "resumed", serde_json::json!({"by": ResumedBy::User, "who": who}));
        Ok(runtime.resumed(process, None, Affected { affected: 1, pids: vec![pid], note, ..Affected::default() }))
    }

    /// Answers for a process that was resumed by this request, and has ended since.
    async fn resumed_before(&mut self) -> Result<Resumed> {
        let pid = self.look(|history| history.incarnation().map(|last| (last.pid, last.generation))).await?;
        let (pid, generation) = pid.unwrap_or((Pid::RUNTIME, relive_core::Generation(0)));
        let process = ProcessRef { of: relive_core::Incarnation { pid, generation }, uuid: self.uuid() };
        let affected = Affected { affected: 1, pids: vec![pid], ..Affected::default() };
        Ok(self.runtime.resumed(process, None, affected))
    }

    async fn commit_additions(&mut self, change: Change, limits: Limits, request: &ResumeRequest) -> Result<()> {
        let pid = change.draft().incarnation().pid;
        let said = request.input.clone();
        let recorded = self.record(change).await?;
        let raised = (request.limits != Limits::default()).then(|| spec::raised(limits, request.limits));
        if let Some(limits) = raised {
            // Before it is shown as resumed: its body would find nothing left, and suspend it again.
            self.runtime.budgets.set_limits(self.uuid(), limits);
        }
        if let Some((draft, effects)) = recorded {
            self.publish(draft, effects);
        }
        self.hand_over(pid, said);
        if let Some(limits) = raised {
            self.runtime.lock().table.set_limits(pid, limits)?;
            let deadline = self.deadline();
            self.owner.order(|orders| orders.deadline = deadline);
        }
        if let Some(model) = &request.model {
            self.runtime.lock().table.set_model(pid, model)?;
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

pub(crate) fn unknown_body() -> Error {
    Error::new(ErrorCode::Internal, "this version of Relive does not know the body of this process")
}

/// Says that a program will wait at its gate, if it has one.
pub(crate) fn at_gate(history: &History, pid: Pid) -> Option<String> {
    let program = history.identity.as_ref()?.spawned.program.as_ref()?;
    program.gate.then(|| format!("it waits at its gate; to let it run: relive proceed {pid}"))
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
    if let Some(model) = &request.model {
        batch.push(Body::Model(NewModel { model: model.clone(), req: request_id.map(str::to_owned) }));
    }
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
