//! The current state of a path on the disk.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::diff::FileState;
use crate::error::{Context as _, Result};
use crate::object::{EntryKind, Kind, ObjectId, hash};
use crate::path::FilePath;
use crate::stat::{Stat, open_file, stat_at, stat_of};
use crate::store::LargeFile;

/// The state of a path, with its bytes read and hashed.
#[derive(Debug, Clone, Copy)]
pub(super) enum DiskState {
    Absent,
    Directory(Stat),
    File {
        stat: Stat,
        kind: EntryKind,
        id: ObjectId,
    },
    /// A FIFO, a device, an unreadable file, a file that is being written, or one that is larger than any planned one.
    Other,
}

/// Returns whether an error means that there is no such file in the workspace.
pub(super) fn is_absent(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV)
}

impl DiskState {
    /// Reads a path. A file with more than `max_bytes` is not read: it is not a planned one, and may have terabytes.
    pub(super) fn read(
        directory: &OwnedFd,
        name: impl rustix::path::Arg + Copy,
        path: &FilePath,
        max_bytes: u64,
    ) -> Result<Self> {
        let stat = match stat_at(directory, name) {
            Ok(stat) => stat,
            Err(error) if is_absent(error) => return Ok(Self::Absent),
            Err(error) => return Err(error).context("look at", path.as_path()),
        };
        #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is ever written")]
        match stat.file_type() {
            FileType::Directory => Ok(Self::Directory(stat)),
            FileType::Symlink => {
                let Ok(target) = rustix::fs::readlinkat(directory, name, Vec::new()) else { return Ok(Self::Other) };
                let id = hash(Kind::Blob, target.as_bytes());
                Ok(Self::File { stat, kind: EntryKind::Symlink, id })
            }
            FileType::RegularFile => Self::read_file(directory, name, path, max_bytes),
            _ => Ok(Self::Other),
        }
    }

    fn read_file(directory: &OwnedFd, name: impl rustix::path::Arg, path: &FilePath, max_bytes: u64) -> Result<Self> {
        let Ok(file) = open_file(directory, name) else { return Ok(Self::Other) };
        let stat = stat_of(&file).context("look at", path.as_path())?;
        if stat.file_type() != FileType::RegularFile || stat.key.size > max_bytes {
            return Ok(Self::Other);
        }
        let file = File::from(file);
        let large = LargeFile { file: &file, path: path.as_path(), len: stat.key.size };
        let kind = if stat.key.mode & 0o100 == 0 { EntryKind::File } else { EntryKind::Executable };
        Ok(large.hash(|| Ok(()))?.map_or(Self::Other, |id| Self::File { stat, kind, id }))
    }

    /// Returns whether this is the planned state. The permissions of directories do not count, because they are set at
    /// the end.
    pub(super) fn matches(&self, planned: Option<&FileState>) -> bool {
        match (self, planned) {
            (Self::Absent, None) => true,
            (Self::Directory(_), Some(planned)) => planned.kind == EntryKind::Directory,
            (Self::File { stat, kind, id }, Some(planned)) => {
                // A set-id bit is taken away, and never given back: without it the file is as planned.
                let modes = [planned.mode, planned.given_mode()];
                let is_same_mode = *kind == EntryKind::Symlink || modes.contains(&stat.key.permissions());
                *kind == planned.kind && Some(*id) == planned.id && is_same_mode
            }
            (Self::Absent | Self::Other, Some(_)) | (Self::Directory(_) | Self::File { .. } | Self::Other, None) => {
                false
            }
        }
    }

    /// Returns whether this is not a directory, or one with the planned permissions.
    pub(super) fn has_directory_mode(&self, planned: Option<&FileState>) -> bool {
        match (self, planned) {
            (Self::Directory(stat), Some(planned)) => stat.key.permissions() == planned.mode,
            _ => true,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }

    /// Returns the attributes of a file that has no other name, here or outside of the workspace, that would change with it.
    pub(super) fn only_name(&self) -> Option<&Stat> {
        match self {
            Self::File { stat, .. } if stat.links == 1 => Some(stat),
            Self::File { .. } | Self::Directory(_) | Self::Absent | Self::Other => None,
        }
    }

    /// Returns the inode, to tell whether two names are one file.
    pub(super) fn inode(&self) -> Option<u64> {
        match self {
            Self::File { stat, .. } | Self::Directory(stat) => Some(stat.key.inode),
            Self::Absent | Self::Other => None,
        }
    }
}
