//! Replaces one file: as a whole, synced before it is acknowledged, and only if it was not changed since.
//!
//! [`replace`] expects the file that [`look`] saw and leaves any other unchanged. A lock makes the last look and the
//! rename one step for all agents of this daemon. Another program can still change the file in between; Linux has no
//! way to prevent this for a named file. A replaced file keeps its mode and, if permitted, its owner. It is a new
//! inode, so hard links to the old one no longer share its content.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use relive_journal::Hash;
use relive_journal::recovery::{Finding, Recovery};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use super::beneath::{Directory, Place, Refused, refused};
use super::cancel::Leash;
use super::reading;
use crate::tool::{Context, ToolResult};

/// The largest file that is changed, before or after.
pub(super) const FILE_MAX: usize = 64 * 1024 * 1024;

/// Locks for the last look and the rename. Files that share a lock only wait for each other.
static LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// Reads the file at `path` (as [`Directory::relative`] returns it); `None` if it does not exist.
pub(super) fn look(directory: &Directory, leash: &Leash, path: &Path) -> Result<Option<Vec<u8>>, Refused> {
    let shown = path.display().to_string();
    let Some(place) = directory.place(path)? else { return Ok(None) };
    match place.file(&shown)? {
        Some((file, _)) => contents(leash, file, &shown).map(Some),
        None => Ok(None),
    }
}

/// Finds out what happened to a change, for [`crate::tool::Tool::look`].
pub(super) async fn find(context: Context, recovery: Recovery) -> Finding {
    let Recovery::Check { path, .. } = recovery else { return Finding::Lost };
    let Ok(path) = path.into_os_string().into_string() else { return Finding::Lost };
    let looked = reading(&context, move |directory, leash| look(directory, leash, &directory.relative(&path)?)).await;
    // An unreadable file is neither the old nor the new version.
    looked.map_or(Finding::Lost, |bytes| Finding::File(bytes.as_deref().map(Hash::of)))
}

/// A change of a file, by the hashes of its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) before: Option<Hash>,
    pub(super) after: Option<Hash>,
    /// The unique key of the call.
    pub(super) key: &'a str,
}

/// Replaces the file with the result of `make`, if it was not changed since.
pub(super) fn replace(
    directory: &Directory,
    leash: &Leash,
    path: &Path,
    change: Change<'_>,
    make: impl FnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, Refused>,
) -> Result<(), Refused> {
    let Change { before, after, key } = change;
    let shown = path.display().to_string();
    if before.is_none() {
        directory.make_parents(path)?;
    }
    let place = directory.place(path)?.ok_or_else(|| changed(&shown))?;
    let lock = lock_of(&place).map_err(|errno| refused(errno, &shown))?;
    let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let (old, stat) = match place.file(&shown)? {
        Some((file, stat)) => (Some(contents(leash, file, &shown)?), Some(stat)),
        None => (None, None),
    };
    let now = old.as_deref().map(Hash::of);
    if now == after {
        return Ok(());
    }
    if now != before {
        return Err(changed(&shown));
    }
    let bytes = make(old)?;
    put(&place, &bytes, stat.as_ref(), key).map_err(|errno| match errno {
        Errno::EXIST => changed(&shown),
        errno => refused(errno, &shown),
    })
}

/// Returns the lock of a file, independent of the path that was used.
fn lock_of(place: &Place) -> Result<&'static Mutex<()>, Errno> {
    let directory = rustix::fs::fstat(&place.directory)?;
    let mut hasher = DefaultHasher::new();
    (directory.st_dev, directory.st_ino, &place.name).hash(&mut hasher);
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    let index = hasher.finish() as usize % LOCKS.len();
    Ok(&LOCKS[index])
}

fn changed(shown: &str) -> Refused {
    Refused::Said(format!(
        "`{shown}` was changed by another program in the meantime and is left unchanged; read it again"
    ))
}

fn contents(leash: &Leash, file: File, shown: &str) -> Result<Vec<u8>, Refused> {
    let read = leash.read_all(file, FILE_MAX as u64 + 1);
    let bytes = read.map_err(|error| Refused::Io { path: shown.to_owned(), error })?;
    if bytes.len() > FILE_MAX {
        return Err(Refused::Said(format!("`{shown}` is larger than {FILE_MAX} bytes, too large for this tool")));
    }
    Ok(bytes)
}

/// Writes a temporary file next to it, syncs it, renames it, and syncs the directory.
fn put(place: &Place, bytes: &[u8], old: Option<&Stat>, key: &str) -> Result<(), Errno> {
    // Named after the call, so that a run after a crash finds and replaces the file that the crash left.
    let temporary = format!(".relive-{}.tmp", &Hash::of(key.as_bytes()).to_string()[..16]);
    match rustix::fs::unlinkat(&place.directory, &temporary, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let written = write_temporary(&place.directory, &temporary, bytes, old).and_then(|()| {
        let flags = if old.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match rustix::fs::renameat_with(&place.directory, &temporary, &place.directory, &place.name, flags) {
            // This file system does not support renaming without replacing.
            Err(Errno::INVAL) => rustix::fs::renameat(&place.directory, &temporary, &place.directory, &place.name),
            other => other,
        }
    });
    if written.is_err() {
        // The first error is reported.
        let _ = rustix::fs::unlinkat(&place.directory, &temporary, AtFlags::empty());
    }
    written?;
    rustix::fs::fsync(&place.directory)
}

fn write_temporary(directory: &OwnedFd, name: &str, bytes: &[u8], old: Option<&Stat>) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let mut file = File::from(rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(mode))?);
    file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if let Some(old) = old {
        let new = rustix::fs::fstat(&file)?;
        let same_owner = (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid)
            || rustix::fs::fchown(&file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid))).is_ok();
        // A user who does not own the file must not pass on its set-user-id bits.
        let kept = if same_owner { 0o7777 } else { 0o777 };
        rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & kept))?;
    }
    rustix::fs::fsync(&file)
}

/// The result of a change.
pub(super) fn result(replaced: Result<(), ToolResult>, done: &str) -> ToolResult {
    replaced.map_or_else(|failed| failed, |()| ToolResult::ok(done))
}
