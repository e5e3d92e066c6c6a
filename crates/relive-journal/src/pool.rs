//! Threads for blocking I/O, so that no async thread ever waits for the disk.
//!
//! Jobs run beside each other, each on a thread of its own: many journals can be in their `fdatasync` at once, which
//! the file system turns into few commits. Threads are started when jobs wait, up to [`THREADS_MAX`], and end after
//! ten seconds without one. At most [`JOBS_MAX`] jobs wait or run; whoever brings more waits outside, without
//! blocking. When the last handle goes, what was brought is finished.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How many jobs run at once.
pub const THREADS_MAX: usize = 64;
/// How many jobs wait or run.
pub const JOBS_MAX: usize = 1024;
/// How long a thread without a job stays.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// A job did not come to its end: it panicked, or no thread could be started for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a disk job did not come to its end")]
pub struct JobLost;

/// A handle to the threads, cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
    /// Counts the handles, apart from the threads' own.
    _open: Arc<Open>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    wake: Condvar,
    slots: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Jobs for later, the earliest first.
    timers: VecDeque<(Instant, Job)>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("queued", &self.queue.len())
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Open(Arc<Inner>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_all();
    }
}

impl Default for Pool {
    fn default() -> Self {
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            wake: Condvar::new(),
            slots: Arc::new(Semaphore::new(JOBS_MAX)),
        });
        Self { _open: Arc::new(Open(Arc::clone(&inner))), inner }
    }
}

impl Pool {
    /// Runs a job and waits for its answer. Dropping the future does not stop a job that was brought.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, JobLost> {
        let slot = Arc::clone(&self.inner.slots).acquire_owned().await.map_err(|_| JobLost)?;
        let (answer, answered) = oneshot::channel();
        self.bring(slot, move || {
            // The one who asked may have gone.
            let _ = answer.send(job());
        });
        answered.await.map_err(|_| JobLost)
    }

    /// Brings a job nobody waits for; `false` when there is no room.
    pub fn try_spawn(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let Ok(slot) = Arc::clone(&self.inner.slots).try_acquire_owned() else { return false };
        self.bring(slot, job);
        true
    }

    fn bring(&self, slot: OwnedSemaphorePermit, job: impl FnOnce() + Send + 'static) {
        let mut state = self.inner.lock();
        state.queue.push_back(Box::new(move || {
            job();
            drop(slot);
        }));
        let short = state.queue.len() > state.idle;
        self.inner.staff(&mut state, short);
    }

    /// Runs a job after a while. The caller bounds how many there are.
    pub(crate) fn spawn_after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        let due = Instant::now() + delay;
        let mut state = self.inner.lock();
        let place = state.timers.partition_point(|(other, _)| *other <= due);
        state.timers.insert(place, (due, Box::new(job)));
        let short = state.threads == 0;
        self.inner.staff(&mut state, short);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has somebody look at what was brought: a new thread if there are too few, else one that is idle.
    fn staff(self: &Arc<Self>, state: &mut State, short: bool) {
        if short && state.threads < THREADS_MAX {
            let inner = Arc::clone(self);
            let started = thread::Builder::new().name("relive-disk".into()).spawn(move || inner.work());
            match started {
                Ok(_) => state.threads += 1,
                // With no thread at all nobody would ever answer: dropping the jobs tells those who wait.
                Err(_) if state.threads == 0 => {
                    state.queue.clear();
                    state.timers.clear();
                }
                Err(_) => {}
            }
        }
        self.wake.notify_one();
    }

    fn work(&self) {
        while let Some(job) = self.next_job() {
            // A panic loses this job's answer and nothing else.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// The next job; `None` when the thread shall end, and is no longer counted.
    fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            let now = Instant::now();
            let due = state.timers.front().map(|(due, _)| *due);
            if due.is_some_and(|due| state.closed || due <= now) {
                return state.timers.pop_front().map(|(_, job)| job);
            }
            if state.closed {
                state.threads -= 1;
                return None;
            }
            let patience = due.map_or(IDLE_MAX, |due| due.saturating_duration_since(now).min(IDLE_MAX));
            state.idle += 1;
            let (guard, timeout) = self.wake.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            let needed = !state.queue.is_empty() || (!state.timers.is_empty() && state.idle == 0);
            if timeout.timed_out() && !needed {
                state.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_beside_each_other_and_a_panic_loses_only_itself() {
        let pool = Pool::default();
        let (sender, receiver) = mpsc::channel();
        let barrier = Arc::new(std::sync::Barrier::new(8));
        assert!(pool.try_spawn(|| panic!("on purpose")));
        for number in 0..8 {
            let (sender, barrier) = (sender.clone(), Arc::clone(&barrier));
            // Each waits for all the others: on fewer threads than eight this never ends.
            assert!(pool.try_spawn(move || {
                barrier.wait();
                sender.send(number).unwrap();
            }));
        }
        let mut seen: Vec<i32> = (0..8).map(|_| receiver.recv().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let pool = Pool::default();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (sender, receiver) = mpsc::channel();
        for _ in 0..JOBS_MAX {
            let (gate, sender) = (Arc::clone(&gate), sender.clone());
            assert!(pool.try_spawn(move || {
                drop(gate.lock());
                sender.send(()).unwrap();
            }));
        }
        assert!(!pool.try_spawn(|| {}));
        drop(closed);
        (0..JOBS_MAX).for_each(|_| receiver.recv().unwrap());
    }

    #[test]
    fn what_was_brought_is_finished_when_the_last_handle_goes() {
        let pool = Pool::default();
        let (sender, receiver) = mpsc::channel();
        let later = sender.clone();
        pool.spawn_after(Duration::from_secs(3600), move || later.send("later").unwrap());
        assert!(pool.try_spawn(move || sender.send("now").unwrap()));
        assert_eq!(receiver.recv().unwrap(), "now");
        drop(pool);
        assert_eq!(receiver.recv().unwrap(), "later");
    }
}
