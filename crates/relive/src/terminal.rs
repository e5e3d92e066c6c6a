//! The capabilities of the terminal: colours, symbols, width; and filtering of control characters.

pub(crate) mod key;
pub(crate) mod keys;
mod line;
pub(crate) mod modes;
mod pasted;
pub(crate) mod raw;
pub(crate) mod typed;

use std::borrow::Cow;
use std::io::IsTerminal as _;

use clap::ValueEnum;
use relive_types::text::{acts, mark};

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal that supports it.
    #[default]
    Auto,
    Always,
    Never,
}

/// One of the output streams, or a replacement in tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub is_terminal: bool,
    pub color: bool,
    /// Use only ASCII symbols.
    pub ascii: bool,
    /// The number of columns, if it is a terminal.
    pub width: Option<usize>,
}

/// The meaning of a piece of text; colour is never the only sign of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Dim,
    Bold,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Dim => "2",
            Self::Bold => "1",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Cyan => "36",
        }
    }
}

const DEFAULT_WIDTH: usize = 80;

impl Look {
    /// The look of a file: no colours, no width.
    pub(crate) fn plain() -> Self {
        Self { is_terminal: false, color: false, ascii: false, width: None }
    }

    pub(crate) fn of_stdout(choice: ColorChoice) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let width = is_terminal.then(|| columns(rustix::termios::tcgetwinsize(std::io::stdout())));
        Self::of(choice, is_terminal, width, |name| std::env::var(name).ok())
    }

    pub(crate) fn of_stderr(choice: ColorChoice) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let width = is_terminal.then(|| columns(rustix::termios::tcgetwinsize(std::io::stderr())));
        Self::of(choice, is_terminal, width, |name| std::env::var(name).ok())
    }

    fn of(choice: ColorChoice, is_terminal: bool, width: Option<usize>, var: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| var(name).is_some_and(|value| !value.is_empty());
        let color = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto if set("NO_COLOR") => false,
            ColorChoice::Auto if var("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0") => true,
            ColorChoice::Auto => is_terminal && var("TERM").is_some_and(|term| !term.is_empty() && term != "dumb"),
        };
        Self { is_terminal, color, ascii: is_ascii_only(var), width }
    }

    /// Returns a copy with the present width of the terminal, which is on stderr, or on stdout alone.
    #[must_use]
    pub(crate) fn resized(mut self) -> Self {
        use rustix::termios::tcgetwinsize;
        if self.is_terminal {
            let size = tcgetwinsize(std::io::stderr()).or_else(|_| tcgetwinsize(std::io::stdout()));
            self.width = Some(columns(size));
        }
        self
    }

    pub(crate) fn paint<'a>(&self, paint: Paint, text: &'a str) -> Cow<'a, str> {
        if self.color { Cow::Owned(format!("\x1b[{}m{text}\x1b[0m", paint.code())) } else { Cow::Borrowed(text) }
    }

    /// Returns the symbol for a paused process.
    pub(crate) fn pause_sign(&self) -> &'static str {
        if self.ascii { "[P]" } else { "\u{23f8}" }
    }

    /// Returns the symbol for text that was cut off.
    pub(crate) fn ellipsis(&self) -> &'static str {
        if self.ascii { "..." } else { "\u{2026}" }
    }
}

/// Tells whether the terminal understands nothing but text.
pub(crate) fn is_dumb() -> bool {
    std::env::var("TERM").map_or(true, |term| term.is_empty() || term == "dumb")
}

fn columns(size: rustix::io::Result<rustix::termios::Winsize>) -> usize {
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH)
}

fn is_ascii_only(var: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    if let Some(value) = set("RELIVE_ASCII") {
        return value != "0";
    }
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_ascii_lowercase();
    !(locale.contains("utf-8") || locale.contains("utf8"))
}

/// Turns foreign text into one line without anything that a terminal would interpret.
pub(crate) fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    let clean = without_controls(&spaced);
    clean.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Replaces everything that a terminal would interpret, or that would reorder a line, in foreign text by its mark, such as
/// `<ESC>`. Keeps its lines.
pub(crate) fn without_controls(text: &str) -> Cow<'_, str> {
    // Joiners only choose the shape of the letters beside them.
    let acts = |c: char| acts(c) && !matches!(c, '\n' | '\t' | '\u{ad}' | '\u{200c}' | '\u{200d}');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if acts(c) { mark(c) } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(choice: ColorChoice, is_terminal: bool, vars: &[(&str, &str)], color: bool, ascii: bool) {
        let var = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let look = Look::of(choice, is_terminal, None, var);
        assert_eq!((look.color, look.ascii), (color, ascii), "{choice:?} {is_terminal} {vars:?}");
    }

    #[test]
    fn colour_and_signs_follow_flag_then_environment_then_terminal() {
        use ColorChoice::{Always, Auto, Never};
        let utf8 = ("LANG", "de_AT.UTF-8");
        let xterm = ("TERM", "xterm");
        check(Auto, true, &[utf8, xterm], true, false);
        check(Auto, false, &[utf8, xterm], false, false);
        check(Auto, true, &[utf8, ("TERM", "dumb")], false, false);
        check(Auto, true, &[utf8, xterm, ("NO_COLOR", "1")], false, false);
        check(Auto, true, &[utf8, xterm, ("NO_COLOR", "")], true, false);
        check(Auto, false, &[utf8, ("CLICOLOR_FORCE", "1")], true, false);
        check(Auto, false, &[utf8, ("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false, false);
        check(Always, false, &[("NO_COLOR", "1"), ("LC_ALL", "C"), utf8], true, true);
        check(Never, true, &[xterm, utf8, ("RELIVE_ASCII", "1")], false, true);
        check(Never, true, &[("RELIVE_ASCII", "0")], false, false);
    }

    #[test]
    fn text_of_an_agent_cannot_control_the_terminal() {
        assert_eq!(without_controls("a\x1b]0;x\x07\tb\nc"), "a<ESC>]0;x<U+0007>\tb\nc");
        assert_eq!(
            one_line("fix\u{202e}txt.exe\u{2066}\u{200b}"),
            "fix<U+202E>txt.exe<U+2066><U+200B>",
            "nor reorder a line"
        );
        assert_eq!(one_line(" two\n  lines\tand\u{2028}more\x1b"), "two lines and more<ESC>");
    }
}
