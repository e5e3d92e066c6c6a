//! The checks that compose files and supervisor files have in common.

use relive_types::suggest::closest;
use relive_yaml::Source;
use serde_saphyr::{Location, Spanned};

pub use relive_yaml::Problem;
pub(crate) use relive_yaml::{Entry, Value};

/// How many mistakes of a file are listed.
const LISTED: usize = 100;

/// The mistakes of one file.
#[derive(Debug)]
pub(crate) struct Mistakes {
    pub(crate) problems: Vec<Problem>,
    pub(crate) unlisted: usize,
}

/// Collects the mistakes of one file.
#[derive(Debug)]
pub(crate) struct Checker<'a> {
    source: Source<'a>,
    pub(crate) problems: Vec<Problem>,
    /// How many mistakes are not among the problems.
    pub(crate) unlisted: usize,
}

impl<'a> Checker<'a> {
    /// Reads a file without types. Without a tree there is one mistake, which the checker has.
    pub(crate) fn read(text: &'a str) -> (Self, Option<Spanned<Value>>) {
        let mut checker = Self { source: Source::new(text), problems: Vec::new(), unlisted: 0 };
        match relive_yaml::read(&checker.source) {
            Ok(root) => (checker, Some(root)),
            Err(problem) => {
                checker.problems.push(problem);
                (checker, None)
            }
        }
    }

    /// Returns what was read, or all mistakes in the order of their places.
    pub(crate) fn into_result<T>(mut self, read: Option<T>) -> Result<T, Mistakes> {
        self.problems.sort_by_key(|problem| (problem.line, problem.column));
        match read {
            Some(read) if self.problems.is_empty() => Ok(read),
            Some(_) | None => Err(Mistakes { problems: self.problems, unlisted: self.unlisted }),
        }
    }

    pub(crate) fn wrong(&mut self, at: &Location, message: impl Into<String>) {
        self.wrong_because(at, || message.into());
    }

    /// Reports a mistake whose message takes a while to find.
    pub(crate) fn wrong_because(&mut self, at: &Location, message: impl FnOnce() -> String) {
        if self.problems.len() < LISTED {
            self.problems.push(self.source.problem(at, message()));
        } else {
            self.unlisted += 1;
        }
    }

    /// Returns a word as it is written: YAML reads `010` as a number and `y` as true.
    pub(crate) fn written(&self, found: &Spanned<Value>) -> Option<&'a str> {
        self.source.written(found)
    }

    /// Returns the name of a node, as it is written: YAML reads `y` as true.
    pub(crate) fn name<'b>(&self, found: &'b Spanned<Value>) -> Option<&'b str>
    where
        'a: 'b,
    {
        match &found.value {
            Value::Text(name) => Some(name),
            Value::Truth(_) | Value::Number(_) | Value::Fraction(_) => self.written(found),
            Value::Nothing | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Returns the name of a node in a list, and reports an item that cannot be one.
    pub(crate) fn listed_name<'b>(&mut self, key: &str, found: &'b Spanned<Value>) -> Option<&'b str>
    where
        'a: 'b,
    {
        let name = self.name(found);
        if name.is_none() {
            let quotes = if matches!(found.value, Value::Nothing) { ": put it in quotes if it is a name" } else { "" };
            let message = format!("`{key}` lists names of nodes, not {}{quotes}", found.value.name());
            self.wrong(&found.referenced, message);
        }
        name
    }

    /// Returns the entries of a section; reports one that is not a section, and keys that are given twice.
    pub(crate) fn entries<'b>(&mut self, what: &str, found: &'b Spanned<Value>) -> &'b [Entry] {
        let Value::Map(entries) = &found.value else {
            let message = format!("{what} must be a list of `key: value`, not {}", found.value.name());
            self.wrong(&found.referenced, message);
            return &[];
        };
        let mut seen = std::collections::HashSet::new();
        for (key, _) in entries {
            if !seen.insert(key.value.as_str()) {
                self.wrong(&key.referenced, format!("`{}` is given twice", key.value));
            }
        }
        entries
    }

    /// Reports a key that does not exist, with the one that was probably meant.
    pub(crate) fn unknown(&mut self, what: &str, key: &Spanned<String>, known: &[&str]) {
        self.wrong_because(&key.referenced, || {
            let advice = match closest(&key.value, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("expected one of {}", known.join(", ")),
            };
            format!("no such key in {what}: `{}` ({advice})", key.value)
        });
    }

    pub(crate) fn text_of(&mut self, key: &str, found: &Spanned<Value>) -> Option<String> {
        match &found.value {
            Value::Text(text) => Some(text.clone()),
            other @ (Value::Nothing
            | Value::Truth(_)
            | Value::Number(_)
            | Value::Fraction(_)
            | Value::List(_)
            | Value::Map(_)) => {
                self.wrong(&found.referenced, format!("`{key}` must be a text, not {}", other.name()));
                None
            }
        }
    }

    pub(crate) fn number(&mut self, key: &str, found: &Spanned<Value>, least: u64, most: u64) -> Option<u64> {
        let message = match &found.value {
            Value::Number(number) => match u64::try_from(*number) {
                Ok(number) if (least..=most).contains(&number) => return Some(number),
                Ok(_) | Err(_) => format!("`{key}` must be from {least} to {most}, not {number}"),
            },
            // Too large for a number.
            Value::Fraction(number) if number.fract() == 0.0 || number.is_infinite() => {
                let written = self.written(found).unwrap_or("a larger one");
                format!("`{key}` must be from {least} to {most}, not {written}")
            }
            other @ (Value::Nothing
            | Value::Truth(_)
            | Value::Fraction(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_)) => format!("`{key}` must be a whole number, not {}", other.name()),
        };
        self.wrong(&found.referenced, message);
        None
    }

    pub(crate) fn duration_ms(&mut self, key: &str, found: &Spanned<Value>) -> Option<u64> {
        let Value::Text(text) = &found.value else {
            let message = format!("`{key}` must be a duration like 30s or 10m, not {}", found.value.name());
            self.wrong(&found.referenced, message);
            return None;
        };
        match relive_types::duration::parse(text) {
            Ok(duration) => Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
            Err(problem) => {
                self.wrong(&found.referenced, format!("`{key}`: {problem}"));
                None
            }
        }
    }

    pub(crate) fn truth(&mut self, key: &str, found: &Spanned<Value>) -> Option<bool> {
        if let Value::Truth(truth) = found.value {
            return Some(truth);
        }
        self.wrong(&found.referenced, format!("`{key}` must be true or false, not {}", found.value.name()));
        None
    }

    /// Returns the value of the word that was found, from a list of words and their values.
    pub(crate) fn word<T: Copy>(&mut self, key: &str, found: &Spanned<Value>, words: &[(&str, T)]) -> Option<T> {
        let all = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let message = match &found.value {
            Value::Text(text) => match words.iter().find(|(word, _)| word == text) {
                Some((_, value)) => return Some(*value),
                None => {
                    let meant = closest(text, words.iter().map(|(word, _)| *word));
                    let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
                    format!("`{key}` must be one of {}, not `{text}`{meant}", all())
                }
            },
            other @ (Value::Nothing
            | Value::Truth(_)
            | Value::Number(_)
            | Value::Fraction(_)
            | Value::List(_)
            | Value::Map(_)) => format!("`{key}` must be one of {}, not {}", all(), other.name()),
        };
        self.wrong(&found.referenced, message);
        None
    }
}
