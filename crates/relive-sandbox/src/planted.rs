//! Repositories that a program plants: it makes its working directory look like one, so that Git executes what it wrote.
//!
//! Nothing can keep a program from that, so it is undone after the end of the program: by its shim, or by whoever finds that the
//! shim was lost. The program chose the names and modes in its directory, so none of them may get in the way.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use serde::{Deserialize, Serialize};

/// How many names are tried for what a program has made. It cannot guess any but the first.
const NAMES_MAX: usize = 16;

/// What a program can make of its working directory so that Git executes what it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlantedRepository {
    /// In a repository: Git looks for a bare one there before it looks above, and there too if `.git` has lost its `HEAD`.
    InWorkTree,
    /// In a bare repository: Git prefers a `.git` in it to the repository itself.
    InBare,
}

/// A working directory in which a planted repository is disabled: enough to find it when the shim is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedDirectory {
    path: PathBuf,
    /// Distinguishes it from another directory that has its path by now.
    inode: u64,
    planted: PlantedRepository,
}

/// A guarded directory that is held open, whatever becomes of its path.
#[derive(Debug)]
pub(crate) struct Guard {
    directory: OwnedFd,
    record: GuardedDirectory,
}

/// Says that a planted repository is still there.
#[derive(Debug)]
pub struct NotDisabled {
    path: PathBuf,
    error: Errno,
}

impl fmt::Display for NotDisabled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, error) = (self.path.display(), self.error);
        write!(
            out,
            "isolation: {path} cannot be renamed ({error}), and Git may execute what the program wrote: remove it"
        )
    }
}

impl std::error::Error for NotDisabled {}

impl GuardedDirectory {
    /// Disables the planted repository for a shim that was lost. Its program must have ended.
    pub fn disable(&self) -> std::result::Result<(), NotDisabled> {
        let directory = match open(&self.path) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            opened => opened.map_err(|error| self.failed(error))?,
        };
        match rustix::fs::fstat(&directory) {
            Ok(found) if found.st_ino != self.inode => Ok(()),
            Ok(_) => self.planted.disable(directory.as_fd()).map_err(|error| self.failed(error)),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: Errno) -> NotDisabled {
        NotDisabled { path: self.path.join(self.planted.name()), error }
    }
}

impl Guard {
    pub(crate) fn new(path: &Path, planted: PlantedRepository) -> Result<Self> {
        let directory = open(path)?;
        let inode = rustix::fs::fstat(&directory)?.st_ino;
        Ok(Self { directory, record: GuardedDirectory { path: path.to_owned(), inode, planted } })
    }

    pub(crate) fn record(&self) -> &GuardedDirectory {
        &self.record
    }

    pub(crate) fn disable(&self) -> std::result::Result<(), NotDisabled> {
        self.record.planted.disable(self.directory.as_fd()).map_err(|error| self.record.failed(error))
    }
}

impl PlantedRepository {
    fn name(self) -> &'static str {
        match self {
            Self::InWorkTree => "HEAD",
            Self::InBare => ".git",
        }
    }

    /// Renames what makes Git take a directory for a repository. What the program wrote is kept, if that is possible.
    fn disable(self, directory: BorrowedFd<'_>) -> Result<()> {
        let _mode = Accessible::make(directory);
        if self.is_there(directory)? { move_away(directory, self.name()) } else { Ok(()) }
    }

    fn is_there(self, directory: BorrowedFd<'_>) -> Result<bool> {
        Ok(match self {
            // The objects and references may be elsewhere, where a `commondir` says.
            Self::InWorkTree => {
                has(directory, "HEAD")?
                    && (has(directory, "commondir")? || has(directory, "objects")? && has(directory, "refs")?)
            }
            Self::InBare => has(directory, ".git")?,
        })
    }
}

/// A directory whose owner may change it. Its mode is put back when this is dropped.
struct Accessible<'a> {
    directory: BorrowedFd<'a>,
    before: Option<Mode>,
}

impl<'a> Accessible<'a> {
    fn make(directory: BorrowedFd<'a>) -> Self {
        let mode = rustix::fs::fstat(directory).map(|found| Mode::from_raw_mode(found.st_mode));
        let lacks = mode.ok().filter(|mode| !mode.contains(Mode::WUSR | Mode::XUSR));
        // If it cannot be changed, the rename says why nothing was disabled.
        let before = lacks.filter(|mode| change_mode(directory, *mode | Mode::WUSR | Mode::XUSR).is_ok());
        Self { directory, before }
    }
}

impl Drop for Accessible<'_> {
    fn drop(&mut self) {
        if let Some(mode) = self.before {
            let _ = change_mode(self.directory, mode);
        }
    }
}

/// Changes the mode of a directory that is open by its path only, which `fchmod` refuses.
fn change_mode(directory: BorrowedFd<'_>, mode: Mode) -> Result<()> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", directory.as_raw_fd()), mode)
}

fn has(directory: BorrowedFd<'_>, name: &str) -> Result<bool> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Renames a file or directory. If that is impossible, removes the file, or the `HEAD` of the repository that it is.
fn move_away(directory: BorrowedFd<'_>, name: &str) -> Result<()> {
    let mut failed = Errno::EXIST;
    for number in 0..NAMES_MAX {
        let to = match number {
            0 => format!("{name}.disabled"),
            _ => format!("{name}.disabled.{:016x}", RandomState::new().build_hasher().finish()),
        };
        match rustix::fs::renameat_with(directory, name, directory, to, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(error) => {
                failed = error;
                break;
            }
        }
    }
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(|_| failed)?;
    let _mode = Accessible::make(below.as_fd());
    rustix::fs::unlinkat(&below, "HEAD", AtFlags::empty()).map_err(|_| failed)
}

/// Opens a directory also if its owner may not read it.
fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn plant(at: &Path) {
        for name in ["objects", "refs"] {
            std::fs::DirBuilder::new().recursive(true).create(at.join(name)).unwrap();
        }
        rustix::fs::symlink("refs/heads/main", at.join("HEAD")).unwrap();
    }

    fn names(at: &Path) -> Vec<String> {
        let names = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("HEAD")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_planted_repository_is_disabled_whatever_names_and_modes_its_program_chose() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for mode in [0o700, 0o555, 0o333, 0o000] {
            plant(&root);
            // The old names: a program that knows them must not be able to occupy all of them.
            for taken in std::iter::once(String::new()).chain((1..100).map(|number| format!(".{number}"))) {
                let _ = rustix::fs::symlink("taken", root.join(format!("HEAD.disabled{taken}")));
            }
            let before = names(&root).len();
            rustix::fs::chmod(&root, Mode::from_raw_mode(mode)).unwrap();
            let guard = Guard::new(&root, PlantedRepository::InWorkTree).unwrap();
            guard.disable().unwrap();
            assert_eq!(root.metadata().unwrap().permissions().mode() & 0o777, mode, "the mode is put back");
            rustix::fs::chmod(&root, Mode::RWXU).unwrap();
            let after = names(&root);
            assert!(!after.contains(&"HEAD".to_owned()), "{mode:o}: {after:?}");
            assert_eq!(after.len(), before, "what the program wrote is kept");
        }
    }

    #[test]
    fn a_planted_repository_is_disabled_after_the_loss_of_the_shim_unless_its_directory_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (tree, moved) = (root.join("tree"), root.join("moved"));
        std::fs::DirBuilder::new().create(&tree).unwrap();
        let record = Guard::new(&tree, PlantedRepository::InWorkTree).unwrap().record().clone();
        let text = serde_json::to_string(&record).unwrap();
        let record: GuardedDirectory = serde_json::from_str(&text).unwrap();
        plant(&tree);
        record.disable().unwrap();
        assert_eq!(names(&tree), ["HEAD.disabled"]);

        rustix::fs::rename(&tree, &moved).unwrap();
        record.disable().unwrap();
        plant(&tree);
        record.disable().unwrap();
        assert_eq!(names(&tree), ["HEAD"], "another directory with its path");
    }
}
