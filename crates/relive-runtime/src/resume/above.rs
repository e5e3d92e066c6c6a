//! The processes above one that is resumed: what runs below a parent that stands still would wait for it.

use std::sync::Arc;

use relive_api::Resumed;
use relive_core::{Cause, Machine, Pid, Signal, SuspendReason, Why};

use crate::runtime::Runtime;
use crate::signal::SignalOrder;

impl Runtime {
    /// Resumes the ancestors that the user paused of a process that was dead, so that it does not run below a parent that
    /// stands still. A tree that restarts one of its processes resumes nobody else.
    pub(super) async fn with_those_above(
        self: &Arc<Self>,
        resumed: Resumed,
        cause: Cause,
        request: Option<String>,
    ) -> Resumed {
        if cause.why == Why::Supervisor {
            return resumed;
        }
        let sent = SignalOrder { cause, request, ..SignalOrder::new(Signal::Resume, None) };
        let above = self.resume_above(resumed.pid, &sent).await;
        let note = above.last().and_then(|top| self.still_paused_below(*top));
        let mut pids = resumed.pids;
        pids.extend(above);
        let notes: Vec<String> = resumed.note.into_iter().chain(note).collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Resumed { affected: pids.len(), pids, note, ..resumed }
    }

    /// Says how many processes below an ancestor that was resumed with another one stay paused.
    pub(crate) fn still_paused_below(&self, top: Pid) -> Option<String> {
        let state = self.lock();
        let pause = |pid: &Pid| state.table.machine(*pid).and_then(Machine::pause);
        let is_paused = |pid: &Pid| matches!(pause(pid), Some((_, SuspendReason::User)));
        let (count, stay) = match state.table.subtree(top).iter().filter(|pid| is_paused(pid)).count() {
            0 => return None,
            1 => ("1 process".to_owned(), "stays"),
            count => (format!("{count} processes"), "stay"),
        };
        Some(format!("{count} below PID {top} {stay} paused; to resume all: relive resume --subtree {top}"))
    }
}
