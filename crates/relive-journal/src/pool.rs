//! Threads for blocking I/O, so that no async thread ever waits for the disk.
//!
//! A pool serves one class of work with its own limits, so that work of one class never waits behind another's. Jobs
//! run concurrently, each on a thread of its own: many journals can be in their `fdatasync` at once, which the file
//! system turns into few commits. A thread is started when a job finds none idle, up to the limit of the pool, and then
//! stays: an idle thread waits without a timeout, and the one that became idle last gets the next job. A caller with
//! more jobs than the pool accepts waits outside, without blocking. When the last handle is dropped, accepted jobs are
//! finished.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

/// How many jobs of the default pool run at once.
pub const THREADS_MAX: usize = 64;
/// How many jobs of the default pool may wait or run.
pub const JOBS_MAX: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// A job did not finish: it panicked, no thread could be started for it, or it took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a disk job did not finish")]
pub struct JobLost;

/// A handle to the threads of one class of work, cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
    /// Counts the handles, without those of the threads.
    _open: Arc<Open>,
}

#[derive(Debug)]
struct Inner {
    name: &'static str,
    threads_max: usize,
    jobs: AtomicU64,
    state: Mutex<State>,
    slots: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    /// Jobs that found every thread busy.
    queue: VecDeque<Job>,
    /// Threads without a job, the one that became idle last at the end.
    idle: Vec<Arc<Seat>>,
    threads: usize,
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

/// The place where an idle thread waits for its next job.
#[derive(Default)]
struct Seat {
    next: Mutex<Option<Next>>,
    wake: Condvar,
}

enum Next {
    Job(Job),
    End,
}

impl Seat {
    fn give(&self, next: Next) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
        self.wake.notify_one();
    }

    fn wait(&self) -> Next {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(next) = next.take() {
                return next;
            }
            next = self.wake.wait(next).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[derive(Debug)]
struct Open(Arc<Inner>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.idle.drain(..).for_each(|seat| seat.give(Next::End));
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new("relive-disk", THREADS_MAX, JOBS_MAX)
    }
}

impl Pool {
    /// Creates a pool whose threads have this name. At most `threads_max` jobs run, and `jobs_max` run or wait.
    #[must_use]
    pub fn new(name: &'static str, threads_max: usize, jobs_max: usize) -> Self {
        let slots = Arc::new(Semaphore::new(jobs_max));
        let inner = Arc::new(Inner { name, threads_max, jobs: AtomicU64::new(0), state: Mutex::default(), slots });
        Self { _open: Arc::new(Open(Arc::clone(&inner))), inner }
    }

    /// Returns the limit of concurrent jobs.
    #[must_use]
    pub fn threads_max(&self) -> usize {
        self.inner.threads_max
    }

    /// Returns how many jobs were accepted so far.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        self.inner.jobs.load(Ordering::Relaxed)
    }

    /// Runs a job and waits for its answer. Dropping the future does not stop an accepted job.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, JobLost> {
        let slot = Arc::clone(&self.inner.slots).acquire_owned().await.map_err(|_| JobLost)?;
        let (answer, answered) = oneshot::channel();
        self.bring(Box::new(move || {
            // The caller may be gone.
            let _ = answer.send(job());
            drop(slot);
        }));
        answered.await.map_err(|_| JobLost)
    }

    /// Runs a job and waits for its answer. The closure that the job returns runs after that, on the same thread.
    pub async fn run_then<T: Send + 'static, F: FnOnce() + 'static>(
        &self,
        job: impl FnOnce() -> (T, F) + Send + 'static,
    ) -> Result<T, JobLost> {
        let slot = Arc::clone(&self.inner.slots).acquire_owned().await.map_err(|_| JobLost)?;
        let (answer, answered) = oneshot::channel();
        self.bring(Box::new(move || {
            let (value, then) = job();
            let _ = answer.send(value);
            then();
            drop(slot);
        }));
        answered.await.map_err(|_| JobLost)
    }

    /// Runs a job and waits for its answer, but at most this long. A job that takes longer keeps its thread.
    pub async fn run_within<T: Send + 'static>(
        &self,
        patience: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JobLost> {
        tokio::time::timeout(patience, self.run(job)).await.unwrap_or(Err(JobLost))
    }

    /// Submits a job that nobody waits for; returns `false` if the pool is full.
    pub fn try_spawn(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let Ok(slot) = Arc::clone(&self.inner.slots).try_acquire_owned() else { return false };
        self.bring(Box::new(move || {
            job();
            drop(slot);
        }));
        true
    }

    /// Takes a boxed job: a generic method would be compiled once more for each kind of job.
    fn bring(&self, job: Job) {
        self.inner.jobs.fetch_add(1, Ordering::Relaxed);
        let mut state = self.inner.lock();
        if let Some(seat) = state.idle.pop() {
            drop(state);
            seat.give(Next::Job(job));
            return;
        }
        state.queue.push_back(job);
        if state.threads < self.inner.threads_max {
            let inner = Arc::clone(&self.inner);
            match thread::Builder::new().name(inner.name.into()).spawn(move || inner.work()) {
                Ok(_) => state.threads += 1,
                // Without any thread nobody would ever answer: dropping the jobs notifies their callers.
                Err(_) if state.threads == 0 => state.queue.clear(),
                Err(_) => {}
            }
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let seat = Arc::new(Seat::default());
        while let Some(job) = self.next_job(&seat) {
            // A panic loses only the answer of this job.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Returns the next job; `None` when there will be no more.
    fn next_job(&self, seat: &Arc<Seat>) -> Option<Job> {
        let mut state = self.lock();
        if let Some(job) = state.queue.pop_front() {
            return Some(job);
        }
        if state.closed {
            return None;
        }
        state.idle.push(Arc::clone(seat));
        drop(state);
        match seat.wait() {
            Next::Job(job) => Some(job),
            // Jobs accepted before the last handle was dropped were given to an idle thread, or are in the queue of the
            // busy ones: nothing is left for this thread.
            Next::End => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_concurrently_and_a_panic_affects_only_its_own_job() {
        let pool = Pool::default();
        let (sender, receiver) = mpsc::channel();
        let barrier = Arc::new(std::sync::Barrier::new(8));
        assert!(pool.try_spawn(|| panic!("on purpose")));
        for number in 0..8 {
            let (sender, barrier) = (sender.clone(), Arc::clone(&barrier));
            // Each waits for all the others: with fewer than eight threads this never ends.
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
    fn a_pool_accepts_no_more_jobs_than_its_limit() {
        let pool = Pool::new("test", 2, 16);
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (sender, receiver) = mpsc::channel();
        for _ in 0..16 {
            let (gate, sender) = (Arc::clone(&gate), sender.clone());
            assert!(pool.try_spawn(move || {
                drop(gate.lock());
                sender.send(()).unwrap();
            }));
        }
        assert!(!pool.try_spawn(|| {}));
        drop(closed);
        (0..16).for_each(|_| receiver.recv().unwrap());
        assert!(pool.inner.lock().threads <= 2);
    }

    #[test]
    fn sequential_jobs_use_one_thread() {
        let pool = Pool::default();
        for _ in 0..100 {
            let (sender, receiver) = mpsc::channel();
            assert!(pool.try_spawn(move || sender.send(()).unwrap()));
            receiver.recv().unwrap();
            // The thread has answered; it is idle a moment later.
            while pool.inner.lock().idle.is_empty() {
                thread::yield_now();
            }
        }
        assert_eq!(pool.inner.lock().threads, 1, "none was started while one was idle");
    }

    #[test]
    fn accepted_jobs_finish_after_the_last_handle_is_dropped() {
        let pool = Pool::new("test", 1, 16);
        let (sender, receiver) = mpsc::channel();
        let (gate, opened) = mpsc::channel::<()>();
        assert!(pool.try_spawn(move || {
            let _ = opened.recv();
        }));
        assert!(pool.try_spawn(move || sender.send("queued").unwrap()));
        let inner = Arc::downgrade(&pool.inner);
        drop(pool);
        drop(gate);
        assert_eq!(receiver.recv().unwrap(), "queued");
        while inner.strong_count() > 0 {
            thread::yield_now();
        }
    }

    #[tokio::test]
    async fn a_job_that_takes_too_long_is_abandoned() {
        let pool = Pool::new("test", 1, 16);
        let (gate, opened) = mpsc::channel::<()>();
        let stuck = pool.run_within(Duration::from_millis(1), move || opened.recv().is_ok()).await;
        assert_eq!(stuck, Err(JobLost));
        drop(gate);
        assert_eq!(pool.run_within(Duration::from_secs(60), || 7).await, Ok(7), "the next one has the thread again");
    }
}
