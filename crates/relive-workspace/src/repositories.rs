//! Git repositories inside of a workspace: no snapshot contains them.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::path::FilePath;
use crate::remove::names;
use crate::snapshot::LISTED_MAX;
use crate::stat::{open_beneath, open_child};
use crate::workspace::Workspace;

impl Workspace {
    /// Returns the Git repositories, as the paths of their `.git` directories, that have commits or anything else in them;
    /// at most [`LISTED_MAX`]. Only directories that the last snapshot has are considered.
    ///
    /// They are lost with the workspace. A `.git` that is a file belongs to a repository elsewhere.
    #[must_use]
    pub fn repositories(&self) -> Vec<FilePath> {
        let paths = self.cache.listings.keys().map(|directory| directory.join(b".git"));
        let mut found: Vec<FilePath> = paths.filter(|path| self.has_objects(path)).collect();
        found.sort_unstable();
        found.truncate(LISTED_MAX);
        found
    }

    fn has_objects(&self, path: &FilePath) -> bool {
        let has_any = |directory: &OwnedFd, expected: &[&[u8]]| {
            names(directory).map_or(true, |names| names.iter().any(|name| !expected.contains(&&**name)))
        };
        // What cannot be looked at may have some.
        let may_have = |error| !matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV);
        let objects = open_beneath(self.root_descriptor(), path).and_then(|git| open_child(&git, "objects"));
        let has_packs = |objects: &OwnedFd| match open_child(objects, "pack") {
            Ok(packs) => has_any(&packs, &[]),
            Err(error) => may_have(error),
        };
        match objects {
            Ok(objects) => has_any(&objects, &[b"info", b"pack"]) || has_packs(&objects),
            Err(error) => may_have(error),
        }
    }
}
