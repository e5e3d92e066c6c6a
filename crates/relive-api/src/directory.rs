//! Checks that a directory is safe for a socket: that nobody else can replace it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const WRITABLE_BY_ALL: u32 = 0o002;
/// In such a directory only its owner, and the owner of a file, can replace the file.
const STICKY: u32 = 0o1000;

/// Another user controls the content of a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeDirectory {
    /// The directory, a parent, or a symbolic link on the way belongs to another user.
    #[error("{}: the directory of the daemon's socket belongs to uid {uid}, not to you (uid {ours})", path.display())]
    Owner { path: PathBuf, uid: u32, ours: u32 },
    /// Other users can write to the directory, or all users to a parent.
    #[error("{}: others can write to the directory of the daemon's socket (mode {mode:04o})", path.display())]
    Mode { path: PathBuf, mode: u32 },
}

impl UnsafeDirectory {
    /// Says what is wrong, without the purpose of the directory.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Owner { path, uid, ours } => {
                format!("{} belongs to uid {uid}, not to you (uid {ours})", path.display())
            }
            Self::Mode { path, mode } => format!("others can write to {} (mode {mode:04o})", path.display()),
        }
    }
}

/// Checks a directory and all its parents, both along the given path and along the path without symbolic links. Missing
/// or inaccessible parts are not checked.
pub fn check_directory(directory: &Path) -> Result<(), UnsafeDirectory> {
    let ours = rustix::process::geteuid().as_raw();
    // In a user namespace the system's own files may appear to belong to another user.
    let system = Path::new("/").metadata().map_or(ROOT, |found| found.uid());
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    check_names(&directory, ours, system)?;
    match directory.canonicalize() {
        Ok(real) if real != directory => check_names(&real, ours, system),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn check_names(directory: &Path, ours: u32, system: u32) -> Result<(), UnsafeDirectory> {
    for path in directory.ancestors() {
        let Ok(found) = path.symlink_metadata() else { continue };
        let is_last = path == directory;
        let uid = found.uid();
        if uid != ours && uid != ROOT && (is_last || uid != system) {
            return Err(UnsafeDirectory::Owner { path: path.to_owned(), uid, ours });
        }
        // The group of a parent may well be the user's own.
        let writable = if is_last { WRITABLE_BY_OTHERS } else { WRITABLE_BY_ALL };
        if found.is_dir() && found.mode() & writable != 0 && found.mode() & STICKY == 0 {
            return Err(UnsafeDirectory::Mode { path: path.to_owned(), mode: found.mode() & 0o7777 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    const NOBODY: u32 = 65534;

    fn make(path: &Path, mode: u32) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_is_only_as_safe_as_its_parents() {
        let temp = tempfile::tempdir().unwrap();
        let (above, below) = (temp.path().join("above"), temp.path().join("above/below"));
        make(&below, 0o700);
        let check = |mode: u32, safe: bool| {
            make(&above, mode);
            assert_eq!(check_directory(&below).is_ok(), safe, "mode {mode:04o}");
        };
        for (mode, safe) in [(0o755, true), (0o775, true), (0o777, false), (0o1777, true)] {
            check(mode, safe);
        }
        make(&above, 0o755);
        make(&below, 0o770);
        assert_eq!(check_directory(&below), Err(UnsafeDirectory::Mode { path: below.clone(), mode: 0o770 }));
        assert_eq!(check_directory(&below.join("not/there")), Ok(()), "it is made by us");
        let link = temp.path().join("link");
        symlink(&above, &link).unwrap();
        make(&above, 0o777);
        make(&below, 0o700);
        assert!(check_directory(&link.join("below")).is_err(), "also where a link leads");
    }

    #[test]
    fn links_on_the_way_must_belong_to_the_user() {
        let ours = rustix::process::geteuid().as_raw();
        if ours != ROOT {
            eprintln!("skipped: only root can give something to somebody else");
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let (above, link) = (temp.path().join("above"), temp.path().join("link"));
        make(&above.join("below"), 0o700);
        symlink(&above, &link).unwrap();
        assert_eq!(check_directory(&link.join("below")), Ok(()));
        lchown(&link, Some(NOBODY), None).unwrap();
        let owner = |path: &Path| Err(UnsafeDirectory::Owner { path: path.to_owned(), uid: NOBODY, ours });
        assert_eq!(check_directory(&link.join("below")), owner(&link));
        chown(&above, Some(NOBODY), None).unwrap();
        assert_eq!(check_directory(&above.join("below")), owner(&above));
        assert_eq!(check_directory(&above), owner(&above));
    }
}
