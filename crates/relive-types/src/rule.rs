//! Rules that allow single commands: `shell:git status*`.
//!
//! A rule is the name of a tool, a colon and a pattern in which `*` matches any text. Such a pattern cannot predict how
//! a shell reads a command that contains more than words, so it never matches one. A rule without a `*` matches exactly
//! the command that it spells out.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The tool whose calls are commands.
pub const COMMAND_TOOL: &str = "shell";
/// The tool by which an agent asks a person something.
pub const QUESTION_TOOL: &str = "ask";
/// The longest rule.
pub const RULE_MAX_BYTES: usize = 4096;

/// Commands that an agent may run without asking.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommandRule {
    /// As it was written, without the tool.
    pattern: String,
}

/// The reason why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("`{0}` is not a rule: write it like `shell:git status*`")]
    Form(String),
    #[error("`{0}` has no commands: only `shell` takes a rule")]
    Tool(String),
    #[error("a rule has at most {RULE_MAX_BYTES} bytes, and this one has {0}")]
    TooLong(usize),
    #[error("`{rule}` would never match: a command with {found} matches only a rule that spells it out, without a `*`")]
    NeverMatches { rule: String, found: String },
}

impl CommandRule {
    /// Returns whether a text is intended as a rule, not as the name of a tool.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.contains(':')
    }

    /// Creates the rule that allows only this command.
    pub fn exactly(command: &str) -> Result<Self, RuleError> {
        Self::new(command.replace('\\', "\\\\").replace('*', "\\*"))
    }

    fn new(pattern: String) -> Result<Self, RuleError> {
        let rule = Self { pattern };
        let bytes = rule.to_string().len();
        if bytes > RULE_MAX_BYTES {
            return Err(RuleError::TooLong(bytes));
        }
        if rule.pattern.trim().is_empty() {
            return Err(RuleError::Form(rule.to_string()));
        }
        let parts = rule.parts();
        if parts.len() > 1
            && let Some(found) = parts.iter().flat_map(|part| part.chars()).find(|c| is_more_than_words(*c))
        {
            return Err(RuleError::NeverMatches { rule: rule.to_string(), found: name(found) });
        }
        Ok(rule)
    }

    /// Returns whether it allows this command.
    #[must_use]
    pub fn matches(&self, command: &str) -> bool {
        let parts = self.parts();
        let [first, middle @ .., last] = parts.as_slice() else {
            return parts.first().is_some_and(|whole| whole == command);
        };
        if command.contains(is_more_than_words) {
            return false;
        }
        let Some(mut rest) = command.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            match rest.find(part.as_str()) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last.as_str())
    }

    /// Returns the texts between the stars.
    fn parts(&self) -> Vec<String> {
        let (mut parts, mut part) = (Vec::new(), String::new());
        let mut chars = self.pattern.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' if matches!(chars.peek(), Some('*' | '\\')) => part.extend(chars.next()),
                '*' => parts.push(std::mem::take(&mut part)),
                c => part.push(c),
            }
        }
        parts.push(part);
        parts
    }
}

/// Returns whether a character makes a command more than a list of words: it can start another command, redirect, or
/// expand to something else. Even in quotes, because a shell's quoting is not parsed here.
fn is_more_than_words(c: char) -> bool {
    matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')' | '`' | '$') || (c.is_control() && c != '\t')
}

fn name(c: char) -> String {
    match c {
        '\n' => "a line break".to_owned(),
        c if c.is_control() => "a control character".to_owned(),
        c => format!("`{c}`"),
    }
}

impl FromStr for CommandRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (tool, pattern) = text.split_once(':').ok_or_else(|| RuleError::Form(text.to_owned()))?;
        if tool != COMMAND_TOOL {
            return Err(RuleError::Tool(tool.to_owned()));
        }
        Self::new(pattern.to_owned())
    }
}

impl TryFrom<String> for CommandRule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl From<CommandRule> for String {
    fn from(rule: CommandRule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for CommandRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{COMMAND_TOOL}:{}", self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that none of the rules below may allow, however harmless they begin.
    const HOSTILE: [&str; 24] = [
        "git status; rm -rf /",
        "git status;rm -rf /",
        "git status && rm -rf /",
        "git status || rm -rf /",
        "git status | sh",
        "git status & rm -rf /",
        "git status &",
        "git status\nrm -rf /",
        "git status\r\nrm -rf /",
        "git status \\\nrm -rf /",
        "git status $(rm -rf /)",
        "git status \"$(rm -rf /)\"",
        "git status `rm -rf /`",
        "git status ${X:-y}",
        "git status $X",
        "git status > /etc/passwd",
        "git status >> ~/.profile",
        "git status < /etc/shadow",
        "git status <(rm -rf /)",
        "git status 2>&1",
        "(git status)",
        "git status 'a;b'",
        "git status \u{b} x",
        "git status\0x",
    ];

    #[test]
    fn a_pattern_never_matches_more_than_words() {
        for rule in ["shell:git status*", "shell:git*", "shell:*", "shell:*/", "shell:git * /", "shell:* *"] {
            let rule: CommandRule = rule.parse().unwrap();
            for command in HOSTILE {
                assert!(!rule.matches(command), "{rule} allows {command:?}");
            }
        }
    }

    #[test]
    fn a_rule_without_a_star_allows_what_it_spells_out() {
        for command in HOSTILE {
            let rule = CommandRule::exactly(command).unwrap();
            assert!(rule.matches(command), "{rule} does not allow {command:?}");
            assert_eq!(rule.to_string().parse::<CommandRule>().unwrap(), rule);
            for other in [&command[1..], &format!("{command} "), &format!(" {command}"), &format!("{command};x")] {
                assert!(!rule.matches(other), "{rule} allows {other:?}");
            }
        }
    }

    #[test]
    fn rules_match_the_commands_they_should() {
        let check = |rule: &str, command: &str, allowed: bool| {
            let parsed: CommandRule = rule.parse().unwrap();
            assert_eq!(parsed.matches(command), allowed, "{rule} {command:?}");
        };
        check("shell:git status*", "git status", true);
        check("shell:git status*", "git status --short -- 'a b'", true);
        check("shell:git status*", "git\tstatus", false);
        check("shell:git status*", " git status", false);
        check("shell:git status*", "PATH=. git status", false);
        check("shell:git status*", "sudo git status", false);
        check("shell:git status *", "git statusx", false);
        check("shell:git status", "git status --short", false);
        check("shell:git * --stat", "git diff --stat", true);
        check("shell:git * --stat", "git --stat", false);
        check("shell:a*b*c", "abc", true);
        check("shell:a*b*c", "a b b c", true);
        check("shell:a*b*c", "acb", false);
        check("shell:aa*aa", "aaa", false);
        check("shell:*", "rm -rf /", true);
        check("shell:*", "make && make test", false);
        check("shell:make && make test", "make && make test", true);
        check("shell:make && make test", "make && make test2", false);
        check(r"shell:ls \*", "ls *", true);
        check(r"shell:ls \*", "ls a", false);
        check(r"shell:grep a\.b*", r"grep a\.b c", true);
        check("shell:echo a:b*", "echo a:bc", true);
        // A permanent permission is no wider than the command that was shown.
        let rule = CommandRule::exactly(r"ls \* *").unwrap();
        assert!(rule.matches(r"ls \* *") && !rule.matches(r"ls \* a") && !rule.matches(r"ls * *"));
    }

    #[test]
    fn an_invalid_rule_is_refused_with_the_reason() {
        let check = |text: &str, said: &str| {
            let error = text.parse::<CommandRule>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        };
        check("git status", "write it like");
        check("shell:", "write it like");
        check("shell: ", "write it like");
        check("write:src/*", "`write` has no commands");
        check("shell:cat * | wc", "never match: a command with `|`");
        check("shell:a*\nb", "a command with a line break");
        check(&format!("shell:{}", "x".repeat(RULE_MAX_BYTES)), "at most 4096 bytes");
    }
}
