//! Paths that a user typed, as the library has them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use relive_core::ErrorCode;
use relive_workspace::FilePath;

use super::Order;
use crate::error::{Error, Result};

/// Absolute paths are in the directory; relative ones begin where the user is, if that is
/// in the directory, else in the directory itself. A name in quotes is meant as it is typed if there is such a file, now or in
/// the state to go back to, of which `was_there` tells.
pub(super) fn paths_in(
    directory: &Path,
    order: &Order,
    was_there: impl Fn(&FilePath) -> bool,
) -> Result<Vec<FilePath>> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (root, here) = (real(directory), real(&order.cwd));
    let start = if here.starts_with(&root) { here } else { root.clone() };
    let found = order.paths.iter().map(|typed| {
        if typed.is_empty() {
            return Err(Error::new(ErrorCode::Invalid, "a path is empty: name the files to restore"));
        }
        let find = |path: &Path| {
            let whole = without_dots(&start.join(path));
            let inside = whole.strip_prefix(&root).or_else(|_| whole.strip_prefix(directory)).ok()?;
            FilePath::from_bytes(inside.as_os_str().as_bytes()).ok()
        };
        let is_there = |path: &FilePath| root.join(path.as_path()).symlink_metadata().is_ok() || was_there(path);
        find(Path::new(typed)).filter(is_there).or_else(|| find(&unquoted(typed))).ok_or_else(|| {
            let message = format!("{typed} is not in the workspace {}", directory.display());
            Error::new(ErrorCode::Invalid, message)
        })
    });
    found.collect()
}

/// Takes a name as it is shown: one that is no plain text is in quotes, with escapes.
pub(crate) fn unquoted(typed: &str) -> PathBuf {
    FilePath::unquote(typed).map_or_else(|| PathBuf::from(typed), |bytes| OsString::from_vec(bytes).into())
}

/// Resolves `.` and `..` by their names alone: what was there then need not be there now.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}
