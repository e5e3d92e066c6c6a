//! The parts of a snapshot that a Git tree cannot hold: permissions other than 644 and 755, empty directories, hard
//! links, the paths that could not be stored, and the patterns that decided what is stored.
//!
//! They are kept in a blob next to the tree. It contains the permissions that most files have, and the exceptions, so
//! that a umask of 002 does not make it list every file.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::cache::{Listings, What};
use crate::object::EntryKind;
use crate::path::FilePath;
use crate::rules::OuterRules;
use crate::settings::Settings;
use crate::snapshot::{SkipReason, Skipped};

/// Later versions added the fields `left`, `above` and `rule` and did not change this: a version that does not know them
/// refuses the blob. Older blobs are read.
const MAGIC: &str = "relive extras 1";
/// Above this number of paths that could not be stored, any path may be one of them.
const SKIPPED_MAX: usize = 10_000;
/// Permissions, the sticky bit and the set-id bits.
const MODES: usize = 0o10000;

/// The usual permissions of each kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsualModes {
    pub(crate) file: u32,
    pub(crate) executable: u32,
    pub(crate) directory: u32,
}

impl Default for UsualModes {
    fn default() -> Self {
        Self { file: 0o644, executable: 0o755, directory: 0o755 }
    }
}

/// The parts of a snapshot that are not in its tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Extras {
    pub(crate) usual: UsualModes,
    /// Files and directories with other permissions.
    pub(crate) modes: BTreeMap<FilePath, u32>,
    /// Directories without any file or directory that is part of the snapshot.
    pub(crate) empty: BTreeSet<FilePath>,
    /// Files with several names; each group, and the list of groups, is sorted.
    pub(crate) links: Vec<Vec<FilePath>>,
    /// Paths that existed and could not be stored, and why, where that is known. A restore must not remove them.
    pub(crate) skipped: BTreeMap<FilePath, Option<SkipReason>>,
    /// The configured patterns. A restore applies them too, because the configuration may have changed since.
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    /// The rules from outside of the directory, which may have changed since too. A copy records none: its own never change.
    pub(crate) outer: OuterRules,
}

impl Extras {
    pub(crate) fn of(listings: &Listings, skipped: &[Skipped], (settings, outer): (&Settings, &OuterRules)) -> Self {
        // Fields end with a zero byte, and no file name contains one.
        let patterns = |patterns: &[String]| patterns.iter().filter(|text| !text.contains('\0')).cloned().collect();
        let mut extras = Self {
            usual: usual_modes(listings),
            skipped: skipped_paths(skipped),
            include: patterns(&settings.include),
            exclude: patterns(&settings.exclude),
            outer: outer.clone(),
            ..Self::default()
        };
        let mut linked: HashMap<u64, Vec<FilePath>> = HashMap::new();
        for (directory, listing) in listings {
            let mut is_empty = true;
            for entry in &listing.entries {
                match &entry.what {
                    What::Ignored { .. } => {}
                    What::Directory => is_empty = is_empty && !listings.contains_key(&directory.join(&entry.name)),
                    What::File { kind, key, links, .. } => {
                        is_empty = false;
                        if kind.is_regular() && key.permissions() != extras.usual.of(*kind) {
                            extras.modes.insert(directory.join(&entry.name), key.permissions());
                        }
                        if kind.is_regular() && *links > 1 {
                            linked.entry(key.inode).or_default().push(directory.join(&entry.name));
                        }
                    }
                }
            }
            if directory.is_root() {
                continue;
            }
            if is_empty {
                extras.empty.insert(directory.clone());
            }
            if listing.key.permissions() != extras.usual.directory {
                extras.modes.insert(directory.clone(), listing.key.permissions());
            }
        }
        extras.links = linked.into_values().filter(|group| group.len() > 1).collect();
        extras.links.iter_mut().for_each(|group| group.sort_unstable());
        extras.links.sort_unstable();
        extras
    }

    /// Returns the permissions of a path. Links have none.
    pub(crate) fn mode(&self, path: &FilePath, kind: EntryKind) -> u32 {
        match kind {
            EntryKind::Symlink => 0o777,
            EntryKind::File | EntryKind::Executable | EntryKind::Directory => {
                self.modes.get(path).copied().unwrap_or_else(|| self.usual.of(kind))
            }
        }
    }

    /// Returns the blob; `None` if the tree is enough.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        if *self == Self::default() {
            return None;
        }
        let UsualModes { file, executable, directory } = self.usual;
        let mut bytes = format!("{MAGIC}\0{file:o} {executable:o} {directory:o}\0").into_bytes();
        let mut line = |start: &str, path: &FilePath| {
            bytes.extend_from_slice(start.as_bytes());
            bytes.extend_from_slice(path.as_bytes());
            bytes.push(0);
        };
        self.modes.iter().for_each(|(path, mode)| line(&format!("mode {mode:o} "), path));
        self.empty.iter().for_each(|path| line("empty ", path));
        for group in &self.links {
            let starts = ["link "].into_iter().chain(std::iter::repeat("also "));
            starts.zip(group).for_each(|(start, path)| line(start, path));
        }
        for (path, reason) in &self.skipped {
            // Earlier versions did not say why.
            let start = reason.map_or_else(|| "skip ".to_owned(), |reason| format!("left {} ", reason.name()));
            line(&start, path);
        }
        for (start, patterns) in [("include ", &self.include), ("exclude ", &self.exclude)] {
            for pattern in patterns {
                bytes.extend_from_slice(start.as_bytes());
                bytes.extend_from_slice(pattern.as_bytes());
                bytes.push(0);
            }
        }
        for (text, prefix) in self.outer.files() {
            let lines = text.split(|&byte| byte == b'\n').map(|line| (&b"rule "[..], line));
            for (start, rest) in [(&b"above "[..], prefix)].into_iter().chain(lines) {
                bytes.extend_from_slice(start);
                bytes.extend_from_slice(rest);
                bytes.push(0);
            }
        }
        Some(bytes)
    }

    pub(crate) fn has_set_id_bits(&self) -> bool {
        let UsualModes { file, executable, directory } = self.usual;
        [file, executable, directory].into_iter().chain(self.modes.values().copied()).any(|mode| mode & 0o6000 != 0)
    }

    /// Returns whether a path existed, or may have existed, without being stored.
    pub(crate) fn has_skipped(&self, path: &FilePath) -> bool {
        self.skipped.contains_key(path)
            || self.skipped.contains_key(&FilePath::root())
            || path.parents().any(|above| self.skipped.contains_key(&above))
    }

    /// Decodes the output of [`Self::encode`]; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.strip_suffix(b"\0")?.split(|&byte| byte == 0);
        if lines.next()? != MAGIC.as_bytes() {
            return None;
        }
        let octal = |text: &[u8]| {
            u32::from_str_radix(std::str::from_utf8(text).ok()?, 8).ok().filter(|mode| (*mode as usize) < MODES)
        };
        let usual = lines.next()?.split(|&byte| byte == b' ').map(octal).collect::<Option<Vec<_>>>()?;
        let [file, executable, directory] = usual.try_into().ok()?;
        let mut extras = Self { usual: UsualModes { file, executable, directory }, ..Self::default() };
        for line in lines {
            let space = line.iter().position(|&byte| byte == b' ')?;
            let rest = &line[space + 1..];
            let path = |bytes: &[u8]| FilePath::from_bytes(bytes).ok();
            match &line[..space] {
                b"mode" => {
                    let space = rest.iter().position(|&byte| byte == b' ')?;
                    extras.modes.insert(path(&rest[space + 1..])?, octal(&rest[..space])?);
                }
                b"empty" => drop(extras.empty.insert(path(rest)?)),
                b"link" => extras.links.push(vec![path(rest)?]),
                b"skip" => drop(extras.skipped.insert(path(rest)?, None)),
                b"left" => {
                    let space = rest.iter().position(|&byte| byte == b' ')?;
                    extras.skipped.insert(path(&rest[space + 1..])?, SkipReason::from_name(&rest[..space]));
                }
                b"include" => extras.include.push(String::from_utf8(rest.to_vec()).ok()?),
                b"exclude" => extras.exclude.push(String::from_utf8(rest.to_vec()).ok()?),
                b"above" => extras.outer.add_file(rest),
                b"rule" => extras.outer.add_line(rest)?,
                b"also" => extras.links.last_mut()?.push(path(rest)?),
                _ => return None,
            }
        }
        Some(extras)
    }
}

impl UsualModes {
    pub(crate) fn of(self, kind: EntryKind) -> u32 {
        match kind {
            EntryKind::File => self.file,
            EntryKind::Executable => self.executable,
            EntryKind::Symlink => 0o777,
            EntryKind::Directory => self.directory,
        }
    }
}

/// Returns the paths to record: those that lower the grade and are in no tree.
fn skipped_paths(skipped: &[Skipped]) -> BTreeMap<FilePath, Option<SkipReason>> {
    let absent = || skipped.iter().filter(|skipped| skipped.reason.leaves_out());
    if absent().count() > SKIPPED_MAX {
        return BTreeMap::from([(FilePath::root(), None)]);
    }
    absent().map(|skipped| (skipped.path.clone(), Some(skipped.reason))).collect()
}

/// Returns the most frequent permissions of each kind.
fn usual_modes(listings: &Listings) -> UsualModes {
    let mut counts = [[0_u32; MODES]; 3];
    for (directory, listing) in listings {
        if !directory.is_root() {
            counts[2][listing.key.permissions() as usize] += 1;
        }
        for entry in &listing.entries {
            if let What::File { kind, key, .. } = &entry.what {
                match kind {
                    EntryKind::File => counts[0][key.permissions() as usize] += 1,
                    EntryKind::Executable => counts[1][key.permissions() as usize] += 1,
                    EntryKind::Symlink | EntryKind::Directory => {}
                }
            }
        }
    }
    let most = |counts: &[u32; MODES], usual: u32| {
        // Of equally frequent ones the usual one, else the smallest.
        let key = |mode: &u32| (counts[*mode as usize], *mode == usual, std::cmp::Reverse(*mode));
        (0..0o10000).max_by_key(key).unwrap_or(usual)
    };
    UsualModes {
        file: most(&counts[0], 0o644),
        executable: most(&counts[1], 0o755),
        directory: most(&counts[2], 0o755),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_are_unchanged_after_encoding_and_decoding() {
        let path = |text: &str| text.parse::<FilePath>().unwrap();
        let mut extras = Extras {
            usual: UsualModes { file: 0o664, executable: 0o775, directory: 0o775 },
            modes: BTreeMap::from([(path("a b\\n"), 0o600)]),
            empty: BTreeSet::from([path("x/y")]),
            links: vec![vec![path("one"), path("two")], vec![path("three"), path("two two")]],
            skipped: BTreeMap::from([(FilePath::root(), None), (path("a pipe"), Some(SkipReason::Special))]),
            include: vec!["dist/ x".to_owned()],
            exclude: vec!["*.iso".to_owned()],
            outer: OuterRules::default(),
        };
        extras.outer.add_file(b"");
        extras.outer.add_line(b"*.o").unwrap();
        extras.outer.add_file(b"s/");
        extras.outer.add_line(b" x ").unwrap();
        extras.outer.add_line(b"!y").unwrap();
        let bytes = extras.encode().unwrap();
        assert_eq!(Extras::decode(&bytes), Some(extras));
        assert_eq!(Extras::default().encode(), None);
        for at in 0..bytes.len() {
            let _ = Extras::decode(&bytes[..at]);
        }
    }
}
