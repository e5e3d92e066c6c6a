//! A change of one file: whole, on the disk when it is acknowledged, and only of the file that was looked at.
//!
//! What [`look`] saw is what [`replace`] wants to find: a file that somebody changed since is left alone. Two agents of
//! this daemon cannot both find it so: the last look and the rename are one, under a lock. Another program can still
//! get in between; nothing on Linux closes this gap for a named file.
//! A replaced file keeps its mode and, where we may, its owner; it is a new inode, so hard links to the old one are parted from it.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use relive_journal::Hash;
use relive_journal::recovery::{Finding, Recovery};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use super::beneath::{Folder, Place, Refused, refused};
use super::in_folder;
use crate::tool::{Context, ToolResult};

/// The largest file that is changed, before and after.
pub(super) const FILE_MAX: usize = 64 * 1024 * 1024;

/// Locks for the last look and the rename. Files that share one only wait for each other.
static LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// The bytes of the file at `path` (as [`Folder::relative`] gives it); `None` where there is none.
pub(super) fn look(folder: &Folder, path: &Path) -> Result<Option<Vec<u8>>, Refused> {
    let shown = path.display().to_string();
    let Some(place) = folder.place(path)? else { return Ok(None) };
    match place.file(&shown)? {
        Some((file, _)) => contents(file, &shown).map(Some),
        None => Ok(None),
    }
}

/// What became of a change, for [`crate::tool::Tool::look`].
pub(super) async fn find(context: Context, recovery: Recovery) -> Finding {
    let Recovery::Check { path, .. } = recovery else { return Finding::Lost };
    let Ok(path) = path.into_os_string().into_string() else { return Finding::Lost };
    let looked = in_folder(&context, move |folder| look(folder, &folder.relative(&path)?)).await;
    // What cannot be read is not what we wrote, nor what we saw.
    looked.map_or(Finding::Lost, |bytes| Finding::File(bytes.as_deref().map(Hash::of)))
}

/// Makes the file what `make` makes of its bytes, if it still has the hash `before`. `key` names the call.
pub(super) fn replace(
    folder: &Folder,
    path: &Path,
    before: Option<Hash>,
    after: Option<Hash>,
    key: &str,
    make: impl FnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, Refused>,
) -> Result<(), Refused> {
    let shown = path.display().to_string();
    if before.is_none() {
        folder.make_parents(path)?;
    }
    let place = folder.place(path)?.ok_or_else(|| changed(&shown))?;
    let lock = lock_of(&place).map_err(|errno| refused(errno, &shown))?;
    let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let (old, stat) = match place.file(&shown)? {
        Some((file, stat)) => (Some(contents(file, &shown)?), Some(stat)),
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

/// The lock of a file, by whatever path it was reached.
fn lock_of(place: &Place) -> Result<&'static Mutex<()>, Errno> {
    let folder = rustix::fs::fstat(&place.folder)?;
    let mut hasher = DefaultHasher::new();
    (folder.st_dev, folder.st_ino, &place.name).hash(&mut hasher);
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    let index = hasher.finish() as usize % LOCKS.len();
    Ok(&LOCKS[index])
}

fn changed(shown: &str) -> Refused {
    Refused::Said(format!("`{shown}` was changed by somebody else meanwhile and is left as it is; read it again"))
}

fn contents(file: File, shown: &str) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    let read = file.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Refused::Io { path: shown.to_owned(), error })?;
    if bytes.len() > FILE_MAX {
        return Err(Refused::Said(format!("`{shown}` is larger than {FILE_MAX} bytes, too large for this tool")));
    }
    Ok(bytes)
}

/// Temporary beside it, synced, renamed, folder synced.
fn put(place: &Place, bytes: &[u8], old: Option<&Stat>, key: &str) -> Result<(), Errno> {
    // Named after the call, so that a run after a crash finds, and replaces, what the crash left.
    let temporary = format!(".relive-{}.tmp", &Hash::of(key.as_bytes()).to_string()[..16]);
    match rustix::fs::unlinkat(&place.folder, &temporary, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let written = write_temporary(&place.folder, &temporary, bytes, old).and_then(|()| {
        let flags = if old.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match rustix::fs::renameat_with(&place.folder, &temporary, &place.folder, &place.name, flags) {
            // A file system that cannot refuse to replace.
            Err(Errno::INVAL) => rustix::fs::renameat(&place.folder, &temporary, &place.folder, &place.name),
            other => other,
        }
    });
    if written.is_err() {
        // The first error is the one to tell.
        let _ = rustix::fs::unlinkat(&place.folder, &temporary, AtFlags::empty());
    }
    written?;
    rustix::fs::fsync(&place.folder)
}

fn write_temporary(folder: &OwnedFd, name: &str, bytes: &[u8], old: Option<&Stat>) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let mut file = File::from(rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode))?);
    file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if let Some(old) = old {
        let new = rustix::fs::fstat(&file)?;
        let same_owner = (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid)
            || rustix::fs::fchown(&file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid))).is_ok();
        // Who does not own the file must not hand on its set-user-id bits.
        let kept = if same_owner { 0o7777 } else { 0o777 };
        rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & kept))?;
    }
    rustix::fs::fsync(&file)
}

/// The result of a change.
pub(super) fn result(replaced: Result<(), ToolResult>, done: &str) -> ToolResult {
    replaced.map_or_else(|failed| failed, |()| ToolResult::ok(done))
}
