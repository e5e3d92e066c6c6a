//! When a provider takes calls again.

use hyper::HeaderMap;
use jiff::Timestamp;

/// A wait that an agent would not survive by asking again.
const FAR_SECONDS: i64 = 120;
/// The longest wait that is believed.
const FARTHEST_SECONDS: i64 = 8 * 24 * 3600;

/// Returns when a quota resets, if that is so far away that asking again meanwhile is of no use.
pub(crate) fn far_reset(status: u16, headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    if status != 429 {
        return None;
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let after = text("retry-after").and_then(|text| match text.parse::<i64>() {
        Ok(seconds) => now.checked_add(jiff::SignedDuration::from_secs(seconds)).ok(),
        Err(_) => jiff::fmt::rfc2822::parse(text).ok().map(|at| at.timestamp()),
    });
    let reset = || {
        let seconds = text("anthropic-ratelimit-unified-reset")?.parse().ok()?;
        Timestamp::from_second(seconds).ok()
    };
    let at = after.or_else(reset)?;
    let left = at.duration_since(now).as_secs();
    (far_seconds()..=FARTHEST_SECONDS).contains(&left).then_some(at)
}

fn far_seconds() -> i64 {
    #[cfg(feature = "faults")]
    if std::env::var(crate::FAULTS).is_ok_and(|switches| switches.split(',').any(|switch| switch == "far-is-near")) {
        return 1;
    }
    FAR_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reset_that_is_far_away_is_waited_for() {
        let now: Timestamp = "2026-11-17T12:00:00Z".parse().unwrap();
        let check = |status, name: &'static str, value: &str, expect: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let expect = expect.map(|at| at.parse::<Timestamp>().unwrap());
            assert_eq!(far_reset(status, &headers, now), expect, "{status} {name}: {value}");
        };
        check(429, "retry-after", "3600", Some("2026-11-17T13:00:00Z"));
        check(429, "retry-after", "5", None);
        check(500, "retry-after", "3600", None);
        check(429, "retry-after", "99999999", None);
        check(429, "retry-after", "-5", None);
        check(429, "retry-after", "soon", None);
        check(429, "retry-after", "Tue, 17 Nov 2026 14:00:00 GMT", Some("2026-11-17T14:00:00Z"));
        check(429, "anthropic-ratelimit-unified-reset", "1794920400", Some("2026-11-17T13:00:00Z"));
    }
}
