//! A tree that has ended, and continues.

use std::sync::Arc;

use relive_core::{ErrorCode, Uuid};
use relive_flow::{Event, Flow};

use super::RecordedFlow;
use crate::error::{Error, Result};
use crate::runtime::Runtime;

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
}
