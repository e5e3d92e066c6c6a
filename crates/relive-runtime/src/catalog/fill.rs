//! Fills the index from the data directory, on a thread of its own.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use relive_index::{Error, Index, entries};

use super::{Shared, Standing};

/// How long to wait before a data directory that cannot be listed is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The niceness of the filling thread.
const NICENESS: i32 = 10;
/// How often an index that fails while it is filled is recreated on the disk.
const RENEWALS_MAX: u32 = 3;

/// Starts filling; `false` if there is no thread for it. Called with the queue locked.
pub(super) fn start(shared: &Arc<Shared>) -> bool {
    let filled = Arc::clone(shared);
    let started = thread::Builder::new().name("relive-index-fill".into()).spawn(move || fill(&filled));
    if let Err(error) = &started {
        shared.warnings.warn_once(format!("the index cannot be rebuilt: {error}"));
    }
    started.is_ok()
}

/// Compares until nothing was missed in the meantime.
fn fill(shared: &Arc<Shared>) {
    // For this thread alone: all other work of the daemon takes precedence.
    let _ = rustix::process::nice(NICENESS);
    let mut renewals = 0;
    loop {
        let missed = shared.lock().missed;
        let is_over = || {
            let queue = shared.lock();
            queue.closed || queue.missed != missed
        };
        let Some(index) = shared.index() else {
            shared.lock().is_filling = false;
            return;
        };
        let filled = compare(shared, &index, is_over);
        drop(index);
        shared.tell_set_aside();
        let mut queue = shared.lock();
        if queue.closed {
            return;
        }
        match filled {
            Ok(()) if queue.missed == missed => {
                queue.is_filling = false;
                shared.standing.send_replace(Standing::Complete);
                return;
            }
            Ok(()) | Err(Error::Stopped) => {}
            Err(error @ Error::Data(_)) => {
                shared.warnings.warn_once(format!("the index cannot be rebuilt: {error}"));
                let waited = shared.wake.wait_timeout_while(queue, AGAIN_AFTER, |queue| !queue.closed);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            Err(error) => {
                drop(queue);
                renewals += 1;
                shared.renew(&error, renewals > RENEWALS_MAX);
            }
        }
    }
}

fn compare(shared: &Shared, index: &Index, is_over: impl Fn() -> bool) -> relive_index::Result<()> {
    if index.is_complete()? {
        return index.refresh(&shared.data, is_over).map(drop);
    }
    let until_over = |entry| if is_over() { Err(Error::Stopped) } else { entry };
    index.rebuild(entries(&shared.data).map(until_over))
}
