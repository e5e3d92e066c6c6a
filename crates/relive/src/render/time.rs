//! Durations as people type and read them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Reads `150ms`, `10s`, `5m`, `1h30m`. A bare number is refused: nobody knows its unit.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let examples = "say it like 150ms, 10s, 5m or 1h30m";
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("a duration needs a unit: {examples}"));
    }
    let signed: SignedDuration = text.parse().map_err(|_| format!("not a duration: {examples}"))?;
    Duration::try_from(signed).map_err(|_| "a duration is not negative".to_owned())
}

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
    fn durations_as_typed() {
        let check =
            |text: &str, millis: Option<u64>| assert_eq!(parse_duration(text).ok().map(as_millis), millis, "{text}");
        check("150ms", Some(150));
        check("10s", Some(10_000));
        check("5m", Some(300_000));
        check("1h30m", Some(5_400_000));
        check("1h 30m", Some(5_400_000));
        check("0s", Some(0));
        for bad in ["", "10", "-5s", "soon", "5 parsecs", "1mo"] {
            check(bad, None);
        }
    }

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
