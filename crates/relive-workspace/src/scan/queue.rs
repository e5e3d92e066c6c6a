//! A job queue for a few threads, newest first, which keeps few directories open at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Jobs that may add more jobs. The queue is done when no job is left or in progress.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    jobs: Vec<T>,
    active: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(first: T) -> Self {
        Self { state: Mutex::new(State { jobs: vec![first], active: 0, is_closed: false }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job, waiting if necessary; `None` when all are done. Call [`Self::done`] after each.
    pub(super) fn next(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.jobs.pop() {
                state.active += 1;
                return Some(job);
            }
            if state.active == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends a job and adds the jobs that it produced.
    pub(super) fn done(&self, more: Vec<T>) {
        let mut state = self.lock();
        let is_new = !more.is_empty();
        state.jobs.extend(more);
        state.active -= 1;
        if is_new || state.active == 0 {
            self.changed.notify_all();
        }
    }

    /// Ends the work of all threads when the returned guard is dropped. If all jobs are done, this changes nothing.
    pub(super) fn close_on_drop(&self) -> CloseOnDrop<'_, T> {
        CloseOnDrop(self)
    }
}

/// See [`Queue::close_on_drop`].
#[derive(Debug)]
pub(super) struct CloseOnDrop<'a, T>(&'a Queue<T>);

impl<T> Drop for CloseOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}
