//! The signals that a process blocks and handles itself.

use std::sync::Arc;

use relive_api::{SignalMaskRequest, SignalState};
use relive_core::{Cause, ErrorCode, Pid, Signal, SignalSet, Why};

use super::SignalOrder;
use super::handled::WantedSignals;
use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::owner::{Change, Lane};
use crate::records::RecordDetails;
use crate::runtime::Runtime;

impl Runtime {
    /// Sets which signals a process blocks and handles itself.
    pub async fn set_signal_mask(
        self: &Arc<Self>,
        id: &str,
        request: SignalMaskRequest,
        request_id: Option<String>,
    ) -> Result<SignalState> {
        self.set_signal_mask_for(Cause::runtime(Why::User), id, request, request_id).await
    }

    pub(crate) async fn set_signal_mask_for(
        self: &Arc<Self>,
        cause: Cause,
        id: &str,
        request: SignalMaskRequest,
        request_id: Option<String>,
    ) -> Result<SignalState> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let wanted = WantedSignals::parse(&request)?;
            let request_id = request_id.map(|id| format!("signals:{id}"));
            let found = runtime.look_up_to_change(&id).await?;
            let (uuid, note) = runtime.identity_of(&found)?;
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            let known = turn.was_answered(request_id.as_deref()).await?;
            let living = turn.machine().filter(|_| matches!(found, LookedUp::Living { .. }));
            let Some(machine) = living else {
                let gone = || Error::new(ErrorCode::Conflict, format!("`{id}` has ended and receives no signals"));
                let pid = turn.last_pid().await?.filter(|_| known).ok_or_else(gone)?;
                return Ok(no_signals(pid, note));
            };
            let pid = machine.incarnation().pid;
            let resumed = if known {
                false
            } else {
                let mut change = Change::of(machine, RecordDetails { request: request_id, ..RecordDetails::default() });
                wanted.apply(&mut change, &runtime)?;
                let resumed = change.resumes();
                turn.commit_signal(change).await?;
                resumed
            };
            drop(turn);
            if resumed {
                let sent = SignalOrder { cause, ..SignalOrder::new(Signal::Resume, None) };
                runtime.resume_above(pid, &sent).await;
            }
            // A signal that is no longer blocked may have ended it.
            Ok(runtime.signal_state(pid, note.clone()).unwrap_or_else(|| no_signals(pid, note)))
        })
        .await
    }

    /// Returns the signals that a process blocks and handles.
    pub async fn signal_mask(self: &Arc<Self>, id: &str) -> Result<SignalState> {
        let gone = || Error::new(ErrorCode::Conflict, format!("`{id}` has ended and receives no signals"));
        let LookedUp::Living { process, note } = self.look_up_to_change(id).await? else { return Err(gone()) };
        self.signal_state(process.of.pid, note).ok_or_else(gone)
    }

    pub(crate) fn signal_state(&self, pid: Pid, note: Option<String>) -> Option<SignalState> {
        let state = self.lock();
        let machine = state.table.machine(pid)?;
        let names = |set: SignalSet| Signal::LANDING_ORDER.into_iter().filter(move |signal| set.contains(*signal));
        let words = |signals: &mut dyn Iterator<Item = Signal>| signals.map(|signal| signal.to_string()).collect();
        Some(SignalState {
            pid,
            blocked: words(&mut names(machine.mask())),
            handled: words(&mut names(machine.handlers())),
            pending: words(&mut machine.pending().map(|(signal, _)| signal)),
            note,
        })
    }
}

/// Returns the state of an ended process, which has no signals.
fn no_signals(pid: Pid, note: Option<String>) -> SignalState {
    SignalState { pid, blocked: Vec::new(), handled: Vec::new(), pending: Vec::new(), note }
}
