//! Questions of a program that keeps running while it waits for the answer.

use relive_core::{Event, SuspendReason, Timestamp, Urgency, Usd};
use relive_journal::record::{Body as Record, CliRecord, ResumedBy};

use super::BodyOwner;
use crate::error::{Error, Result};
use crate::owner::{Change, Lane, Turn};
use crate::records::RecordDetails;

/// What is left to spend; without a limit if absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    pub(crate) tokens: Option<u64>,
    pub(crate) cost: Option<Usd>,
    /// Whether ancestors spend of it, too.
    pub(crate) is_shared: bool,
}

/// How a process stands that was told to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// How urgently it is to stop, until it has.
    pub(crate) pausing: Option<Urgency>,
    /// The same while it waits for an answer, because somebody paused it meanwhile.
    pub(crate) kept: Option<Urgency>,
    /// Whether it is suspended until a person answers. Its programs are not stopped for that.
    pub(crate) waits_for_answer: bool,
}

impl BodyOwner {
    /// Returns why the process is to stand still, or does.
    fn pause_reason(&self) -> Option<SuspendReason> {
        let state = self.runtime.lock();
        state.table.machine(self.process.of.pid)?.pause().map(|(_, reason)| reason)
    }

    /// Tells whether the process is to stand still, or does.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause_reason().is_some()
    }

    /// Tells how urgently the process is to stand still, until it does.
    pub(crate) fn is_pausing(&self) -> Option<Urgency> {
        let state = self.runtime.lock();
        state.table.machine(self.process.of.pid)?.urgency()
    }

    /// Returns how the process stands that was told to stop, at one moment; `None` if it is not known any more.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let state = self.runtime.lock();
        let machine = state.table.machine(self.process.of.pid)?;
        let waits_for_answer = machine.pause().is_some_and(|(_, reason)| reason.awaits_answer());
        let kept = machine.kept_urgency().filter(|_| waits_for_answer);
        Some(Standing { pausing: machine.urgency(), kept, waits_for_answer })
    }

    /// Suspends everything, because nothing can be recorded.
    pub(crate) async fn disk_full(&self) {
        self.runtime.disk_full().await;
    }

    /// Tells whether the process may spend anything. Its account is open then.
    pub(crate) async fn has_budget(&self) -> bool {
        self.runtime.reserve(self.process.uuid, 0, Usd::default()).await
    }

    /// Returns what is left to spend of its limits and those of its ancestors.
    pub(crate) async fn left_to_spend(&self) -> Left {
        let (tokens, cost) = self.runtime.left_to_spend(self.process.uuid).await;
        Left { tokens, cost, is_shared: self.runtime.budgets.is_shared(self.process.uuid) }
    }

    /// Returns the signal by which the process was told to end.
    pub(crate) fn told_to_end(&self) -> Option<relive_core::Signal> {
        let state = self.runtime.lock();
        let machine = state.table.machine(self.process.of.pid)?;
        machine.told_to_end().map(|(signal, _)| signal)
    }

    /// Records a question, and suspends the process until it is answered. One that is suspended already, or has to end,
    /// only has the records.
    pub(crate) async fn ask(&self, records: Vec<Record>, reason: SuspendReason) -> Result<()> {
        let (mut turn, mut change) = self.begin_change(records).await?;
        if change.draft().pause().is_none() {
            change.apply(Event::Suspend { reason, urgency: Urgency::Now }, &self.runtime)?;
            change.apply(Event::BoundaryReached, &self.runtime)?;
        }
        turn.commit(change).await
    }

    /// Records that a question needs no answer any more, and ends the wait for it.
    pub(crate) async fn withdraw(&self, records: Vec<Record>) -> Result<()> {
        let (mut turn, mut change) = self.begin_change(records).await?;
        change.details.resumed_by = ResumedBy::Withdrawn;
        let reason = change.draft().pause().map(|(_, reason)| reason).filter(|reason| reason.awaits_answer());
        if let Some(reason) = reason {
            turn.end_pause(&mut change, reason)?;
        }
        turn.commit(change).await
    }

    /// Suspends the process for a reason of its own, until a moment if there is one, with the records that say why. A process
    /// that is suspended already, has to end, or has budget again stays as it is, and only has the records.
    pub(crate) async fn suspend(
        &self,
        records: Vec<Record>,
        reason: SuspendReason,
        resume_at: Option<Timestamp>,
    ) -> Result<()> {
        let (mut turn, mut change) = self.begin_change(records).await?;
        let draft = change.draft();
        let is_stopped = draft.pause().is_some() || draft.told_to_end().is_some();
        // Somebody may have raised the limit since it was found to be reached.
        let has_more = || self.runtime.budgets.exhausted(self.process.uuid).is_none();
        if is_stopped || (reason == SuspendReason::BudgetExceeded && has_more()) {
            return if change.first.is_empty() { Ok(()) } else { turn.commit(change).await };
        }
        change.details.resume_at = resume_at;
        change.apply(Event::Suspend { reason, urgency: Urgency::Boundary }, &self.runtime)?;
        let pid = self.process.of.pid;
        if let (Some(resume_at), Some((asked_at, _))) = (resume_at, change.draft().pause()) {
            self.runtime.lock().set_alarm(pid, resume_at, asked_at);
        }
        let committed = turn.commit(change).await;
        if committed.is_err() {
            self.runtime.lock().alarms.remove(&pid);
        }
        committed
    }

    /// Records that the body waits for a place in which to execute, or has one, and stops or starts the time of the process.
    pub(crate) async fn set_queued(&self, is_queued: bool) -> Result<()> {
        let record = Record::Cli(CliRecord { queued: Some(is_queued), ..CliRecord::default() });
        let (mut turn, mut change) = self.begin_change(vec![record]).await?;
        if change.draft().is_queued() == is_queued {
            return Ok(());
        }
        change.apply(if is_queued { Event::Queue } else { Event::Admit }, &self.runtime)?;
        turn.commit(change).await?;
        let deadline = turn.deadline();
        self.owner.order(|orders| orders.deadline = deadline);
        if !is_queued {
            self.runtime.start_heartbeat();
        }
        Ok(())
    }

    async fn begin_change(&self, records: Vec<Record>) -> Result<(Turn, Change)> {
        let turn = self.runtime.turn_with(std::sync::Arc::clone(&self.owner), Lane::Own).await?;
        let machine = turn.machine().filter(|machine| machine.incarnation() == self.process.of);
        let over = || Error::new(relive_core::ErrorCode::Conflict, "the process has ended");
        let mut change = Change::of(machine.ok_or_else(over)?, RecordDetails::default());
        change.first = records;
        Ok((turn, change))
    }
}
