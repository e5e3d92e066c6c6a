//! Durations as people and models write them: `50ms`, `1.5s`, `1m30s`, `5 minutes`.
//!
//! The command line, the files and the tools of an agent all read them here.

use std::time::Duration;

/// The syntax that [`parse`] expects, for error messages.
pub const EXPECTED: &str = "a duration like \"50ms\", \"10s\", \"1m30s\" or \"2h\"";

const EXAMPLES: &str = "write it like 150ms, 10s, 5m or 1h30m";

/// A hundred years, so that adding a duration to the time cannot overflow.
const LONGEST_MS: u64 = 100 * 366 * 24 * 3600 * 1000;

const UNITS_MS: [(&[&str], u64); 5] = [
    (&["ms", "msec", "msecs", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1000),
    (&["m", "min", "mins", "minute", "minutes"], 60 * 1000),
    (&["h", "hr", "hrs", "hour", "hours"], 3600 * 1000),
    (&["d", "day", "days"], 24 * 3600 * 1000),
];

/// Why a text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A bare number: nobody can tell seconds from milliseconds.
    #[error("a duration needs a unit: {}", EXAMPLES)]
    NoUnit,
    /// It begins with a minus sign.
    #[error("a duration is not negative")]
    Negative,
    /// It is longer than a hundred years.
    #[error("a duration is at most a hundred years")]
    TooLong,
    /// Anything else.
    #[error("not a duration: {}", EXAMPLES)]
    Malformed,
}

/// Parses one or more numbers, each with its unit. Whatever is below a millisecond is dropped.
pub fn parse(text: &str) -> Result<Duration, ParseError> {
    let mut rest = text.trim();
    if rest.starts_with('-') {
        return Err(ParseError::Negative);
    }
    if rest.is_empty() {
        return Err(ParseError::Malformed);
    }
    if rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(ParseError::NoUnit);
    }
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let number = take_while(&mut rest, |c| c.is_ascii_digit() || c == '.');
        rest = rest.trim_start();
        let unit = take_while(&mut rest, |c| c.is_ascii_alphabetic());
        rest = rest.trim_start();
        let unit_ms = UNITS_MS.iter().find(|(names, _)| names.contains(&unit)).map(|(_, ms)| *ms);
        let part_ms = times(number, unit_ms.ok_or(ParseError::Malformed)?)?;
        total_ms = total_ms.checked_add(part_ms).ok_or(ParseError::TooLong)?;
    }
    if total_ms > LONGEST_MS {
        return Err(ParseError::TooLong);
    }
    Ok(Duration::from_millis(total_ms))
}

/// Converts a number of seconds; `None` where [`parse`] would refuse it: negative, not finite or too long.
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

/// Multiplies a decimal number of up to six places by its unit.
fn times(number: &str, unit_ms: u64) -> Result<u64, ParseError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return Err(ParseError::Malformed);
    }
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= 6).ok_or(ParseError::Malformed)?;
    let fraction: u64 = fraction.parse().map_err(|_| ParseError::Malformed)?;
    // Only digits are left, so a number that cannot be parsed is one that does not fit.
    let whole: u64 = whole.parse().map_err(|_| ParseError::TooLong)?;
    let whole_ms = whole.checked_mul(unit_ms).ok_or(ParseError::TooLong)?;
    whole_ms.checked_add(fraction * unit_ms / 10_u64.pow(places)).ok_or(ParseError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<u64, ParseError>) {
        assert_eq!(parse(text), expect.map(Duration::from_millis), "{text:?}");
    }

    #[test]
    fn numbers_with_units_are_added_up() {
        check("50ms", Ok(50));
        check("150ms", Ok(150));
        check("0s", Ok(0));
        check("10s", Ok(10_000));
        check("1.5s", Ok(1500));
        check("5m", Ok(300_000));
        check("1m30s", Ok(90_000));
        check(" 2h ", Ok(7_200_000));
        check("1h30m", Ok(5_400_000));
        check("1h 30m", Ok(5_400_000));
        check("5 minutes", Ok(300_000));
        check("1 hour 30 sec", Ok(3_630_000));
        check("0.0005s", Ok(0));
        check("1.5d", Ok(129_600_000));
        check("36600d", Ok(LONGEST_MS));
    }

    #[test]
    fn bad_durations_are_refused_with_the_reason() {
        for text in ["5", "10", "1.5", " 7 "] {
            check(text, Err(ParseError::NoUnit));
        }
        for text in ["-1s", "-5", " -1h"] {
            check(text, Err(ParseError::Negative));
        }
        for text in ["99999999999999999999d", "36600d1ms", "36601d", "18446744073709551615ms1ms"] {
            check(text, Err(ParseError::TooLong));
        }
        for text in ["", " ", "s", "1.s", ".5s", "1w", "1mo", "1s!", "1.2.3s", "1.0000001s", "soon", "5 parsecs", "1s2"]
        {
            check(text, Err(ParseError::Malformed));
        }
    }

    #[test]
    fn from_seconds_refuses_what_parse_refuses() {
        assert_eq!(from_seconds(0.25), Some(Duration::from_millis(250)));
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(from_seconds(bad), None, "{bad}");
        }
    }
}
