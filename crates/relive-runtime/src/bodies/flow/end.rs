//! The end of the processes of a tree.

use std::sync::Arc;
use std::time::Duration;

use relive_core::{Cause, ErrorCode, Signal, Uuid, Why};

use crate::runtime::{ProcessRef, Runtime};
use crate::signal::SignalOrder;

/// How long all processes of a tree without a body are waited for together when the tree ends.
const END_WITHIN: Duration = Duration::from_secs(20);
/// How often an end is tried if somebody else writes the journal of the child; each attempt waits for two seconds.
const END_ATTEMPTS: u32 = 5;

/// Whether a process was sent the signal that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndSent {
    Yes,
    /// The process does not run, or its journal is being written by somebody else.
    No,
}

impl Runtime {
    /// Ends a process of a tree, and all below it.
    pub(crate) async fn end_child(self: &Arc<Self>, tree: ProcessRef, uuid: Uuid, signal: Signal) -> EndSent {
        let Some(process) = self.living(uuid) else { return EndSent::No };
        let cause = Cause::process(Why::Supervisor, tree.of.pid);
        for _ in 0..END_ATTEMPTS {
            let sent = SignalOrder { cause, ..SignalOrder::new(signal, None) };
            match self.signal_tree(uuid, process.of.pid, sent).await {
                Ok(_) => return EndSent::Yes,
                // Somebody else writes its journal, and will not for long.
                Err(error) if error.code() == ErrorCode::Conflict => {}
                Err(error) => {
                    self.warn_once(format!("{uuid} cannot be ended with its tree: {error}"));
                    return EndSent::No;
                }
            }
        }
        self.warn_once(format!("{uuid} cannot be ended with its tree: its journal is being written"));
        EndSent::No
    }

    /// Kills a process of a tree that was sent TERM a grace period ago and blocks it; any other is killed after its own
    /// grace period.
    pub(crate) async fn kill_if_blocked(self: &Arc<Self>, tree: ProcessRef, uuid: Uuid) {
        let machine = self.machine_of(uuid);
        if machine.is_some_and(|machine| machine.pending().any(|(signal, _)| signal == Signal::Term)) {
            self.end_child(tree, uuid, Signal::Kill).await;
        }
    }

    /// Returns how long a process has to end by itself.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_millis(self.settings.table.grace_ms)
    }

    /// Ends the processes that are left below a tree that ends without a body, with the signal that the tree was told to
    /// end by, and waits for their ends. One that ignores it is killed after its grace.
    pub(super) async fn end_below(self: &Arc<Self>, tree: ProcessRef) {
        let (below, signal) = {
            let state = self.lock();
            let told = state.table.machine(tree.of.pid).and_then(|machine| machine.told_to_end());
            let signal = match told {
                Some((Signal::Term | Signal::Int, _)) => Signal::Term,
                Some((Signal::Kill | Signal::Pause | Signal::Resume, _)) | None => Signal::Kill,
            };
            let pids = state.table.subtree(tree.of.pid);
            let uuid = |pid| state.table.view(pid, self.moment()).map(|view| view.uuid);
            (pids.into_iter().skip(1).filter_map(uuid).collect::<Vec<_>>(), signal)
        };
        let living: Vec<Uuid> = below.into_iter().filter(|uuid| self.living(*uuid).is_some()).collect();
        for uuid in &living {
            self.end_child(tree, *uuid, signal).await;
        }
        let all = async {
            for uuid in living {
                let _ = self.wait(&uuid.to_string(), None).await;
            }
        };
        let _ = tokio::time::timeout(END_WITHIN, all).await;
    }
}
