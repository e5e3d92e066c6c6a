//! The script of a shell, as far as it decides whether a result in it would be run.

use super::script::{is_interpreter, is_script, runner_of};

/// What a result in a script stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Use {
    /// A text that nothing runs, as far as can be seen.
    Text,
    /// The program of a command, or the beginning of one.
    Program,
    /// A number that the shell computes with: it runs what stands in the index of an array.
    Number,
    /// A text that this program runs.
    RunBy(String),
}

/// Words that a command follows after.
const PREFIXES: [&str; 21] = [
    "!", "{", "if", "then", "else", "elif", "while", "until", "do", "time", "exec", "command", "builtin", "nohup",
    "env", "nice", "setsid", "sudo", "doas", "xargs", "coproc",
];

/// Comparisons that compute with what they compare.
const COMPARISONS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

/// Tells what a result stands for that is between these parts of a script.
pub(super) fn use_between(before: &str, after: &str) -> Use {
    let mut scan = Scan { rest: before, ..Scan::default() };
    while let Some(c) = scan.next() {
        if let Some(found) = scan.take(c) {
            return found;
        }
    }
    let first = scan.command.words.first().map(String::as_str);
    let test = after.split("]]").next().unwrap_or_default();
    let words = scan.command.words.iter().map(String::as_str).chain(test.split_whitespace());
    match first {
        Some("let") => Use::Number,
        Some("[[") if words.into_iter().any(|word| COMPARISONS.contains(&word)) => Use::Number,
        Some(_) | None => scan.use_here(),
    }
}

/// One command of a script, up to a place in it.
#[derive(Debug, Clone, Default)]
struct Command {
    words: Vec<String>,
    word: String,
    /// Whether a word has begun; it may be empty, in quotes.
    has_word: bool,
    redirection: Option<Redirection>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Redirection {
    File,
    /// `<<<`: the next word is what the program reads.
    Text,
}

/// A text in the lines after a command, which reads it: `<<END`.
#[derive(Debug, Clone)]
struct Heredoc {
    end: String,
    /// Whether variables in it are replaced.
    is_replaced: bool,
    reader: Command,
}

/// What a command stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Parentheses,
    Substitution,
    Backquotes,
    Arithmetic,
}

#[derive(Debug, Default)]
struct Scan<'a> {
    rest: &'a str,
    quote: Option<char>,
    command: Command,
    outer: Vec<(Inside, Command, Option<char>)>,
    heredocs: Vec<Heredoc>,
}

impl Scan<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn follows(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes one character; returns an answer if the script ends in a comment, or in a text that a command reads.
    fn take(&mut self, c: char) -> Option<Use> {
        match (self.quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => self.quote = None,
            (Some('\''), _) => self.command.push(c),
            (_, '\\') => match self.next() {
                Some('\n') | None => {}
                Some(escaped) => self.command.push(escaped),
            },
            (_, '$') if self.follows("((") => self.enter(Inside::Arithmetic),
            (_, '$') if self.follows("(") => self.enter(Inside::Substitution),
            (_, '`') if self.outer.last().is_some_and(|(inside, ..)| *inside == Inside::Backquotes) => self.leave(),
            (_, '`') => self.enter(Inside::Backquotes),
            (Some(_), _) => self.command.push(c),
            (None, '\'' | '"') => {
                self.quote = Some(c);
                self.command.has_word = true;
            }
            (None, ' ' | '\t') => self.command.end_word(),
            (None, '\n') => {
                self.begin();
                return self.heredocs();
            }
            // The elements of an array follow.
            (None, '(') if self.command.word.ends_with('=') => self.command.words.push("array".to_owned()),
            (None, '(') => self.enter(Inside::Parentheses),
            (None, ')') => {
                self.follows(")");
                self.leave();
            }
            (None, '&') if self.follows(">") || self.command.awaits_file() => self.command.redirect(Redirection::File),
            (None, ';' | '&' | '|') => self.begin(),
            (None, '<') if self.follows("<<") => self.command.redirect(Redirection::Text),
            (None, '<') if self.follows("<") => self.heredoc(),
            (None, '<' | '>') => self.command.redirect(Redirection::File),
            (None, '#') if !self.command.has_word => {
                let Some(line) = self.rest.find('\n') else { return Some(Use::Text) };
                self.rest = &self.rest[line..];
            }
            (None, _) => self.command.push(c),
        }
        None
    }

    fn begin(&mut self) {
        self.command = Command::default();
    }

    fn enter(&mut self, inside: Inside) {
        let command = std::mem::take(&mut self.command);
        self.outer.push((inside, command, self.quote.take()));
    }

    fn leave(&mut self) {
        match self.outer.pop() {
            Some((Inside::Substitution | Inside::Backquotes | Inside::Arithmetic, command, quote)) => {
                (self.command, self.quote) = (command, quote);
                // What it stands for is part of a word.
                self.command.push('x');
            }
            // The end of a pattern of `case` has no beginning.
            Some((Inside::Parentheses, ..)) | None => self.begin(),
        }
    }

    fn heredoc(&mut self) {
        self.follows("-");
        let rest = self.rest.trim_start_matches([' ', '\t']);
        let end = rest.find([' ', '\t', '\n', ';', '&', '|', ')', '<', '>']).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        let mut reader = self.command.clone();
        reader.end_word();
        let plain = word.replace(['\'', '"', '\\'], "");
        self.heredocs.push(Heredoc { is_replaced: plain == word, end: plain, reader });
    }

    /// Skips the texts that follow after a line; returns an answer if the script ends in one of them.
    fn heredocs(&mut self) -> Option<Use> {
        for Heredoc { end, is_replaced, reader } in std::mem::take(&mut self.heredocs) {
            loop {
                let Some((line, rest)) = self.rest.split_once('\n') else {
                    return Some(if is_replaced { reader.reads() } else { Use::Text });
                };
                self.rest = rest;
                if line.trim_start_matches('\t') == end {
                    break;
                }
            }
        }
        None
    }

    fn use_here(&self) -> Use {
        let Command { words, word, redirection, .. } = &self.command;
        if self.outer.iter().any(|(inside, ..)| *inside == Inside::Arithmetic) {
            return Use::Number;
        }
        match (self.quote, redirection) {
            // The shell does not replace it.
            (Some('\''), _) | (_, Some(Redirection::File)) => return Use::Text,
            (_, Some(Redirection::Text)) => return self.command.reads(),
            (_, None) => {}
        }
        if words.is_empty() {
            return if is_assignment(word) { Use::Text } else { Use::Program };
        }
        if matches!(words.as_slice(), [first] if first == "." || first == "source") {
            return Use::Program;
        }
        let argument = format!("{word}{{{{");
        let command: Vec<String> = words.iter().cloned().chain([argument]).collect();
        let place = words.len();
        match runner_of(&command, place) {
            Some(program) => Use::RunBy(program.to_owned()),
            // Its script has the result by then.
            None if is_script(&command, place) => Use::RunBy(words[0].clone()),
            None => Use::Text,
        }
    }
}

impl Command {
    fn push(&mut self, c: char) {
        self.word.push(c);
        self.has_word = true;
    }

    fn awaits_file(&self) -> bool {
        self.redirection.is_some() && !self.has_word
    }

    fn end_word(&mut self) {
        if !std::mem::take(&mut self.has_word) {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let is_before_command = is_assignment(&word) || PREFIXES.contains(&word.as_str());
        if self.redirection.take().is_none() && !(self.words.is_empty() && is_before_command) {
            self.words.push(word);
        }
    }

    fn redirect(&mut self, redirection: Redirection) {
        if self.word.chars().all(|c| c.is_ascii_digit()) {
            // The number of what is redirected.
            self.word.clear();
            self.has_word = false;
        }
        self.end_word();
        self.redirection = Some(redirection);
    }

    /// Tells what a result stands for in the text that a command reads.
    fn reads(&self) -> Use {
        match self.words.iter().find(|word| is_interpreter(word)) {
            Some(program) => Use::RunBy(program.clone()),
            None => Use::Text,
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name.trim_end_matches('+'));
    name.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}
