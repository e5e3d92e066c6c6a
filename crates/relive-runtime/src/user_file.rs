//! Opens files that a user names.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

/// Opens a regular file for reading. A pipe or a device is refused without blocking.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = rustix::fs::openat(CWD, path, flags, Mode::empty())?.into();
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_refused_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(open(&pipe).unwrap_err().to_string(), "not a regular file");
        assert_eq!(open(directory.path()).unwrap_err().to_string(), "not a regular file");
        assert_eq!(open(&directory.path().join("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
