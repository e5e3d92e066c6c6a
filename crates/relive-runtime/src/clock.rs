//! Clocks, ids and randomness, which are arguments of the core.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use relive_core::{Moment, Timestamp, Uuid, uuid_v7};
use relive_journal::data::ClockReading;
use rustix::time::{ClockId, clock_gettime};

/// The source of time: the machine's clocks, or those of a test.
pub trait TimeSource: Send + Sync + std::fmt::Debug {
    /// Reads both clocks.
    fn moment(&self) -> Moment;
}

/// Reads the clocks of one boot.
#[derive(Debug, Clone)]
pub struct Clock {
    boot_id: String,
    source: Arc<dyn TimeSource>,
}

#[derive(Debug)]
struct System;

impl TimeSource for System {
    fn moment(&self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = i64::try_from(wall.as_millis()).unwrap_or(0);
        let since = clock_gettime(ClockId::Boottime);
        let up_ms = since.tv_sec.saturating_mul(1000).saturating_add(since.tv_nsec / 1_000_000);
        Moment {
            at: Timestamp::from_millisecond(wall_ms).unwrap_or(Timestamp::UNIX_EPOCH),
            up_ms: u64::try_from(up_ms).unwrap_or(0),
        }
    }
}

impl Clock {
    /// Reads the id of this boot.
    pub fn new() -> io::Result<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self::with(boot_id, Arc::new(System)))
    }

    /// Returns the clock of a boot with another source of time.
    #[must_use]
    pub fn with(boot_id: String, source: Arc<dyn TimeSource>) -> Self {
        Self { boot_id, source }
    }

    /// Returns the id of this boot.
    #[must_use]
    pub fn boot_id(&self) -> String {
        self.boot_id.clone()
    }

    /// Reads both clocks, to the millisecond.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.source.moment()
    }

    /// Reads the wall clock, to the millisecond.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.moment().at
    }

    /// Reads the wall clock and the time since boot together.
    #[must_use]
    pub fn reading(&self) -> ClockReading {
        let Moment { at, up_ms } = self.moment();
        ClockReading { wall: at, since_boot_ms: up_ms, boot_id: self.boot_id() }
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
