//! Differences between two texts, line by line.

use std::fmt::Write as _;

use imara_diff::{Algorithm, Diff, InternedInput, sources::byte_lines};
use serde::Serialize;

use crate::diff::{Change, FileState};
use crate::error::Result;
use crate::object::EntryKind;
use crate::store::Store;

/// Like Git, look for NUL in the first bytes.
const BINARY_PROBE: usize = 8_000;
/// Unchanged lines shown around a change.
const CONTEXT: u32 = 3;
/// Larger files are shown as if they were binary.
const TEXT_MAX: usize = 16 << 20;

/// Whether bytes are not text.
#[must_use]
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(BINARY_PROBE)].contains(&0)
}

/// Lines added and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LineCounts {
    /// Lines that are new.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
}

/// How the text of a file changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextDiff {
    /// Not text, or too large to compare.
    Binary,
    /// Text.
    Text {
        /// Lines added and removed.
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

    /// A unified diff of all changes as `git diff` shows it, for people. It cannot always be applied: bytes that are not
    /// UTF-8 are replaced, and binary files are only named.
    pub fn unified_diff(&self, changes: &[Change]) -> Result<String> {
        let mut text = String::new();
        for change in changes.iter().filter(|change| !change.is_directory()) {
            let path = &change.path;
            let _ = writeln!(text, "diff --git a/{path} b/{path}");
            match (&change.before, &change.after) {
                (None, Some(after)) => drop(writeln!(text, "new file mode {}", mode(after))),
                (Some(before), None) => drop(writeln!(text, "deleted file mode {}", mode(before))),
                (Some(before), Some(after)) if mode(before) != mode(after) => {
                    let _ = writeln!(text, "old mode {}\nnew mode {}", mode(before), mode(after));
                }
                _ => {}
            }
            if !change.is_content() {
                continue;
            }
            let name = |state: &Option<FileState>, side: &str| match state {
                Some(_) => format!("{side}/{path}"),
                None => "/dev/null".to_owned(),
            };
            let (before, after) = (name(&change.before, "a"), name(&change.after, "b"));
            match self.text_diff(change)? {
                TextDiff::Binary => drop(writeln!(text, "Binary files {before} and {after} differ")),
                TextDiff::Text { unified, .. } if unified.is_empty() => {}
                TextDiff::Text { unified, .. } => drop(write!(text, "--- {before}\n+++ {after}\n{unified}")),
            }
        }
        Ok(text)
    }
}

fn mode(state: &FileState) -> String {
    match state.kind {
        EntryKind::Symlink => "120000".to_owned(),
        EntryKind::Directory => "040000".to_owned(),
        EntryKind::File | EntryKind::Executable => format!("100{:03o}", state.mode),
    }
}

fn compare(before: &[u8], after: &[u8]) -> TextDiff {
    if is_binary(before) || is_binary(after) || before.len().max(after.len()) > TEXT_MAX {
        return TextDiff::Binary;
    }
    let input = InternedInput::new(byte_lines(before), byte_lines(after));
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let lines = LineCounts { added: diff.count_additions().into(), removed: diff.count_removals().into() };
    TextDiff::Text { lines, unified: unified(&diff, &input) }
}

/// Groups changes that are near each other into hunks.
fn unified(diff: &Diff, input: &InternedInput<&[u8]>) -> String {
    let mut groups: Vec<Vec<imara_diff::Hunk>> = Vec::new();
    for hunk in diff.hunks() {
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

/// Lines are counted from one; an empty range is named by the line before it.
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
