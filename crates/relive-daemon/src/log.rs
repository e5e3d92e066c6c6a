//! The daemon's log: one line for each event, on stderr, with a time in RFC 3339 and UTC.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// The log filter: `warn`, or `info,relive_daemon=debug`.
const VARIABLE: &str = "RELIVE_LOG";

/// Starts to log events.
pub(crate) fn start() {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let (filter, problem) = match filter(&asked) {
        Ok(filter) => (filter, None),
        Err(problem) => (Targets::new().with_default(LevelFilter::INFO), Some(problem)),
    };
    let subscriber = tracing_subscriber::registry().with(Lines.with_filter(filter));
    // It is already set if a test runs more than one daemon in its process.
    let _ = tracing::subscriber::set_global_default(subscriber);
    if let Some(problem) = problem {
        tracing::warn!("{VARIABLE} is ignored: {problem}");
    }
}

fn filter(asked: &str) -> Result<Targets, String> {
    if asked.trim().is_empty() {
        return Ok(Targets::new().with_default(LevelFilter::INFO));
    }
    let names_nothing =
        |part: &&str| !part.contains('=') && !part.starts_with("relive") && part.parse::<LevelFilter>().is_err();
    if let Some(word) = asked.split(',').map(str::trim).find(names_nothing) {
        return Err(format!("`{word}` is not error, warn, info, debug, trace or off"));
    }
    asked.parse().map_err(|error: tracing_subscriber::filter::ParseError| error.to_string())
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text { message: String::new(), fields: String::new() };
        event.record(&mut text);
        let line = line(jiff::Timestamp::now(), *event.metadata().level(), &text);
        // A log that cannot be written, for example on a full disk, must not stop the daemon: `eprintln!` would panic.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

fn line(now: jiff::Timestamp, level: Level, text: &Text) -> String {
    let word = match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        Level::INFO => "",
        Level::DEBUG => "debug: ",
        Level::TRACE => "trace: ",
    };
    let mut line = format!("{now:.3} {word}");
    for character in text.message.chars().chain(text.fields.chars()) {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line.push('\n');
    line
}

/// The text of an event.
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_a_time_and_a_level() {
        let now: jiff::Timestamp = "2026-11-02T10:00:00.123456Z".parse().unwrap();
        let check = |level, message: &str, expected: &str| {
            let text = Text { message: message.to_owned(), fields: " pid=3".to_owned() };
            assert_eq!(line(now, level, &text), expected);
        };
        check(Level::INFO, "serving", "2026-11-02T10:00:00.123Z serving pid=3\n");
        check(Level::WARN, "two\nlines\u{1b}[31m", "2026-11-02T10:00:00.123Z warning: two\\nlines\\u{1b}[31m pid=3\n");
        check(Level::ERROR, "é", "2026-11-02T10:00:00.123Z error: é pid=3\n");
    }

    #[test]
    fn the_log_filter_is_parsed_and_a_mistake_is_reported() {
        let shows = |asked: &str, target: &str, level: Level| filter(asked).unwrap().would_enable(target, &level);
        assert!(shows("", "relive_daemon", Level::INFO) && !shows("", "relive_daemon", Level::DEBUG));
        assert!(shows("debug", "relive_runtime", Level::DEBUG));
        assert!(!shows("off", "relive_daemon", Level::ERROR));
        assert!(shows("warn,relive_daemon=trace", "relive_daemon::server", Level::TRACE));
        assert!(!shows("warn,relive_daemon=trace", "relive_runtime", Level::INFO));
        for wrong in ["verbose", "a=b=c", "relive_daemon=loud"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
