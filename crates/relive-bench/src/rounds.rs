//! Taking the time of two things in turn.

use std::time::{Duration, Instant};

use crate::Result;

/// What ours and its peer came to, round by round.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    ours: Vec<f64>,
    peer: Vec<f64>,
}

impl Rounds {
    pub(crate) fn add(&mut self, ours: f64, peer: f64) {
        self.ours.push(ours);
        self.peer.push(peer);
    }

    pub(crate) fn ours(&self) -> f64 {
        median(self.ours.clone())
    }

    pub(crate) fn peer(&self) -> f64 {
        median(self.peer.clone())
    }

    /// The median of the rounds' own ratios: what slowed a whole round down is not in it.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.ours.iter().zip(&self.peer).map(|(ours, peer)| ours / peer).collect())
    }
}

/// The middle one; not a number where there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How many seconds it takes.
pub(crate) fn seconds<T>(act: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let answer = act()?;
    Ok((start.elapsed().as_secs_f64(), answer))
}

/// The median of `times` goes at it, in seconds.
pub(crate) fn median_seconds(times: usize, mut act: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut each = Vec::with_capacity(times);
    for _ in 0..times {
        each.push(seconds(&mut act)?.0);
    }
    Ok(median(each))
}

/// Waits until `value` stays as it is, so that work in the background of one round is not in the next.
pub(crate) fn wait_until_still<T: PartialEq>(mut value: impl FnMut() -> T) {
    let mut last = value();
    loop {
        std::thread::sleep(Duration::from_millis(10));
        let now = value();
        if now == last {
            return;
        }
        last = now;
    }
}
