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
        let objects = open_beneath(self.root_descriptor(), path).and_then(|git| open_child(&git, "objects"));
        match objects {
            Ok(objects) => {
                let packs = open_child(&objects, "pack");
                has_any(&objects, &[b"info", b"pack"]) || packs.is_ok_and(|packs| has_any(&packs, &[]))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => false,
            // What cannot be looked at may be one.
            Err(_) => true,
        }
    }
}
