//! Reads the commit that a repository has checked out.
//!
//! **Invariant:** Git is never run, and nothing that a repository names is run: an agent that may only write files
//! could otherwise start a program by writing `.git/config`. The configuration is not even read. Whether files differ
//! from the commit stays unknown; [`Git::dirty`] is only set in older journals.
//!
//! **Invariant:** every file is opened without blocking, must be a regular file and is read up to a limit.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use relive_journal::Pool;
use relive_journal::record::Git;
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::plain_file::{self, Links};

/// How long a look may take. A network file system may answer late, or never.
pub(crate) const WITHIN: Duration = Duration::from_secs(2);
/// The longest `HEAD`, `gitdir`, `commondir` or loose reference.
const SMALL_FILE_MAX: u64 = 8 * 1024;
/// The longest `packed-refs`.
const PACKED_REFS_MAX: u64 = 16 * 1024 * 1024;

/// Returns the commit of the repository around `directory`; `None` if there is no repository, or no commit in it.
pub async fn look(pool: &Pool, directory: PathBuf) -> Option<Git> {
    let looked = pool.run(move || commit(&directory));
    let head = tokio::time::timeout(WITHIN, looked).await.ok()?.ok()??;
    Some(Git { head, dirty: None })
}

fn commit(directory: &Path) -> Option<String> {
    let repository = directory.ancestors().find_map(Repository::at)?;
    let head = small(&repository.own, Path::new("HEAD"))?;
    let head = head.trim();
    let commit = match head.strip_prefix("ref:") {
        None => head.to_owned(),
        Some(name) => repository.reference(name.trim())?,
    };
    let is_hash = matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(commit)
}

/// The two directories of a repository. They differ in a linked work tree.
struct Repository {
    /// Contains `HEAD`.
    own: OwnedFd,
    /// Contains the references.
    common: OwnedFd,
}

impl Repository {
    /// Opens the repository whose work tree is `top`.
    fn at(top: &Path) -> Option<Self> {
        let dot_git = top.join(".git");
        // O_PATH opens only the name, so a pipe or a device is not touched.
        let found = rustix::fs::open(&dot_git, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found).ok()?.st_mode);
        let own = if kind == FileType::Directory {
            found
        } else {
            // In a linked work tree, `.git` is a file with the name of the directory.
            let text = small(CWD, &dot_git)?;
            directory(CWD, &top.join(text.strip_prefix("gitdir:")?.trim()))?
        };
        let common = match small(&own, Path::new("commondir")) {
            Some(path) => directory(&own, Path::new(path.trim()))?,
            None => directory(&own, Path::new("."))?,
        };
        Some(Self { own, common })
    }

    /// Returns the content of a reference.
    fn reference(&self, name: &str) -> Option<String> {
        let path = Path::new(name);
        let is_inside = path.components().all(|component| matches!(component, Component::Normal(_)));
        if !path.starts_with("refs") || !is_inside {
            return None;
        }
        if let Some(commit) = small(&self.common, path) {
            return Some(commit.trim().to_owned());
        }
        let packed = plain_file::read(&self.common, Path::new("packed-refs"), Links::Refuse, PACKED_REFS_MAX).ok()?;
        let line = packed.lines().find(|line| line.split_once(' ').is_some_and(|(_, of)| of == name))?;
        line.split_once(' ').map(|(commit, _)| commit.to_owned())
    }
}

fn small(at: impl std::os::fd::AsFd, path: &Path) -> Option<String> {
    plain_file::read(at, path, Links::Refuse, SMALL_FILE_MAX).ok()
}

fn directory(at: impl std::os::fd::AsFd, path: &Path) -> Option<OwnedFd> {
    rustix::fs::openat(at, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests;
