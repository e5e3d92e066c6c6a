//! Durations as people read them.

use std::time::Duration;

use jiff::Timestamp;

pub(crate) fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `0.4s`, `12s`, `1m05s`, `2h03m`, `3d04h`: two units at most.
pub(crate) fn elapsed(millis: u64) -> String {
    let seconds = millis / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds < 10 => format!("{}.{}s", seconds, millis % 1000 / 100),
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m{:02}s", seconds % 60),
        () if days == 0 => format!("{hours}h{:02}m", minutes % 60),
        () => format!("{days}d{:02}h", hours % 24),
    }
}

/// The time of day, UTC, to the millisecond.
pub(crate) fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_shown() {
        let check = |millis, text: &str| assert_eq!(elapsed(millis), text);
        check(0, "0.0s");
        check(9_960, "9.9s");
        check(59_999, "59s");
        check(65_000, "1m05s");
        check(7_380_000, "2h03m");
        check(273_600_000, "3d04h");
    }
}
