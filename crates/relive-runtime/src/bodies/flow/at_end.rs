//! What held of a process of a tree at its end, and decides how it is started again.

use std::io;
use std::sync::Arc;

use relive_core::status::MAX_STEPS_EXCEEDED;
use relive_core::{Body, End, Limits, Signal, SuspendReason, Uuid, Why};
use relive_flow::AtEnd;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::{Paused, Signalled};
use relive_journal::{DataDirectory, History};

use crate::error::Result;
use crate::runtime::Runtime;
use crate::spec::body_of;

impl Runtime {
    /// Returns what held of a process that ended so, and was not ended by a person.
    pub(super) async fn at_end(self: &Arc<Self>, uuid: Uuid, end: &End, history: &History) -> Result<AtEnd> {
        let limit = is_at_limit(end, history.limits) || self.is_tree_at_limit(uuid, history).await;
        let paused = self.on_journal(move |data| was_paused(data, uuid)).await??;
        Ok(AtEnd { limit, paused })
    }

    /// Tells whether a tree ended because of a limit of one of its own processes.
    async fn is_tree_at_limit(&self, uuid: Uuid, history: &History) -> bool {
        let body = history.identity.as_ref().map(|identity| identity.spawned.body.as_str());
        match body.and_then(body_of) {
            Some(Body::Compose | Body::Supervisor) => {
                self.recorded_flow(uuid).await.is_ok_and(|recorded| recorded.flow.has_limit_reached())
            }
            Some(Body::Agent | Body::Exec | Body::Cli) | None => false,
        }
    }
}

/// Tells whether a limit ended a process that would end it again at once if it were resumed. Whose budget it is makes no
/// difference: there is none left.
fn is_at_limit(end: &End, limits: Limits) -> bool {
    match end.cause.map(|cause| cause.why) {
        Some(Why::Timeout) => limits.timeout_ms.is_some(),
        Some(Why::Budget) => true,
        Some(
            Why::User
            | Why::Parent
            | Why::Idle
            | Why::Stalled
            | Why::Oom
            | Why::Limit
            | Why::Supervisor
            | Why::DaemonStop
            | Why::HostLost
            | Why::ShimLost
            | Why::Aborted,
        )
        | None => limits.max_steps.is_some() && end.exit().reason == MAX_STEPS_EXCEEDED,
    }
}

/// Reads whether a person had paused a process when it ended, or had asked for that while it waited for something.
fn was_paused(data: &DataDirectory, uuid: Uuid) -> io::Result<bool> {
    let mut reader = Reader::new(data.directory(uuid).steps(), Cursor::default());
    let (mut is_paused, mut has_ended) = (false, false);
    while let Some(item) = reader.next_item()? {
        let Item::Record(entry) = item else { continue };
        match entry.kind.as_str() {
            "paused" => {
                let record: Paused = serde_json::from_str(&entry.line)?;
                is_paused |= record.reason == SuspendReason::User;
            }
            "signalled" => {
                let record: Signalled = serde_json::from_str(&entry.line)?;
                match record.signal {
                    Signal::Pause => is_paused |= record.pending,
                    Signal::Resume => is_paused = false,
                    Signal::Term | Signal::Kill | Signal::Int => {}
                }
            }
            "resumed" => is_paused = false,
            "ended" => has_ended = true,
            "opened" if has_ended => (is_paused, has_ended) = (false, false),
            _ => {}
        }
    }
    Ok(is_paused)
}
