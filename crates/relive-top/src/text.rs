//! Texts of others as they are shown: no control characters, no tricks with the direction of writing.

use relive_types::text::{acts, is_hidden, mark};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns a line of a log or a name, in which every character that is not seen is replaced by its mark. What a person answers is
/// shown by [`relive_types::text::exact`] instead.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => cleaned.push_str("    "),
            '\n' => cleaned.push(' '),
            // It only chooses between two shapes of a sign, which terminals do not agree about.
            '\u{fe0e}' | '\u{fe0f}' => {}
            c if c.is_whitespace() && !acts(c) => cleaned.push(' '),
            c if is_hidden(c) => cleaned.push_str(&mark(c)),
            c => cleaned.push(c),
        }
    }
    cleaned
}

/// Cuts a text to a width, and says that it is cut.
pub(crate) fn fit(text: &str, width: usize, ascii: bool) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let sign = if ascii { "..." } else { "…" };
    let room = width.saturating_sub(sign.width());
    let (mut cut, mut used) = (String::new(), 0);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > room {
            break;
        }
        used += wide;
        cut.push(c);
    }
    cut.push_str(&sign[..if width == 0 { 0 } else { sign.len() }]);
    cut
}

/// Breaks a text into lines of a width.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > width.max(1) {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        used += wide;
        line.push(c);
    }
    lines.push(line);
    lines
}

/// `12s`, `1m05s`, `2h03m`, `3d04h`.
pub(crate) fn span(millis: u64) -> String {
    let seconds = millis / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match () {
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m{:02}s", seconds % 60),
        () if days == 0 => format!("{hours}h{:02}m", minutes % 60),
        () => format!("{days}d{:02}h", hours % 24),
    }
}

/// `999`, `12.3k`, `4.5M`.
pub(crate) fn count(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}.{}k", number / 1_000, number % 1_000 / 100),
        1_000_000.. => format!("{}.{}M", number / 1_000_000, number % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_process_writes_reaches_the_terminal_as_a_control() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c\td\n"), "a<ESC>[2Jb<U+202E>c    d ");
        assert_eq!(clean("ok \u{2714}\u{fe0f}\u{a0}!"), "ok \u{2714} !", "usual in texts");
        for c in
            ['\u{ad}', '\u{3164}', '\u{e0100}', '\u{61c}', '\u{180e}', '\u{2028}', '\u{2060}', '\u{206f}', '\u{e0041}']
        {
            assert_eq!(clean(&c.to_string()), format!("<U+{:04X}>", u32::from(c)), "it is not seen");
        }
    }

    #[test]
    fn texts_are_cut_and_wrapped_by_their_width() {
        assert_eq!(fit("abcdef", 4, false), "abc…");
        assert_eq!(fit("abcdef", 4, true), "a...");
        assert_eq!(fit("日本語", 4, false), "日…");
        assert_eq!(wrap("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 59_000, 65_000, 7_380_000, 100_000_000].map(span), ["0s", "59s", "1m05s", "2h03m", "1d03h"]);
        assert_eq!([7, 1_234, 4_560_000].map(count), ["7", "1.2k", "4.5M"]);
    }
}
