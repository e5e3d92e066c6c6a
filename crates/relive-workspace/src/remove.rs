//! Removes Relive's own directories, and never files that are mounted in them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::disk::Disk;
use crate::error::{Context as _, Error, Result};
use crate::path::FilePath;
use crate::stat::{open_beneath, open_child, stat_at};

/// Permissions that allow to list a directory and to change its entries.
const OWNER_ALL: u32 = 0o700;

/// Removes one of Relive's directories and everything below it. A missing directory is not an error.
///
/// Refuses before anything is removed if something is mounted there, also from the same file system: the files belong to
/// somebody else. Links are removed and never followed.
pub(crate) fn remove_tree(disk: &Disk, path: &Path) -> Result<()> {
    let stat = match stat_at(CWD, path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error).context("look at", path),
    };
    if stat.file_type() != FileType::Directory {
        return disk.unlink(CWD, path).context("remove", path);
    }
    let mount = mount_around(path)?;
    make_usable(disk, (CWD, path), stat.key.mode).context("set permissions of", path)?;
    let tree = Tree::open(disk, path, mount)?;
    let directories = tree.directories(Closed::Open)?;
    for directory in directories.iter().rev() {
        tree.remove_entries(directory)?;
    }
    disk.remove_directory(CWD, path).context("remove", path)
}

/// Refuses if something is mounted at or below a directory. Changes nothing, so it does not see what is mounted below a
/// directory that cannot be listed.
pub(crate) fn check_not_mounted(disk: &Disk, path: &Path) -> Result<()> {
    let mount = mount_around(path)?;
    match Tree::open(disk, path, mount) {
        Err(error) if is_denied(&error) => Ok(()),
        tree => tree?.directories(Closed::PassBy).map(drop),
    }
}

/// Returns the mount that a directory is in. Refuses if it is itself a mount.
fn mount_around(path: &Path) -> Result<Mount> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mount = mount_of(CWD, above).context("look at", above)?;
    if mount_of(CWD, path).context("look at", path)? != mount {
        return Err(Error::Mounted { path: path.to_owned() });
    }
    Ok(mount)
}

fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
}

/// What to do with a directory that its permissions do not allow to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    /// Change its permissions.
    Open,
    PassBy,
}

/// Where a file is: the device, and the mount if the kernel tells it.
type Mount = (u32, u32, Option<u64>);

fn mount_of(directory: impl AsFd, name: impl Arg) -> Result<Mount, Errno> {
    let asked = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(directory, name, flags, asked)?;
    let is_told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok((found.stx_dev_major, found.stx_dev_minor, is_told.then_some(found.stx_mnt_id)))
}

fn make_usable(disk: &Disk, (directory, name): (impl AsFd, impl Arg), mode: u32) -> std::io::Result<()> {
    if mode & OWNER_ALL == OWNER_ALL { Ok(()) } else { disk.set_directory_mode(directory, name, OWNER_ALL) }
}

struct Tree<'a> {
    disk: &'a Disk,
    path: &'a Path,
    root: OwnedFd,
    mount: Mount,
}

impl<'a> Tree<'a> {
    fn open(disk: &'a Disk, path: &'a Path, mount: Mount) -> Result<Self> {
        let root = open_child(CWD, path).context("open", path)?;
        Ok(Self { disk, path, root, mount })
    }

    fn place(&self, path: &FilePath) -> PathBuf {
        self.path.join(path.as_path())
    }

    /// Opens a directory; one descriptor at a time, however deep it is.
    fn descend(&self, path: &FilePath) -> Result<OwnedFd> {
        let mounted = || Error::Mounted { path: self.place(path) };
        let opened = match open_beneath(&self.root, path) {
            Err(Errno::XDEV) => return Err(mounted()),
            opened => opened.context("open", &self.place(path))?,
        };
        // Also where the kernel could not check it on the way.
        let mount = mount_of(&opened, ".").context("look at", &self.place(path))?;
        if mount == self.mount { Ok(opened) } else { Err(mounted()) }
    }

    /// Returns all directories, parents first. Refuses if anything is mounted on one of their entries.
    fn directories(&self, closed: Closed) -> Result<Vec<FilePath>> {
        let mut found = vec![FilePath::root()];
        let mut at = 0;
        while let Some(path) = found.get(at).cloned() {
            at += 1;
            let directory = match self.descend(&path) {
                Err(error) if closed == Closed::PassBy && is_denied(&error) => continue,
                directory => directory?,
            };
            for name in names(&directory).context("read", &self.place(&path))? {
                let entry = path.join(&name);
                let looked = mount_of(&directory, &*name).and_then(|mount| Ok((mount, stat_at(&directory, &*name)?)));
                let (mount, stat) = match looked {
                    Err(Errno::NOENT) => continue,
                    looked => looked.context("look at", &self.place(&entry))?,
                };
                if mount != self.mount {
                    return Err(Error::Mounted { path: self.place(&entry) });
                }
                if stat.file_type() != FileType::Directory {
                    continue;
                }
                if closed == Closed::Open {
                    let usable = make_usable(self.disk, (&directory, &*name), stat.key.mode);
                    usable.context("set permissions of", &self.place(&entry))?;
                }
                found.push(entry);
            }
        }
        Ok(found)
    }

    /// Removes the entries of a directory whose subdirectories are empty.
    fn remove_entries(&self, path: &FilePath) -> Result<()> {
        let directory = self.descend(path)?;
        for name in names(&directory).context("read", &self.place(path))? {
            let removed = match stat_at(&directory, &*name) {
                Ok(stat) if stat.file_type() == FileType::Directory => self.disk.remove_directory(&directory, &*name),
                Ok(_) | Err(Errno::NOENT) => self.disk.unlink(&directory, &*name),
                Err(error) => Err(error.into()),
            };
            removed.context("remove", &self.place(&path.join(&name)))?;
        }
        Ok(())
    }
}

/// Returns the names of all entries of a directory.
pub(crate) fn names(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}
