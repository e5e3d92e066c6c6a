//! A program whose shim has another version of the protocol: it keeps running, its end is noticed, and it can be
//! killed and resumed. Pausing it, or asking it to end, needs a Relive that can use its shim.

use std::io;
use std::time::Duration;

use relive_core::{Signal, Urgency, Why};
use relive_session::sessions::Sessions;

use super::attend::at;
use crate::bodies::{Context, LiveSession, OTHER_VERSION};

/// How often such a program is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Stays with a program until its session can be handled in the usual way, which is usually when it has ended. A
/// program that was paused before stays frozen, whatever its orders.
pub(super) async fn stay_with(
    cx: &mut Context,
    sessions: &Sessions,
    session: LiveSession,
    mut paused: Option<Urgency>,
) -> io::Result<()> {
    let (uuid, path) = (cx.process.uuid, session.folder.clone());
    cx.owner.started().await;
    cx.session.send_replace(Some(session));
    let mut timed_out = false;
    loop {
        let orders = *cx.orders.borrow_and_update();
        match (orders.end, orders.stop.filter(|_| !orders.leave_sessions)) {
            (Some(signal), _) => {
                if signal != Signal::Kill {
                    cx.owner.warn_once(format!("{uuid} is killed at once and not asked to end: {OTHER_VERSION}"));
                }
                sessions.end_without_shim(&path).await?;
            }
            (None, Some(_)) if paused.is_none() => {
                cx.owner.warn_once(format!("{uuid} cannot be paused: {OTHER_VERSION}"));
                cx.owner.resume().await;
            }
            (None, None) if paused.is_some() => match sessions.thaw_without_shim(&path).await {
                Ok(()) => paused = None,
                // Tried again at the next look.
                Err(error) => cx.owner.warn_once(format!("{uuid} stays frozen until it can be thawed: {error}")),
            },
            (None, Some(_) | None) => {}
        }
        match sessions.find(&path).await {
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
