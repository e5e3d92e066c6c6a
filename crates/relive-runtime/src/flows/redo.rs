//! A node of a compose file that a person has continue.

mod limits;
mod suspended;

use std::sync::Arc;
use std::time::Duration;

use relive_api::{Environment, NodeRequest, NodeResumed, Process, ResumeRequest};
use relive_core::{Cause, ErrorCode, Limits, Pid, Uuid};
use relive_flow::{Event, Flow, Origin, Outcome, Rejected, SlotState};
use relive_journal::record::Body;
use relive_types::program::quote;

use super::status::living;
use super::{LiveFlow, RecordedFlow, record};
use crate::bodies::{DeliveryTime, ProcessEnd, Verb};
use crate::error::{Error, Result};
use crate::hints::Raise;
use crate::lookup::Presence;
use crate::owner::Lane;
use crate::reached::with_given;
use crate::runtime::{ProcessRef, Runtime};
use crate::spec::body_of;

/// How often, and how many times, is looked whether a run that was resumed schedules.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const OPENED_LOOKS: u32 = 40;

/// What a person asks for.
#[derive(Debug, Clone)]
struct Redo {
    node: String,
    origin: Origin,
    request_id: Option<String>,
}

/// A node that was told to continue.
struct Redone {
    pid: Pid,
    /// What else happened.
    note: Option<String>,
}

impl From<Pid> for Redone {
    fn from(pid: Pid) -> Self {
        Self { pid, note: None }
    }
}

/// Whether a node can continue, as it was before the run stood still.
struct Checked {
    /// The process that was looked at.
    last: Option<Uuid>,
    refusal: Option<Error>,
}

impl Checked {
    /// Refuses a node that cannot continue, or whose process is another one by now.
    fn holds(&self, run: Pid, flow: &Flow, node: &str) -> Result<()> {
        if flow.slot(node).and_then(|slot| slot.uuid) != self.last {
            let message = format!("{node} of run {run} was started again meanwhile");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive compose status {run}")));
        }
        let waits = flow.slot(node).filter(|slot| slot.uuid.is_some()).and_then(|slot| not_its_turn(slot.state));
        if let Some(why) = waits {
            let message = format!("cannot resume a node of run {run}: {node} {why}");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive compose status {run}")));
        }
        match &self.refusal {
            None => Ok(()),
            Some(it) => Err(Error::Said { code: it.code(), message: it.to_string(), hint: it.hint() }),
        }
    }
}

impl Runtime {
    /// Has a node continue from its journal, or in a fork. What depends on it runs again, and nothing else.
    pub(crate) async fn resume_node(
        self: &Arc<Self>,
        cause: Cause,
        id: &str,
        request: NodeRequest,
        request_id: Option<String>,
    ) -> Result<NodeResumed> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let (uuid, _) = runtime.identity_of(&runtime.look_up_to_change(&id).await?)?;
            crate::create::check_environment(&request.env)?;
            let (node, env) = (request.node.clone(), request.env.clone());
            let origin = origin_of(&id, request)?;
            let request_id = request_id.map(|id| format!("node:{id}"));
            let redo = Redo { node: node.clone(), origin, request_id };
            let Redone { pid, note } = runtime.redo(cause, uuid, redo, &env).await?;
            Ok(NodeResumed { pid, uuid, node, note })
        })
        .await
    }

    async fn redo(self: &Arc<Self>, cause: Cause, uuid: Uuid, redo: Redo, env: &Environment) -> Result<Redone> {
        let run = self.flow_process(&uuid.to_string()).await?;
        let checked = self.check_redo(&run, &redo).await?;
        self.credentials.equip(uuid, uuid, None, None, env).await?;
        if let Some(process) = self.living(uuid) {
            return self.redo_living(cause, process, redo, checked).await;
        }
        let mut turn = self.turn(uuid, Lane::Verb).await?;
        if let Some(process) = self.living(uuid) {
            // Somebody else was faster, and has resumed it.
            drop(turn);
            return self.redo_living(cause, process, redo, checked).await;
        }
        // Read again: only now does nobody else change it.
        let RecordedFlow { flow, last_ended } = self.recorded_flow(uuid).await?;
        let pid = turn.last_pid().await?.unwrap_or(Pid::RUNTIME);
        let Redo { node, origin, request_id } = redo;
        let mut records = Vec::new();
        if !turn.was_answered(request_id.as_deref()).await? {
            checked.holds(pid, &flow, &node)?;
            let ends = self.lost_ends(&flow).await?;
            let mut next = flow;
            let redo = Event::Redo { slot: node, origin, run: last_ended };
            for event in ends.into_iter().chain([redo]) {
                next.apply(&event).map_err(|rejected| refused(pid, rejected))?;
                records.push(recorded(&event, None)?);
            }
        }
        let resumed = turn.resume_dead(cause, ResumeRequest::default(), request_id, records).await?;
        Ok(resumed.pid.into())
    }

    /// Has a node of a run continue that has not ended. A run that a person paused is resumed with it.
    async fn redo_living(
        self: &Arc<Self>,
        cause: Cause,
        process: ProcessRef,
        redo: Redo,
        checked: Checked,
    ) -> Result<Redone> {
        let (uuid, pid) = (process.uuid, process.of.pid);
        for _ in 0..OPENED_LOOKS {
            if self.living(uuid) != Some(process) {
                break;
            }
            let is_recorded = match self.flows.find(uuid) {
                Some(live) => self.redo_scheduled(process, &live, &redo, &checked).await?,
                None => self.redo_suspended(process, &redo, &checked).await?,
            };
            if is_recorded {
                // The node is recorded: what fails from here on is no refusal.
                let resumed = self.resume_with_node(cause, process).await;
                return Ok(Redone { pid, note: resumed.unwrap_or_else(|error| Some(not_resumed(pid, &redo, &error))) });
            }
            // It is about to run, or to end.
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let message = format!("run {pid} is about to end, so {} cannot be resumed in it now", redo.node);
        let again = command(pid, &redo, &given(&redo.origin));
        Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive wait {pid}; {again}")))
    }

    /// Records it in a run whose body runs; `false` if that has just ended.
    async fn redo_scheduled(
        self: &Arc<Self>,
        process: ProcessRef,
        live: &Arc<LiveFlow>,
        redo: &Redo,
        checked: &Checked,
    ) -> Result<bool> {
        let (uuid, pid) = (process.uuid, process.of.pid);
        let mut flow = live.flow.lock().await;
        if !self.flows.find(uuid).is_some_and(|open| Arc::ptr_eq(&open, live)) {
            return Ok(false);
        }
        let mut turn = self.turn(uuid, Lane::Verb).await?;
        let Redo { node, origin, request_id } = redo.clone();
        if turn.was_answered(request_id.as_deref()).await? {
            return Ok(true);
        }
        checked.holds(pid, &flow, &node)?;
        let event = Event::Redo { slot: node, origin, run: flow.reopened_after() };
        let mut next = flow.clone();
        next.apply(&event).map_err(|rejected| refused(pid, rejected))?;
        turn.write(process.of, self.moment(), vec![recorded(&event, request_id)?]).await?;
        *flow = next;
        live.changed.notify_one();
        Ok(true)
    }

    /// Looks whether the process of a node could continue, before what depends on it begins anew.
    async fn check_redo(self: &Arc<Self>, run: &Process, redo: &Redo) -> Result<Checked> {
        let RecordedFlow { mut flow, last_ended } = self.recorded_flow(run.uuid).await?;
        let last = flow.slot(&redo.node).and_then(|slot| slot.uuid);
        let mut refusal = match last {
            Some(last) => self.check_node(run, last, redo).await.err(),
            None => None,
        };
        if refusal.is_none()
            && let Some(last) = last
        {
            refusal = self.stands_still(&redo.node, last).await;
        }
        if refusal.is_none() && run.dead_at.is_some() {
            let hint = |raise| format!("relive resume {} {raise}", run.uuid);
            refusal = self.stops_again(None, hint, run.uuid, &ResumeRequest::default()).await;
        }
        if refusal.is_some() {
            return Ok(Checked { last, refusal });
        }
        for event in self.lost_ends(&flow).await? {
            flow.apply(&event).map_err(|rejected| refused(run.pid, rejected))?;
        }
        let event = Event::Redo { slot: redo.node.clone(), origin: redo.origin.clone(), run: last_ended };
        let refusal = match flow.apply(&event) {
            Ok(()) => self.lacks_budget(run, &flow, &redo.node).await,
            // That is said when it is applied in earnest.
            Err(_) => None,
        };
        Ok(Checked { last, refusal })
    }

    /// Refuses a node whose process is suspended: it continues by itself, as what it is.
    async fn stands_still(self: &Arc<Self>, node: &str, last: Uuid) -> Option<Error> {
        let pid = self.living(last)?.of.pid;
        let hint = self.suspended_hint(pid).await?;
        let message = format!("node {node} (PID {pid}) has not ended: it is suspended, and continues there");
        Some(Error::new(ErrorCode::Conflict, message).with_hint(hint))
    }

    /// Refuses what the last process of a node cannot do.
    async fn check_node(self: &Arc<Self>, run: &Process, last: Uuid, redo: &Redo) -> Result<()> {
        let Redo { node, origin, .. } = redo;
        match self.presence(last).await? {
            Presence::Here => {}
            Presence::Never => {
                return match origin {
                    // It could not be created, and begins now.
                    Origin::End { .. } => Ok(()),
                    Origin::Fork { .. } => {
                        let message = format!("cannot fork {node}: it was never started");
                        let hint = format!("relive compose resume {} --node {node}", run.pid);
                        Err(Error::new(ErrorCode::Conflict, message).with_hint(hint))
                    }
                };
            }
            Presence::Collected => {
                let message = format!("cannot resume {node}: its process {last} was removed");
                let hint = format!("relive compose status {}", run.pid);
                return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
            }
        }
        let (history, _) = self.on_journal(move |data| data.history(last)).await??;
        let kind = history.identity.as_ref().and_then(|identity| body_of(&identity.spawned.body));
        let body = kind.and_then(|kind| self.bodies.of(kind)).ok_or_else(crate::resume::unknown_body)?;
        let (input, request) = match origin {
            Origin::End { input, limits } => (input, ResumeRequest { limits: *limits, ..ResumeRequest::default() }),
            Origin::Fork { from_step, input, limits } => {
                body.accepts(Verb::Fork)?;
                if let Some(step) = from_step.filter(|step| *step > history.completed_step) {
                    let message = format!("{node} has no step {step}: its last one is {}", history.completed_step);
                    return Err(Error::new(ErrorCode::Invalid, message).with_hint(format!("relive steps {last}")));
                }
                let (fork, from_step) = (Some(last), *from_step);
                (input, ResumeRequest { limits: *limits, fork, from_step, ..ResumeRequest::default() })
            }
        };
        let hint = |raise| again(run.pid, redo, raise);
        if let Some(refusal) = self.stops_again(Some(node), hint, last, &request).await {
            return Err(refusal);
        }
        self.check_limits_of_node(run.pid, last, redo, &request).await?;
        match input {
            Some(_) => body.accepts_message(last, DeliveryTime::NextRun).await,
            None => Ok(()),
        }
    }

    /// Returns the ends of processes that a tree still takes for running, because it ended before they had.
    pub(crate) async fn lost_ends(self: &Arc<Self>, flow: &Flow) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for (slot, uuid) in living(flow) {
            let ProcessEnd { outcome, note, at_end } = match self.presence(uuid).await? {
                Presence::Never => ProcessEnd::of(Outcome::NeverRan, None),
                Presence::Collected => ProcessEnd::of(Outcome::Halted, None),
                Presence::Here => match self.outcome_of(uuid).await? {
                    Some(ended) if self.living(uuid).is_none() => ended,
                    Some(_) | None => continue,
                },
            };
            let result = if flow.wants_result(&slot) { self.result_of(uuid).await } else { None };
            events.push(Event::Ended { slot, uuid, outcome, at_ms: self.wall_ms(), result, note, at_end });
        }
        Ok(events)
    }
}

fn origin_of(id: &str, request: NodeRequest) -> Result<Origin> {
    let NodeRequest { node, fork, from_step, input, limits, env: _ } = request;
    match (fork, from_step) {
        (true, from_step) => Ok(Origin::Fork { from_step, input, limits }),
        (false, None) => Ok(Origin::End { input, limits }),
        (false, Some(step)) => {
            let message = format!("--from-step {step} needs --fork: otherwise {node} continues after its last step");
            let hint = format!("relive compose resume {id} --node {node} --fork --from-step {step}");
            Err(Error::new(ErrorCode::Invalid, message).with_hint(hint))
        }
    }
}

/// Returns the command of a request, with the limits that let the node continue.
fn again(run: Pid, redo: &Redo, raise: Raise) -> String {
    command(run, redo, &format!(" {}", with_given(raise, limits_of(&redo.origin))))
}

/// Returns the limits of a request as options, each after a space.
fn given(origin: &Origin) -> String {
    with_given(Raise::default(), limits_of(origin))
}

fn limits_of(origin: &Origin) -> Limits {
    match origin {
        Origin::End { limits, .. } | Origin::Fork { limits, .. } => *limits,
    }
}

/// Returns the command of a request with other limits: options, each after a space.
fn command(run: Pid, redo: &Redo, limits: &str) -> String {
    let Redo { node, origin, .. } = redo;
    let (fork, from_step, input) = match origin {
        Origin::End { input, .. } => ("", &None, input),
        Origin::Fork { from_step, input, .. } => (" --fork", from_step, input),
    };
    let from_step = from_step.map(|step| format!(" --from-step {step}")).unwrap_or_default();
    let input = input.as_ref().map(|input| format!(" --input {}", quote(input))).unwrap_or_default();
    format!("relive compose resume {run} --node {node}{fork}{from_step}{limits}{input}")
}

/// Says that a run whose node is to continue is still paused.
fn not_resumed(run: Pid, redo: &Redo, error: &Error) -> String {
    let node = &redo.node;
    let hint = error.hint().unwrap_or_else(|| format!("relive resume {run}"));
    format!("run {run} is still paused, so {node} waits for it: {error} ({hint})")
}

pub(super) fn recorded(event: &Event, request_id: Option<String>) -> Result<Body> {
    record(event, request_id).map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))
}

/// Says of a node that has run before why its next run is not up to a person: its process would go on with results that are
/// about to be replaced.
fn not_its_turn(state: &SlotState) -> Option<&'static str> {
    match state {
        SlotState::Waiting => Some("starts again when what it depends on is done"),
        SlotState::Skipped => Some("was skipped: what it depends on did not do its work, and continues first"),
        SlotState::Due { .. }
        | SlotState::Running { .. }
        | SlotState::ToStop { .. }
        | SlotState::Succeeded
        | SlotState::Failed { .. }
        | SlotState::Stopped
        | SlotState::Halted => None,
    }
}

fn refused(pid: Pid, rejected: Rejected) -> Error {
    let hint = format!("relive compose status {pid}");
    let code = match rejected {
        Rejected::NoSuchSlot { .. } => ErrorCode::NotFound,
        Rejected::NotRunning { .. }
        | Rejected::NotStartable { .. }
        | Rejected::NotDue { .. }
        | Rejected::NeverRan(_)
        | Rejected::Runs(_)
        | Rejected::DependentRuns { .. } => ErrorCode::Conflict,
    };
    Error::new(code, format!("cannot resume a node of run {pid}: {rejected}")).with_hint(hint)
}
