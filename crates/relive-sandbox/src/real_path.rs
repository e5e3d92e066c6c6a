//! The real names of paths, for the launcher.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Returns the real name of a path: the path itself in most cases, which takes one system call and not one for each part.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    // Without links it is the name; the slashes at its end and between its parts are not.
    let is_plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    if is_plain {
        match find(path) {
            Ok(_) => return Ok(path.components().collect()),
            Err(Errno::NOENT) => return Err(Errno::NOENT.into()),
            // A link, or what only `canonicalize` can tell.
            Err(_) => {}
        }
    }
    path.canonicalize()
}

fn find(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_name_is_that_of_canonicalize() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::DirBuilder::new().recursive(true).create(root.join("a/b")).unwrap();
        std::fs::File::create_new(root.join("a/file")).unwrap();
        for (to, link) in [("a", "link"), ("a/file", "a/to-file"), ("nowhere", "dangling"), ("loop", "loop")] {
            rustix::fs::symlink(to, root.join(link)).unwrap();
        }
        let below = "a a/ a//b a/./b a/b/. a/b/.. a/../a link link/b link/../a a/file a/file/ a/file/x a/to-file a/to-file/ dangling \
                     dangling/x loop missing missing/.. a/missing/b";
        let others = "/ // . src missing /proc/self/exe /proc/self/fd/0";
        let paths = below.split(' ').map(|below| root.join(below)).chain(others.split(' ').map(PathBuf::from));
        for path in paths.chain([root.clone(), PathBuf::new()]) {
            let (found, expect) = (real_path(&path), path.canonicalize());
            let error = |error: io::Error| error.raw_os_error();
            assert_eq!(found.map_err(error), expect.map_err(error), "{}", path.display());
        }
    }
}
