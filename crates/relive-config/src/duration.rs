//! Durations as people type them, on the command line and in files.

use std::time::Duration;

use jiff::SignedDuration;

/// Reads `150ms`, `10s`, `5m`, `1h30m`. A bare number is refused: nobody knows its unit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let examples = "say it like 150ms, 10s, 5m or 1h30m";
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("a duration needs a unit: {examples}"));
    }
    let signed: SignedDuration = text.parse().map_err(|_| format!("not a duration: {examples}"))?;
    Duration::try_from(signed).map_err(|_| "a duration is not negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_typed() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(parse_duration(text).ok(), millis.map(Duration::from_millis), "{text}");
        };
        check("150ms", Some(150));
        check("10s", Some(10_000));
        check("5m", Some(300_000));
        check("1h30m", Some(5_400_000));
        check("0s", Some(0));
        check("1h 30m", Some(5_400_000));
        for bad in ["", "10", "-5s", "soon", "5 parsecs", "1mo"] {
            check(bad, None);
        }
    }
}
