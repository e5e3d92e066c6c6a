//! Differences between two texts, line by line.

use std::fmt::Write as _;
use std::ops::Range;

use imara_diff::{Hunk, InternedInput, sources::byte_lines};
use serde::Serialize;

use super::lines::hunks;
use crate::diff::{Change, FileState};
use crate::error::Result;
use crate::object::EntryKind;
use crate::store::Store;

/// How many bytes are searched for NUL, as in Git.
const BINARY_PROBE: usize = 8_000;
/// Unchanged lines shown around a change.
const CONTEXT: u32 = 3;
/// Larger files are shown as if they were binary.
const TEXT_MAX: usize = 16 << 20;

/// Returns whether bytes are not text.
#[must_use]
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(BINARY_PROBE)].contains(&0)
}

/// Numbers of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LineCounts {
    pub added: u64,
    pub removed: u64,
}

/// The change of a file's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextDiff {
    /// Not text, or too large to compare.
    Binary,
    Text {
        lines: LineCounts,
        /// The hunks of a unified diff, without the file names above them. Bytes that are not UTF-8 are replaced.
        unified: String,
    },
}

impl Store {
    /// Compares the two sides of a change line by line.
    pub fn text_diff(&self, change: &Change) -> Result<TextDiff> {
        let read = |state: &Option<FileState>| match state {
            Some(FileState { id: Some(id), .. }) => self.blob(*id),
            _ => Ok(Vec::new()),
        };
        let (before, after) = (read(&change.before)?, read(&change.after)?);
        Ok(compare(&before, &after))
    }

    /// Returns a unified diff of all changes like `git diff`, for people. It cannot always be applied: bytes that are
    /// not UTF-8 are replaced, and binary files are only named.
    pub fn unified_diff(&self, changes: &[Change]) -> Result<String> {
        let mut text = String::new();
        for change in changes {
            // Directories are in no diff: one that becomes a file is a new file.
            let file = |state: &Option<FileState>| state.clone().filter(|state| state.kind != EntryKind::Directory);
            let (before, after) = (file(&change.before), file(&change.after));
            let side = |before, after| Change { path: change.path.clone(), before, after };
            match (&before, &after) {
                (None, None) => {}
                // A link and a text have no lines in common, even where they are equal.
                (Some(old), Some(new)) if old.kind.is_regular() != new.kind.is_regular() => {
                    self.write_unified(&mut text, &side(before, None))?;
                    self.write_unified(&mut text, &side(None, after))?;
                }
                _ => self.write_unified(&mut text, &side(before, after))?,
            }
        }
        Ok(text)
    }

    fn write_unified(&self, text: &mut String, change: &Change) -> Result<()> {
        let (old_name, new_name) = (change.path.below("a/"), change.path.below("b/"));
        let _ = writeln!(text, "diff --git {old_name} {new_name}");
        match (&change.before, &change.after) {
            (None, Some(after)) => drop(writeln!(text, "new file mode {}", mode(after))),
            (Some(before), None) => drop(writeln!(text, "deleted file mode {}", mode(before))),
            (Some(before), Some(after)) if mode(before) != mode(after) => {
                let _ = writeln!(text, "old mode {}\nnew mode {}", mode(before), mode(after));
            }
            _ => {}
        }
        if !change.is_content() {
            return Ok(());
        }
        let name = |state: &Option<FileState>, name: String| state.as_ref().map_or("/dev/null".to_owned(), |_| name);
        let (before, after) = (name(&change.before, old_name), name(&change.after, new_name));
        match self.text_diff(change)? {
            TextDiff::Binary => drop(writeln!(text, "Binary files {before} and {after} differ")),
            TextDiff::Text { unified, .. } if unified.is_empty() => {}
            TextDiff::Text { unified, .. } => {
                // As in Git, a tab tells where a name with spaces ends.
                let end = |name: &str| if name.contains(' ') { "\t" } else { "" };
                let _ = write!(text, "--- {before}{}\n+++ {after}{}\n{unified}", end(&before), end(&after));
            }
        }
        Ok(())
    }
}

fn mode(state: &FileState) -> String {
    match state.kind {
        EntryKind::Symlink => "120000".to_owned(),
        // Never shown: directories are left out.
        EntryKind::Directory => "040000".to_owned(),
        EntryKind::File | EntryKind::Executable => format!("100{:03o}", state.mode),
    }
}

fn compare(before: &[u8], after: &[u8]) -> TextDiff {
    if is_binary(before) || is_binary(after) || before.len().max(after.len()) > TEXT_MAX {
        return TextDiff::Binary;
    }
    let input = InternedInput::new(byte_lines(before), byte_lines(after));
    let changed = hunks(&input);
    let count = |of: fn(&Hunk) -> &Range<u32>| changed.iter().map(|hunk| of(hunk).len() as u64).sum();
    let lines = LineCounts { added: count(|hunk| &hunk.after), removed: count(|hunk| &hunk.before) };
    TextDiff::Text { lines, unified: unified(changed, &input) }
}

/// Groups changes that are close to each other into hunks.
fn unified(changed: Vec<Hunk>, input: &InternedInput<&[u8]>) -> String {
    let mut groups: Vec<Vec<Hunk>> = Vec::new();
    for hunk in changed {
        match groups.last_mut().and_then(|group| Some((group.last()?.before.end, group))) {
            Some((end, group)) if hunk.before.start - end <= 2 * CONTEXT => group.push(hunk),
            _ => groups.push(vec![hunk]),
        }
    }
    let mut text = String::new();
    for group in groups {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let lead = first.before.start.min(CONTEXT);
        let (from, to) = (first.before.start - lead, first.after.start - lead);
        let length = |lines: &[imara_diff::Token]| u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let trail = (length(&input.before) - last.before.end).min(CONTEXT);
        let (from_end, to_end) = (last.before.end + trail, last.after.end + trail);
        let _ = writeln!(text, "@@ -{} +{} @@", range(from, from_end), range(to, to_end));
        let mut at = from;
        for hunk in &group {
            lines(&mut text, ' ', input, &input.before, at..hunk.before.start);
            lines(&mut text, '-', input, &input.before, hunk.before.clone());
            lines(&mut text, '+', input, &input.after, hunk.after.clone());
            at = hunk.before.end;
        }
        lines(&mut text, ' ', input, &input.before, at..from_end);
    }
    text
}

/// Formats a range. Lines are counted from one; an empty range is named by the line before it.
fn range(start: u32, end: u32) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

fn lines(
    text: &mut String,
    sign: char,
    input: &InternedInput<&[u8]>,
    side: &[imara_diff::Token],
    range: std::ops::Range<u32>,
) {
    for token in &side[range.start as usize..range.end as usize] {
        let line = input.interner[*token];
        text.push(sign);
        match line.strip_suffix(b"\n") {
            Some(line) => {
                text.push_str(&String::from_utf8_lossy(line));
                text.push('\n');
            }
            None => {
                text.push_str(&String::from_utf8_lossy(line));
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
}
