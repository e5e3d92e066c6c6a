//! A node of a paused run that a person has continue: the run is resumed with it.

use std::sync::Arc;

use relive_api::ResumeRequest;
use relive_core::Cause;
use relive_flow::Event;

use super::{Checked, Redo, recorded, refused};
use crate::error::Result;
use crate::owner::Lane;
use crate::runtime::{ProcessRef, Runtime};

impl Runtime {
    /// Records it in a run without a body, which is suspended; `false` if its body is about to run.
    pub(super) async fn redo_suspended(
        self: &Arc<Self>,
        process: ProcessRef,
        redo: &Redo,
        checked: &Checked,
    ) -> Result<bool> {
        let (uuid, pid) = (process.uuid, process.of.pid);
        let mut turn = self.turn(uuid, Lane::Verb).await?;
        if turn.owner.has_body() || self.living(uuid) != Some(process) {
            return Ok(false);
        }
        let Redo { node, origin, request_id } = redo.clone();
        if turn.was_answered(request_id.as_deref()).await? {
            return Ok(true);
        }
        // Nobody starts the body meanwhile: that takes the turn.
        let mut flow = self.recorded_flow(uuid).await?.flow;
        checked.holds(pid, &flow, &node)?;
        let mut records = Vec::new();
        for event in self.lost_ends(&flow).await? {
            flow.apply(&event).map_err(|rejected| refused(pid, rejected))?;
            records.push(recorded(&event, None)?);
        }
        let event = Event::Redo { slot: node, origin, run: flow.reopened_after() };
        flow.apply(&event).map_err(|rejected| refused(pid, rejected))?;
        records.push(recorded(&event, request_id)?);
        turn.write(process.of, self.moment(), records).await?;
        Ok(true)
    }

    /// Resumes a run that is paused, because it would start nothing. Returns what a person has to know then.
    pub(super) async fn resume_with_node(
        self: &Arc<Self>,
        cause: Cause,
        process: ProcessRef,
    ) -> Result<Option<String>> {
        let pid = process.of.pid;
        if self.machine_of(process.uuid).is_none_or(|machine| machine.pause().is_none()) {
            return Ok(None);
        }
        let resumed = self.resume_process(cause, process.uuid, (ResumeRequest::default(), None), None).await?;
        let still_paused = resumed.note.or_else(|| self.still_paused_below(pid));
        let note = format!("PID {pid} was paused and is resumed");
        Ok(Some(still_paused.map_or(note.clone(), |more| format!("{note}; {more}"))))
    }
}
