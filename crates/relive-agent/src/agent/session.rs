//! Waits for a tool that runs in a session: orders go to the session, and the loop leaves it only frozen or ended.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use relive_types::Signal;

use super::{Exit, Loop, Step, until};
use crate::tool::{Order, Tool, ToolResult};

/// How long an interrupted command of an agent may take to end.
const INT_GRACE: Duration = Duration::from_secs(10);
/// How soon an order is repeated that found no session yet.
const ORDER_AGAIN: Duration = Duration::from_millis(10);

impl Loop {
    /// Waits for the end of the session. An order to end is passed on, and the wait continues until the end. An order
    /// to stop freezes the session and leaves the call open, to be joined when the process resumes.
    pub(super) async fn attend_session(
        &self,
        tool: &Arc<dyn Tool>,
        key: &str,
        act: impl Future<Output = ToolResult>,
    ) -> Step<ToolResult> {
        tokio::pin!(act);
        let mut orders = self.agent.orders.clone();
        let (mut told, mut timed_out, mut patience) = (None, false, None);
        // Whether it was told to stand still, and may do so in part.
        let mut is_held = false;
        loop {
            let now = *orders.borrow_and_update();
            if now.end.is_none() && now.stop.is_some() && now.leave_sessions {
                // Sessions keep running while there is no daemon.
                return Err(Exit::Stopped);
            }
            let order = match (now.end, now.stop) {
                (Some(_), _) | (None, _) if timed_out => Some(Order::End(Signal::Kill)),
                (Some(signal), _) => Some(Order::End(signal)),
                (None, Some(_)) => Some(Order::StandStill),
                (None, None) if is_held => Some(Order::Continue),
                (None, None) => None,
            };
            if let Some(order) = order.filter(|order| told != Some(*order)) {
                // The act is polled in the meantime: an order to a session that is being launched waits for the launch.
                tokio::select! {
                    biased;
                    outcome = &mut act => return Ok(outcome),
                    there_was_one = self.pass_on(tool, key, order) => {
                        if there_was_one && order == Order::StandStill {
                            return Err(Exit::Stopped);
                        }
                        is_held = order == Order::StandStill;
                        if order == Order::Continue {
                            told = None;
                            continue;
                        }
                        told = there_was_one.then_some(order);
                        if told == Some(Order::End(Signal::Int)) {
                            patience = Some(tokio::time::Instant::now() + INT_GRACE);
                        }
                    }
                }
            }
            let again = async {
                match order {
                    Some(order) if told != Some(order) => tokio::time::sleep(ORDER_AGAIN).await,
                    Some(_) | None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                outcome = &mut act => return Ok(outcome),
                changed = orders.changed() => {
                    if changed.is_err() {
                        // Its owner is gone with the daemon. The session is not, and the next daemon joins it.
                        return Err(Exit::Cancelled);
                    }
                }
                // There was no session yet: a launch is never abandoned half-way.
                () = again => {}
                () = until(now.deadline), if !timed_out => timed_out = true,
                // The agent ends, so a command that ignores the interrupt is killed. TERM has its own grace period.
                () = until(patience), if !timed_out => timed_out = true,
            }
        }
    }

    /// Passes an order on. Returns whether there is a session.
    async fn pass_on(&self, tool: &Arc<dyn Tool>, key: &str, order: Order) -> bool {
        tool.order(self.agent.context.clone(), key.to_owned(), order).await
    }
}
