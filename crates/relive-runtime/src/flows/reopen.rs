//! A tree that has ended, and continues.

use std::sync::Arc;

use relive_core::{Body, ErrorCode, Uuid};
use relive_flow::{Event, Flow};

use super::RecordedFlow;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::spec::body_of;

/// A tree before and after it is reopened.
#[derive(Debug)]
pub(crate) struct Reopening {
    pub(crate) before: Flow,
    pub(crate) after: Flow,
}

impl Runtime {
    /// Returns what a tree that has ended would do next, if it were resumed.
    pub(crate) async fn reopening(self: &Arc<Self>, uuid: Uuid) -> Result<Reopening> {
        let RecordedFlow { flow, last_ended } = self.recorded_flow(uuid).await?;
        let before = self.with_ends(flow).await?;
        let mut after = before.clone();
        let reopened = after.apply(&Event::Reopened { run: last_ended });
        reopened.map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
        Ok(Reopening { before, after })
    }

    /// Counts the nodes that start again if a tree is resumed; `None` for a process that lives, or is no tree.
    pub(crate) async fn nodes_to_start(self: &Arc<Self>, uuid: Uuid) -> Option<usize> {
        if self.living(uuid).is_some() {
            return None;
        }
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await.ok()?.ok()?;
        match body_of(&history.identity?.spawned.body)? {
            Body::Compose | Body::Supervisor => {
                let after = self.reopening(uuid).await.ok()?.after;
                Some(after.slots().filter(|slot| !slot.state.is_over()).count())
            }
            Body::Agent | Body::Exec | Body::Cli => None,
        }
    }
}
