//! Reads the files that a command is given.
//!
//! **Invariant:** nothing here waits for another program, and nothing is read past a limit. The one exception is a pipe
//! that the shell has already opened for this command, as `--env-file <(pass show keys)` does: it is read to its end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FileType, OFlags};

use crate::error::{CommandError, Outcome, plain};

const MIB_MAX: u64 = 1;
/// Instructions can bring a whole specification along.
const INSTRUCTIONS_MIB_MAX: u64 = 16;

/// Reads a whole file as text.
pub(crate) fn read(path: &Path) -> Outcome<String> {
    read_up_to(path, MIB_MAX)
}

/// Reads a whole file of instructions.
pub(crate) fn read_instructions(path: &Path) -> Outcome<String> {
    read_up_to(path, INSTRUCTIONS_MIB_MAX)
}

fn read_up_to(path: &Path, mib_max: u64) -> Outcome<String> {
    let failed = |error| unreadable(&path.display().to_string(), &error);
    let file = open(path).map_err(failed)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file).map_err(io::Error::from).map_err(failed)?.st_mode);
    if let Some(name) = name_of(kind) {
        let is_from_the_shell = kind == FileType::Fifo && is_open_already(path);
        if !is_from_the_shell {
            return Err(CommandError::invalid(format!("{} is {name}, not a file", path.display())));
        }
        // Without this a writer that is still thinking would look like the end.
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(io::Error::from).map_err(failed)?;
    }
    text_up_to(file, &path.display().to_string(), mib_max)
}

/// Reads text to its end; `name` is what errors call it.
pub(crate) fn read_text(from: impl io::Read, name: &str) -> Outcome<String> {
    text_up_to(from, name, MIB_MAX)
}

fn text_up_to(from: impl io::Read, name: &str, mib_max: u64) -> Outcome<String> {
    let (mut bytes, bytes_max) = (Vec::new(), mib_max << 20);
    let read = from.take(bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(name, &error))?;
    if bytes.len() as u64 > bytes_max {
        return Err(CommandError::invalid(format!("{name} is larger than {mib_max} MiB")));
    }
    String::from_utf8(bytes).map_err(|_| CommandError::invalid(format!("{name} is not UTF-8 text")))
}

fn unreadable(name: &str, error: &io::Error) -> CommandError {
    CommandError::invalid(format!("cannot read {name}: {}", plain(error)))
}

fn open(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for a writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Returns whether a path names a descriptor of this command, and not a file of its own.
fn is_open_already(path: &Path) -> bool {
    ["/dev/fd", "/proc/self/fd"].iter().any(|directory| path.parent() == Some(Path::new(directory)))
        || path == Path::new("/dev/stdin")
}

/// Returns a name for everything that is not a regular file.
fn name_of(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        FileType::Unknown => Some("something unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[track_caller]
    fn check(path: &Path, expect: &str) {
        let said = read(path).map_or_else(|error| error.to_string(), |text| format!("text {text}"));
        assert_eq!(said.replace(&path.display().to_string(), "F"), expect);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn only_regular_files_up_to_a_limit_are_read() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &[u8]| {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        check(&path("text", b"0123456789"), "text 0123456789");
        check(&path("long", &vec![b'a'; (1 << 20) + 1]), "F is larger than 1 MiB");
        check(&path("binary", b"\xff"), "F is not UTF-8 text");
        check(place.path(), "F is a directory, not a file");
        check(&place.path().join("none"), "cannot read F: no such file or directory");
        check(Path::new("/dev/zero"), "F is a device, not a file");
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
        check(&pipe, "F is a pipe, not a file");
    }

    #[test]
    fn a_pipe_that_the_shell_has_opened_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        writer.write_all(b"A=1").unwrap();
        let writing = std::thread::spawn(move || {
            writer.write_all(b"\nB=2").unwrap();
            drop(writer);
        });
        assert_eq!(read(Path::new(&path)).unwrap(), "A=1\nB=2");
        writing.join().unwrap();
    }
}
