//! The journal of a process as its body writes it: through the owner, in the order of turns.

use std::sync::Arc;
use std::time::Duration;

use relive_core::{Urgency, UsageTotals};
use relive_journal::conversation::Cut;
use relive_journal::history::{Asked, Permit};
use relive_journal::journal::{Event as JournalEvent, Pending};
use relive_journal::record::Body as Record;
use relive_journal::{Durability, History, Journal, JournalError, Progress, Writer};

use super::BodyOwner;
use crate::owner::{Lane, Owner, Turn};
use crate::runtime::{ProcessRef, Runtime};

/// How long events and deferred records may wait to be written, and written records to be synced.
const SETTLED_WITHIN: Duration = Duration::from_millis(50);

/// A process's journal, through its owner.
#[derive(Debug)]
pub(super) struct OwnedJournal(pub(super) BodyOwner);

impl OwnedJournal {
    async fn turn(&self) -> Result<Turn, JournalError> {
        let turn = self.0.runtime.turn_with(Arc::clone(&self.0.owner), Lane::Own).await;
        // A body of an incarnation that is over has nothing to record any more.
        let is_current = |turn: &Turn| turn.machine().is_some_and(|machine| machine.incarnation() == self.0.process.of);
        turn.ok().filter(is_current).ok_or(JournalError::Held)
    }

    async fn with<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        let mut turn = self.turn().await?;
        let journal = turn.state.journal.as_mut().ok_or(relive_journal::JobLost)?;
        Ok(journal.with(job).await?)
    }
}

impl Journal for OwnedJournal {
    fn append(&self, batch: Vec<Record>, durability: Durability) -> Pending<'_, Result<Progress, JournalError>> {
        Box::pin(async move { self.turn().await?.append(self.0.process, batch, durability).await })
    }

    fn state(&self) -> Pending<'_, Result<Progress, JournalError>> {
        Box::pin(async move {
            let mut turn = self.turn().await?;
            let said = std::mem::take(&mut turn.state.said);
            let journal = turn.state.journal.as_ref().ok_or(relive_journal::JobLost)?;
            Ok(journal.state(said)?)
        })
    }

    fn sync(&self) -> Pending<'_, Result<(), JournalError>> {
        Box::pin(async move { Ok(self.with(Writer::sync).await??) })
    }

    fn permit(&self, call: u32, tool: &str, command: Option<&str>) -> Pending<'_, Result<Permit, JournalError>> {
        let (tool, command) = (tool.to_owned(), command.map(str::to_owned));
        Box::pin(async move {
            let turn = self.turn().await?;
            let journal = turn.state.journal.as_ref().ok_or(relive_journal::JobLost)?;
            Ok(journal.history()?.permit(call, &tool, command.as_deref()))
        })
    }

    fn asked(&self, call: u32) -> Pending<'_, Result<Asked, JournalError>> {
        Box::pin(async move {
            let turn = self.turn().await?;
            let journal = turn.state.journal.as_ref().ok_or(relive_journal::JobLost)?;
            Ok(journal.history()?.asked(call))
        })
    }

    fn conversation(&self) -> Pending<'_, Result<Vec<Record>, JournalError>> {
        Box::pin(async move {
            let mut turn = self.turn().await?;
            turn.state.said.clear();
            turn.state.journal.as_mut().ok_or(relive_journal::JobLost)?.conversation().await
        })
    }

    fn cuts(&self) -> Pending<'_, Result<Vec<Cut>, JournalError>> {
        Box::pin(async move { self.turn().await?.state.journal.as_mut().ok_or(relive_journal::JobLost)?.cuts().await })
    }

    fn event(&self, kind: &'static str, body: serde_json::Value) {
        self.0.runtime.emit(&self.0.owner, kind, body);
    }

    fn checkpoint(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let Ok(mut turn) = self.turn().await else { return };
            // The snapshot is older than the journal with the next record anyway, so it is written only with a checkpoint.
            let Some(journal) = &mut turn.state.journal else { return };
            if journal.checkpoint_if_due().await {
                turn.write_info().await;
            }
        })
    }
}

impl Turn {
    /// Appends records of the body. Nothing new begins once the process was told to stop or to end.
    async fn append(
        &mut self,
        process: ProcessRef,
        batch: Vec<Record>,
        durability: Durability,
    ) -> Result<Progress, JournalError> {
        let begins =
            batch.iter().any(|body| matches!(body, Record::CallStarted(_) | Record::ModelStarted(_) | Record::Flow(_)));
        {
            let state = self.runtime.lock();
            let machine = state.table.machine(process.of.pid).filter(|machine| machine.incarnation() == process.of);
            let told = machine.is_none_or(|machine| machine.pause().is_some() || machine.told_to_end().is_some());
            if begins && told && !self.runtime.only_observes(&state, process) {
                return Err(JournalError::Held);
            }
        }
        if let Some(error) = self.state.unrecorded.take() {
            return Err(error);
        }
        let (now, events) = (self.runtime.moment(), self.owner.take_events());
        let said = std::mem::take(&mut self.state.said);
        let journal = self.state.journal.as_mut().ok_or(relive_journal::JobLost)?;
        journal.append(now, events, batch, durability).await?;
        let standing = journal.state(said)?;
        self.runtime.progressed(process, journal.history()?);
        if durability != Durability::Synced {
            self.runtime.settle_soon(&self.owner);
        }
        self.runtime.changes.ring(process.uuid);
        Ok(standing)
    }
}

impl Runtime {
    /// Tells whether the body of a process only records what a program does.
    fn only_observes(&self, state: &crate::runtime::Published, process: ProcessRef) -> bool {
        let kind = state.table.view(process.of.pid, self.moment()).map(|view| view.body);
        kind.and_then(|kind| self.bodies.of(kind)).is_some_and(crate::bodies::Body::is_observed)
    }

    pub(super) fn progressed(&self, process: ProcessRef, history: &History) {
        self.budgets.progressed(process.uuid, history);
        let mut state = self.lock();
        let _ = state.table.progress(process.of, usage(history), self.moment());
        if let Some(model) = crate::spec::cli_model(history) {
            let _ = state.table.set_model(process.of.pid, &model);
        }
    }

    /// Keeps an event to be written with the next records, or soon.
    pub(crate) fn emit(self: &Arc<Self>, owner: &Arc<Owner>, kind: &'static str, body: serde_json::Value) {
        owner.push_event(JournalEvent { at: self.now(), kind, body });
        self.settle_soon(owner);
    }

    /// Writes events of a process whose journal nobody has open: it is suspended. The turn keeps everybody else away.
    async fn append_events(&self, turn: &Turn, events: Vec<JournalEvent>) {
        if events.is_empty() || turn.machine().is_none() {
            return;
        }
        let uuid = turn.uuid();
        let written = self.on_journal(move |data| data.append_events(uuid, events)).await;
        if let Ok(Err(error)) = written {
            self.warn_once(format!("the events of {uuid} cannot be written: {error}"));
        }
    }

    /// Has everything of a process written that is not in its files yet, and its records synced, soon.
    pub(crate) fn settle_soon(self: &Arc<Self>, owner: &Arc<Owner>) {
        if !owner.claim_settle() {
            return;
        }
        let (runtime, owner) = (Arc::clone(self), Arc::clone(owner));
        tokio::spawn(async move {
            tokio::time::sleep(SETTLED_WITHIN).await;
            let Ok(mut turn) = runtime.turn_with(Arc::clone(&owner), Lane::Own).await else { return };
            owner.release_settle();
            let events = owner.take_events();
            let Some(journal) = &mut turn.state.journal else {
                runtime.append_events(&turn, events).await;
                return runtime.changes.ring(owner.uuid);
            };
            if !events.is_empty() || !journal.is_settled() {
                match journal.settle(events).await {
                    // Until the sync has ended: streams show what is on the disk, and are told then.
                    Ok(()) if !journal.is_settled() => runtime.settle_soon(&owner),
                    Ok(()) => {}
                    Err(error) => {
                        // The body does not wait for this: it is stopped, and suspended for the error.
                        turn.state.unrecorded = Some(error);
                        owner.order(|orders| orders.stop = Some(Urgency::Now));
                    }
                }
            }
            if owner.take_info_due() {
                turn.write_info().await;
            }
            runtime.changes.ring(owner.uuid);
        });
    }
}

/// What a process has used, as the table counts it.
pub(crate) fn usage(history: &History) -> UsageTotals {
    UsageTotals {
        step: history.completed_step,
        tokens_in: history.spent.tokens_in,
        tokens_out: history.spent.tokens_out,
        cost_usd: history.spent.cost_usd,
        estimated: crate::view::is_estimated(Some(&history.ledger), history.spent),
    }
}
