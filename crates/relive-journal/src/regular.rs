//! Opens files for reading.
//!
//! Anything may be in the place of a file: a pipe, a device, a directory, a loop of links. Opening a pipe for reading
//! waits for a writer, so nothing in the data directory is opened without `O_NONBLOCK`, and only regular files are
//! read. Small files are read up to a limit, because a sparse file can claim any length.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The longest snapshot, checkpoint or metadata file that is read.
pub(crate) const SMALL_MAX: u64 = 256 << 20;
/// The longest blob or log of the data directory that is read.
pub(crate) const LARGE_MAX: u64 = 1 << 30;

/// The largest buffer that is allocated before a file is read.
const ROOM_MAX: u64 = 1 << 20;

/// The flags with which every file in the data directory is opened.
pub(crate) fn flags() -> i32 {
    // The bits of the two flags fit: they are small constants of the system.
    (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed()
}

/// Opens a regular file for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(flags()).open(path)?;
    check(&file)?;
    Ok(file)
}

/// Returns whether something else than a regular file is in the place of one.
pub(crate) fn is_other(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::IsADirectory)
}

/// Returns whether a file was read and is not what it should be, or something else is in its place. Every other error is about
/// the system or the rights to the file, which may be good.
#[must_use]
pub fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, NotFound, UnexpectedEof};
    // A socket, or a loop of links.
    let others = [Errno::NXIO, Errno::LOOP].map(Errno::raw_os_error);
    matches!(error.kind(), InvalidData | IsADirectory | NotADirectory | NotFound | UnexpectedEof)
        || error.raw_os_error().is_some_and(|errno| others.contains(&errno))
}

/// Refuses a file that is not regular.
pub(crate) fn check(file: &File) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let name = if kind.is_fifo() { "a pipe" } else { "a device" };
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name}, not a regular file")))
}

/// Returns the capacity for reading a file at once. Without it the buffer would grow from a few bytes, with a read each
/// time. The length that a sparse file claims is limited.
fn room(file: &File) -> io::Result<usize> {
    let length = file.metadata()?.len().min(ROOM_MAX);
    Ok(usize::try_from(length).unwrap_or(0) + 1)
}

/// Reads a regular file of at most `max` bytes.
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::with_capacity(room(&file)?);
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {max} bytes")));
    }
    Ok(bytes)
}
