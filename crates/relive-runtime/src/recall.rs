//! Completion records from before a restart.
//!
//! The table of a new daemon has only what lives. A process may also name what ended below it within the retention time,
//! and whatever it has a handle to, however long ago that ended. These come back into the table from the index, or from
//! their journals, when a process asks for the first time: a start reads nothing of what ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use relive_core::{Moment, Past, Pid, Rights, Spec, Stopwatch, Table, UsageTotals, Uuid};
use relive_index::{Filter, Order, PAGE_MAX, State};
use relive_journal::ProcInfo;
use relive_journal::data::Known;

use crate::error::Result;
use crate::runtime::Runtime;
use crate::spec;

/// How many ended processes of the last hour are recalled: more than anybody lists, and a bound for the memory.
const RECALLED_MAX: usize = 100_000;

/// How many ancestors of one process are looked for.
const ANCESTORS_MAX: usize = 256;

/// A handle that a journal names, and whose target was not in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedHandle {
    pub(crate) holder: Uuid,
    pub(crate) target: Uuid,
    pub(crate) rights: Rights,
}

/// What is still to be recalled.
#[derive(Debug, Default)]
pub(crate) struct ToRecall {
    handles: std::sync::Mutex<Vec<NamedHandle>>,
    /// Handles to processes that were removed: nothing of these can be recalled.
    gone: std::sync::Mutex<Vec<NamedHandle>>,
    /// Whether what ended lately is in the table. Held while somebody recalls.
    lately: tokio::sync::Mutex<Lately>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Lately {
    #[default]
    Missing,
    Recalled,
}

impl ToRecall {
    pub(crate) fn add(&self, handles: impl IntoIterator<Item = NamedHandle>) {
        self.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(handles);
    }

    /// Returns whether somebody has a handle to a process that was not recalled yet.
    pub(crate) fn names(&self, target: Uuid) -> bool {
        let handles = self.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        handles.iter().any(|handle| handle.target == target)
    }

    /// Returns the handles to processes that were removed.
    pub(crate) fn gone(&self) -> Vec<NamedHandle> {
        self.gone.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn note_gone(&self, handle: NamedHandle) {
        self.gone.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(handle);
    }

    /// Drops a handle that is to be recalled, and keeps recalls away until the guard is dropped: one that is under way
    /// would give the handle back.
    pub(crate) async fn forget(&self, holder: Uuid, target: Uuid) -> impl Drop {
        let guard = self.lately.lock().await;
        for handles in [&self.handles, &self.gone] {
            let mut handles = handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            handles.retain(|handle| (handle.holder, handle.target) != (holder, target));
        }
        guard
    }

    fn open(&self) -> Vec<NamedHandle> {
        self.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Drops a handle that was recalled. Another one to the same process, which was added since, stays.
    fn done(&self, recalled: NamedHandle) {
        let mut handles = self.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(place) = handles.iter().position(|handle| *handle == recalled) {
            handles.remove(place);
        }
    }

    /// Makes the handles to a process that was removed handles to nobody, and keeps recalls away until the guard is
    /// dropped.
    pub(crate) async fn note_removed(&self, target: Uuid) -> impl Drop {
        let guard = self.lately.lock().await;
        let mut handles = self.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for removed in handles.extract_if(.., |handle| handle.target == target) {
            self.note_gone(removed);
        }
        drop(handles);
        guard
    }
}

impl Runtime {
    /// Brings back what a process may name, before it is answered and before handles are listed or changed. What cannot
    /// be read is tried again with the next request.
    pub(crate) async fn recall_ended(self: &Arc<Self>) {
        let mut lately = self.to_recall.lately.lock().await;
        // Each stays in the list until it is in the table: this is dropped where it waits if the client hangs up.
        let handles = self.to_recall.open();
        if handles.is_empty() && *lately == Lately::Recalled {
            // Nothing is seen after its time, not even until the next sweep.
            self.forget_ended();
            return;
        }
        if *lately == Lately::Missing && self.recall_lately().await.is_ok() {
            *lately = Lately::Recalled;
        }
        for handle in handles {
            if self.recall_target(handle.target).await.is_err() {
                continue;
            }
            let mut state = self.lock();
            let (holder, target) = (state.table.current_pid(handle.holder), state.table.current_pid(handle.target));
            match (holder, target) {
                (Some(holder), Some(target)) => state.table.restore_handle(holder, target, handle.rights),
                (Some(_), None) => self.to_recall.note_gone(handle),
                (None, _) => {}
            }
            drop(state);
            self.to_recall.done(handle);
        }
        self.recall_ancestors().await;
        self.forget_ended();
    }

    /// Forgets the completion records whose time is over.
    pub(crate) fn forget_ended(&self) {
        let now = self.moment();
        self.lock().table.sweep(now);
    }

    /// Recalls what ended within the retention time.
    async fn recall_lately(&self) -> Result<()> {
        let retention = Duration::from_millis(self.settings.table.retention_ms);
        let since = self.moment().at.checked_sub(retention).ok();
        let filter = Filter { state: Some(State::Dead), since, ..Filter::default() };
        let (mut after, mut recalled) = (None, 0);
        loop {
            // The newest first: where there are too many, the oldest are left out.
            let page = self.catalog.page(filter.clone(), Order::PidDescending, after, PAGE_MAX).await?;
            recalled += page.rows.len();
            for info in page.rows {
                self.recall(info);
            }
            after = page.next;
            if after.is_none() || recalled >= RECALLED_MAX {
                return Ok(());
            }
        }
    }

    /// Recalls a process that somebody has a handle to, if it has ended.
    async fn recall_target(&self, target: Uuid) -> Result<()> {
        if self.lock().table.current_pid(target).is_none()
            && let Some(row) = self.current_row(target).await?
        {
            self.recall(row.info);
        }
        Ok(())
    }

    fn recall(&self, info: ProcInfo) {
        let now = self.moment();
        let mut state = self.lock();
        let table = &mut state.table;
        if table.current_pid(info.uuid).is_some() {
            return;
        }
        if let Some((past, then)) = past(table, info, now) {
            // A PID that the table knows belongs to somebody else: a journal that cannot be true.
            let _ = table.recall(past, then);
        }
    }

    /// Notes the ancestors of what is in the table, as far as they have ended and are not in the table themselves.
    async fn recall_ancestors(&self) {
        let mut tried: BTreeSet<Uuid> = BTreeSet::new();
        for _ in 0..ANCESTORS_MAX {
            let open: Vec<Uuid> = self.lock().table.unknown_parents().filter(|uuid| !tried.contains(uuid)).collect();
            if open.is_empty() {
                return;
            }
            for uuid in open {
                tried.insert(uuid);
                if let Some(parent) = self.recorded_parent(uuid).await {
                    self.lock().table.note_parent(uuid, parent);
                }
            }
        }
    }

    /// Returns the parent of an ended process, also of one that was removed.
    async fn recorded_parent(&self, uuid: Uuid) -> Option<Uuid> {
        match self.current_row(uuid).await {
            Ok(Some(row)) => row.info.parent_uuid,
            Ok(None) => match self.on_disk(move |data| data.known(uuid)).await {
                Ok(Ok(Known::Collected(tombstone))) => tombstone.parent_uuid,
                Ok(Ok(Known::Here(_) | Known::Never) | Err(_)) | Err(_) => None,
            },
            Err(_) => None,
        }
    }
}

/// Returns what the table has to know of a process that ended, and when it did.
fn past(table: &Table, info: ProcInfo, now: Moment) -> Option<(Past, Moment)> {
    let (pid, end, elapsed_ms) = (*info.pids.last()?, info.end.clone()?, info.elapsed_ms());
    let ended_at = info.dead_at.unwrap_or(info.last_active);
    let ago_ms = u64::try_from(now.at.duration_since(ended_at).as_millis()).unwrap_or_default();
    let then = Moment { at: ended_at, up_ms: now.up_ms.saturating_sub(ago_ms) };
    let parent = info.parent_uuid.and_then(|uuid| table.current_pid(uuid)).unwrap_or(Pid::RUNTIME);
    let (step, spent, ledger) = (info.step, info.spent, info.ledger);
    let spec = Spec {
        pid,
        uuid: info.uuid,
        generation: info.generation,
        parent,
        parent_uuid: info.parent_uuid,
        origin: info.origin,
        body: spec::body_of(&info.body)?,
        name: info.name,
        intent: info.intent,
        intent_cut: info.intent_cut,
        cwd: info.cwd,
        model: info.model,
        limits: info.limits,
        usage: UsageTotals {
            step,
            tokens_in: spent.tokens_in,
            tokens_out: spent.tokens_out,
            cost_usd: spent.cost_usd,
            estimated: crate::view::is_estimated(ledger.as_deref(), spent),
        },
        created_at: info.created_at,
        stopwatch: Stopwatch::stopped(elapsed_ms),
    };
    Some((Past { spec, started_at: info.started_at, ended_at, end, elapsed_ms }, then))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_recalled_handle_does_not_take_one_along_that_was_added_since() {
        let to_recall = ToRecall::default();
        let [holder, target, other] = [1, 2, 3].map(Uuid::from_u128);
        let handle = |rights| NamedHandle { holder, target, rights };
        to_recall.add([handle(Rights::Observer), NamedHandle { target: other, ..handle(Rights::Owner) }]);
        let [recalled, _] = to_recall.open()[..] else { panic!("both are open") };
        to_recall.add([handle(Rights::Controller)]);
        to_recall.done(recalled);
        assert!(to_recall.names(target) && to_recall.names(other));
        drop(to_recall.note_removed(target).await);
        assert_eq!((to_recall.gone(), to_recall.names(target)), (vec![handle(Rights::Controller)], false));
        assert!(to_recall.names(other));
    }
}
