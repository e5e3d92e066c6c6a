//! The world's clocks, ids and randomness, which the core is told.

use std::fs;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use relive_core::{Timestamp, Uuid, uuid_v7};
use relive_journal::data::ClockReading;
use rustix::time::{ClockId, clock_gettime};

/// Reads the clocks of one boot.
#[derive(Debug, Clone)]
pub struct Clock {
    boot_id: String,
}

impl Clock {
    /// Reads the id of this boot.
    pub fn new() -> io::Result<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { boot_id })
    }

    /// Returns the id of this boot.
    #[must_use]
    pub fn boot_id(&self) -> String {
        self.boot_id.clone()
    }

    /// The wall clock, to the millisecond.
    pub fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millisecond(i64::try_from(since.as_millis()).unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Reads the wall clock and the time since boot together.
    #[must_use]
    pub fn reading(&self) -> ClockReading {
        let since = clock_gettime(ClockId::Boottime);
        let millis = since.tv_sec.saturating_mul(1000).saturating_add(since.tv_nsec / 1_000_000);
        ClockReading { wall: self.now(), since_boot_ms: u64::try_from(millis).unwrap_or(0), boot_id: self.boot_id() }
    }

    /// Returns a new UUID, version 7.
    #[must_use]
    pub fn new_uuid(&self) -> Uuid {
        let mut random = [0; 10];
        // The kernel's source does not fail once it is seeded, which is long before anybody logs in.
        let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        uuid_v7(self.now(), random)
    }
}
