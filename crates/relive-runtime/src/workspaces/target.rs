//! Directories that nothing is merged into.

use std::path::{Path, PathBuf};

use relive_core::ErrorCode;

use super::Workspaces;
use crate::error::{Error, Result};

impl Workspaces {
    /// Refuses to merge into a Git repository's own directory, or into one of Relive's own: no snapshot has what is there,
    /// so a merge could not be undone, and other programs rely on the files. `into` is a real path. Blocks.
    pub(crate) fn check_target(&self, into: &Path) -> Result<()> {
        let refused = |why: &str| {
            let message = format!("cannot merge into {}: {why}", into.display());
            Err(Error::new(ErrorCode::Invalid, message))
        };
        let options = &self.0.options;
        let mut private = options.private.iter().chain([&options.store]);
        // The copies of other processes may be merged into, but not the directory that contains them.
        if private.any(|path| into.starts_with(real(path))) || into == real(&options.own) {
            return refused("it belongs to Relive itself");
        }
        let is_git = |part: std::path::Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        if into.components().any(is_git) || into.ancestors().any(is_git_directory) {
            return refused("it is inside a Git repository's own directory");
        }
        Ok(())
    }

    /// Refuses changes of a directory that contains Relive's own ones, such as a home directory, if one is in those: a
    /// copy has ordinary files at such paths. `into` is a real path. Blocks.
    pub(crate) fn check_merged<'a>(&self, into: &Path, paths: impl Iterator<Item = &'a Path>) -> Result<()> {
        let options = &self.0.options;
        let private = options.private.iter().chain([&options.store, &options.own]).map(|path| real(path));
        let Some(path) = find_below(&private.collect::<Vec<_>>(), into, paths) else { return Ok(()) };
        let message = format!("cannot merge {}: it belongs to Relive itself", path.display());
        Err(Error::new(ErrorCode::Invalid, message))
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the first of the paths in `into` that is in a private directory. Such a directory that contains `into` is not
/// meant: whether that may be changed is known.
fn find_below<'a>(private: &[PathBuf], into: &Path, paths: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    let below: Vec<_> = private.iter().filter(|path| !into.starts_with(path)).collect();
    paths.map(|path| into.join(path)).find(|path| below.iter().any(|private| path.starts_with(private)))
}

/// Returns whether a directory is a Git repository without a working tree, as Git tells it.
fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").symlink_metadata().is_ok() && ["objects", "refs"].iter().all(|name| path.join(name).is_dir())
}
