//! All the mistakes of a file at once, each with its place.
//!
//! A file is read without types, with the place of every key and value, and held against the list of keys. What has
//! no mistake by this list is then read by the types, so the two have to agree; a test sees to that.

use std::fmt;
use std::path::Path;

use relive_types::duration;
use relive_types::suggest::closest;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::GC_INTERVAL_MIN_SECONDS;
use crate::tools::PERMISSION;

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
    /// How long, with its unit.
    Duration,
    /// Dollars: a number, zero or more.
    Amount,
    /// A list of the names that whoever checks knows.
    Names,
    /// A list of names of environment variables.
    Variables,
    /// A section for each provider.
    Providers,
    /// A price for each model.
    Prices,
    /// A number of tokens for each model.
    Windows,
    /// Yes or no.
    Truth,
}

/// A key with its section, and what is expected of its value.
pub(crate) type Key = (&'static str, &'static str, Expected);

const U32: u64 = u32::MAX as u64;
const SECONDS_MAX: u64 = 100 * 365 * 86_400;

/// Every key of `config.yaml`.
pub(crate) const KEYS: &[Key] = &[
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
    ("limits", "max_depth", Expected::Number(0, U32)),
    ("limits", "max_children", Expected::Number(0, U32)),
    ("limits", "max_tree", Expected::Number(0, U32)),
    ("", "providers", Expected::Providers),
    ("", "tool_env", Expected::Variables),
    ("tools", "*", PERMISSION),
    ("tools", "done", PERMISSION),
    ("tools", "edit", PERMISSION),
    ("tools", "list", PERMISSION),
    ("tools", "read", PERMISSION),
    ("tools", "search", PERMISSION),
    ("tools", "shell", PERMISSION),
    ("tools", "sleep", PERMISSION),
    ("tools", "spawn_agent", PERMISSION),
    ("tools", "wait_agent", PERMISSION),
    ("tools", "write", PERMISSION),
    ("", "prices", Expected::Prices),
    ("", "context_window", Expected::Windows),
    ("", "git_notes", Expected::Truth),
];

/// All that is wrong with the text of a file that may have these keys, and these names where it lists some.
pub(crate) fn check(text: &str, keys: &[Key], names: &[&str]) -> Vec<Problem> {
    let root: Spanned<Node> = match serde_saphyr::from_str(text) {
        Ok(root) => root,
        // Nothing but comments is a file that says nothing.
        Err(_) if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) => {
            return Vec::new();
        }
        Err(error) => return vec![problem_of(&error, text)],
    };
    let mut checker = Checker { text, keys, names, problems: Vec::new() };
    checker.section("", &root);
    checker.problems.sort_by_key(|problem| (problem.line, problem.column));
    checker.problems
}

pub(crate) struct Checker<'a> {
    text: &'a str,
    keys: &'a [Key],
    names: &'a [&'a str],
    pub(crate) problems: Vec<Problem>,
}

impl Checker<'_> {
    pub(crate) fn wrong(&mut self, at: &Location, message: String) {
        self.problems.push(place(at, self.text, message));
    }

    fn section(&mut self, section: &str, found: &Spanned<Node>) {
        let keys = self.keys;
        for (key, value) in self.entries(if section.is_empty() { "the file" } else { section }, found) {
            let known = keys.iter().find(|(of, name, _)| *of == section && *name == key.value);
            match known {
                Some((_, _, expected)) => self.value(*expected, &key.value, value),
                None if section.is_empty() && keys.iter().any(|(of, ..)| *of == key.value) => {
                    self.section(&key.value, value);
                }
                None => self.unknown(section, key),
            }
        }
    }

    /// The entries of a section that may be left empty; none, and a complaint, where it is something else.
    pub(crate) fn entries<'b>(&mut self, section: &str, found: &'b Spanned<Node>) -> &'b [Entry] {
        let entries = match &found.value {
            Node::Map(entries) => entries,
            Node::Nothing => return &[],
            other @ (Node::Truth | Node::Number(_) | Node::Fraction(_) | Node::Text(_) | Node::List(_)) => {
                let message = format!("{section} is a list of `key: value`, not {}", other.name());
                self.wrong(&found.referenced, message);
                return &[];
            }
        };
        for (place, (key, _)) in entries.iter().enumerate() {
            if entries[..place].iter().any(|(earlier, _)| earlier.value == key.value) {
                self.wrong(&key.referenced, format!("`{}` is said twice", key.value));
            }
        }
        entries
    }

    fn unknown(&mut self, section: &str, key: &Spanned<String>) {
        let keys = self.keys;
        let mut names: Vec<&str> = keys.iter().filter(|(of, ..)| *of == section).map(|(_, name, _)| *name).collect();
        if section.is_empty() {
            names.extend(keys.iter().map(|(of, ..)| *of).filter(|of| !of.is_empty()));
            names.dedup();
        }
        let elsewhere = keys.iter().find(|(_, name, _)| *name == key.value).filter(|(of, ..)| !of.is_empty());
        let advice = match (closest(&key.value, names.iter().copied()), elsewhere) {
            (Some(meant), _) => format!("did you mean `{meant}`?"),
            (None, Some((of, name, _))) => format!("`{name}` belongs under `{of}`"),
            (None, None) => format!("there are {}", names.join(", ")),
        };
        let within = if section.is_empty() { String::new() } else { format!(" under `{section}`") };
        self.wrong(&key.referenced, format!("no such key{within}: `{}` ({advice})", key.value));
    }

    pub(crate) fn value(&mut self, expected: Expected, key: &str, found: &Spanned<Node>) {
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
            (Expected::Duration, Node::Text(text)) => match duration::parse(text) {
                Ok(_) => return,
                Err(problem) => format!("`{key}`: {problem}"),
            },
            (Expected::Duration, other) => format!("`{key}` is a duration like 30s or 10m, not {}", other.name()),
            (Expected::Amount, Node::Number(0..)) => return,
            (Expected::Amount, Node::Fraction(amount)) if *amount >= 0.0 && amount.is_finite() => return,
            (Expected::Amount, Node::Number(_) | Node::Fraction(_)) => format!("`{key}` is zero or more"),
            (Expected::Amount, other) => format!("`{key}` is a number of dollars, not {}", other.name()),
            (Expected::Names, Node::List(names)) => return names.iter().for_each(|name| self.name(key, name)),
            (Expected::Names, other) => format!("`{key}` is a list of names, not {}", other.name()),
            (Expected::Variables, Node::List(names)) => return names.iter().for_each(|name| self.variable(key, name)),
            (Expected::Variables, other) => format!("`{key}` is a list of names, not {}", other.name()),
            (Expected::Providers, _) => return self.providers(found),
            (Expected::Prices, _) => return self.prices(found),
            (Expected::Windows, _) => return self.windows(found),
            (Expected::Truth, Node::Truth) => return,
            (Expected::Truth, other) => format!("`{key}` is true or false, not {}", other.name()),
        };
        self.wrong(&found.referenced, message);
    }

    fn variable(&mut self, key: &str, found: &Spanned<Node>) {
        let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        if !matches!(&found.value, Node::Text(name) if is_name(name)) {
            self.wrong(&found.referenced, format!("`{key}` lists names of variables, not {}", found.value.name()));
        }
    }

    /// One of a list of names.
    fn name(&mut self, key: &str, found: &Spanned<Node>) {
        let Node::Text(name) = &found.value else {
            let message = format!("`{key}` lists names, not {}", found.value.name());
            return self.wrong(&found.referenced, message);
        };
        if !self.names.contains(&name.as_str()) {
            let advice = match closest(name, self.names.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("there are {}", self.names.join(", ")),
            };
            self.wrong(&found.referenced, format!("no such name under `{key}`: `{name}` ({advice})"));
        }
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

/// A key and its value.
pub(crate) type Entry = (Spanned<String>, Spanned<Node>);

/// YAML without types.
#[derive(Debug)]
pub(crate) enum Node {
    Nothing,
    Truth,
    Number(i128),
    Fraction(f64),
    Text(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<Entry>),
}

impl Node {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Truth => "true or false",
            Self::Number(_) => "a number",
            Self::Fraction(_) => "a fraction",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
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

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Fraction(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
