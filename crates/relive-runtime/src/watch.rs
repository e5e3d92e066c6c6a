//! Who follows the files of which process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use relive_core::Uuid;
use tokio::sync::watch;

/// A bell for each process whose files somebody follows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    bells: Arc<Mutex<HashMap<Uuid, watch::Sender<()>>>>,
}

impl Changes {
    /// Rings whenever the files of the process may have changed.
    pub(crate) fn follow(&self, uuid: Uuid) -> watch::Receiver<()> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of processes that never change any more are heard by nobody after a while.
        bells.retain(|_, bell| bell.receiver_count() > 0);
        bells.entry(uuid).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// The files of the process have changed. A bell nobody hears is taken away.
    pub(crate) fn ring(&self, uuid: Uuid) {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        if bells.get(&uuid).is_some_and(|bell| bell.send(()).is_err()) {
            bells.remove(&uuid);
        }
    }
}
