//! Durations as people and models write them: `50ms`, `1.5s`, `1m30s`.

use std::time::Duration;

/// What [`parse`] expects, for its callers' messages.
pub const EXPECTED: &str = "a duration like \"50ms\", \"10s\", \"1m30s\" or \"2h\"";

/// The longest there is: a hundred years, so that adding one to the time cannot overflow.
const LONGEST_MS: u64 = 100 * 366 * 24 * 3600 * 1000;

const UNITS_MS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 3600 * 1000), ("d", 24 * 3600 * 1000)];

/// The duration, to the millisecond; `None` when it is none, or longer than any that makes sense.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total_ms: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = take_while(&mut rest, |c| c.is_ascii_digit() || c == '.');
        let unit = take_while(&mut rest, |c| c.is_ascii_alphabetic());
        let (_, unit_ms) = UNITS_MS.iter().find(|(name, _)| *name == unit)?;
        total_ms = total_ms.checked_add(times(number, *unit_ms)?)?;
    }
    (total_ms <= LONGEST_MS).then(|| Duration::from_millis(total_ms))
}

/// The duration of so many seconds.
#[must_use]
pub fn from_seconds(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    (duration <= Duration::from_millis(LONGEST_MS)).then_some(duration)
}

fn take_while<'a>(rest: &mut &'a str, keep: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
    let (taken, left) = rest.split_at(end);
    *rest = left;
    taken
}

/// A decimal number times a unit, what is below a millisecond dropped.
fn times(number: &str, unit_ms: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 6 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let mut ms = whole.parse::<u64>().ok()?.checked_mul(unit_ms)?;
    if !fraction.is_empty() {
        ms =
            ms.checked_add(fraction.parse::<u64>().ok()? * unit_ms / 10_u64.pow(u32::try_from(fraction.len()).ok()?))?;
    }
    Some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect_ms: Option<u64>) {
        assert_eq!(parse(text), expect_ms.map(Duration::from_millis), "{text}");
    }

    #[test]
    fn a_number_and_a_unit_and_nothing_else() {
        check("50ms", Some(50));
        check("0s", Some(0));
        check("1.5s", Some(1500));
        check("1m30s", Some(90_000));
        check(" 2h ", Some(7_200_000));
        check("0.0005s", Some(0));
        check("1d", Some(86_400_000));
        for bad in
            ["", " ", "5", "s", "1.s", ".5s", "-1s", "1 s", "1w", "1s!", "1.2.3s", "99999999999999999999d", "40000d"]
        {
            check(bad, None);
        }
        assert_eq!(from_seconds(0.25), Some(Duration::from_millis(250)));
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(from_seconds(bad), None, "{bad}");
        }
    }
}
