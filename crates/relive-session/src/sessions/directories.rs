//! The directories of sessions of one process.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::directory::{self, Found, SessionDirectory};
use crate::spec::Names;

/// Returns the sessions in a directory of sessions whose names are numbers.
pub fn numbered(path: &Path) -> io::Result<Vec<u32>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if directory::is_missing_or_replaced(&error) => return Ok(Vec::new()),
        other => other?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(numbers)
}

/// Returns whether sessions were removed from a directory of sessions: it is never empty by itself.
pub fn is_emptied(path: &Path) -> io::Result<bool> {
    match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if directory::is_replaced(&error) => Ok(true),
        entries => Ok(entries?.next().is_none()),
    }
}

/// The directory, with its name on the disk if names need that: that it is not there means that nothing was launched, in this
/// boot or at all. One whose program never ran makes room.
pub(super) fn create(path: &Path, boot_id: &str, names: Names) -> io::Result<(SessionDirectory, OwnedFd)> {
    let parent = path.parent().unwrap_or(path);
    let created = match SessionDirectory::create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let created = SessionDirectory::create_first(path)?;
            if names == Names::Apart {
                sync_dir(parent.parent().unwrap_or(parent))?;
            }
            created
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !matches!(SessionDirectory::open(path)?.look(boot_id)?, Found::NeverRan) {
                return Err(error);
            }
            SessionDirectory::create_again(path)?
        }
        created => created?,
    };
    if names == Names::Apart {
        sync_dir(parent)?;
    }
    Ok(created)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    std::fs::File::open(path)?.sync_all()
}
