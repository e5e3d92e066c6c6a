//! Patterns of ignore files, as Git reads them.

use std::iter::Peekable;
use std::str::Chars;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Error, Result};

/// Compiles the patterns of a configuration, all of which have to be valid.
pub(super) fn compile(lines: &[String]) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        let invalid = |_| Error::InvalidPattern { pattern: line.clone() };
        builder.add_line(None, &as_git_reads(line).unwrap_or_default()).map_err(invalid)?;
    }
    builder.build().map_err(|_| Error::InvalidPattern { pattern: lines.join(" ") })
}

/// Compiles a `.gitignore`. Lines that are not a valid pattern or not text match nothing.
pub(super) fn compile_file(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    for line in text.split(|&byte| byte == b'\n') {
        if let Some(line) = std::str::from_utf8(line).ok().and_then(as_git_reads) {
            let _ = builder.add_line(None, &line);
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Compiles patterns of names that are matched in upper and lower case.
pub(super) fn compile_names(patterns: &[String]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    // Files of one name are the same file on some file systems, and a key is one in capitals too.
    let _ = builder.case_insensitive(true);
    for pattern in patterns {
        let _ = builder.add_line(None, &as_git_reads(pattern).unwrap_or_default());
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Rewrites a pattern where the `ignore` crate and Git differ; `None` if it matches nothing in Git.
///
/// In Git, `{` and `}` are ordinary characters, no class matches a slash, a pattern that ends with a lone
/// backslash or in a class is invalid, no path has an empty component, and of the white space at the end of a line only
/// spaces do not belong to the pattern.
fn as_git_reads(line: &str) -> Option<String> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.starts_with('#') {
        return None;
    }
    let mut pattern = line.trim_end_matches(' ');
    if pattern.len() < line.len() && ends_with_lone_backslash(pattern) {
        // The first of the spaces is escaped and therefore part of the pattern.
        pattern = &line[..=pattern.len()];
    }
    let (is_negated, pattern) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
    let (is_directory, pattern) = pattern.strip_suffix('/').map_or((false, pattern), |rest| (true, rest));
    if pattern.is_empty() || ends_with_lone_backslash(pattern) || pattern.ends_with('/') || pattern.contains("//") {
        return None;
    }
    let mut text = String::with_capacity(line.len() + 8);
    text.push_str(if is_negated { "!" } else { "" });
    text.push_str(if pattern.contains('/') { "" } else { "**/" });
    rewrite(pattern, &mut text)?;
    keep_last_white_space(&mut text);
    text.push_str(if is_directory { "/" } else { "" });
    Some(text)
}

/// Encloses white space at the end of a pattern, which the `ignore` crate would strip: a list of one alternative.
fn keep_last_white_space(text: &mut String) {
    let Some(last) = text.chars().next_back().filter(|last| last.is_whitespace()) else { return };
    text.truncate(text.len() - last.len_utf8());
    if ends_with_lone_backslash(text) {
        text.pop();
    }
    text.extend(['{', last, '}']);
}

fn ends_with_lone_backslash(text: &str) -> bool {
    text.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// Returns `None` if a class is not closed, or if it names one that does not exist: in Git such a pattern matches nothing.
fn rewrite(pattern: &str, text: &mut String) -> Option<()> {
    let mut characters = pattern.chars().peekable();
    let (mut in_class, mut in_negated) = (false, false);
    while let Some(character) = characters.next() {
        if in_class && character == '[' && characters.peek() == Some(&':') {
            let rest: String = characters.clone().skip(1).collect();
            let (name, _) = rest.split_once(":]")?;
            text.push_str(class_members(name)?);
            characters.nth(name.chars().count() + 2);
            continue;
        }
        if in_class && !in_negated && push_without_slash(character, &mut characters, text) {
            continue;
        }
        match character {
            '\\' => {
                text.push('\\');
                text.extend(characters.next());
                continue;
            }
            '{' | '}' if !in_class => text.push('\\'),
            // Three stars mean the same as two.
            '*' if !in_class && text.ends_with("**") => continue,
            _ => {}
        }
        text.push(character);
        if in_class {
            in_class = character != ']';
        } else if character == '[' {
            in_class = true;
            let is_negated = characters.next_if(|next| matches!(next, '!' | '^')).is_some();
            in_negated = is_negated;
            text.push_str(if is_negated { "!" } else { "" });
            // A bracket in first position is a member of the class.
            text.extend(characters.next_if_eq(&']'));
            text.push_str(if is_negated { "/" } else { "" });
        }
    }
    (!in_class).then_some(())
}

/// Writes a member of a class, or a range of them, without the slash. Returns false if there is no slash in it.
fn push_without_slash(first: char, rest: &mut Peekable<Chars<'_>>, text: &mut String) -> bool {
    let mut ahead = rest.clone();
    let is_range = ahead.next() == Some('-');
    let last = ahead.next().filter(|last| is_range && !matches!(last, ']' | '[' | '\\')).unwrap_or(first);
    if first == '\\' || !(first..=last).contains(&'/') {
        return false;
    }
    if first != last {
        rest.nth(1);
    }
    if first < '/' {
        text.extend([first, '-', '.']);
    }
    if last > '/' {
        text.extend(['0', '-', last]);
    }
    true
}

/// Returns the members of a class that POSIX names, such as `[:alpha:]`. No class matches a slash.
fn class_members(name: &str) -> Option<&'static str> {
    Some(match name {
        "alnum" => "a-zA-Z0-9",
        "alpha" => "a-zA-Z",
        "blank" => " \t",
        "cntrl" => "\u{1}-\u{1f}\u{7f}",
        "digit" => "0-9",
        // Not first: there it would negate the class.
        "graph" => "\"-.0-~!",
        "lower" => "a-z",
        "print" => " -.0-~",
        "punct" => "\"-.:-@[-`{-~!",
        "space" => " \t\n\u{b}\u{c}\r",
        "upper" => "A-Z",
        "xdigit" => "0-9a-fA-F",
        _ => return None,
    })
}

/// Returns the directories of a pattern before its first wildcard: only `build` for `build/keep.txt`.
pub(super) fn literal_directories(pattern: &str) -> Vec<Vec<u8>> {
    let literal = pattern.trim_start_matches('/').split(['*', '?', '[', '\\']).next().unwrap_or_default();
    let slashes = literal.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    slashes.map(|(at, _)| literal.as_bytes()[..at].to_vec()).collect()
}
