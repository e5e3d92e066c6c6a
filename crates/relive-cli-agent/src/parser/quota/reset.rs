//! The time at which a quota is available again, in the formats of the CLIs.

use std::iter::Peekable;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};

use crate::event::ResetClock;
use crate::json::Json;

/// The words before a time until the reset, in lower case.
const BEFORE_DURATION: [&str; 9] = [
    "try again in ",
    "try again after ",
    "reset after ",
    "reset within ",
    "resets in ",
    "reset in ",
    "retry in ",
    "retry after ",
    "retrydelay",
];

/// The words before a moment or a time of day, in lower case. The longer ones first: a match ends the search.
const BEFORE_TIME: [&str; 15] = [
    "resets at ",
    "resets on ",
    "resets ",
    "reset at ",
    "reset on ",
    "try again at ",
    "try again after ",
    "try again on ",
    "try again ",
    "retry at ",
    "retry after ",
    "available again at ",
    "available at ",
    "regain access on ",
    "regain access at ",
];

/// Resets lie between 2001 and 2100. Another number is no time: `|5` is the end of some other message.
const RESET_SECONDS: std::ops::Range<i64> = 1_000_000_000..4_102_444_800;

/// A reset more than ten years away is an error in the message.
const MAX_RESET_MS: f64 = 10.0 * 366.0 * 86_400e3;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 9] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "today", "tomorrow"];

/// The reset according to a message. At most one of the three fields is set.
#[derive(Debug, Default)]
pub(super) struct ResetTime {
    pub at: Option<Timestamp>,
    pub in_ms: Option<u64>,
    pub clock: Option<ResetClock>,
}

impl ResetTime {
    pub(super) fn in_text(message: &str) -> Self {
        let text = message.to_ascii_lowercase();
        if let Some(at) = epoch_at_end(message).or_else(|| moment(&text)) {
            return Self { at: Some(at), ..Self::default() };
        }
        if let Some(in_ms) = duration_ms(&text) {
            return Self { in_ms: Some(in_ms), ..Self::default() };
        }
        Self { clock: after_any(&text, &BEFORE_TIME).find_map(|place| clock(&message[place..])), ..Self::default() }
    }

    pub(super) fn is_known(&self) -> bool {
        self.at.is_some() || self.in_ms.is_some() || self.clock.is_some()
    }
}

/// Reads a field with the time of a reset: seconds or milliseconds since 1970, or a date and time.
pub(in crate::parser) fn reset_of_field(field: Json<'_>) -> Option<Timestamp> {
    match field.text() {
        Some(text) => text.parse().ok(),
        None => from_epoch(field.i64()?),
    }
}

fn from_epoch(number: i64) -> Option<Timestamp> {
    let seconds = [number, number / 1000].into_iter().find(|seconds| RESET_SECONDS.contains(seconds))?;
    Timestamp::from_second(seconds).ok()
}

/// Claude appends the time: `Claude AI usage limit reached|1794796313`.
fn epoch_at_end(message: &str) -> Option<Timestamp> {
    let (_, number) = message.rsplit_once('|')?;
    from_epoch(number.trim().parse().ok()?)
}

/// Reads `resets at 2026-11-17T03:00:00Z`.
fn moment(text: &str) -> Option<Timestamp> {
    after_any(text, &BEFORE_TIME).find_map(|place| {
        let word = text[place..].split_whitespace().next()?;
        word.trim_end_matches(['.', ',', ')']).parse().ok()
    })
}

/// Returns the positions after each of the words.
fn after_any<'a>(text: &'a str, words: &'a [&'static str]) -> impl Iterator<Item = usize> + 'a {
    words.iter().filter_map(|word| text.find(word).map(|place| place + word.len()))
}

/// Reads `try again in 3 days 4 hours`, `reset after 5h22m3s`, `retry in 34.5s`, `"retryDelay": "34s"`.
fn duration_ms(text: &str) -> Option<u64> {
    after_any(text, &BEFORE_DURATION).find_map(|place| {
        // The field may be in JSON that is itself a text, with its quotes escaped.
        let mut rest = text[place..].trim_start_matches(['"', '\\', ':', ' ']);
        let mut total_ms = None;
        while let Some((part_ms, after)) = duration_part(rest) {
            total_ms = Some(total_ms.unwrap_or(0.0) + part_ms);
            let after = after.trim_start_matches([' ', ',']);
            rest = after.strip_prefix("and ").unwrap_or(after);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and bounded")]
        total_ms.filter(|total_ms| *total_ms <= MAX_RESET_MS).map(|total_ms| total_ms as u64)
    })
}

/// Reads a number and its unit, and returns the rest.
fn duration_part(text: &str) -> Option<(f64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let rest = rest.trim_start();
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    let unit_ms = match unit {
        "ms" | "millisecond" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
        "m" | "min" | "mins" | "minute" | "minutes" => 60e3,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600e3,
        "d" | "day" | "days" => 86_400e3,
        "w" | "week" | "weeks" => 604_800e3,
        _ => return None,
    };
    Some((number * unit_ms, rest))
}

/// Reads `3pm`, `8:30pm (Asia/Tokyo)`, `Sep 15, 3am`, `Jul 5th, 2026 8:19 PM`, `15:00 UTC`, `Mon 12:00 AM`,
/// `2026-11-17T15:04:05`. The message may be inside of JSON.
fn clock(text: &str) -> Option<ResetClock> {
    let text = text.split(['\n', '·', '∙', '|']).next()?;
    let mut words =
        text.split(SEPARATORS).filter(|word| !word.is_empty()).map(|word| word.trim_end_matches(['.', '!'])).peekable();
    let (date, time) = if let Some(moment) = read_date_and_time(&mut words) {
        (Some(moment.date().to_string()), Some(hour_and_minute(moment.time())))
    } else {
        let date = read_date(&mut words);
        words.next_if_eq(&"at");
        (date, read_time(&mut words))
    };
    if date.is_none() && time.is_none() {
        return None;
    }
    let zone = words.next().and_then(zone);
    Some(ResetClock { date, time, zone })
}

/// The marks between words, also those of JSON and of lists in brackets.
const SEPARATORS: [char; 7] = [' ', ',', '"', '\\', '}', '[', ']'];

/// Reads a date and a time in one word, without a zone.
fn read_date_and_time<'a, I: Iterator<Item = &'a str>>(words: &mut Peekable<I>) -> Option<DateTime> {
    words.next_if(|word| word.contains(['T', 't']) && word.parse::<DateTime>().is_ok())?.parse().ok()
}

fn hour_and_minute(time: Time) -> String {
    time.strftime("%H:%M").to_string()
}

fn read_date<'a, I: Iterator<Item = &'a str> + Clone>(words: &mut Peekable<I>) -> Option<String> {
    let mut rest = words.clone();
    let first = rest.next()?.to_ascii_lowercase();
    let date = if let Ok(date) = first.parse::<Date>() {
        date.to_string()
    } else if let Some(day) = DAYS.iter().find(|day| is_short_for(&first, day)) {
        (*day).into()
    } else {
        let month = MONTHS.iter().position(|month| is_short_for(&first, month))?;
        let month = i8::try_from(month).ok()? + 1;
        let day: i8 = rest.next()?.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()?;
        let is_year = |word: &&str| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
        match rest.next_if(is_year).and_then(|year| year.parse().ok()) {
            Some(year) => Date::new(year, month, day).ok()?.to_string(),
            // A day without a year may be in a leap year.
            None => Date::new(2000, month, day).ok().map(|date| date.strftime("%m-%d").to_string())?,
        }
    };
    *words = rest;
    Some(date)
}

/// Returns whether a word is a name cut to three letters or more.
fn is_short_for(word: &str, name: &str) -> bool {
    word.len() >= 3 && name.starts_with(word)
}

fn read_time<'a, I: Iterator<Item = &'a str> + Clone>(words: &mut Peekable<I>) -> Option<String> {
    let mut rest = words.clone();
    let word = rest.next()?.to_ascii_lowercase();
    let (digits, half) = match word.strip_suffix("am").map(|digits| (digits, "am")) {
        Some(split) => split,
        None => word.strip_suffix("pm").map_or((word.as_str(), ""), |digits| (digits, "pm")),
    };
    let half = match half {
        "" => {
            rest.next_if(|word| word.eq_ignore_ascii_case("am") || word.eq_ignore_ascii_case("pm")).unwrap_or_default()
        }
        half => half,
    };
    let (hour, rest_of_time) = digits.split_once(':').unwrap_or((digits, "0"));
    let (minute, second) = rest_of_time.split_once(':').unwrap_or((rest_of_time, "0"));
    let (hour, minute, second): (i8, i8, i8) = (hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?);
    let hour = match half.to_ascii_lowercase().as_str() {
        "am" | "pm" if !(1..=12).contains(&hour) => return None,
        "am" => hour % 12,
        "pm" => hour % 12 + 12,
        // A number alone may be anything.
        _ if digits.contains(':') => hour,
        _ => return None,
    };
    let time = Time::new(hour, minute, second, 0).ok()?;
    *words = rest;
    Some(hour_and_minute(time))
}

/// `(Asia/Tokyo)`, `UTC`, `PST`, `+0800`.
fn zone(word: &str) -> Option<String> {
    let is_short_name =
        |word: &&str| (2..=5).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let name = word.strip_prefix('(').and_then(|word| word.strip_suffix(')'));
    let name = name.or_else(|| Some(word).filter(|word| is_short_name(word) || is_offset(word)))?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_+-:".contains(&byte));
    (is_name && !name.is_empty()).then(|| name.into())
}

/// `+0800`, `-05:00`: the difference from UTC.
fn is_offset(word: &str) -> bool {
    let Some(digits) = word.strip_prefix(['+', '-']) else { return false };
    let digits = digits.replacen(':', "", 1);
    digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit())
}
