//! Mistakes, with the line that each is in.

use serde_saphyr::{Error, Location, Spanned};

use crate::value::Value;

/// The longest line that is shown whole, in characters.
const SHOWN: usize = 160;
/// How much of a longer line is shown before the mistake.
const BEFORE: usize = 60;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1.
    pub column: usize,
    pub message: String,
    /// The text of the line, or of the part of it around the mistake.
    pub text: String,
    /// The column in that text.
    caret: usize,
}

/// The text of a file, in which places are found without reading it again from its beginning.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    text: &'a str,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl<'a> Source<'a> {
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(place, _)| place + 1);
        Self { text, lines: std::iter::once(0).chain(ends).collect() }
    }

    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Returns a line, counted from 1.
    fn line(&self, line: usize) -> &'a str {
        let Some(start) = line.checked_sub(1).and_then(|line| self.lines.get(line)) else { return "" };
        let end = self.lines.get(line).copied().unwrap_or(self.text.len());
        self.text.get(*start..end).unwrap_or_default().trim_end_matches(['\n', '\r'])
    }

    /// Returns a mistake at a place.
    #[must_use]
    pub fn problem(&self, at: &Location, message: impl Into<String>) -> Problem {
        let line = usize::try_from(at.line()).unwrap_or(0).max(1);
        let column = usize::try_from(at.column()).unwrap_or(0).max(1);
        let (text, caret) = excerpt(self.line(line), column);
        Problem { line, column, message: message.into(), text, caret }
    }

    /// Returns the mistake that the parser found.
    #[must_use]
    pub fn mistake(&self, error: &Error) -> Problem {
        self.problem(&error.location().unwrap_or(Location::UNKNOWN), crate::words::plain(error))
    }

    /// Returns a word as it is written: YAML reads `010` as a number and `y` as true. Of an alias, that is the word it stands for.
    #[must_use]
    pub fn written(&self, found: &Spanned<Value>) -> Option<&'a str> {
        let start = usize::try_from(found.defined.span().byte_offset()?).ok()?;
        let text = self.text.get(start..)?;
        // The name of an anchor comes before its value.
        let named =
            text.strip_prefix('&').map(|text| text.trim_start_matches(|c: char| !c.is_whitespace()).trim_start());
        named.unwrap_or(text).split(|c: char| c.is_whitespace() || ",]}".contains(c)).next()
    }
}

/// Returns the part of a line around a column, and the column in it.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    if line.chars().nth(SHOWN).is_none() {
        return (line.to_owned(), column);
    }
    let from = column.saturating_sub(1 + BEFORE);
    let mut rest = line.chars().skip(from);
    let part: String = rest.by_ref().take(SHOWN).collect();
    let (before, after) = (if from == 0 { "" } else { "..." }, if rest.next().is_none() { "" } else { "..." });
    (format!("{before}{part}{after}"), column - from + before.len())
}

/// Renders every mistake with its line and a caret below it.
#[must_use]
pub fn report(name: &str, problems: &[Problem]) -> String {
    let one = |problem: &Problem| {
        let Problem { line, column, message, text, caret } = problem;
        let margin = " ".repeat(line.to_string().len());
        // Tabs stay tabs, so that the caret is in the right column.
        let before: String = text.chars().take(caret - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        format!("{name}:{line}:{column}: {message}\n{margin} |\n{line} | {text}\n{margin} | {before}^")
    };
    problems.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> String {
        match crate::read(&Source::new(text)) {
            Ok(_) => "none".to_owned(),
            Err(problem) => report("f", &[problem]),
        }
    }

    #[test]
    fn a_mistake_is_shown_with_its_line_and_a_caret() {
        assert!(mistakes("a: 1\nb: *c\n").contains("\n2 | b: *c\n  |    ^"), "{}", mistakes("a: 1\nb: *c\n"));
        let two = mistakes("a: 1\n---\nb: 2\n");
        assert!(two.starts_with("f:3:1: a file has one document, and `---` begins another one"), "{two}");
    }

    #[test]
    fn a_long_line_is_shown_around_the_mistake() {
        let text = format!("a: [{}, *b, {}]", "x".repeat(5000), "y".repeat(5000));
        let said = mistakes(&text);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.iter().all(|line| line.len() < 200), "{said}");
        let caret = lines[3].find('^').unwrap();
        assert!(lines[2].starts_with("1 | ...xxx") && lines[2].ends_with("yyy..."), "{said}");
        assert_eq!(&lines[2][caret..caret + 2], "*b", "{said}");
    }

    #[test]
    fn aliases_that_multiply_are_refused() {
        let mut text = "l0: &l0 [x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            text.push_str(&format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 8].join(", ")));
        }
        assert!(mistakes(&text).contains("the file has too many values"), "{}", mistakes(&text));
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 20].join(", "));
        assert!(mistakes(&text).contains("the file has too many values"), "{}", mistakes(&text));
    }

    #[test]
    fn words_are_found_as_they_are_written() {
        let source = Source::new("é: [010, \"ü\", 1.50,\n  y, 1e3]\n");
        let root = crate::read(&source).unwrap();
        let Value::Map(entries) = &root.value else { panic!("{root:?}") };
        let Value::List(list) = &entries[0].1.value else { panic!("{root:?}") };
        let written: Vec<_> = list.iter().map(|word| source.written(word)).collect();
        assert_eq!(written, [Some("010"), Some("\"ü\""), Some("1.50"), Some("y"), Some("1e3")]);
    }
}
