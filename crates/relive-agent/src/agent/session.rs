//! Waiting for a tool that runs in a session: orders go to the session, and the loop leaves it only frozen or ended.

use std::future::Future;
use std::sync::Arc;

use relive_types::Signal;

use super::{Exit, Loop, Step, until};
use crate::tool::{Order, Tool, ToolResult};

impl Loop {
    /// Waits for the session's end. An order to end is passed on, and the end waited for; an order to stop freezes the
    /// session and leaves the call open, to be joined when the process goes on.
    pub(super) async fn attend_session(
        &self,
        tool: &Arc<dyn Tool>,
        key: &str,
        act: impl Future<Output = ToolResult>,
    ) -> Step<ToolResult> {
        tokio::pin!(act);
        let mut orders = self.agent.orders.clone();
        let mut told = None;
        loop {
            let now = *orders.borrow_and_update();
            match now.end {
                Some(signal) if told != Some(signal) => {
                    told = Some(signal);
                    if !self.pass_on(tool, key, Order::End(signal)).await {
                        // It was told between its intent and the act, which need not be now.
                        return Err(Exit::Cancelled);
                    }
                }
                Some(_) => {}
                None if now.stop.is_some() => {
                    // Sessions go on while there is no daemon.
                    if !now.leave_sessions {
                        self.pass_on(tool, key, Order::StandStill).await;
                    }
                    return Err(Exit::Stopped);
                }
                None => {}
            }
            tokio::select! {
                biased;
                outcome = &mut act => return Ok(outcome),
                changed = orders.changed() => {
                    if changed.is_err() {
                        // The daemon stops. The session does not, and the next daemon joins it.
                        return Err(Exit::Cancelled);
                    }
                }
                () = until(now.deadline), if told != Some(Signal::Kill) => {
                    told = Some(Signal::Kill);
                    if !self.pass_on(tool, key, Order::End(Signal::Kill)).await {
                        return Err(Exit::TimedOut);
                    }
                }
            }
        }
    }

    /// Whether there was a session to be told.
    async fn pass_on(&self, tool: &Arc<dyn Tool>, key: &str, order: Order) -> bool {
        tool.order(self.agent.context.clone(), key.to_owned(), order).await
    }
}
