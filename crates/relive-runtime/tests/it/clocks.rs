//! Clocks that only a test moves.

use std::sync::Mutex;

use relive_core::{Moment, Timestamp};
use relive_runtime::TimeSource;

/// Both clocks of a machine, and its boots.
#[derive(Debug)]
pub(crate) struct Clocks(Mutex<Shown>);

#[derive(Debug, Clone, Copy)]
struct Shown {
    wall_ms: i64,
    up_ms: u64,
    boot: u32,
}

impl Default for Clocks {
    fn default() -> Self {
        Self(Mutex::new(Shown { wall_ms: 1_800_000_000_000, up_ms: 5_000_000, boot: 1 }))
    }
}

impl Clocks {
    /// Lets time pass.
    pub(crate) fn pass(&self, ms: u64) {
        let mut shown = self.0.lock().unwrap();
        shown.wall_ms += ms.cast_signed();
        shown.up_ms += ms;
    }

    /// Sets the wall clock forward or back.
    pub(crate) fn jump(&self, ms: i64) {
        self.0.lock().unwrap().wall_ms += ms;
    }

    /// Starts the machine again, which takes so long.
    pub(crate) fn reboot(&self, ms: u64) {
        let mut shown = self.0.lock().unwrap();
        *shown = Shown { wall_ms: shown.wall_ms + ms.cast_signed(), up_ms: 1_000, boot: shown.boot + 1 };
    }

    pub(crate) fn boot_id(&self) -> String {
        format!("boot {}", self.0.lock().unwrap().boot)
    }

    pub(crate) fn up_ms(&self) -> u64 {
        self.0.lock().unwrap().up_ms
    }
}

impl TimeSource for Clocks {
    fn moment(&self) -> Moment {
        let Shown { wall_ms, up_ms, .. } = *self.0.lock().unwrap();
        Moment { at: Timestamp::from_millisecond(wall_ms).unwrap(), up_ms }
    }
}
