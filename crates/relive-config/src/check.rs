//! Finds all mistakes of a file at once, each with its place.
//!
//! A file is first read without types, with the place of every key and value, and checked against the list of keys. If
//! that finds no mistake, the file is read into the types. A test checks that the list and the types agree.

use relive_types::suggest::closest;
use relive_types::{CommandRule, HostRule, Network, duration};
use relive_yaml::{Entry, Source};
use serde_saphyr::{Location, Spanned};

pub use relive_yaml::Problem;
pub(crate) use relive_yaml::Value as Node;

use crate::GC_INTERVAL_MIN_SECONDS;
use crate::providers;
use crate::tools::PERMISSION;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Expected {
    /// A whole number, with its minimum and maximum.
    Number(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or nothing.
    WordOrNothing(&'static [&'static str]),
    /// Any text, or nothing.
    Text,
    /// The name of a model: PROVIDER/MODEL, or nothing.
    Model,
    /// A duration with its unit.
    Duration,
    /// An amount of dollars: a number, zero or more.
    Amount,
    /// A list of names that the caller knows.
    Names,
    /// A list of rules that allow commands.
    Rules,
    /// A list of names of environment variables.
    Variables,
    /// A list of patterns, as in a `.gitignore`.
    Patterns,
    /// A list of paths that are absolute, or begin with `~/`.
    Paths,
    /// `full`, `none`, a list of domains, or nothing.
    Network,
    /// A section for each provider.
    Providers,
    /// A price for each model.
    Prices,
    /// A number of tokens for each model.
    Windows,
    /// True or false.
    Truth,
    /// A list of texts, such as arguments.
    Words,
    /// A value for each environment variable.
    Environment,
}

/// A section, a key in it, and the expected value.
pub(crate) type Key = (&'static str, &'static str, Expected);

pub(crate) const ISOLATION: Expected = Expected::WordOrNothing(&["none", "confined", "sealed"]);
const U32: u64 = u32::MAX as u64;
const MB_MAX: u64 = 1 << 30;
const SECONDS_MAX: u64 = 100 * 365 * 86_400;

pub(crate) const KEYS: &[Key] = &[
    ("", "default_model", Expected::Model),
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
    ("tools", "abandon", PERMISSION),
    ("tools", "ask", PERMISSION),
    ("tools", "done", PERMISSION),
    ("tools", "edit", PERMISSION),
    ("tools", "list", PERMISSION),
    ("tools", "read", PERMISSION),
    ("tools", "search", PERMISSION),
    ("tools", "shell", PERMISSION),
    ("tools", "sleep", PERMISSION),
    ("tools", "spawn_agent", PERMISSION),
    ("tools", "terminate", PERMISSION),
    ("tools", "wait_agent", PERMISSION),
    ("tools", "write", PERMISSION),
    ("", "prices", Expected::Prices),
    ("", "context_window", Expected::Windows),
    ("", "git_notes", Expected::Truth),
    ("workspace", "snapshots", Expected::Word(&["auto", "off"])),
    ("workspace", "max_file_mb", Expected::Number(1, MB_MAX)),
    ("workspace", "max_files", Expected::Number(1, U32)),
    ("workspace", "max_total_mb", Expected::Number(1, MB_MAX)),
    ("workspace", "include", Expected::Patterns),
    ("workspace", "exclude", Expected::Patterns),
    ("isolation", "agents", ISOLATION),
    ("isolation", "network", Expected::Network),
    ("isolation", "writable", Expected::Paths),
    ("isolation", "hidden", Expected::Paths),
    ("isolation", "git_config", Expected::Word(&["read_only", "writable"])),
    ("", "notify", Expected::Text),
    ("pool", "max_running", Expected::Number(0, U32)),
    ("pool", "max_memory_mb", Expected::Number(0, 1 << 30)),
    ("pool", "idle_timeout", Expected::Duration),
];

/// Returns all mistakes in the text of a file with these keys. `names` are the allowed names in lists of names.
pub(crate) fn check(text: &str, keys: &[Key], names: &[&str]) -> Vec<Problem> {
    let source = Source::new(text);
    let root = match relive_yaml::read(&source) {
        Ok(root) => root,
        // A file with only comments is empty.
        Err(_) if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) => {
            return Vec::new();
        }
        Err(problem) => return vec![problem],
    };
    let mut checker = Checker { source, keys, names, problems: Vec::new() };
    checker.section("", &root);
    checker.problems.sort_by_key(|problem| (problem.line, problem.column));
    checker.problems
}

pub(crate) struct Checker<'a> {
    source: Source<'a>,
    keys: &'a [Key],
    names: &'a [&'a str],
    pub(crate) problems: Vec<Problem>,
}

impl Checker<'_> {
    pub(crate) fn wrong(&mut self, at: &Location, message: String) {
        self.problems.push(self.source.problem(at, message));
    }

    fn section(&mut self, section: &str, found: &Spanned<Node>) {
        let keys = self.keys;
        for (key, value) in self.entries(if section.is_empty() { "the file" } else { section }, found) {
            let known = keys.iter().find(|(of, name, _)| *of == section && *name == key.value);
            match known {
                Some((_, _, expected)) => self.value(*expected, &key.value, value),
                None if section == "tools" && CommandRule::is_meant(&key.value) => {
                    match key.value.parse::<CommandRule>() {
                        // A command can be written in many ways, so a pattern that forbids one would promise too much.
                        Ok(_) => self.value(Expected::Word(&["allow"]), &key.value, value),
                        Err(error) => self.wrong(&key.referenced, error.to_string()),
                    }
                }
                None if section.is_empty() && keys.iter().any(|(of, ..)| *of == key.value) => {
                    self.section(&key.value, value);
                }
                None => self.unknown(section, key),
            }
        }
    }

    /// Returns the entries of a section, which may be empty. Reports anything else as a mistake and returns no entries.
    pub(crate) fn entries<'b>(&mut self, section: &str, found: &'b Spanned<Node>) -> &'b [Entry] {
        let entries = match &found.value {
            Node::Map(entries) => entries,
            Node::Nothing => return &[],
            other @ (Node::Truth(_) | Node::Number(_) | Node::Fraction(_) | Node::Text(_) | Node::List(_)) => {
                let message = format!("{section} must be a list of `key: value`, not {}", other.name());
                self.wrong(&found.referenced, message);
                return &[];
            }
        };
        for (place, (key, _)) in entries.iter().enumerate() {
            if entries[..place].iter().any(|(earlier, _)| earlier.value == key.value) {
                self.wrong(&key.referenced, format!("`{}` is given twice", key.value));
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
            (None, None) => format!("expected one of {}", names.join(", ")),
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
                format!("`{key}` must be at least {least}, not {number}")
            }
            (Expected::Number(_, most), Node::Number(number)) => {
                format!("`{key}` must be at most {most}, not {number}")
            }
            (Expected::Number(..), other) => format!("`{key}` must be a whole number, not {}", other.name()),
            (Expected::Word(words), Node::Text(word)) if words.contains(&word.as_str()) => return,
            (Expected::Word(words), Node::Text(word)) => {
                let meant = closest(word, words.iter().copied());
                let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
                format!("`{key}` must be {}, not `{word}`{meant}", any_of(words))
            }
            // YAML reads a bare `off` as false.
            (Expected::Word(words), Node::Truth(false)) if words.contains(&"off") => return,
            (Expected::Word(words), other) => {
                format!("`{key}` must be {}, not {}", any_of(words), other.name())
            }
            (Expected::WordOrNothing(_), Node::Nothing) => return,
            (Expected::WordOrNothing(words), _) => return self.value(Expected::Word(words), key, found),
            (Expected::Text, Node::Text(_) | Node::Nothing) => return,
            (Expected::Text, other) => format!("`{key}` must be a text, not {}", other.name()),
            (Expected::Model, Node::Nothing) => return,
            (Expected::Model, Node::Text(model)) => match providers::wrong_model(model) {
                Some(advice) => format!("`{key}`: `{model}` is not a model ({advice})"),
                None => return,
            },
            (Expected::Model, other) => format!("`{key}` must be PROVIDER/MODEL, not {}", other.name()),
            (Expected::Duration, Node::Text(text)) => match duration::parse(text) {
                Ok(_) => return,
                Err(problem) => format!("`{key}`: {problem}"),
            },
            (Expected::Duration, other) => format!("`{key}` must be a duration like 30s or 10m, not {}", other.name()),
            (Expected::Amount, Node::Number(0..)) => return,
            (Expected::Amount, Node::Fraction(amount)) if *amount >= 0.0 && amount.is_finite() => return,
            (Expected::Amount, Node::Number(_) | Node::Fraction(_)) => format!("`{key}` must be zero or more"),
            (Expected::Amount, other) => format!("`{key}` must be a number of dollars, not {}", other.name()),
            (Expected::Names, Node::List(names)) => return names.iter().for_each(|name| self.name(key, name)),
            (Expected::Names, other) => format!("`{key}` must be a list of names, not {}", other.name()),
            (Expected::Rules, Node::List(rules)) => return rules.iter().for_each(|rule| self.rule(key, rule)),
            (Expected::Rules, other) => format!("`{key}` must be a list of rules, not {}", other.name()),
            (Expected::Variables, Node::List(names)) => return names.iter().for_each(|name| self.variable(key, name)),
            (Expected::Variables, other) => format!("`{key}` must be a list of names, not {}", other.name()),
            (Expected::Patterns, Node::List(patterns)) => {
                return patterns.iter().for_each(|pattern| self.pattern(key, pattern));
            }
            (Expected::Patterns, other) => format!("`{key}` must be a list of patterns, not {}", other.name()),
            (Expected::Paths, Node::List(paths)) => return paths.iter().for_each(|path| self.path(key, path)),
            (Expected::Paths, other) => format!("`{key}` must be a list of paths, not {}", other.name()),
            (Expected::Network, _) => return self.network(key, found),
            (Expected::Providers, _) => return self.providers(found),
            (Expected::Prices, _) => return self.prices(found),
            (Expected::Windows, _) => return self.windows(found),
            (Expected::Words, Node::List(words)) => return words.iter().for_each(|word| self.word(key, word)),
            (Expected::Words, other) => format!("`{key}` must be a list of texts, not {}", other.name()),
            (Expected::Environment, _) => return self.environment(key, found),
            (Expected::Truth, Node::Truth(_)) => return,
            (Expected::Truth, other) => format!("`{key}` must be true or false, not {}", other.name()),
        };
        self.wrong(&found.referenced, message);
    }

    /// One of a list of rules.
    fn rule(&mut self, key: &str, found: &Spanned<Node>) {
        let Node::Text(rule) = &found.value else {
            let message = format!("`{key}` must list rules, not {}", found.value.name());
            return self.wrong(&found.referenced, message);
        };
        if let Err(error) = rule.parse::<CommandRule>() {
            self.wrong(&found.referenced, format!("`{key}`: {error}"));
        }
    }

    fn pattern(&mut self, key: &str, found: &Spanned<Node>) {
        let is_pattern = |text: &str| !text.trim().is_empty() && !text.contains(['\n', '\0']);
        if !matches!(&found.value, Node::Text(text) if is_pattern(text)) {
            self.wrong(&found.referenced, format!("`{key}` lists patterns, not {}", found.value.name()));
        }
    }

    fn network(&mut self, key: &str, found: &Spanned<Node>) {
        let written = match &found.value {
            Node::Nothing => return,
            Node::Text(word) if word.parse::<Network>().is_ok() => return,
            Node::List(domains) if !domains.is_empty() => {
                return domains.iter().for_each(|domain| self.domain(key, domain));
            }
            Node::Text(word) => format!("`{word}`"),
            other @ (Node::List(_) | Node::Truth(_) | Node::Number(_) | Node::Fraction(_) | Node::Map(_)) => {
                other.name().to_owned()
            }
        };
        self.wrong(&found.referenced, format!("`{key}` must be full, none or a list of domains, not {written}"));
    }

    fn domain(&mut self, key: &str, found: &Spanned<Node>) {
        let Node::Text(domain) = &found.value else {
            return self.wrong(&found.referenced, format!("`{key}` lists domains, not {}", found.value.name()));
        };
        if let Err(error) = domain.parse::<HostRule>() {
            self.wrong(&found.referenced, format!("`{key}`: {error}"));
        }
    }

    fn path(&mut self, key: &str, found: &Spanned<Node>) {
        let Node::Text(path) = &found.value else {
            return self.wrong(&found.referenced, format!("`{key}` lists paths, not {}", found.value.name()));
        };
        if !path.starts_with('/') && !path.starts_with("~/") || path.contains('\0') {
            self.wrong(&found.referenced, format!("`{key}`: `{path}` must begin with / or ~/"));
        } else if path.split('/').any(|part| part == "..") {
            // Whoever renames the directory before it would change what the path leads to.
            self.wrong(&found.referenced, format!("`{key}`: `{path}` must not contain `..`"));
        }
    }

    fn word(&mut self, key: &str, found: &Spanned<Node>) {
        match &found.value {
            Node::Text(text) if text.contains('\0') => {
                self.wrong(&found.referenced, format!("`{key}` lists a text with a NUL character: remove it"));
            }
            Node::Text(_) => {}
            other @ (Node::Nothing
            | Node::Truth(_)
            | Node::Number(_)
            | Node::Fraction(_)
            | Node::List(_)
            | Node::Map(_)) => {
                self.wrong(&found.referenced, format!("`{key}` lists texts, not {}: quote it", other.name()));
            }
        }
    }

    fn environment(&mut self, key: &str, found: &Spanned<Node>) {
        for (name, value) in self.entries(key, found) {
            if name.value.is_empty() || name.value.contains(['=', '\0']) {
                self.wrong(&name.referenced, format!("`{}` is not the name of a variable", name.value.escape_debug()));
            }
            if !matches!(&value.value, Node::Text(text) if !text.contains('\0')) {
                let message = format!("`{}` must be a text, not {}: quote it", name.value, value.value.name());
                self.wrong(&value.referenced, message);
            }
        }
    }

    fn variable(&mut self, key: &str, found: &Spanned<Node>) {
        let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        if !matches!(&found.value, Node::Text(name) if is_name(name)) {
            self.wrong(&found.referenced, format!("`{key}` must list names of variables, not {}", found.value.name()));
        }
    }

    /// Checks one entry of a list of names.
    fn name(&mut self, key: &str, found: &Spanned<Node>) {
        let Node::Text(name) = &found.value else {
            let message = format!("`{key}` must list names, not {}", found.value.name());
            return self.wrong(&found.referenced, message);
        };
        if !self.names.contains(&name.as_str()) {
            let advice = match closest(name, self.names.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("expected one of {}", self.names.join(", ")),
            };
            self.wrong(&found.referenced, format!("no such name under `{key}`: `{name}` ({advice})"));
        }
    }
}

pub(crate) fn problem_of(error: &serde_saphyr::Error, text: &str) -> Problem {
    Source::new(text).mistake(error)
}

/// Lists the words that are allowed: `allow`, or `one of none, confined, sealed`.
fn any_of(words: &[&str]) -> String {
    match words {
        [word] => (*word).to_owned(),
        words => format!("one of {}", words.join(", ")),
    }
}
