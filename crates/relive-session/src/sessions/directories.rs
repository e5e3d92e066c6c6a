//! The directories of sessions of one process.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use super::LOOK_EVERY;
use crate::directory::{self, Found, SessionDirectory};
use crate::spec::Names;

/// How long the remains of an earlier launch may take to be removed: longer than a tree is killed for.
const CLEARED_WITHIN: Duration = Duration::from_secs(15);

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
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => replace(path, boot_id)?,
        created => created?,
    };
    if names == Names::Apart {
        sync_dir(parent)?;
    }
    Ok(created)
}

/// Replaces a directory whose program never ran, once nobody removes what is left of that launch: the next one has cgroups
/// of the same names.
fn replace(path: &Path, boot_id: &str) -> io::Result<(SessionDirectory, OwnedFd)> {
    let until = Instant::now() + CLEARED_WITHIN;
    loop {
        let old = SessionDirectory::open(path)?;
        match old.look(boot_id)? {
            Found::NeverRan => {
                if let Some(_lock) = old.hold()? {
                    return SessionDirectory::create_again(path);
                }
            }
            // Whoever removes the remains holds the lock, as a shim does.
            Found::Starting => {}
            Found::Alive(_) | Found::Ended(_) | Found::ShimLost(_) | Found::OtherBoot(_) => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        if Instant::now() > until {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn sync_dir(path: &Path) -> io::Result<()> {
    std::fs::File::open(path)?.sync_all()
}
