//! Changed files, as people read them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use relive_api::{FileChange, NotKept};
use relive_types::file_name::{self, shown};

use super::table::{Align, Cell, Column, draw};
use crate::terminal::{Look, Paint, without_controls};

/// The lines of changed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lines {
    pub(crate) added: u64,
    pub(crate) removed: u64,
    /// How many files were not compared line by line.
    pub(crate) uncounted: u64,
}

/// `+12 -3 in 2 files`, or `at least +12 -3 in 700 files` if not all lines were counted.
pub(crate) fn summary(files: u64, Lines { added, removed, uncounted }: Lines) -> String {
    let start = if uncounted == 0 { "" } else { "at least " };
    format!("{start}+{added} -{removed} in {}", count(files))
}

/// `1 file`, `2 files`.
pub(crate) fn count(files: u64) -> String {
    format!("{files} {}", if files == 1 { "file" } else { "files" })
}

/// The same for a list.
pub(crate) fn summary_of(files: &[FileChange]) -> String {
    let sum = |count: fn(&FileChange) -> Option<u64>| files.iter().filter_map(count).sum();
    let uncounted = files.iter().filter(|file| is_uncounted(file)).count() as u64;
    let (added, removed) = (sum(|file| file.added), sum(|file| file.removed));
    summary(files.len() as u64, Lines { added, removed, uncounted })
}

/// Tells whether a text changed and its lines were not counted. A directory ends with a slash.
fn is_uncounted(file: &FileChange) -> bool {
    let has_lines = matches!(file.change.as_str(), "added" | "modified" | "deleted") && !file.path.ends_with('/');
    has_lines && !file.binary && file.added.is_none()
}

/// The same, with what others changed in the same directory apart.
pub(crate) fn summary_by_author(files: &[FileChange]) -> String {
    let (others, own): (Vec<FileChange>, Vec<FileChange>) = files.iter().cloned().partition(|file| file.foreign);
    match (own.as_slice(), others.as_slice()) {
        (own, []) => summary_of(own),
        ([], others) => format!("by others: {}", summary_of(others)),
        (own, others) => format!("{}; by others: {}", summary_of(own), summary_of(others)),
    }
}

/// A path that was typed, as a request names it: in quotes, as `diff` shows it, if it is not UTF-8.
pub(crate) fn typed(path: &OsStr) -> String {
    path.to_str().map_or_else(|| file_name::quoted(path.as_bytes()).into_owned(), str::to_owned)
}

/// The paths that a snapshot could not keep, each with the reason, for one line. An earlier daemon tells only the paths.
pub(crate) fn not_kept(not_kept: &[NotKept], paths: &[String]) -> Option<String> {
    const NAMED_MAX: usize = 5;
    let with_reason = |file: &NotKept| match file.reason.as_deref() {
        Some(reason) => format!("{} ({})", shown(&file.path), words_of(reason)),
        None => shown(&file.path).into_owned(),
    };
    let mut all: Vec<String> = not_kept.iter().map(with_reason).collect();
    if all.is_empty() {
        all = paths.iter().map(|path| shown(path).into_owned()).collect();
    }
    let more = all.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    all.truncate(NAMED_MAX);
    (!all.is_empty()).then(|| format!("{}{more}", all.join(", ")))
}

/// The reason why a snapshot lacks a file, in words.
fn words_of(reason: &str) -> &str {
    match reason {
        "too_large" => "too large",
        "special" => "a pipe, socket or device",
        "other_file_system" => "on another file system",
        "too_deep" => "too many directories deep",
        "changing" => "changed while it was read",
        "rules_too_large" => "too large to be applied",
        // Such as `unreadable`, and those of a newer daemon.
        other => other,
    }
}

/// Returns one line per file.
pub(crate) fn stat(files: &[FileChange], look: &Look) -> String {
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let path = Column { header: "PATH", align: Align::Path };
    let columns = [left("CHANGE"), right("ADDED"), right("REMOVED"), path];
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let row = |file: &FileChange| {
        let marks: Vec<&str> = [(file.binary, "binary"), (file.foreign, "by others")]
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, mark)| mark)
            .collect();
        let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
        let change = format!("{}{marks}", file.change);
        [change, count(file.added), count(file.removed), shown(&file.path).into_owned()].map(Cell::plain).to_vec()
    };
    draw(&columns, columns.len() - 1, &files.iter().map(row).collect::<Vec<_>>(), look)
}

/// A unified diff. What could act on a terminal is shown as a question mark there.
pub(crate) fn unified(text: &str, look: &Look) -> String {
    if !look.is_terminal {
        return text.to_owned();
    }
    let clean = without_controls(text);
    let mut painted = String::with_capacity(clean.len());
    for line in clean.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let paint = match body.as_bytes().first() {
            Some(b'+') => Some(Paint::Green),
            Some(b'-') => Some(Paint::Red),
            _ => None,
        };
        match paint {
            Some(paint) => painted.push_str(&look.paint(paint, body)),
            None => painted.push_str(body),
        }
        painted.push_str(end);
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_kept_are_named_with_the_reason() {
        let file = |path: &str, reason: Option<&str>| NotKept { path: path.into(), reason: reason.map(str::to_owned) };
        let all =
            [file("p", Some("special")), file("b", Some("too_large")), file("u", Some("unreadable")), file("x", None)];
        let told = "p (a pipe, socket or device), b (too large), u (unreadable), x";
        assert_eq!(not_kept(&all, &[]).as_deref(), Some(told));
        let paths: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(not_kept(&[], &paths).as_deref(), Some("0, 1, 2, 3, 4 and 2 more"));
        assert_eq!(not_kept(&[], &[]), None);
    }

    #[test]
    fn a_path_that_is_not_utf_8_is_typed_as_it_is_shown() {
        assert_eq!(typed(OsStr::new("src/ä b")), "src/ä b");
        assert_eq!(typed(OsStr::from_bytes(b"a\xff")), r#""a\377""#);
    }

    #[test]
    fn a_list_of_files_is_one_line_each_and_sums_up() {
        let file = |path: &str, change: &str, lines: Option<(u64, u64)>| FileChange {
            path: path.to_owned(),
            change: change.to_owned(),
            added: lines.map(|(added, _)| added),
            removed: lines.map(|(_, removed)| removed),
            binary: lines.is_none(),
            foreign: lines.is_none(),
        };
        let disguised = stat(&[file("gpj.\u{202e}exe", "added", None)], &Look::plain());
        assert!(disguised.ends_with("\"gpj.\\342\\200\\256exe\"\n"), "{disguised}");
        let files = [file("src/a.rs", "modified", Some((12, 3))), file("logo.png", "added", None)];
        assert_eq!(summary_of(&files), "+12 -3 in 2 files");
        assert_eq!(summary_by_author(&files), "+12 -3 in 1 file; by others: +0 -0 in 1 file");
        assert_eq!(summary_by_author(&files[..1]), "+12 -3 in 1 file");
        assert_eq!(
            stat(&files, &Look::plain()),
            "CHANGE                     ADDED  REMOVED  PATH\nmodified                      12        3  src/a.rs\nadded (binary, by others)      -        -  logo.png\n"
        );
        assert_eq!(summary_of(&files[..1]), "+12 -3 in 1 file");
        let uncounted = FileChange { binary: false, ..file("late.txt", "modified", None) };
        let directory = FileChange { binary: false, ..file("empty/", "added", None) };
        let mode = FileChange { binary: false, ..file("tool", "mode", None) };
        let all = [files[0].clone(), directory, mode];
        assert_eq!(summary_of(&all), "+12 -3 in 3 files");
        assert_eq!(summary_of(&[files[0].clone(), uncounted]), "at least +12 -3 in 2 files");
    }
}
