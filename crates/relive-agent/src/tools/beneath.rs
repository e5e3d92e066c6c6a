//! The working directory, and the only way to the files in it.
//!
//! **Invariant:** no path reaches outside the directory, whatever it contains and whatever symbolic links there are,
//! even if somebody changes them in the meantime. The kernel resolves every path itself (`openat2` with
//! `RESOLVE_BENEATH`); nothing is checked first and opened later. A kernel without it (before 5.6) is refused, not
//! worked around.
//!
//! **Invariant:** nothing of Relive's own is reached, also where the data directory is below the working directory.
//!
//! **Invariant:** nothing is opened blocking. A pipe, socket or device is refused by name at once.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::cancel::Leash;
use crate::plain_file::{self, Links};

/// How often a resolution that a concurrent rename disturbs is repeated.
const TRIES_MAX: u32 = 16;
/// How many symbolic links the last name of a path may go through.
const LINKS_MAX: u32 = 16;
/// How many entries of a directory are read between two checks of the leash.
const ENTRIES_PER_LOOK: usize = 1024;

/// The reason why a file is not touched. The texts are for the model.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("`{0}` is outside the working directory; only paths inside it are allowed")]
    Outside(String),
    #[error("`{0}` has a `..` in it; give the path from the working directory, without any")]
    Upward(String),
    #[error("`{0}` leads out of the working directory by a symbolic link, or by one with an absolute path")]
    LeadsOut(String),
    #[error("`{0}` goes through too many symbolic links, or through one of the kernel's own")]
    Links(String),
    #[error("`{0}` is hidden, belongs to Relive itself, or names commands that other programs run; no tool touches it")]
    Private(String),
    #[error("`{0}` is inside a .git directory, which file tools do not change: use git itself")]
    Git(String),
    #[error("`{0}` cannot be a path")]
    NotAPath(String),
    #[error("`{0}` does not exist")]
    Missing(String),
    #[error("`{path}` is {kind}, not {wanted}")]
    Kind { path: String, kind: &'static str, wanted: &'static str },
    #[error("`{path}`: {error}")]
    Io { path: String, error: io::Error },
    #[error("this kernel cannot keep a path inside a directory (openat2, Linux 5.6): file tools are off")]
    OldKernel,
    #[error("{0}")]
    Said(String),
}

/// The kind of an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Link,
    /// A pipe, a socket, a device.
    Other,
}

impl Kind {
    pub(super) fn of(stat: &Stat) -> Self {
        Self::from(FileType::from_raw_mode(stat.st_mode))
    }
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Self::Other,
        }
    }
}

/// The working directory, open.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    /// Its path without symbolic links, if that is needed.
    real: PathBuf,
    /// Directories that no tool touches.
    private: Vec<PathBuf>,
    /// Refused for an isolated process, which does not write what makes other programs execute commands either.
    links: Links,
}

/// A place for a file: an open directory and a name in it that is not a symbolic link.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
}

impl Directory {
    /// Opens the working directory. `private` are directories that no tool touches, without symbolic links. That of an isolated
    /// process is opened without following links: one that its programs put in its place would lead out of their reach.
    pub(super) fn open(path: &Path, private: &[PathBuf], links: Links) -> Result<Self, Refused> {
        let failed = |errno| refused(errno, &path.display().to_string());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match links {
            Links::Follow => rustix::fs::open(path, flags, Mode::empty()),
            Links::Refuse => rustix::fs::openat2(CWD, path, flags, Mode::empty(), links.resolution()),
        };
        let fd = fd.map_err(failed)?;
        let real = if private.is_empty() { PathBuf::new() } else { real_path(&fd).map_err(failed)? };
        Ok(Self { private: private.to_vec(), fd, path: path.to_path_buf(), real, links })
    }

    /// Returns whether a path from the directory, without symbolic links, leads to something of Relive's own.
    pub(super) fn is_private(&self, path: &Path) -> bool {
        !self.private.is_empty() && {
            let real = self.real.join(path);
            self.private.iter().any(|private| real.starts_with(private))
        }
    }

    /// Returns the path relative to the directory: `.` for the directory itself. The path may not exist.
    pub(super) fn relative(&self, path: &str) -> Result<PathBuf, Refused> {
        match relative(&self.path, path) {
            // The name of the directory may go through a symbolic link.
            Err(Refused::Outside(outside)) => match self.path.canonicalize() {
                Ok(real) => relative(&real, path),
                Err(_) => Err(Refused::Outside(outside)),
            },
            other => other,
        }
    }

    /// Opens an existing file for reading.
    pub(super) fn file(&self, path: &Path) -> Result<(File, Stat), Refused> {
        // Non-blocking, so that a pipe does not wait for a writer before it can be refused.
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        regular(fd, &path.display().to_string())
    }

    /// Opens an existing directory for reading.
    pub(super) fn directory(&self, path: &Path) -> Result<OwnedFd, Refused> {
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Returns the kind of a file, following links.
    pub(super) fn kind(&self, path: &Path) -> Result<Kind, Refused> {
        let fd = self.resolve(path, OFlags::PATH)?;
        let stat = rustix::fs::fstat(fd).map_err(|errno| refused(errno, &path.display().to_string()))?;
        Ok(Kind::of(&stat))
    }

    /// Finds the place of a file, existing or not, following links. `None` if its directory does not exist.
    ///
    /// There is none inside a `.git` directory: its configuration and hooks name programs that git runs, so a file
    /// written there could run a program that nobody allowed.
    pub(super) fn place(&self, path: &Path) -> Result<Option<Place>, Refused> {
        let shown = path.display().to_string();
        if is_in_git(path) {
            return Err(Refused::Git(shown));
        }
        let mut path = path.to_path_buf();
        for _ in 0..LINKS_MAX {
            let Some(name) = path.file_name().map(OsStr::to_os_string) else { return Err(is_directory(&shown)) };
            let parent = parent(&path);
            let directory = match self.resolve(&parent, OFlags::RDONLY | OFlags::DIRECTORY) {
                Err(Refused::Missing(_)) => return Ok(None),
                other => other?,
            };
            match rustix::fs::readlinkat(&directory, &name, Vec::new()) {
                Ok(target) => {
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        return Err(Refused::LeadsOut(shown));
                    }
                    path = parent.join(target);
                }
                Err(Errno::INVAL | Errno::NOENT) => {
                    let real = real_path(&directory).map_err(|errno| refused(errno, &shown))?;
                    let above = real_path(&self.fd).map_err(|errno| refused(errno, &shown))?;
                    if self.is_refused(&above, &real.join(&name)) {
                        return Err(Refused::Private(shown));
                    }
                    let below = real.strip_prefix(&above).unwrap_or(&real).join(&name);
                    return if is_in_git(&below) {
                        Err(Refused::Git(shown))
                    } else {
                        Ok(Some(Place { directory, name }))
                    };
                }
                Err(errno) => return Err(refused(errno, &shown)),
            }
        }
        Err(Refused::Links(shown))
    }

    /// Returns whether a file, by its real path, is none that this agent may write. `above` is the real path of the directory.
    fn is_refused(&self, above: &Path, real: &Path) -> bool {
        let is_isolated = self.links == Links::Refuse;
        self.private.iter().any(|private| real.starts_with(private))
            || is_isolated && relive_sandbox::executes(above, real)
    }

    /// Creates and syncs the directory of `path` and its parents, unless a file there could not be written.
    pub(super) fn make_parents(&self, path: &Path) -> Result<(), Refused> {
        let shown = path.display().to_string();
        let root = real_path(&self.fd).map_err(|errno| refused(errno, &shown))?;
        if self.is_refused(&root, &root.join(path)) {
            return Err(Refused::Private(shown));
        }
        let mut above = self.resolve(Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut so_far = PathBuf::new();
        for component in parent(path).components() {
            so_far.push(component);
            let made = match self.resolve(&so_far, OFlags::RDONLY | OFlags::DIRECTORY) {
                Err(Refused::Missing(_)) => {
                    match rustix::fs::mkdirat(&above, component.as_os_str(), Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(refused(errno, &shown)),
                    }
                    rustix::fs::fsync(&above).map_err(|errno| refused(errno, &shown))?;
                    self.resolve(&so_far, OFlags::RDONLY | OFlags::DIRECTORY)?
                }
                other => other?,
            };
            above = made;
        }
        Ok(())
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Refused> {
        let shown = || path.display().to_string();
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES_MAX {
            match rustix::fs::openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Ok(fd) if self.private.is_empty() => return Ok(fd),
                Ok(fd) => {
                    let real = real_path(&fd).map_err(|errno| refused(errno, &shown()))?;
                    let is_private = self.private.iter().any(|private| real.starts_with(private));
                    return if is_private { Err(Refused::Private(shown())) } else { Ok(fd) };
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::XDEV) => return Err(Refused::LeadsOut(shown())),
                Err(Errno::NOSYS) => return Err(Refused::OldKernel),
                Err(errno) => return Err(refused(errno, &shown())),
            }
        }
        Err(refused(Errno::AGAIN, &shown()))
    }
}

impl Place {
    /// Opens the file for reading, if it exists.
    pub(super) fn file(&self, shown: &str) -> Result<Option<(File, Stat)>, Refused> {
        match open_entry(&self.directory, &self.name) {
            Ok(fd) => regular(fd, shown).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(refused(errno, shown)),
        }
    }
}

/// Returns whether a path without symbolic links leads to a `.git` or into one.
fn is_in_git(path: &Path) -> bool {
    path.components().any(|component| component.as_os_str().eq_ignore_ascii_case(".git"))
}

/// Opens an entry of a directory for reading, unless it is a symbolic link.
pub(super) fn open_entry(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Returns at most `max` entries of a directory, sorted by name, and whether there are more.
pub(super) fn entries(
    directory: &OwnedFd,
    max: usize,
    shown: &str,
    leash: &Leash,
) -> Result<(Vec<(OsString, Kind)>, bool), Refused> {
    let mut found = Vec::new();
    let mut more = false;
    for entry in rustix::fs::Dir::read_from(directory).map_err(|errno| refused(errno, shown))? {
        if found.len() % ENTRIES_PER_LOOK == 0 {
            leash.check()?;
        }
        let entry = entry.map_err(|errno| refused(errno, shown))?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if found.len() == max {
            more = true;
            break;
        }
        // Some file systems do not report it.
        let kind = if entry.file_type() == FileType::Unknown {
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_or(Kind::Other, |stat| Kind::of(&stat))
        } else {
            Kind::from(entry.file_type())
        };
        found.push((name.to_os_string(), kind));
    }
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok((found, more))
}

/// Returns `path` relative to the directory `cwd`.
pub(super) fn relative(cwd: &Path, path: &str) -> Result<PathBuf, Refused> {
    if path.is_empty() || path.contains('\0') {
        return Err(Refused::NotAPath(path.escape_debug().to_string()));
    }
    let mut inside = Path::new(path);
    if inside.is_absolute() {
        inside = inside.strip_prefix(cwd).map_err(|_| Refused::Outside(path.to_owned()))?;
    }
    let mut relative = PathBuf::new();
    for component in inside.components() {
        match component {
            Component::Normal(name) => relative.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err(Refused::Upward(path.to_owned())),
            Component::RootDir | Component::Prefix(_) => return Err(Refused::Outside(path.to_owned())),
        }
    }
    Ok(if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative })
}

pub(super) fn refused(errno: Errno, shown: &str) -> Refused {
    let path = shown.to_owned();
    match errno {
        Errno::NOENT => Refused::Missing(path),
        Errno::LOOP => Refused::Links(path),
        Errno::NAMETOOLONG => Refused::NotAPath(path),
        Errno::NOTDIR => Refused::Kind { path, kind: "a file, or goes through one", wanted: "a directory" },
        errno => Refused::Io { path, error: errno.into() },
    }
}

fn regular(fd: OwnedFd, shown: &str) -> Result<(File, Stat), Refused> {
    let stat = rustix::fs::fstat(&fd).map_err(|errno| refused(errno, shown))?;
    match plain_file::name_of(FileType::from_raw_mode(stat.st_mode)) {
        None => Ok((File::from(fd), stat)),
        Some(kind) => Err(Refused::Kind { path: shown.to_owned(), kind, wanted: "a file" }),
    }
}

/// Returns the path of an open file, without symbolic links.
fn real_path(fd: &OwnedFd) -> Result<PathBuf, Errno> {
    let target = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

fn is_directory(shown: &str) -> Refused {
    Refused::Kind { path: shown.to_owned(), kind: "a directory", wanted: "a file" }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
