//! What a process does to itself: it looks who it is, and ends.

use std::sync::Arc;

use relive_api::{EndSelfRequest, SelfInfo, SignalState};
use relive_core::{End, ErrorCode, Event, Limits, ProcessStatus, State, Uuid};

use crate::error::{Error, Result};
use crate::owner::{Change, Lane};
use crate::records::RecordDetails;
use crate::runtime::Runtime;

/// The longest reason or fault that a process gives.
const TEXT_MAX: usize = 4096;

impl Runtime {
    /// Says who a process is, and what it may still spend.
    pub(crate) async fn self_info(self: &Arc<Self>, uuid: Uuid) -> Result<SelfInfo> {
        let gone = || Error::new(ErrorCode::Conflict, "the process that asks has ended");
        let (mut info, usage, elapsed_ms) = {
            let state = self.lock();
            let pid = state.table.current_pid(uuid).ok_or_else(gone)?;
            let view = state.table.view(pid, self.moment()).ok_or_else(gone)?;
            let limits = state.table.limits(pid).unwrap_or_default();
            let (name, parent_uuid) = (view.name.map(str::to_owned), view.parent_uuid);
            let (blocked, handled, pending) = (Vec::new(), Vec::new(), Vec::new());
            let left = Limits::default();
            let info = SelfInfo { pid, uuid, name, parent_uuid, limits, left, blocked, handled, pending };
            (info, view.step, view.elapsed_ms)
        };
        if let Some(SignalState { blocked, handled, pending, .. }) = self.signal_state(info.pid, None) {
            (info.blocked, info.handled, info.pending) = (blocked, handled, pending);
        }
        let (max_tokens, max_cost_usd) = self.left_to_spend(uuid).await;
        info.left = Limits {
            max_steps: info.limits.max_steps.map(|max| max.saturating_sub(usage)),
            timeout_ms: info.limits.timeout_ms.map(|max| max.saturating_sub(elapsed_ms)),
            max_tokens,
            max_cost_usd,
        };
        Ok(info)
    }

    /// Ends a process as it asks for. On return that is on the disk, and its body is being ended: whoever asked from
    /// inside of it will not read an answer.
    pub(crate) async fn end_self(
        self: &Arc<Self>,
        uuid: Uuid,
        request: EndSelfRequest,
        request_id: Option<String>,
    ) -> Result<()> {
        let end = end_of(request)?;
        let runtime = Arc::clone(self);
        self.to_the_end(async move {
            let request = request_id.map(|id| format!("self:{id}"));
            let mut turn = runtime.turn(uuid, Lane::Urgent).await?;
            let Some(machine) = turn.machine() else { return Ok(()) };
            if turn.was_answered(request.as_deref()).await? {
                return Ok(());
            }
            let mut change = Change::of(machine, RecordDetails { request, ..RecordDetails::default() });
            if change.draft().state() == State::Created && turn.owner.has_body() {
                change.apply(Event::Start, &runtime)?;
            }
            if change.apply(Event::EndSelf(Box::new(end)), &runtime)? {
                turn.commit_signal(change).await?;
            }
            Ok(())
        })
        .await
    }
}

fn end_of(request: EndSelfRequest) -> Result<End> {
    let checked = |text: String| {
        if text.len() > TEXT_MAX {
            return Err(Error::new(ErrorCode::Invalid, format!("a reason has at most {TEXT_MAX} bytes")));
        }
        Ok(text)
    };
    Ok(match request {
        EndSelfRequest::Exit { code, reason } => {
            let reason = reason.map(checked).transpose()?.filter(|reason| !reason.trim().is_empty());
            End { reason: reason.map(Into::into), ..End::of(ProcessStatus::Exited { code: code.into() }) }
        }
        EndSelfRequest::Fault { fault } => {
            let fault = checked(fault)?;
            if fault.trim().is_empty() {
                return Err(Error::new(ErrorCode::Invalid, "the text of the fault is empty"));
            }
            End::of(ProcessStatus::Faulted { fault })
        }
        EndSelfRequest::Abandon => End::of(ProcessStatus::Abandoned),
    })
}
