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
    /// The number of its device, which counts in one boot only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<u64>,
    planted: PlantedRepository,
}

/// A guarded directory that is held open, whatever becomes of its path.
#[derive(Debug)]
pub(crate) struct Guard {
    directory: OwnedFd,
    record: GuardedDirectory,
}

/// Says that a planted repository may still be there.
#[derive(Debug)]
pub struct NotDisabled {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Problem {
    /// Nothing, or another directory, is in the place of the guarded one.
    DirectoryGone,
    Unseen(Errno),
    NotRenamed(Errno),
}

impl fmt::Display for NotDisabled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.problem {
            Problem::DirectoryGone => write!(
                out,
                "isolation: the directory of {path} was moved or removed, and Git may execute what the program wrote into it"
            ),
            Problem::Unseen(error) => write!(
                out,
                "isolation: {path} cannot be looked at ({error}), and if it is there, Git may execute what the program wrote: \
                 remove it"
            ),
            Problem::NotRenamed(error) => write!(
                out,
                "isolation: {path} cannot be renamed ({error}), and Git may execute what the program wrote: remove it"
            ),
        }
    }
}

impl std::error::Error for NotDisabled {}

impl GuardedDirectory {
    /// Returns it as it is found after another boot.
    #[must_use]
    pub fn after_boot(self) -> Self {
        Self { device: None, ..self }
    }

    /// Disables the planted repository for a shim that was lost. Its program must have ended.
    pub fn disable(&self) -> std::result::Result<(), NotDisabled> {
        let directory = match open(&self.path) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(self.not_disabled(Problem::DirectoryGone)),
            opened => opened.map_err(|error| self.not_disabled(Problem::Unseen(error)))?,
        };
        let found = rustix::fs::fstat(&directory).map_err(|error| self.not_disabled(Problem::Unseen(error)))?;
        if found.st_ino != self.inode || self.device.is_some_and(|device| found.st_dev != device) {
            return Err(self.not_disabled(Problem::DirectoryGone));
        }
        self.planted.disable(directory.as_fd()).map_err(|problem| self.not_disabled(problem))
    }

    fn not_disabled(&self, problem: Problem) -> NotDisabled {
        NotDisabled { path: self.path.join(self.planted.name()), problem }
    }
}

impl Guard {
    pub(crate) fn new(path: &Path, planted: PlantedRepository) -> Result<Self> {
        let directory = open(path)?;
        let found = rustix::fs::fstat(&directory)?;
        let (inode, device) = (found.st_ino, Some(found.st_dev));
        Ok(Self { directory, record: GuardedDirectory { path: path.to_owned(), inode, device, planted } })
    }

    /// Returns what to record of it; `None` if its path is not UTF-8, which a record cannot have.
    pub(crate) fn record(&self) -> Option<&GuardedDirectory> {
        Some(&self.record).filter(|record| record.path.to_str().is_some())
    }

    pub(crate) fn disable(&self) -> std::result::Result<(), NotDisabled> {
        self.record.planted.disable(self.directory.as_fd()).map_err(|problem| self.record.not_disabled(problem))
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
    fn disable(self, directory: BorrowedFd<'_>) -> std::result::Result<(), Problem> {
        let is_there = self.is_there(directory).or_else(|error| match error {
            Errno::ACCESS => {
                let _mode = Accessible::make(directory, Mode::XUSR);
                self.is_there(directory)
            }
            error => Err(error),
        });
        if !is_there.map_err(Problem::Unseen)? {
            return Ok(());
        }
        let _mode = Accessible::make(directory, Mode::WUSR | Mode::XUSR);
        move_away(directory, self.name()).map_err(Problem::NotRenamed)
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

/// A directory in which its owner has some rights. Its mode is put back when this is dropped.
struct Accessible<'a> {
    directory: BorrowedFd<'a>,
    before: Option<Mode>,
}

impl<'a> Accessible<'a> {
    fn make(directory: BorrowedFd<'a>, rights: Mode) -> Self {
        let mode = rustix::fs::fstat(directory).map(|found| Mode::from_raw_mode(found.st_mode));
        let lacks = mode.ok().filter(|mode| !mode.contains(rights));
        // If it cannot be changed, the rename says why nothing was disabled.
        let before = lacks.filter(|mode| change_mode(directory, *mode | rights).is_ok());
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
    let known = format!("{name}.disabled");
    let renamed = match rustix::fs::renameat_with(directory, name, directory, &known, RenameFlags::NOREPLACE) {
        // It is taken, or the file system cannot tell. The program can guess no other one, so nothing is replaced.
        Err(Errno::EXIST | Errno::INVAL) => {
            let unguessable = format!("{known}.{:016x}", RandomState::new().build_hasher().finish());
            rustix::fs::renameat(directory, name, directory, unguessable)
        }
        renamed => renamed,
    };
    match renamed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => remove(directory, name).map_err(|_| error),
    }
}

fn remove(directory: BorrowedFd<'_>, name: &str) -> Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    // It is a directory.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let _mode = Accessible::make(below.as_fd(), Mode::WUSR | Mode::XUSR);
    rustix::fs::unlinkat(&below, "HEAD", AtFlags::empty())
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
        let record = Guard::new(&tree, PlantedRepository::InWorkTree).unwrap().record().unwrap().clone();
        let text = serde_json::to_string(&record).unwrap();
        let record: GuardedDirectory = serde_json::from_str(&text).unwrap();
        plant(&tree);
        record.disable().unwrap();
        assert_eq!(names(&tree), ["HEAD.disabled"]);

        rustix::fs::rename(&tree, &moved).unwrap();
        let is_reported = || {
            let said = record.disable().unwrap_err().to_string();
            assert!(said.contains(&format!("the directory of {}/HEAD was moved or removed", tree.display())), "{said}");
        };
        is_reported();
        plant(&tree);
        is_reported();
        assert_eq!(names(&tree), ["HEAD"], "another directory with its path");
        let other = GuardedDirectory { device: record.device.map(|device| device + 1), ..record.clone() };
        rustix::fs::rename(&tree, root.join("other")).unwrap();
        rustix::fs::rename(&moved, &tree).unwrap();
        assert_eq!(other.disable().unwrap_err().problem, Problem::DirectoryGone, "an inode of another device");
        other.after_boot().disable().unwrap();
    }

    #[test]
    fn a_repository_in_a_bare_one_is_disabled_whole_and_found_by_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let record = Guard::new(&root, PlantedRepository::InBare).unwrap().record().unwrap().clone();
        plant(&root.join(".git"));
        record.disable().unwrap();
        assert!(!root.join(".git").exists() && root.join(".git.disabled/refs").exists());
        plant(&root.join(".git"));
        record.disable().unwrap();
        let names = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<String> = names.collect();
        assert!(names.len() == 2 && names.iter().all(|name| name.starts_with(".git.disabled")), "{names:?}");
    }

    #[test]
    fn a_planted_repository_that_cannot_be_renamed_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let opened = open(&root).unwrap();
        plant(&root);
        plant(&root.join(".git"));
        remove(opened.as_fd(), "HEAD").unwrap();
        remove(opened.as_fd(), ".git").unwrap();
        assert!(root.join("HEAD").symlink_metadata().is_err() && root.join(".git/HEAD").symlink_metadata().is_err());
        assert!(root.join(".git/refs").exists(), "its other files are kept");
    }

    #[test]
    fn a_directory_without_a_planted_repository_is_left_alone() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        rustix::fs::chmod(&root, Mode::RUSR | Mode::XUSR).unwrap();
        let changed = || (root.metadata().unwrap().ctime(), root.metadata().unwrap().ctime_nsec());
        let before = changed();
        // Another directory with a later time of change shows that the clock of the file system has moved.
        let clock = tempfile::tempdir().unwrap();
        while {
            rustix::fs::chmod(clock.path(), Mode::RWXU).unwrap();
            let tick = clock.path().metadata().unwrap();
            (tick.ctime(), tick.ctime_nsec()) <= before
        } {}
        Guard::new(&root, PlantedRepository::InWorkTree).unwrap().disable().unwrap();
        assert_eq!(changed(), before);
    }

    #[test]
    fn a_directory_whose_path_is_not_utf8_is_guarded_without_a_record() {
        use std::os::unix::ffi::OsStrExt as _;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join(std::ffi::OsStr::from_bytes(b"\xff"));
        plant(&root);
        let guard = Guard::new(&root, PlantedRepository::InWorkTree).unwrap();
        assert!(guard.record().is_none());
        guard.disable().unwrap();
        assert_eq!(names(&root), ["HEAD.disabled"]);
    }
}
