//! Directories that nothing is merged into.

use std::path::Path;

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
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
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
}

/// Returns whether a directory is a Git repository without a working tree, as Git tells it.
fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").symlink_metadata().is_ok() && ["objects", "refs"].iter().all(|name| path.join(name).is_dir())
}
