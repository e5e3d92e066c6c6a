//! Chance that can be had again: the same seed, the same choices.

use std::time::{SystemTime, UNIX_EPOCH};

use relive_core::{Timestamp, Uuid, uuid_v7};

/// A number that whoever runs the test has set.
pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// A seed for a test that nobody wants to repeat.
pub(crate) fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::from(now.subsec_nanos()) ^ (now.as_secs() << 20)
}

/// A splitmix64 generator.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, whose choices do not depend on how far this one is used afterwards.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high - 1`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.between(0, 100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get((self.next() % from.len() as u64) as usize) }
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        let (a, b) = (self.next().to_le_bytes(), self.next().to_le_bytes());
        let mut random = [0; 10];
        random[..8].copy_from_slice(&a);
        random[8..].copy_from_slice(&b[..2]);
        uuid_v7(Timestamp::now(), random)
    }
}
