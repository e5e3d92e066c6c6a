//! Decisions about files that are not on the disk, by the ignore files of a snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Decision, DirectoryRules, IgnoreFile, Reach, Rules};
use crate::error::{Error, Result};
use crate::object::ObjectId;
use crate::path::FilePath;
use crate::store::Store;

/// Rules, applied to any number of paths.
pub(crate) struct RecordedRules<'a> {
    rules: &'a Rules,
    store: &'a Store,
    /// What holds in a directory; `None` if it is excluded itself.
    directories: HashMap<FilePath, Option<(Arc<DirectoryRules>, Reach)>>,
}

impl<'a> RecordedRules<'a> {
    pub(crate) fn new(rules: &'a Rules, store: &'a Store) -> Self {
        Self { rules, store, directories: HashMap::new() }
    }

    /// Returns whether a file is excluded: `ignore_file` returns the rules of each directory.
    pub(crate) fn ignore(
        &mut self,
        file: &FilePath,
        mut ignore_file: impl FnMut(&FilePath) -> Result<Option<ObjectId>>,
    ) -> Result<bool> {
        let mut above: Vec<FilePath> = file.parents().collect();
        above.push(FilePath::root());
        above.sort_unstable_by_key(FilePath::depth);
        above.dedup();
        let mut inside: Option<(Arc<DirectoryRules>, Reach)> = None;
        for directory in above {
            inside = match self.directories.get(&directory) {
                Some(known) => known.clone(),
                None => {
                    let found = self.enter(inside, &directory, &mut ignore_file)?;
                    self.directories.insert(directory, found.clone());
                    found
                }
            };
            if inside.is_none() {
                return Ok(true);
            }
        }
        let Some((rules, reach)) = inside else { return Ok(true) };
        Ok(matches!(self.decide(&rules, reach, file, false)?, Decision::Ignore | Decision::Secret))
    }

    /// Returns what holds in a directory, from what holds in the one above it.
    fn enter(
        &self,
        above: Option<(Arc<DirectoryRules>, Reach)>,
        directory: &FilePath,
        ignore_file: &mut impl FnMut(&FilePath) -> Result<Option<ObjectId>>,
    ) -> Result<Option<(Arc<DirectoryRules>, Reach)>> {
        let (rules, reach) = match above {
            None => (self.rules.outermost(), Reach::Rules),
            Some((rules, reach)) => match self.decide(&rules, reach, directory, true)? {
                Decision::Include(below) => (rules, below),
                Decision::Ignore | Decision::Secret => return Ok(None),
            },
        };
        Ok(Some(match ignore_file(directory)? {
            Some(id) => (rules.below(directory, IgnoreFile::Unchanged(id), self.store), reach),
            None => (rules, reach),
        }))
    }

    fn decide(&self, rules: &DirectoryRules, reach: Reach, path: &FilePath, is_directory: bool) -> Result<Decision> {
        let decision = self.rules.decide(rules, reach, path, is_directory);
        match self.rules.damaged() {
            Some(id) => Err(Error::DamagedObject { id, path: self.store.path().to_owned() }),
            None => Ok(decision),
        }
    }
}
