//! One event on one line, as `strace` shows it.

use super::line::Line;
use super::table::fit;
use super::time::Clock;
use crate::terminal::{Look, Paint, one_line};

/// Time, id, kind, fields.
pub(crate) fn line(id: &str, line: &Line, clock: &Clock, look: &Look) -> String {
    let at = line.at.map_or_else(|| "-".to_owned(), |at| clock.time(at));
    let fields = line.fields.iter().map(|(name, value)| format!(" {name}={}", shown(value.get())));
    let fields: String = fields.collect();
    let head = format!("{at} {id:<9} {:<12}", line.kind);
    let room = look.width.map_or(usize::MAX, |width| width.saturating_sub(head.len()));
    let rest = fit(&fields, room, look);
    let painted = head.replacen(&line.kind, &look.paint(Paint::Cyan, &line.kind), 1);
    format!("{painted}{rest}").trim_end().to_owned()
}

/// Shows a plain word unquoted, anything else as JSON, without anything that a terminal would interpret.
pub(crate) fn shown(json: &str) -> String {
    let text: Option<String> = serde_json::from_str(json).ok();
    match text {
        Some(text) if !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_./:@+,".contains(c)) => text,
        // JSON has no bare control characters except for white space between its parts.
        Some(_) | None => one_line(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_that_fits() {
        let parsed = Line::parse(
            r#"{"v":1,"seq":7,"epoch":1,"at":"2026-11-15T12:03:04.5Z","kind":"call","step":1,"name":"shell","args":{"command":"ls -l\n"},"crc":"x"}"#,
        )
        .unwrap();
        let plain = line("1.7", &parsed, &Clock::utc(), &Look::plain());
        assert_eq!(plain, r#"12:03:04.500Z 1.7       call         name=shell args={"command":"ls -l\n"}"#);
        let narrow = Look { width: Some(50), ascii: true, ..Look::plain() };
        assert_eq!(line("1.7", &parsed, &Clock::utc(), &narrow), "12:03:04.500Z 1.7       call         name=shell...");
    }
}
