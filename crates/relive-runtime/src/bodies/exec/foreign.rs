//! A program whose shim speaks another version of the protocol: it goes on, its end is seen, and it can be killed. To pause it
//! takes a Relive that can talk to its shim.

use std::io;
use std::path::Path;
use std::time::Duration;

use relive_core::Why;
use relive_session::sessions::Sessions;

use super::attend::at;
use crate::bodies::Context;

/// How often such a program is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Stays with a program until its session can be looked at in the usual way: when it has ended, as a rule.
pub(super) async fn stay_with(cx: &mut Context, sessions: &Sessions, path: &Path) -> io::Result<()> {
    cx.owner.started().await;
    let mut timed_out = false;
    loop {
        let orders = *cx.orders.borrow_and_update();
        if orders.end.is_some() {
            // It cannot be asked to end.
            sessions.end_without_shim(path).await?;
        } else if orders.stop.is_some() && !orders.leave_sessions {
            cx.owner.warn(format!("{} cannot be paused: its shim is of another version of Relive", cx.process.uuid));
            cx.owner.resume().await;
        }
        match sessions.find(path).await {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            found => return found.map(|_| ()),
        }
        let deadline = orders.deadline.filter(|_| orders.end.is_none() && !timed_out);
        tokio::select! {
            _ = cx.orders.changed() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = at(deadline) => {
                timed_out = true;
                cx.owner.end_for(Why::Timeout);
            }
        }
    }
}
