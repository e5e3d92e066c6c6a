//! Reports to the runtime since when progress is expected of a body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The moment since when progress is expected of a body. Cheap to clone; the body sets it and the runtime reads it.
///
/// Progress is expected while the body waits for the model, and every byte of the answer resets the time. It is not
/// expected while a tool runs, while the body sleeps or waits for a child, until it asks a model again, and while it
/// waits for a budget.
#[derive(Debug, Clone)]
pub struct Pulse {
    began: Instant,
    /// Milliseconds after `began`, plus one; zero while no progress is expected.
    since: Arc<AtomicU64>,
    /// When a model that failed is asked again: milliseconds after `began`, plus one; zero while none is waited for.
    again: Arc<AtomicU64>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { began: Instant::now(), since: Arc::default(), again: Arc::default() }
    }
}

impl Pulse {
    /// Returns since when progress is expected; `None` while it is not.
    #[must_use]
    pub fn owes_since(&self) -> Option<Instant> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        self.began.checked_add(Duration::from_millis(since))
    }

    /// Expects progress until the guard is dropped.
    pub(crate) fn owe(&self) -> Owing<'_> {
        self.move_to_now();
        Owing(self)
    }

    /// Returns when a model that failed is asked again; `None` while none is waited for.
    #[must_use]
    pub fn asks_again_at(&self) -> Option<Instant> {
        let again = self.again.load(Ordering::Relaxed).checked_sub(1)?;
        self.began.checked_add(Duration::from_millis(again))
    }

    /// Says that a model is asked again after so long, until the guard is dropped.
    pub(crate) fn ask_again(&self, after: Duration) -> AskingAgain<'_> {
        let millis = u64::try_from((self.began.elapsed() + after).as_millis()).unwrap_or(u64::MAX - 1);
        self.again.store(millis.saturating_add(1), Ordering::Relaxed);
        AskingAgain(self)
    }

    fn move_to_now(&self) {
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.since.store(millis.saturating_add(1), Ordering::Relaxed);
    }
}

/// Held while progress is expected.
#[derive(Debug)]
pub(crate) struct Owing<'a>(&'a Pulse);

impl Owing<'_> {
    /// Records a sign of life.
    pub(crate) fn alive(&self) {
        self.0.move_to_now();
    }
}

impl Drop for Owing<'_> {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Relaxed);
    }
}

/// Held until a model is asked again.
#[derive(Debug)]
pub(crate) struct AskingAgain<'a>(&'a Pulse);

impl Drop for AskingAgain<'_> {
    fn drop(&mut self) {
        self.0.again.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_is_owed_since_the_last_sign_of_life() {
        let pulse = Pulse::default();
        let began = Instant::now();
        let after = |millis| Some(began + Duration::from_millis(millis));
        assert_eq!(pulse.owes_since(), None);
        let owing = pulse.owe();
        assert_eq!(pulse.owes_since(), after(0));
        tokio::time::advance(Duration::from_millis(700)).await;
        assert_eq!(pulse.clone().owes_since(), after(0));
        owing.alive();
        assert_eq!(pulse.owes_since(), after(700));
        drop(owing);
        assert_eq!(pulse.owes_since(), None);
    }
}
