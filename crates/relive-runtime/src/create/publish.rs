//! The last step of every creation: a process whose journal is on the disk comes into the table.

use std::sync::Arc;

use relive_core::{Pid, Recovered, Refusal, Spec, Table};
use relive_journal::Writer;

use crate::error::Result;
use crate::owner::Turn;
use crate::runtime::ProcessRef;
use crate::subtree::Inherited;
use crate::trees::TreePlace;

impl Turn {
    /// Publishes a process whose journal is on the disk, and starts its body.
    pub(crate) async fn publish_new(&mut self, spec: Spec, writer: Writer) -> Result<()> {
        let of = relive_core::Incarnation { pid: spec.pid, generation: spec.generation };
        let inherited = self.list(spec, writer, |table, spec, _| table.spawn(spec))?;
        self.start_body(of);
        self.deliver_inherited(inherited).await
    }

    /// Publishes a process that was opened again: its body starts, unless it begins paused.
    pub(crate) async fn publish_opened(&mut self, spec: Spec, writer: Writer) -> Result<()> {
        match writer.history().paused {
            Some(_) => self.publish_stopped(spec, writer).await,
            None => self.publish_new(spec, writer).await,
        }
    }

    /// Publishes a process whose first write has a pause, or a signal to the subtree of its parent: as the next daemon would
    /// find it.
    pub(super) async fn publish_stopped(&mut self, spec: Spec, writer: Writer) -> Result<()> {
        let (runtime, now) = (Arc::clone(&self.runtime), self.runtime.moment());
        let process = ProcessRef {
            of: relive_core::Incarnation { pid: spec.pid, generation: spec.generation },
            uuid: self.uuid(),
        };
        let inherited = self.list(spec, writer, |table, spec, recovered| table.recover(spec, recovered, now))?;
        if self.machine().is_some_and(|machine| machine.told_to_end().is_some()) {
            tokio::spawn(async move { runtime.finish_bodiless(process).await });
        }
        self.deliver_inherited(inherited).await
    }

    /// Shows a process in the table, and returns the signal that it is to get.
    fn list(
        &mut self,
        spec: Spec,
        writer: Writer,
        list: impl FnOnce(&mut Table, Spec, Recovered) -> Result<(), Refusal>,
    ) -> Result<Option<Inherited>> {
        let runtime = Arc::clone(&self.runtime);
        let history = writer.history();
        let place = history.identity.as_ref().and_then(|identity| TreePlace::of(&identity.spawned));
        let recovered = crate::recover::recovered(history);
        if history.identity.as_ref().is_some_and(|identity| identity.spawned.workspace.is_some()) {
            runtime.workspaces.claim_own(self.uuid());
        }
        runtime.catalog.tell(history);
        self.hold(writer);
        let mut state = runtime.lock();
        let spec = below_living_parent(&state.table, spec);
        let (parent, pid) = (spec.parent, spec.pid);
        list(&mut state.table, spec, recovered)?;
        // Who spawns a process owns it: its end is remembered as long as they want.
        let _ = state.table.open(relive_core::Holder::Process(parent), pid, relive_core::Rights::Owner);
        if let Some(place) = place {
            state.trees.join(place);
        }
        Ok(state.inherited.take(self.uuid()))
    }

    /// Delivers the signal that the subtree of the parent got while a child was being written.
    async fn deliver_inherited(&mut self, inherited: Option<Inherited>) -> Result<()> {
        if let Some(inherited) = inherited {
            self.deliver_with_subtree(&inherited.order()).await?;
        }
        Ok(())
    }
}

/// A process whose parent has ended is a child of PID 0.
fn below_living_parent(table: &relive_core::Table, spec: Spec) -> Spec {
    let lives = |pid| table.machine(pid).is_some_and(|machine| machine.state() == relive_core::State::Running);
    if spec.parent == Pid::RUNTIME || lives(spec.parent) { spec } else { Spec { parent: Pid::RUNTIME, ..spec } }
}
