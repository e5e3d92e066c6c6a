//! All the mistakes of a file at once, each with its place.
//!
//! The file is read without types, with the place of every key and value, and held against the list of keys. What has
//! no mistake by this list is then read by the types, so the two have to agree; a test sees to that.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::GC_INTERVAL_MIN_SECONDS;
use crate::suggest::closest;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The line itself.
    pub text: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Expected {
    /// A whole number, at least and at most.
    Number(u64, u64),
    /// One of these.
    Word(&'static [&'static str]),
    /// Any text, or nothing.
    Text,
}

const U32: u64 = u32::MAX as u64;
const SECONDS_MAX: u64 = 100 * 365 * 86_400;

/// Every key, with its section.
pub(crate) const KEYS: &[(&str, &str, Expected)] = &[
    ("", "default_model", Expected::Text),
    ("", "on_in_doubt", Expected::Word(&["tell_model", "park", "retry"])),
    ("", "recovery", Expected::Word(&["auto", "manual"])),
    ("gc", "retention_days", Expected::Number(0, U32)),
    ("gc", "max_entries", Expected::Number(0, U32)),
    ("gc", "interval_seconds", Expected::Number(GC_INTERVAL_MIN_SECONDS, SECONDS_MAX)),
    ("checkpoint", "every_steps", Expected::Number(1, U32)),
    ("checkpoint", "every_seconds", Expected::Number(1, SECONDS_MAX)),
    ("heartbeat", "stalled_after_seconds", Expected::Number(1, SECONDS_MAX)),
    ("heartbeat", "policy", Expected::Word(&["warn", "pause", "kill"])),
    ("limits", "max_processes", Expected::Number(1, U32)),
    ("limits", "floor_mb", Expected::Number(0, 1 << 30)),
];

/// All that is wrong with the text of a file.
pub(crate) fn check(text: &str) -> Vec<Problem> {
    let root: Spanned<Node> = match serde_saphyr::from_str(text) {
        Ok(root) => root,
        // Nothing but comments is a file that says nothing.
        Err(_) if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) => {
            return Vec::new();
        }
        Err(error) => return vec![problem_of(&error, text)],
    };
    let mut checker = Checker { text, problems: Vec::new() };
    checker.section("", &root);
    checker.problems.sort_by_key(|problem| (problem.line, problem.column));
    checker.problems
}

struct Checker<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn wrong(&mut self, at: &Location, message: String) {
        self.problems.push(place(at, self.text, message));
    }

    fn section(&mut self, section: &str, found: &Spanned<Node>) {
        let entries = match &found.value {
            Node::Map(entries) => entries,
            Node::Nothing => return,
            other @ (Node::Truth | Node::Number(_) | Node::Fraction | Node::Text(_) | Node::List) => {
                let name = if section.is_empty() { "the file" } else { section };
                let message = format!("{name} is a list of `key: value`, not {}", other.name());
                return self.wrong(&found.referenced, message);
            }
        };
        for (place, (key, value)) in entries.iter().enumerate() {
            if entries[..place].iter().any(|(earlier, _)| earlier.value == key.value) {
                self.wrong(&key.referenced, format!("`{}` is said twice", key.value));
            }
            let known = KEYS.iter().find(|(of, name, _)| *of == section && *name == key.value);
            match known {
                Some((_, _, expected)) => self.value(*expected, &key.value, value),
                None if section.is_empty() && KEYS.iter().any(|(of, ..)| *of == key.value) => {
                    self.section(&key.value, value);
                }
                None => self.unknown(section, key),
            }
        }
    }

    fn unknown(&mut self, section: &str, key: &Spanned<String>) {
        let mut names: Vec<&str> = KEYS.iter().filter(|(of, ..)| *of == section).map(|(_, name, _)| *name).collect();
        if section.is_empty() {
            names.extend(KEYS.iter().map(|(of, ..)| *of).filter(|of| !of.is_empty()));
            names.dedup();
        }
        let elsewhere = KEYS.iter().find(|(_, name, _)| *name == key.value).filter(|(of, ..)| !of.is_empty());
        let advice = match (closest(&key.value, names.iter().copied()), elsewhere) {
            (Some(meant), _) => format!("did you mean `{meant}`?"),
            (None, Some((of, name, _))) => format!("`{name}` belongs under `{of}`"),
            (None, None) => format!("there are {}", names.join(", ")),
        };
        let within = if section.is_empty() { String::new() } else { format!(" under `{section}`") };
        self.wrong(&key.referenced, format!("no such key{within}: `{}` ({advice})", key.value));
    }

    fn value(&mut self, expected: Expected, key: &str, found: &Spanned<Node>) {
        let message = match (expected, &found.value) {
            (Expected::Number(least, most), Node::Number(number))
                if (i128::from(least)..=i128::from(most)).contains(number) =>
            {
                return;
            }
            (Expected::Number(least, _), Node::Number(number)) if *number < i128::from(least) => {
                format!("`{key}` is at least {least}, not {number}")
            }
            (Expected::Number(_, most), Node::Number(number)) => format!("`{key}` is at most {most}, not {number}"),
            (Expected::Number(..), other) => format!("`{key}` is a whole number, not {}", other.name()),
            (Expected::Word(words), Node::Text(word)) if words.contains(&word.as_str()) => return,
            (Expected::Word(words), Node::Text(word)) => {
                let meant = closest(word, words.iter().copied());
                let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
                format!("`{key}` is one of {}, not `{word}`{meant}", words.join(", "))
            }
            (Expected::Word(words), other) => format!("`{key}` is one of {}, not {}", words.join(", "), other.name()),
            (Expected::Text, Node::Text(_) | Node::Nothing) => return,
            (Expected::Text, other) => format!("`{key}` is a text, not {}", other.name()),
        };
        self.wrong(&found.referenced, message);
    }
}

pub(crate) fn problem_of(error: &serde_saphyr::Error, text: &str) -> Problem {
    let bare = error.without_snippet().to_string();
    // The place is shown by us, in one way for all.
    let message = bare.split(" at line ").next().unwrap_or(&bare).to_owned();
    place(&error.location().unwrap_or(Location::UNKNOWN), text, message)
}

fn place(at: &Location, text: &str, message: String) -> Problem {
    let line = usize::try_from(at.line()).unwrap_or(0).max(1);
    let column = usize::try_from(at.column()).unwrap_or(0).max(1);
    Problem { line, column, message, text: text.lines().nth(line - 1).unwrap_or_default().to_owned() }
}

/// Every mistake with its line and a caret below it.
pub(crate) fn report(path: &Path, problems: &[Problem]) -> String {
    let one = |problem: &Problem| {
        let Problem { line, column, message, text } = problem;
        let margin = " ".repeat(line.to_string().len());
        // Tabs stay tabs, so that the caret stands where it should.
        let before: String = text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let path = path.display();
        format!("{path}:{line}:{column}: {message}\n{margin} |\n{line} | {text}\n{margin} | {before}^")
    };
    problems.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// YAML without types.
#[derive(Debug)]
enum Node {
    Nothing,
    Truth,
    Number(i128),
    Fraction,
    Text(String),
    List,
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Truth => "true or false",
            Self::Number(_) => "a number",
            Self::Fraction => "a fraction",
            Self::Text(_) => "a text",
            Self::List => "a list",
            Self::Map(_) => "a section",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Truth)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Node, E> {
        Ok(Node::Number(number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Fraction)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Node::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
