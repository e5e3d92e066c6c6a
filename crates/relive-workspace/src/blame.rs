//! Finds the snapshot that each line of a file comes from.

use std::collections::HashMap;

use imara_diff::sources::byte_lines;
use serde::Serialize;

use crate::diff::{View, changed_lines, is_binary};
use crate::error::{Error, Result};
use crate::object::ObjectId;
use crate::path::FilePath;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// How many lines of earlier versions are remembered, to know them again when they come back.
const REMEMBERED_LINES_MAX: usize = 4 << 20;

/// A line of a file, and the version it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlamedLine {
    /// The line, without its end. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The first of the given versions that contains the line.
    pub version: usize,
}

/// A state of a directory, or of a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlameVersion {
    pub snapshot: Snapshot,
    /// The copy that it is a state of; `None` for the directory itself.
    pub copy: Option<usize>,
    /// The copy whose changes it brought in: new lines come from there as far as they are found there.
    pub merges: Option<usize>,
}

impl From<Snapshot> for BlameVersion {
    fn from(snapshot: Snapshot) -> Self {
        Self { snapshot, copy: None, merges: None }
    }
}

/// A file as far as the versions were read.
#[derive(Debug)]
struct Known {
    id: ObjectId,
    bytes: Vec<u8>,
    /// For each line, the version it comes from.
    origins: Vec<usize>,
}

impl Store {
    /// Returns for each line of a file, as it is in the last version of the directory, the first version that contains it.
    /// Pass the versions in the order in which they were there. Equal contents are compared once: lines that were there
    /// before and come back have their old origin.
    pub fn blame(&self, versions: &[BlameVersion], path: &FilePath) -> Result<Vec<BlamedLine>> {
        let mut now: HashMap<Option<usize>, Known> = HashMap::new();
        let mut earlier: HashMap<(Option<usize>, ObjectId), Vec<usize>> = HashMap::new();
        let mut remembered = 0;
        for (at, BlameVersion { snapshot, copy, merges }) in versions.iter().enumerate() {
            let Some(id) = View::new(self, snapshot)?.state(path)?.and_then(|state| state.id) else {
                now.remove(copy);
                continue;
            };
            if now.get(copy).is_some_and(|known| known.id == id) {
                continue;
            }
            let bytes = self.blob(id)?;
            if let Some(origins) = earlier.get(&(*copy, id)) {
                now.insert(*copy, Known { id, bytes, origins: origins.clone() });
                continue;
            }
            let fresh = vec![at; byte_lines(&bytes).count()];
            let brought = merges.and_then(|copy| now.get(&Some(copy)));
            let fresh = brought.map_or(fresh.clone(), |theirs| carry_over(theirs, &bytes, &fresh));
            let origins = now.get(copy).map_or(fresh.clone(), |before| carry_over(before, &bytes, &fresh));
            remembered += origins.len();
            if remembered <= REMEMBERED_LINES_MAX {
                earlier.insert((*copy, id), origins.clone());
            }
            now.insert(*copy, Known { id, bytes, origins });
        }
        let Known { bytes, origins, .. } = now.remove(&None).ok_or_else(|| Error::NoSuchPath { path: path.clone() })?;
        if is_binary(&bytes) {
            return Err(Error::NotText { path: path.clone() });
        }
        let lines = byte_lines(&bytes).map(|line| {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            String::from_utf8_lossy(line).into_owned()
        });
        Ok(lines.zip(origins).map(|(text, version)| BlamedLine { text, version }).collect())
    }
}

/// Returns the origins of the lines of a new version: unchanged lines keep theirs, the others have those of `fresh`.
fn carry_over(before: &Known, after: &[u8], fresh: &[usize]) -> Vec<usize> {
    let origins = &before.origins;
    let (mut carried, mut old) = (Vec::new(), 0);
    for hunk in changed_lines(&before.bytes, after) {
        carried.extend_from_slice(&origins[old..hunk.before.start as usize]);
        carried.extend_from_slice(&fresh[hunk.after.start as usize..hunk.after.end as usize]);
        old = hunk.before.end as usize;
    }
    carried.extend_from_slice(&origins[old..]);
    carried
}
