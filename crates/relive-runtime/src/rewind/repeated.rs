//! A rewind that was done already, and whose answer did not reach the one who asked.

use std::sync::Arc;

use relive_core::{ErrorCode, SuspendReason};
use relive_workspace::{Grade, Snapshot};

use super::{Goal, Order, Outcome, Target};
use crate::diff::describe;
use crate::error::{Error, Result};
use crate::owner::Turn;
use crate::workspaces::{OnInterrupted, RestoreOrder, from_record};

impl Turn {
    /// Returns what came of an order that the journal has recorded as done: nothing is put back twice, and an undo is not
    /// undone. `None` for a new order.
    pub(super) async fn put_back_before(&mut self, id: &str, order: &Order) -> Result<Option<Outcome>> {
        if !self.was_answered(order.request.as_deref()).await? {
            return Ok(None);
        }
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        let standing = self.standing(id).await?;
        let history = runtime.file_history(uuid).await?;
        let (Some(now), Ok(before)) = (history.last(), history.before_last_verb()) else {
            let message = format!("the files of {id} were put back, and {id} has changed them since");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive steps {id}")));
        };
        let step = match order.to {
            Goal::AfterStep(step) => step,
            Goal::BeforeLastVerb => history.step_with(now).unwrap_or(standing.last_step),
        };
        let restore = self.restore_order(&standing, order, Target { files: now, step })?;
        // Any state will do: it is only compared with the one that was put back.
        let restore = RestoreOrder {
            target: Snapshot { grade: Grade::Exact, ..restore.target },
            expected: Vec::new(),
            on_interrupted: OnInterrupted::Refuse,
            ..restore
        };
        let verified = match runtime.plan_restore(restore, order.caller.clone()).await {
            Ok(found) => found.planned.plan.changes.is_empty(),
            // Nobody knows what is there now.
            Err(Error::Outgrown(_) | Error::Interrupted(_)) => false,
            Err(error) => return Err(error),
        };
        let by_user =
            |machine: relive_core::Machine| machine.pause().is_some_and(|(_, why)| why == SuspendReason::User);
        let paused = self.machine().is_some_and(by_user);
        let workspaces = runtime.workspaces.clone();
        let described = runtime.pools.bulk.run(move || {
            let store = workspaces.store()?;
            describe(&store, &store.diff(&from_record(before), &from_record(now))?)
        });
        let (files, before) = (described.await??, from_record(before).grade);
        let directory = standing.directory;
        Ok(Some(Outcome { uuid, directory, step, before, files, verified, paused, note: None }))
    }
}
