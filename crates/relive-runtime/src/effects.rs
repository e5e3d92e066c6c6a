//! Carrying out what the table asks for.

use std::collections::VecDeque;
use std::sync::Arc;

use relive_agent::Orders;
use relive_config::StallPolicy;
use relive_core::{Effect, Effects, Incarnation, Pid, ReleaseEvent, Signal, SuspendReason, Urgency};
use serde_json::json;

use crate::runtime::{Runtime, State, Who};

impl Runtime {
    /// Carries effects out, in their order, and those that follow from them. Nothing here waits.
    pub(crate) fn carry_out(self: &Arc<Self>, state: &mut State, effects: Effects) {
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            queue.extend(self.carry_out_one(state, effect));
        }
    }

    fn carry_out_one(self: &Arc<Self>, state: &mut State, effect: Effect) -> Effects {
        match effect {
            Effect::Launch { of } => self.launch(state, of),
            Effect::AskToEnd { of, signal } => self.order_end(state, of, signal),
            Effect::Kill { of } => self.order_end(state, of, Signal::Kill),
            Effect::ArmGrace { of, deadline } => self.arm_grace(of, deadline),
            // A native agent has no handlers of its own.
            Effect::Handle { .. } => {}
            Effect::Stop { of, urgency } => {
                let leave_sessions = state.stopping;
                order(state, of.pid, |orders| {
                    orders.stop = Some(urgency);
                    orders.leave_sessions = leave_sessions;
                });
            }
            Effect::GoOn { of } => {
                if !order(state, of.pid, |orders| orders.stop = None) {
                    self.launch(state, of);
                }
            }
            Effect::Suspended { of } | Effect::Reparented { of, from: _ } => self.ring(state, of.pid),
            Effect::SuspendedBelow { ancestor, of, count, reason } => {
                self.tell(state, ancestor, "suspended_below", json!({"pid": of, "count": count, "reason": reason}));
            }
            Effect::Stalled { of } => return self.stalled(state, of),
            Effect::Ended { of } => {
                if let Some(uuid) = self.uuid_of(state, of.pid) {
                    state.trees.leave(uuid);
                    self.ledger.close(uuid);
                }
                if let Some(waiting) = state.waiting.remove(&of.pid) {
                    waiting.notify_waiters();
                }
            }
            Effect::Reap { of } => return state.table.reap(of.pid, self.now()).unwrap_or_default(),
            Effect::Cancel { of } => {
                state.bodies.remove(&of.pid);
                state.ready.remove(&of.pid);
                return self.released(state, of, ReleaseEvent::Cancelled);
            }
            // The body reports its end as the last thing it does, so there is nothing left to wait for.
            Effect::Join { of } => return self.released(state, of, ReleaseEvent::Joined),
            Effect::TakeDebugChannel { of } => self.ring(state, of.pid),
            Effect::CloseDebugChannel { of } => return self.released(state, of, ReleaseEvent::Closed),
            Effect::FreeContext { of } => {
                state.placeholders.remove(&of.pid);
                return self.released(state, of, ReleaseEvent::Freed);
            }
            Effect::Dead { .. } | Effect::Left { .. } => self.bodies_changed.notify_waiters(),
        }
        Effects::new()
    }

    fn released(&self, state: &mut State, of: Incarnation, event: ReleaseEvent) -> Effects {
        state.table.released(of, event, self.now()).unwrap_or_default()
    }

    /// Tells a body to end; one that is not there is ended here.
    fn order_end(self: &Arc<Self>, state: &mut State, of: Incarnation, signal: Signal) {
        if order(state, of.pid, |orders| orders.end = Some(signal)) {
            return;
        }
        if let Some(uuid) = self.uuid_of(state, of.pid) {
            tokio::spawn(Arc::clone(self).finish(Who { of, uuid }));
        }
    }

    fn arm_grace(self: &Arc<Self>, of: Incarnation, deadline: relive_core::Timestamp) {
        let runtime = Arc::clone(self);
        let left = deadline.duration_since(self.now()).unsigned_abs();
        tokio::spawn(async move {
            tokio::time::sleep(left).await;
            let mut state = runtime.lock();
            if let Ok(effects) = state.table.grace_expired(of, runtime.now()) {
                runtime.carry_out(&mut state, effects);
            }
        });
    }

    fn stalled(self: &Arc<Self>, state: &mut State, of: Incarnation) -> Effects {
        self.tell(state, of.pid, "stalled", json!({}));
        let now = self.now();
        let reached = match self.settings.stalled_policy {
            StallPolicy::Warn => return Effects::new(),
            StallPolicy::Pause => state.table.suspend(of.pid, SuspendReason::User, Urgency::Now, now),
            StallPolicy::Kill => {
                let cause = relive_core::Cause::kernel(relive_core::Why::Idle);
                state.table.signal(of.pid, Signal::Term, cause, now)
            }
        };
        reached.map(|reached| reached.effects).unwrap_or_default()
    }

    /// Has an event written by the process's own body, if it has one.
    fn tell(&self, state: &State, pid: Pid, kind: &'static str, body: serde_json::Value) {
        if let Some(handle) = state.bodies.get(&pid) {
            // An agent whose inbox is full has more urgent things to hear.
            let _ = handle.inbox.try_send(relive_agent::Letter::Event { kind, body });
        }
    }

    pub(crate) fn uuid_of(&self, state: &State, pid: Pid) -> Option<relive_core::Uuid> {
        state.table.view(pid, self.now()).map(|view| view.uuid)
    }

    fn ring(&self, state: &State, pid: Pid) {
        if let Some(uuid) = self.uuid_of(state, pid) {
            self.changes.ring(uuid);
        }
    }
}

/// Changes the orders of a body; `false` if it has none.
fn order(state: &State, pid: Pid, change: impl FnOnce(&mut Orders)) -> bool {
    state.bodies.get(&pid).is_some_and(|handle| {
        handle.orders.send_modify(change);
        true
    })
}
