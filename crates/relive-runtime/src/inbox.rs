//! The inbox: what waits for a person, from the table, the journals of those that wait, and the index of the ended.
//!
//! Its cost grows with what is alive and with what nobody has seen yet, never with history.

use std::sync::Arc;

use relive_api::{AckRequest, Acked, INBOX_ENDED_MAX, Inbox, Process, item_of, sort_items};
use relive_core::{End, ErrorCode, Machine, Pid, SuspendReason, Uuid, Why};
use relive_journal::History;
use relive_journal::record::{Acked as AckedRecord, CliTurnState};

use crate::authority::Caller;
use crate::error::{Error, Result};
use crate::lookup::OnDisk;
use crate::owner::{Lane, Turn};
use crate::runtime::Runtime;
use crate::view::of_disk;

/// How long it may take until whoever starts a process waits for its end.
const ATTENDED_MS: u64 = 5_000;

/// Returns whether nobody but a person has started a process.
pub(crate) fn is_root(history: &History) -> bool {
    history.identity.as_ref().is_some_and(|identity| identity.spawned.parent_uuid.is_none())
}

/// Tells whether an end is only the rest of a CLI agent whose work is done: its next message continues the conversation.
fn is_rest(history: &History, end: &End) -> bool {
    let turn = history.cli.as_ref().and_then(|cli| cli.turn.as_ref());
    end.cause.is_some_and(|cause| cause.why == Why::Idle) && turn.is_some_and(|turn| turn.state != CliTurnState::Failed)
}

impl Turn {
    /// Tells whether a person has to be told of an end: of a process that a person started, which that person did not
    /// end, and whose end nobody waits for.
    pub(crate) fn ends_unseen(&self, draft: &Machine) -> bool {
        let Some(history) = self.state.journal.as_ref().and_then(|journal| journal.history().ok()) else {
            return false;
        };
        let is_known = |end: &End| end.cause.is_some_and(|cause| cause.why == Why::User && cause.by == Pid::RUNTIME);
        if !is_root(history)
            || draft.end().is_some_and(is_known)
            || draft.end().is_some_and(|end| is_rest(history, end))
        {
            return false;
        }
        let program = history.identity.as_ref().and_then(|identity| identity.spawned.program.as_ref());
        if program.is_some_and(|program| program.foreground) && history.incarnations.len() == 1 {
            return false;
        }
        let (state, now_ms) = (self.runtime.lock(), self.runtime.moment().up_ms);
        if state.attended.get(&self.uuid()).is_some_and(|since| now_ms.saturating_sub(*since) < ATTENDED_MS) {
            return false;
        }
        state.waiting.get(&draft.incarnation().pid).is_none_or(|waiters| waiters.count == 0)
    }
}

impl Runtime {
    /// Notes that whoever starts a process watches it: its end may come before the request that waits for it.
    /// Only a person's word counts: what a process starts is never an item, and it may name any UUID.
    pub(crate) fn attend(&self, caller: Caller, uuid: Uuid) {
        if caller != Caller::Person {
            return;
        }
        let (mut state, now_ms) = (self.lock(), self.moment().up_ms);
        state.attended.retain(|_, since| now_ms.saturating_sub(*since) < ATTENDED_MS);
        state.attended.insert(uuid, now_ms);
    }

    /// Returns what waits for a person, the oldest that blocks a process first.
    pub async fn inbox(self: &Arc<Self>) -> Result<Inbox> {
        let waiting: Vec<Process> = {
            let state = self.lock();
            let views = state.table.processes(self.moment());
            views
                .filter(|view| {
                    needs_somebody(view.suspend_reason, view.stalled) || self.bodies.cli.agents.has_dialog(view.uuid)
                })
                .map(|view| self.shown(&state, &view))
                .collect()
        };
        let mut items = Vec::new();
        for process in waiting {
            items.extend(item_of(&self.with_waiting(process).await));
        }
        items.extend(self.unrecovered.shown().iter().filter_map(item_of));
        let (ended, is_all) = self.ended_unseen().await;
        items.extend(ended.iter().filter_map(item_of));
        sort_items(&mut items);
        Ok(Inbox { items, incomplete: !is_all })
    }

    /// Adds what a process waits for, where a person has to know it.
    pub(crate) async fn with_waiting(self: &Arc<Self>, process: Process) -> Process {
        let process = self.with_known_budget_hint(process).await;
        if process.suspend_reason.is_some_and(SuspendReason::awaits_answer) {
            self.with_pending_calls(process).await
        } else {
            process
        }
    }

    /// Returns the ended processes that nobody has seen, and whether these are all.
    pub(crate) async fn ended_unseen(self: &Arc<Self>) -> (Vec<Process>, bool) {
        let Ok((rows, is_all)) = self.catalog.unseen(INBOX_ENDED_MAX).await else { return (Vec::new(), false) };
        let state = self.lock();
        let rows = rows.into_iter().filter(|info| {
            let pid = state.table.current_pid(info.uuid);
            // One that was resumed lives, and its row is written when it stops.
            pid.is_none_or(|pid| state.table.machine(pid).is_none_or(|machine| machine.end().is_some()))
        });
        (rows.filter_map(OnDisk::last).map(of_disk).collect(), is_all)
    }

    /// Notes that a person has seen how a process ended.
    pub async fn ack(self: &Arc<Self>, id: &str, request: AckRequest, request_id: Option<String>) -> Result<Acked> {
        // Items are named by more than their process, so that a later one is not acknowledged by mistake.
        let (id, item) = match id.split_once(':') {
            Some((short, _)) => (short.to_owned(), Some(id.to_owned())),
            None => (id.to_owned(), request.item),
        };
        let runtime = Arc::clone(self);
        self.to_the_end(async move {
            let found = runtime.look_up_to_change(&id).await?;
            let (uuid, _) = runtime.identity_of(&found)?;
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            turn.ack(&id, item.as_deref(), request_id).await
        })
        .await
    }
}

/// Tells whether a living process may have an item.
pub(crate) fn needs_somebody(reason: Option<SuspendReason>, stalled: bool) -> bool {
    stalled || reason.is_some_and(|reason| !matches!(reason, SuspendReason::User | SuspendReason::DaemonStop))
}

impl Turn {
    async fn ack(&mut self, id: &str, item: Option<&str>, request_id: Option<String>) -> Result<Acked> {
        let (runtime, uuid, now) = (Arc::clone(&self.runtime), self.uuid(), self.runtime.moment());
        let conflict = |message: String| Error::new(ErrorCode::Conflict, message);
        if let Some(machine) = self.machine() {
            let pid = machine.incarnation().pid;
            let waits = machine.pause().is_some_and(|(_, reason)| reason.awaits_answer());
            let message = format!("cannot acknowledge {id}: it has not ended");
            let hint = if waits { format!("relive resolve {pid}") } else { format!("relive info {pid}") };
            return Err(conflict(message).with_hint(hint));
        }
        let known = self.look(|history| (history.unseen, relive_journal::ProcInfo::of(history))).await?;
        let (is_unseen, info) = known;
        let seen = |changed| Acked { uuid, changed };
        if !is_unseen {
            return Ok(seen(false));
        }
        if let Some(item) = item {
            let current = info.and_then(OnDisk::last).map(of_disk).as_ref().and_then(item_of);
            if current.is_none_or(|current| current.id != item) {
                return Err(conflict(format!("`{item}` is no longer in the inbox")).with_hint("relive inbox"));
            }
        }
        let acked = AckedRecord { req: request_id };
        let history = runtime.on_journal(move |data| data.ack_ended(uuid, acked, now)).await?.map_err(|error| {
            if !matches!(error, relive_journal::WriteError::Busy { .. }) {
                return error.into();
            }
            Error::new(ErrorCode::Unavailable, format!("process {uuid} is in use just now"))
                .with_hint("try again in a moment")
        })?;
        runtime.catalog.tell(&history);
        runtime.changes.ring(uuid);
        Ok(seen(true))
    }
}
