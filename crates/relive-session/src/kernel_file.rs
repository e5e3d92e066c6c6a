//! Small files of the kernel, in `/proc` and of cgroups. They have no length, so the standard library reads them in ten calls
//! or more; most of them need one.

use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

/// More than the files that are read in one call have.
const ONCE_BYTES: usize = 4096;

/// Reads a file that the kernel hands out at once if there is room, such as `stat` and `status` of a process.
pub fn read_once(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read(path.as_ref(), Reads::UntilShort, usize::MAX)
}

/// Reads a file to its end, or as much of it as `max` bytes.
pub fn read_whole(path: impl AsRef<Path>, max: usize) -> io::Result<Vec<u8>> {
    read(path.as_ref(), Reads::UntilNothing, max)
}

/// The call after which nothing more is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    UntilShort,
    UntilNothing,
}

fn read(path: &Path, reads: Reads, max: usize) -> io::Result<Vec<u8>> {
    let file = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::with_capacity(ONCE_BYTES);
    loop {
        bytes.reserve(ONCE_BYTES);
        let room = bytes.capacity() - bytes.len();
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)))?;
        if read == 0 || bytes.len() >= max || (reads == Reads::UntilShort && read < room) {
            bytes.truncate(max);
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_is_read_as_the_standard_library_reads_it() {
        for path in ["/proc/version", "/proc/self/mountinfo", "/proc/sys/kernel/random/boot_id"] {
            assert_eq!(read_whole(path, usize::MAX).unwrap(), std::fs::read(path).unwrap(), "{path}");
        }
        assert_eq!(read_once("/proc/version").unwrap(), std::fs::read("/proc/version").unwrap());
        assert_eq!(read_once("/nonexistent").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_is_longer_than_expected_is_whole_or_has_the_length_that_was_asked_for() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..30_000_u32).map(|number| number as u8).collect();
        file.write_all(&bytes).unwrap();
        assert_eq!(read_once(file.path()).unwrap(), bytes);
        assert_eq!(read_whole(file.path(), usize::MAX).unwrap(), bytes);
        assert_eq!(read_whole(file.path(), 10_001).unwrap(), bytes[..10_001]);
    }
}
