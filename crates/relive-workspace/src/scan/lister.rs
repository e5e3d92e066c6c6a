//! Selects the entries of one directory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::{BATCH, Job, Name, Shared, Worker, kind};
use crate::apply::is_temporary;
use crate::cache::{Entry, Listing, What};
use crate::error::Result;
use crate::path::FilePath;
use crate::rules::{Decision, DirectoryRules, Reach};
use crate::snapshot::{SkipReason, Skipped};
use crate::stat::{Answer, FileKey, Stat, stat_at};

/// One directory, and its cached listing.
pub(super) struct Lister<'a> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) cached: Option<&'a Arc<Listing>>,
    pub(super) fingerprint: u64,
    pub(super) rules: Arc<DirectoryRules>,
    pub(super) reach: Reach,
    pub(super) path: FilePath,
    pub(super) directory: Arc<OwnedFd>,
    pub(super) worker: &'a mut Worker,
}

/// The entry of the last snapshot, and what was just found there.
type Known<'a> = (Option<&'a What>, Option<Answer<Stat>>);

#[derive(Default)]
struct Found {
    entries: Vec<Entry>,
    directories: Vec<Job>,
    /// The files to read.
    changed: Vec<(Box<[u8]>, FileType)>,
    files: u64,
    bytes: u64,
}

impl Lister<'_> {
    /// Selects the entries of a directory whose names and rules are as they were. If no file has changed, its listing is
    /// the same object.
    pub(super) fn run_known(self, known: &Arc<Listing>) -> Result<Vec<Job>> {
        let mut stats = Vec::with_capacity(known.entries.len());
        let (mut is_same, mut bytes) = (true, 0);
        let max_file_bytes = self.shared.scan.settings.max_file_bytes;
        for entry in &known.entries {
            let What::File { key, links, trust, .. } = &entry.what else { continue };
            let stat = stat_at(&self.directory, &*entry.name);
            is_same = is_same
                && stat.as_ref().is_ok_and(|stat| {
                    bytes += stat.key.size.min(max_file_bytes);
                    let is_same = (stat.key, stat.links) == (*key, *links) && !stat.has_set_id_bits();
                    is_same && self.shared.is_unchanged(key, *trust, stat)
                });
            stats.push(stat);
        }
        if !is_same {
            let names = known.entries.iter().map(Name::of).collect();
            return self.select(known.key, names, stats.into_iter());
        }
        let mut jobs = Vec::new();
        for entry in known.entries.iter().filter(|entry| matches!(entry.what, What::Directory)) {
            let path = self.path.join(&entry.name);
            let decision = self.shared.scan.rules.decide(&self.rules, self.reach, &path, true);
            // By the same rules it was included.
            let Decision::Include(reach) = decision else { continue };
            let (parent, rules) = (self.directory.clone(), self.rules.clone());
            jobs.push(Job::Directory { parent, path, rules, reach });
        }
        self.shared.count(stats.len() as u64, bytes)?;
        self.worker.found.listings.insert(self.path, known.clone());
        Ok(jobs)
    }

    /// Selects the entries with these names.
    pub(super) fn run(self, key: FileKey, names: Vec<Name>) -> Result<Vec<Job>> {
        self.select(key, names, std::iter::empty())
    }

    /// Selects the entries with these names. Their files were looked at already, if `stats` are not empty.
    fn select(
        mut self,
        key: FileKey,
        names: Vec<Name>,
        mut stats: impl Iterator<Item = Answer<Stat>>,
    ) -> Result<Vec<Job>> {
        let known = self.cached.map_or(&[][..], |cached| &*cached.entries);
        let same_rules = self.cached.is_some_and(|cached| cached.rules == self.fingerprint);
        let mut found = Found { entries: Vec::with_capacity(names.len()), ..Found::default() };
        let count = (!self.shared.is_recent(&key)).then_some(names.len() as u64);
        let mut at = 0;
        for name in names {
            while known.get(at).is_some_and(|entry| entry.name < name.name) {
                at += 1;
            }
            let known = known.get(at).filter(|entry| entry.name == name.name).map(|entry| &entry.what);
            let is_directory = name.file_type == FileType::Directory;
            let decision = match known {
                Some(What::Ignored { is_directory: was }) if same_rules && *was == is_directory => Decision::Ignore,
                Some(What::File { .. }) if same_rules && !is_directory => Decision::Include(Reach::Rules),
                _ => self.decide(&name),
            };
            let stat = if matches!(known, Some(What::File { .. })) { stats.next() } else { None };
            match decision {
                Decision::Include(reach) => self.include(&mut found, name, reach, (known, stat)),
                Decision::Ignore => found.entries.push(Entry { name: name.name, what: What::Ignored { is_directory } }),
                Decision::Secret => self.skip(&name.name, SkipReason::Secret),
            }
        }
        self.shared.count(found.files, found.bytes)?;
        let mut jobs = found.directories;
        // Pushed last, these are taken first, so that the directory is closed soon.
        let mut changed = found.changed.into_iter();
        loop {
            let names: Vec<_> = changed.by_ref().take(BATCH).collect();
            if names.is_empty() {
                break;
            }
            jobs.push(Job::Files { directory: self.directory.clone(), path: self.path.clone(), names });
        }
        let listing = Listing { rules: self.fingerprint, key, names: count, entries: found.entries, tree: None };
        self.worker.found.listings.insert(self.path, Arc::new(listing));
        Ok(jobs)
    }

    fn decide(&self, name: &Name) -> Decision {
        let path = self.path.join(&name.name);
        self.shared.scan.rules.decide(&self.rules, self.reach, &path, name.file_type == FileType::Directory)
    }

    fn skip(&mut self, name: &[u8], reason: SkipReason) {
        self.worker.found.skipped.push(Skipped { path: self.path.join(name), reason });
    }

    fn include(&mut self, found: &mut Found, Name { name, file_type }: Name, reach: Reach, known: Known<'_>) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else there is, it has no bytes to keep")]
        match file_type {
            FileType::Directory => {
                let (parent, path) = (self.directory.clone(), self.path.join(&name));
                found.directories.push(Job::Directory { parent, path, rules: self.rules.clone(), reach });
                found.entries.push(Entry { name, what: What::Directory });
            }
            FileType::RegularFile | FileType::Symlink if is_temporary(&name) => self.skip(&name, SkipReason::Temporary),
            FileType::RegularFile | FileType::Symlink => self.include_file(found, name, file_type, known),
            _ => self.skip(&name, SkipReason::Special),
        }
    }

    fn include_file(&mut self, found: &mut Found, name: Box<[u8]>, file_type: FileType, (known, stat): Known<'_>) {
        let stat = match stat.unwrap_or_else(|| stat_at(&self.directory, &*name)) {
            Ok(stat) => stat,
            // It was removed since the directory was read.
            Err(Errno::NOENT) => return,
            Err(_) => return self.skip(&name, SkipReason::Unreadable),
        };
        found.files += 1;
        found.bytes += stat.key.size.min(self.shared.scan.settings.max_file_bytes);
        match known {
            Some(What::File { id, key, trust, past, .. }) if self.shared.is_unchanged(key, *trust, &stat) => {
                if stat.has_set_id_bits() {
                    self.skip(&name, SkipReason::SetIdBits);
                }
                let (id, trust, past, links) = (*id, *trust, *past, stat.links);
                let what = What::File { kind: kind(&stat.key), id, key: stat.key, links, trust, past };
                found.entries.push(Entry { name, what });
            }
            _ => found.changed.push((name, file_type)),
        }
    }
}
