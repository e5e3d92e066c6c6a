//! What a tree looks like.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_api::{Exit, FlowKind, FlowStatus, NodeStatus, Process, ResumeRequest, reason_word};
use relive_core::{ErrorCode, Pid, SuspendReason, Uuid};
use relive_flow::{Decision, Definition, Flow, Run, SlotState, SlotStatus};

use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// Nodes that wait only for a place.
struct NoRoom {
    slots: Vec<String>,
    why: String,
}

/// Why a node does not continue by itself.
enum Standstill {
    /// It reached a limit, and would be restarted otherwise.
    NotRestarted,
    /// It reached a limit.
    AtLimit(Uuid),
    Suspended(Pid),
}

impl Standstill {
    fn of(flow: &Flow, node: &NodeStatus) -> Option<Self> {
        // A person may have continued it by itself.
        if flow.is_at_limit(&node.name) && node.pid.is_none() {
            return Some(Self::NotRestarted);
        }
        let slot = flow.slot(&node.name)?;
        match (slot.state, node.pid) {
            (SlotState::Failed { .. }, None) if slot.at_end.limit => slot.uuid.map(Self::AtLimit),
            (_, Some(pid)) => Some(Self::Suspended(pid)),
            (_, None) => None,
        }
    }
}

impl Runtime {
    /// Returns the state of a tree and of its nodes.
    pub(crate) async fn flow_status(self: &Arc<Self>, id: &str) -> Result<FlowStatus> {
        self.reload_settings().await;
        let process = self.flow_process(id).await?;
        let uuid = process.uuid;
        let live = self.flows.find(uuid);
        let recorded = match &live {
            // Ends are in its journal a little later, and reading that takes longer the longer it is.
            Some(live) => live.flow.lock().await.clone(),
            None => self.recorded_flow(uuid).await?.flow,
        };
        let was_over: Vec<bool> = recorded.slots().map(|slot| slot.state.is_over()).collect();
        let flow = if live.is_some() { recorded } else { self.with_ends(recorded).await? };
        let is_over = process.exit.is_some();
        let no_room = live.as_ref().and_then(|_| self.no_room(&flow));
        let state = match process.exit {
            Some(exit) if exit.code == 0 => "succeeded".to_owned(),
            Some(_) => "failed".to_owned(),
            None => process.display,
        };
        let (kind, on) = match flow.definition() {
            Definition::Compose(file) => {
                let name = |place: usize| file.nodes[place].name.clone();
                let on = file.nodes.iter().map(|node| node.depends_on.iter().map(|on| name(on.node)).collect());
                (FlowKind::Compose, on.collect::<Vec<Vec<String>>>())
            }
            Definition::Supervisor(file) => (FlowKind::Supervisor, vec![Vec::new(); file.children.len()]),
        };
        let nodes = flow.slots().zip(was_over).zip(on).map(|((slot, was_over), depends_on)| {
            // Its end comes with the end of the run, and so after the last record of the run. A node that waited then is not
            // skipped: it waits again when the run is resumed.
            let would_wait = !was_over && *slot.state == SlotState::Skipped;
            let has_ended_with_it = is_over && (would_wait || !slot.state.is_over());
            let slot = if has_ended_with_it { SlotStatus { state: &SlotState::Halted, ..slot } } else { slot };
            let refusal = live.as_ref().zip(slot.state.living()).and_then(|(live, uuid)| live.attempts.refusal(uuid));
            let status = NodeStatus { reason: reason_of(&flow, &slot), ..self.node_status(&flow, &slot, depends_on) };
            match refusal {
                Some(_) => NodeStatus { state: SlotState::Waiting.word().to_owned(), reason: refusal, ..status },
                None => {
                    let waits = no_room.as_ref().filter(|no_room| no_room.slots.iter().any(|name| name == slot.name));
                    let reason = waits.map(|no_room| no_room.why.clone()).or(status.reason);
                    NodeStatus { reason: reason.or_else(|| self.why_paused(status.pid?)), ..status }
                }
            }
        });
        let mut nodes: Vec<NodeStatus> = nodes.collect();
        for node in &mut nodes {
            match Standstill::of(&flow, node) {
                Some(Standstill::NotRestarted) => self.tell_limit(process.pid, node).await,
                Some(Standstill::AtLimit(uuid)) => {
                    node.hint = self.limit_hint(process.pid, &node.name, uuid).await;
                }
                Some(Standstill::Suspended(pid)) => node.hint = self.suspended_hint(pid).await,
                None => {}
            }
        }
        let is_lost = process.suspend_reason == Some(SuspendReason::NeedsCredentials);
        let lost = is_lost.then(|| "its environment is lost: resume it in a shell that has it".to_owned());
        let reason =
            process.suspend_reason.filter(|_| !is_over).map(|reason| lost.unwrap_or_else(|| suspended(reason)));
        let resume = match (is_over, &reason) {
            (true, _) => self.resume_command(process.pid, uuid).await,
            (false, Some(_)) => self.suspended_hint(process.pid).await,
            (false, None) => None,
        };
        Ok(FlowStatus { uuid, pid: process.pid, kind, state, nodes, reason, resume })
    }

    /// Says of a node that a limit has ended why it is not restarted, and how it continues.
    async fn tell_limit(self: &Arc<Self>, tree: Pid, node: &mut NodeStatus) {
        let Some(uuid) = node.uuid else { return };
        let hint = match self.limit_hint(tree, &node.name, uuid).await {
            None => self.hint_below(uuid).await,
            hint => hint,
        };
        // Its process was removed, or has continued by itself since.
        let Some(hint) = hint else { return };
        let reason = node.reason.as_deref().unwrap_or("it reached a limit");
        node.reason = Some(format!("{reason}; it is not restarted, because it would end again at once"));
        node.hint = Some(hint);
    }

    /// Returns the command that has a child of a supervisor continue, if the supervisor has ended because of it; `None` for
    /// other processes.
    fn hint_below(self: &Arc<Self>, supervisor: Uuid) -> BoxFuture<'_, Option<String>> {
        let hint = async move {
            let status = self.flow_status(&supervisor.to_string()).await.ok()?;
            status.nodes.into_iter().find_map(|node| node.hint)
        };
        hint.boxed()
    }

    /// Returns the command that has a process continue, if that is suspended.
    pub(super) async fn suspended_hint(self: &Arc<Self>, pid: Pid) -> Option<String> {
        let process = {
            let state = self.lock();
            let view = state.table.view(pid, self.moment())?;
            let reason = view.suspend_reason?;
            if reason.awaits_answer() {
                return Some(format!("relive resolve {pid}"));
            }
            self.shown(&state, &view)
        };
        let process = self.with_waiting(process).await;
        let answer = relive_api::item_of(&process).and_then(|item| item.answers.into_iter().next());
        let command = answer.map(|answer| answer.command).or(process.hint);
        Some(command.unwrap_or_else(|| format!("relive resume {pid}")))
    }

    /// Returns the command that has a tree continue that has ended; `None` if nothing would start.
    async fn resume_command(self: &Arc<Self>, pid: Pid, uuid: Uuid) -> Option<String> {
        match self.stops_at_once(&pid.to_string(), uuid, &ResumeRequest::default()).await {
            Some(refusal) => refusal.hint(),
            None if self.recorded_flow(uuid).await.is_ok_and(|read| never_succeeds(&read.flow)) => None,
            None => self.nodes_to_start(uuid).await.filter(|nodes| *nodes > 0).map(|_| format!("relive resume {pid}")),
        }
    }

    /// Returns the nodes that would start now if there were room, and why there is none.
    fn no_room(&self, flow: &Flow) -> Option<NoRoom> {
        let places = self.live.now().trees.children_max;
        let running = flow.slots().filter(|slot| slot.state.living().is_some()).count();
        if running < places {
            return None;
        }
        let starts = flow.decide(self.wall_ms(), usize::MAX).into_iter().filter_map(|decision| match decision {
            Decision::Start { slot, .. } => Some(slot),
            Decision::Stop { .. } | Decision::Wait { .. } | Decision::Finish(_) => None,
        });
        let way_out = match flow.definition().fits(places) {
            Ok(()) => "",
            // Those never end before the others.
            Err(_) => "; services keep their places, so raise it in config.yaml",
        };
        let (one, many) = match flow.definition() {
            Definition::Compose(_) => ("node runs", "nodes run"),
            Definition::Supervisor(_) => ("child runs", "children run"),
        };
        let run = if running == 1 { one } else { many };
        let why = format!("{running} {run}, and limits.max_children is {places}{way_out}");
        Some(NoRoom { slots: starts.collect(), why })
    }

    /// Adds the ends of processes that a tree without a body has not recorded yet.
    pub(crate) async fn with_ends(self: &Arc<Self>, mut flow: Flow) -> Result<Flow> {
        for event in self.lost_ends(&flow).await? {
            flow.apply(&event).map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
        }
        Ok(flow)
    }

    /// Returns the process of a tree, and refuses any other.
    pub(super) async fn flow_process(self: &Arc<Self>, id: &str) -> Result<Process> {
        let mut process = self.process_in_brief(id).await?;
        if process.successor_pid.is_some() {
            // The PID of an earlier run of it: what its nodes do now belongs to the last one.
            process = self.process_in_brief(&process.uuid.to_string()).await?;
        }
        if matches!(process.body, relive_core::Body::Compose | relive_core::Body::Supervisor) {
            return Ok(process);
        }
        let message = format!("PID {} is neither a run of a compose file nor a supervisor", process.pid);
        Err(Error::new(ErrorCode::Invalid, message).with_hint(format!("relive info {}", process.pid)))
    }

    /// Says why the process of a node does not run.
    fn why_paused(&self, pid: Pid) -> Option<String> {
        let (_, reason) = self.lock().table.machine(pid)?.pause()?;
        Some(suspended(reason))
    }

    fn node_status(&self, flow: &Flow, slot: &SlotStatus<'_>, depends_on: Vec<String>) -> NodeStatus {
        NodeStatus {
            name: slot.name.to_owned(),
            state: slot.state.word().to_owned(),
            uuid: slot.uuid,
            pid: slot.uuid.and_then(|uuid| self.living(uuid)).map(|process| process.of.pid),
            exit: exit_of(flow, slot),
            starts: slot.starts,
            depends_on,
            reason: None,
            hint: None,
        }
    }
}

/// Says why a process is suspended.
fn suspended(reason: SuspendReason) -> String {
    if reason == SuspendReason::User {
        return "paused".to_owned();
    }
    format!("suspended: {}", reason_word(reason).replace('_', " "))
}

/// Says why a node is in its state, if that needs a reason.
pub(crate) fn reason_of(flow: &Flow, slot: &SlotStatus<'_>) -> Option<String> {
    let note = || slot.note.map(str::to_owned);
    match slot.state {
        SlotState::Failed { .. } | SlotState::Stopped => note().or_else(|| exit_of(flow, slot).map(|exit| exit.reason)),
        SlotState::Halted => note().or_else(|| Some(with_tree(flow).to_owned())),
        // Why it is tried again.
        SlotState::Due { .. } => note(),
        SlotState::Skipped => flow.unmet(slot.name).map(|on| format!("{} {}", on.name, on.state.word())),
        SlotState::Waiting | SlotState::Running { .. } | SlotState::ToStop { .. } | SlotState::Succeeded => None,
    }
}

fn with_tree(flow: &Flow) -> &'static str {
    match flow.definition() {
        Definition::Compose(_) => "ended with the run",
        Definition::Supervisor(_) => "ended with the supervisor",
    }
}

/// How the process of a node ended, if it had one and that has.
pub(crate) fn exit_of(flow: &Flow, slot: &SlotStatus<'_>) -> Option<Exit> {
    let exit = |code, usual: &str| Exit { code, reason: slot.note.unwrap_or(usual).to_owned(), err: None };
    match slot.state {
        SlotState::Succeeded => Some(exit(0, "completed")),
        SlotState::Failed { code } => Some(exit(*code, "failed")),
        SlotState::Stopped => Some(exit(1, "stopped")),
        SlotState::Halted => (slot.starts > 0).then(|| exit(1, with_tree(flow))),
        SlotState::Waiting
        | SlotState::Due { .. }
        | SlotState::Running { .. }
        | SlotState::ToStop { .. }
        | SlotState::Skipped => None,
    }
}

/// Tells whether a node would fail again however often it is started: files of an earlier version could have a result in a
/// command, and that is not started any more.
fn never_succeeds(flow: &Flow) -> bool {
    let is_refused = |slot: &SlotStatus<'_>| match (slot.state, flow.work_of(slot.name)) {
        (SlotState::Failed { .. }, Some(Run::Task(task))) => task.result_in_command,
        (_, Some(Run::Task(_) | Run::Supervisor(_)) | None) => false,
    };
    flow.slots().any(|slot| is_refused(&slot))
}

/// Returns the nodes of a flow whose process has not ended, as far as the flow knows.
pub(crate) fn living(flow: &Flow) -> Vec<(String, Uuid)> {
    flow.slots().filter_map(|slot| Some((slot.name.to_owned(), slot.state.living()?))).collect()
}

#[cfg(test)]
mod tests {
    use relive_flow::file::Work;
    use relive_flow::{AtEnd, ComposeFile, Event, Outcome, Start};

    use super::*;

    #[test]
    fn a_node_whose_command_has_a_result_is_not_worth_a_resume() {
        let check = |argument: &str, expect: bool| {
            let text = "nodes: {a: {command: [a]}, b: {command: [b], depends_on: [a]}}";
            let mut file = ComposeFile::parse("f", text).unwrap();
            // As an earlier version has recorded it.
            file.nodes[1].task.work = Work::Exec { command: vec!["echo".to_owned(), argument.to_owned()] };
            let mut flow = Flow::new(Definition::Compose(file));
            for (slot, number, outcome) in [("a", 1, Outcome::Succeeded), ("b", 2, Outcome::Failed { code: 126 })] {
                assert!(!never_succeeds(&flow));
                let (slot, uuid) = (slot.to_owned(), Uuid::from_u128(number));
                flow.apply(&Event::Starting { slot: slot.clone(), uuid, start: Start::New }).unwrap();
                let (result, note, at_end) = (None, None, AtEnd::default());
                flow.apply(&Event::Ended { slot, uuid, outcome, at_ms: 0, result, note, at_end }).unwrap();
            }
            assert_eq!(never_succeeds(&flow), expect, "{argument}");
        };
        check("{{ nodes.a.result }}", true);
        check("hello", false);
    }
}
