//! Which snapshot a line comes from.

use imara_diff::{Algorithm, Diff, InternedInput, sources::byte_lines};
use serde::Serialize;

use crate::diff::View;
use crate::error::{Error, Result};
use crate::object::ObjectId;
use crate::path::FilePath;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// Lines of a file that come from one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlamedLine {
    /// The line, without its end. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The first of the given snapshots that has it.
    pub snapshot: usize,
}

impl Store {
    /// Says of each line of a file, as the last of `snapshots` has it, which of them was the first to have it. Give them
    /// in the order in which they were taken. Versions that are equal are compared once.
    pub fn blame(&self, snapshots: &[Snapshot], path: &FilePath) -> Result<Vec<BlamedLine>> {
        let mut version: Option<(ObjectId, Vec<u8>)> = None;
        let mut origins: Vec<usize> = Vec::new();
        for (at, snapshot) in snapshots.iter().enumerate() {
            let id = View::new(self, snapshot)?.state(path)?.and_then(|state| state.id);
            let Some(id) = id else {
                version = None;
                origins.clear();
                continue;
            };
            if version.as_ref().is_some_and(|(known, _)| *known == id) {
                continue;
            }
            let bytes = self.blob(id)?;
            let before = version.as_ref().map_or(&[][..], |(_, bytes)| bytes);
            origins = carry_over(&origins, before, &bytes, at);
            version = Some((id, bytes));
        }
        let (_, bytes) = version.ok_or_else(|| Error::NoSuchPath { path: path.clone() })?;
        let lines = byte_lines(&bytes).map(|line| {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            String::from_utf8_lossy(line).into_owned()
        });
        Ok(lines.zip(origins).map(|(text, snapshot)| BlamedLine { text, snapshot }).collect())
    }
}

/// The origins of the new version's lines: those of unchanged lines stay.
fn carry_over(origins: &[usize], before: &[u8], after: &[u8], at: usize) -> Vec<usize> {
    let input = InternedInput::new(byte_lines(before), byte_lines(after));
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let mut carried = Vec::with_capacity(input.after.len());
    let mut old = 0;
    for hunk in diff.hunks() {
        carried.extend_from_slice(&origins[old..hunk.before.start as usize]);
        carried.extend(hunk.after.clone().map(|_| at));
        old = hunk.before.end as usize;
    }
    carried.extend_from_slice(&origins[old..]);
    carried
}
