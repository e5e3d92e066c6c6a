//! Measures the time of two things in turn.

use std::time::{Duration, Instant};

use crate::Result;

/// The measurements of Relive and its peer, round by round.
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

    /// Returns the ratios of the rounds, which are not affected by a slowdown of a whole round.
    pub(crate) fn ratio(&self) -> Ratio {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.peer).map(|(ours, peer)| ours / peer).collect();
        let (low, high) =
            (ratios.iter().copied().fold(f64::NAN, f64::min), ratios.iter().copied().fold(f64::NAN, f64::max));
        Ratio { median: median(ratios), spread: Some((low, high)) }
    }
}

/// The ratio of Relive to its peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    /// NaN if one of the two was not measured.
    pub(crate) median: f64,
    /// The lowest and the highest round, if there was more than one.
    pub(crate) spread: Option<(f64, f64)>,
}

impl Ratio {
    pub(crate) fn inverse(self) -> Self {
        Self { median: 1.0 / self.median, spread: self.spread.map(|(low, high)| (1.0 / high, 1.0 / low)) }
    }
}

impl From<f64> for Ratio {
    fn from(once: f64) -> Self {
        Self { median: once, spread: None }
    }
}

/// Returns the median; NaN for an empty list.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns how many seconds an action takes.
pub(crate) fn seconds<T>(act: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let answer = act()?;
    Ok((start.elapsed().as_secs_f64(), answer))
}

/// Returns the median of `times` runs, in seconds.
pub(crate) fn median_seconds(times: usize, mut act: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut each = Vec::with_capacity(times);
    for _ in 0..times {
        each.push(seconds(&mut act)?.0);
    }
    Ok(median(each))
}

/// Waits until `value` stops changing, so that background work of one round does not affect the next.
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
