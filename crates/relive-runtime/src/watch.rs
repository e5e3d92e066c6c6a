//! Followers of the files of processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use relive_core::Uuid;
use tokio::sync::watch;

use crate::feed::Feed;

/// A notification channel for each process whose files are followed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    bells: Arc<Mutex<HashMap<Uuid, watch::Sender<()>>>>,
    /// Told of every change.
    feed: Feed,
}

impl Changes {
    /// Returns which processes have changed, for readers of all of them.
    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Returns a receiver that is notified whenever the files of the process may have changed.
    pub(crate) fn follow(&self, uuid: Uuid) -> watch::Receiver<()> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        // Channels of processes that never change any more lose their receivers after a while.
        bells.retain(|_, bell| bell.receiver_count() > 0);
        bells.entry(uuid).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Notifies followers that the files have changed. A channel without receivers is removed.
    pub(crate) fn ring(&self, uuid: Uuid) {
        self.feed.note(uuid);
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        if bells.get(&uuid).is_some_and(|bell| bell.send(()).is_err()) {
            bells.remove(&uuid);
        }
    }
}
