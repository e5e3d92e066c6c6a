//! Opens files that a user, an agent or a repository controls.
//!
//! **Invariant:** nothing here waits for another process. A pipe without a writer is opened without blocking and then
//! refused, like a socket or a device, and no file is read past a limit.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

/// Whether the last name of a path, or for a working directory any of them, may be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Follow,
    Refuse,
}

impl Links {
    /// Returns how the path of a working directory is resolved.
    pub(crate) fn resolution(self) -> ResolveFlags {
        match self {
            Self::Follow => ResolveFlags::empty(),
            Self::Refuse => ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        }
    }
}

/// The file systems without files of anybody: proc, sysfs, cgroup2, debugfs, tracefs, securityfs.
const KERNEL_FILE_SYSTEMS: [u32; 6] = [0x9fa0, 0x6265_6572, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x7363_6673];

/// The largest buffer that is allocated before a file is read.
pub(crate) const ROOM_MAX: u64 = 1 << 20;

/// Opens a regular file for reading.
pub(crate) fn open(directory: impl AsFd, path: &Path, links: Links) -> io::Result<File> {
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if links == Links::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    regular(rustix::fs::openat(directory, path, flags, Mode::empty())?)
}

/// Reads a whole file as text; a file of more than `bytes_max` bytes is an error.
pub(crate) fn read(directory: impl AsFd, path: &Path, links: Links, bytes_max: u64) -> io::Result<String> {
    let file = open(directory, path, links)?;
    if is_of_kernel(&file)? {
        return Err(io::Error::other("it is a file of the kernel"));
    }
    // Otherwise it would be read in pieces that begin with a few bytes. The length that a sparse file claims is
    // limited.
    let room = file.metadata()?.len().min(bytes_max).min(ROOM_MAX);
    let mut text = String::with_capacity(usize::try_from(room).unwrap_or(0) + 1);
    file.take(bytes_max.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("larger than {bytes_max} bytes")));
    }
    Ok(text)
}

/// Returns whether a file is made by the kernel while it is read: what it tells is about the reader and other processes.
fn is_of_kernel(file: &File) -> io::Result<bool> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok(KERNEL_FILE_SYSTEMS.iter().any(|known| i128::from(*known) == i128::from(kind)))
}

fn regular(fd: OwnedFd) -> io::Result<File> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    match name_of(kind) {
        None => Ok(File::from(fd)),
        Some(name) => Err(io::Error::other(format!("it is {name}, not a file"))),
    }
}

/// Returns a name for everything that is not a regular file.
pub(crate) fn name_of(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        FileType::Unknown => Some("of an unknown kind"),
    }
}
