//! Decides whether a model that failed is asked again, and when.
//!
//! The loop does the waiting. Chance is an argument, so that the same failures with the same chance have the same
//! verdicts.

use std::time::Duration;

use relive_llm::ModelError;
use relive_types::Uuid;

/// How often a model is asked for one answer.
const ATTEMPTS_MAX: u32 = 6;
/// How often an empty answer is accepted as an accident. Each one is billed.
const EMPTY_MAX: u32 = 3;
/// The first wait; each one after it is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait that the provider did not ask for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A longer wait suspends the process.
const FAR: Duration = Duration::from_secs(120);

/// The attempts to get one answer.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    made: u32,
    empty: u32,
}

/// The consequence of a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask again, after this wait.
    Again { after: Duration, error: ModelError },
    /// Ask again, after a wait so long that the process is suspended.
    Later { after: Duration, error: ModelError },
    /// Ask again with another key.
    NeedsCredentials(ModelError),
    /// Do not ask again, for this reason.
    Never(String),
}

impl Attempts {
    /// Returns how many attempts have failed.
    pub(super) fn made(&self) -> u32 {
        self.made
    }

    /// Decides about one more failure. `chance` spreads the retries of processes that failed together.
    pub(super) fn failed(&mut self, error: ModelError, chance: Uuid) -> Verdict {
        self.made += 1;
        let wanted = match &error {
            ModelError::RateLimited { retry_after, .. } | ModelError::Overloaded { retry_after, .. } => *retry_after,
            ModelError::TimedOut { .. } | ModelError::Cut(_) => None,
            ModelError::Unauthorized(_) => return Verdict::NeedsCredentials(error),
            ModelError::Empty(_) => {
                self.empty += 1;
                if self.empty >= EMPTY_MAX {
                    return Verdict::Never(format!("{error} (asked {} times)", self.made));
                }
                None
            }
            // Another endless answer would be billed, too.
            ModelError::TooLong(_) | ModelError::ContextFull(_) | ModelError::Failed(_) | ModelError::BadScript(_) => {
                return Verdict::Never(error.to_string());
            }
        };
        if let Some(after) = wanted.filter(|after| *after > far()) {
            return Verdict::Later { after, error };
        }
        if self.made >= ATTEMPTS_MAX {
            return Verdict::Never(format!("{error} (asked {} times)", self.made));
        }
        // Not before the provider wants it, and not all at the same moment.
        let after = wanted.unwrap_or_default() + self.jittered(chance);
        Verdict::Again { after, error }
    }

    /// Returns between half of the wait and all of it.
    fn jittered(&self, chance: Uuid) -> Duration {
        let doubled = FIRST_WAIT.saturating_mul(1 << (self.made - 1).min(16)).min(WAIT_MAX);
        doubled / 2 + (doubled / 2).mul_f64(f64::from(chance.as_bytes()[15]) / 255.0)
    }
}

fn far() -> Duration {
    #[cfg(feature = "faults")]
    if crate::faults::is_on("far-is-near") {
        return Duration::ZERO;
    }
    FAR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(seconds: Option<u64>) -> ModelError {
        ModelError::RateLimited { text: "slow down".to_owned(), retry_after: seconds.map(Duration::from_secs) }
    }

    /// Returns the waits until it gives up, and the final verdict.
    fn waits(error: &ModelError, chance: u8) -> (Vec<u64>, Verdict) {
        let mut attempts = Attempts::default();
        let mut waits = Vec::new();
        loop {
            match attempts.failed(error.clone(), Uuid::from_bytes([chance; 16])) {
                Verdict::Again { after, .. } => waits.push(u64::try_from(after.as_millis()).unwrap()),
                last @ (Verdict::Later { .. } | Verdict::NeedsCredentials(_) | Verdict::Never(_)) => {
                    return (waits, last);
                }
            }
        }
    }

    #[test]
    fn waits_double_within_their_jitter_and_end_after_six_attempts() {
        let cut = ModelError::Cut("the line broke".to_owned());
        let gave_up = || Verdict::Never("the line broke (asked 6 times)".to_owned());
        assert_eq!(waits(&cut, 0), (vec![500, 1000, 2000, 4000, 8000], gave_up()));
        assert_eq!(waits(&cut, 255), (vec![1000, 2000, 4000, 8000, 16_000], gave_up()));
    }

    #[test]
    fn an_empty_answer_is_retried_twice_and_an_endless_one_never() {
        let empty = ModelError::Empty("it said nothing".to_owned());
        let gave_up = Verdict::Never("it said nothing (asked 3 times)".to_owned());
        assert_eq!(waits(&empty, 0), (vec![500, 1000], gave_up));
        let endless = ModelError::TooLong("it had no end".to_owned());
        assert_eq!(waits(&endless, 0), (vec![], Verdict::Never("it had no end".to_owned())));
    }

    #[test]
    fn a_retry_waits_at_least_as_long_as_the_provider_asks() {
        let (waits, _) = waits(&limited(Some(30)), 0);
        assert_eq!(waits, [30_500, 31_000, 32_000, 34_000, 38_000]);
    }

    #[test]
    fn a_long_wait_suspends_the_process_and_a_hopeless_retry_is_not_made() {
        let first = |error: ModelError| Attempts::default().failed(error, Uuid::nil());
        let after = |seconds| Duration::from_secs(seconds);
        assert!(matches!(first(limited(Some(120))), Verdict::Again { .. }));
        assert_eq!(first(limited(Some(121))), Verdict::Later { after: after(121), error: limited(Some(121)) });
        let key = ModelError::Unauthorized("bad key".to_owned());
        assert_eq!(first(key.clone()), Verdict::NeedsCredentials(key));
        assert_eq!(first(ModelError::ContextFull("too long".to_owned())), Verdict::Never("too long".to_owned()));
    }
}
