//! Starts under way: one at a time for each process, until whoever asked for it cancels it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use relive_core::{ErrorCode, Uuid};
use relive_workspace::Control;
use tokio::sync::OwnedMutexGuard;

use super::{Workspaces, lock};
use crate::error::{Error, Result};

/// How many cancelled starts are remembered.
const CANCELLED_MAX: usize = 256;

/// The starts under way, and those that were cancelled.
#[derive(Debug, Default)]
pub(super) struct Starts {
    under_way: HashMap<Uuid, Weak<Start>>,
    /// Oldest first; also of requests that are still to be read.
    cancelled: VecDeque<Uuid>,
}

#[derive(Debug, Default)]
struct Start {
    turn: Arc<tokio::sync::Mutex<()>>,
    cancel: Arc<AtomicBool>,
}

/// Keeps others from starting the same process.
#[derive(Debug)]
pub(crate) struct HeldStart {
    _turn: OwnedMutexGuard<()>,
    _start: Arc<Start>,
}

impl Starts {
    fn find(&mut self, uuid: Uuid) -> Arc<Start> {
        self.under_way.retain(|_, start| start.strong_count() > 0);
        self.under_way.get(&uuid).and_then(Weak::upgrade).unwrap_or_else(|| {
            let cancel = Arc::new(AtomicBool::new(self.cancelled.contains(&uuid)));
            let start = Arc::new(Start { cancel, ..Start::default() });
            self.under_way.insert(uuid, Arc::downgrade(&start));
            start
        })
    }
}

impl Workspaces {
    /// Waits until nobody else creates a process with this UUID, and keeps others from it: the copy that is made for a
    /// request must not be replaced by the copy for the same request, sent again.
    pub(crate) async fn hold_creation(&self, uuid: Uuid) -> HeldStart {
        let start = lock(&self.0.starts).find(uuid);
        HeldStart { _turn: Arc::clone(&start.turn).lock_owned().await, _start: start }
    }

    /// Cancels a start: the work for it ends soon, and [`Self::check_start`] refuses it. One that is past that check is
    /// completed.
    pub(crate) fn cancel_start(&self, uuid: Uuid) {
        let mut starts = lock(&self.0.starts);
        if !starts.cancelled.contains(&uuid) {
            starts.cancelled.push_back(uuid);
        }
        if starts.cancelled.len() > CANCELLED_MAX {
            starts.cancelled.pop_front();
        }
        if let Some(start) = starts.under_way.get(&uuid).and_then(Weak::upgrade) {
            start.cancel.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the work for all starts.
    pub(super) fn cancel_all_starts(&self) {
        let starts = lock(&self.0.starts);
        let under_way = starts.under_way.values().filter_map(Weak::upgrade);
        under_way.for_each(|start| start.cancel.store(true, Ordering::Relaxed));
    }

    /// Refuses to create a process whose start was cancelled.
    pub(crate) fn check_start(&self, uuid: Uuid) -> Result<()> {
        if lock(&self.0.starts).cancelled.contains(&uuid) {
            return Err(Error::new(ErrorCode::Conflict, format!("the start of {uuid} was cancelled")));
        }
        Ok(())
    }

    /// Returns what stops the work for a start when that is cancelled.
    pub(crate) fn control_of_start(&self, uuid: Uuid) -> Control {
        Control::default().with_cancel(self.cancel_flag(uuid))
    }

    pub(super) fn cancel_flag(&self, uuid: Uuid) -> Arc<AtomicBool> {
        let start = lock(&self.0.starts).under_way.get(&uuid).and_then(Weak::upgrade);
        start.map(|start| Arc::clone(&start.cancel)).unwrap_or_default()
    }
}
