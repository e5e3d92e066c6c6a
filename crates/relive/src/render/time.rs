//! Durations as people read them.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;

pub(crate) use relive_api::elapsed;

pub(crate) fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a moment in the local time zone.
pub(crate) fn local(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// How long ago: `12s`, `5m`, `3h`, `2d`, one unit.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = u64::try_from(now.duration_since(at).as_secs()).unwrap_or(0);
    match () {
        () if seconds < 60 => format!("{seconds}s"),
        () if seconds < 3600 => format!("{}m", seconds / 60),
        () if seconds < 86_400 => format!("{}h", seconds / 3600),
        () => format!("{}d", seconds / 86_400),
    }
}

/// Date and time of day, to the minute, as the clock on the wall shows it.
pub(crate) fn local_minute(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Time of day, to the minute, in the local time zone.
pub(crate) fn time_of_day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%H:%M").to_string()
}

/// Time of day, to the second, in the local time zone.
pub(crate) fn clock_time(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

/// The format of times in front of lines.
#[derive(Debug, Clone)]
pub(crate) struct Clock(TimeZone);

impl Clock {
    pub(crate) fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// In the time zone of the reader (`TZ`).
    pub(crate) fn local() -> Self {
        Self(TimeZone::system())
    }

    /// Date and time to the millisecond, with the offset from UTC.
    pub(crate) fn moment(&self, at: Timestamp) -> String {
        let format = if self.0 == TimeZone::UTC { "%Y-%m-%dT%H:%M:%S%.3fZ" } else { "%Y-%m-%dT%H:%M:%S%.3f%:z" };
        at.to_zoned(self.0.clone()).strftime(format).to_string()
    }

    /// Date and time to the second, with the offset from UTC.
    pub(crate) fn second(&self, at: Timestamp) -> String {
        let format = if self.0 == TimeZone::UTC { "%Y-%m-%d %H:%M:%SZ" } else { "%Y-%m-%d %H:%M:%S %:z" };
        at.to_zoned(self.0.clone()).strftime(format).to_string()
    }

    /// The time of day to the millisecond.
    pub(crate) fn time(&self, at: Timestamp) -> String {
        let format = if self.0 == TimeZone::UTC { "%H:%M:%S%.3fZ" } else { "%H:%M:%S%.3f" };
        at.to_zoned(self.0.clone()).strftime(format).to_string()
    }
}

/// The beginning of a time that lasts until now: `10m` ago, `22:00` or `2026-11-15 13:00` here, `2026-11-15T12:00:00Z`.
pub(crate) fn parse_since(text: &str) -> Result<Timestamp, String> {
    since(text, Timestamp::now(), &TimeZone::system())
}

fn since(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, String> {
    let ago = text.trim().strip_suffix("ago").filter(|rest| rest.ends_with(' ')).unwrap_or(text);
    if let Ok(ago) = relive_types::duration::parse(ago) {
        return now.checked_sub(ago).map_err(|_| "too long ago".to_owned());
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let here = |at: DateTime| at.to_zoned(zone.clone()).map(|at| at.timestamp());
    let at = match text.parse::<DateTime>() {
        Ok(at) => here(at),
        Err(_) => text.parse::<Time>().and_then(|time| {
            let today = now.to_zoned(zone.clone()).date();
            let at = here(today.to_datetime(time))?;
            // The last time that a clock showed it.
            if at > now { here(today.yesterday()?.to_datetime(time)) } else { Ok(at) }
        }),
    };
    at.map_err(|_| "use a time such as 10m, 2h, 22:00, 2026-11-15 13:00 or 2026-11-15T12:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_as_shown_and_as_typed() {
        let at: Timestamp = "2026-11-15T12:03:04.5Z".parse().unwrap();
        assert_eq!(Clock::utc().moment(at), "2026-11-15T12:03:04.500Z");
        let vienna = Clock(TimeZone::fixed(jiff::tz::offset(1)));
        assert_eq!(vienna.moment(at), "2026-11-15T13:03:04.500+01:00");
        assert_eq!(Clock::utc().second(at), "2026-11-15 12:03:04Z");
        assert_eq!(vienna.second(at), "2026-11-15 13:03:04 +01:00");
        assert_eq!((Clock::utc().time(at).as_str(), vienna.time(at).as_str()), ("12:03:04.500Z", "13:03:04.500"));
        assert_eq!(parse_since("2026-11-15T12:03:04.5Z").unwrap(), at);
        assert!(parse_since("10m").unwrap() < Timestamp::now() && parse_since("2026-11-15 13:00").is_ok());
        assert!(parse_since("10m ago").unwrap() < Timestamp::now() && parse_since(" 1h 30m  ago ").is_ok());
        assert!(parse_since("yesterday").is_err() && parse_since("ago").is_err());
        let at_zone = |text: &str| since(text, at, &vienna.0).unwrap().to_string();
        assert_eq!(at_zone("13:00"), "2026-11-15T12:00:00Z");
        assert_eq!(at_zone("22:00"), "2026-11-14T21:00:00Z", "of the day before");
        assert_eq!(at_zone("2026-11-15 13:00"), "2026-11-15T12:00:00Z");
        assert_eq!(at_zone("2026-11-15"), "2026-11-14T23:00:00Z");
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
