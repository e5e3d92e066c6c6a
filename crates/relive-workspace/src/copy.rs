//! Copies: the files of a snapshot in a new directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::CWD;
use serde::Serialize;

use crate::control::{Control, Progress};
use crate::diff::{FileState, View};
use crate::disk::{Disk, Durability};
use crate::error::{Context as _, Error, Result};
use crate::object::EntryKind;
use crate::path::FilePath;
use crate::remove::{check_not_mounted, remove_tree};
use crate::rules::OuterRules;
use crate::snapshot::Snapshot;
use crate::stat::{open_beneath, open_child};
use crate::store::{Store, open_directory};

/// More writers do not help.
const THREADS: usize = 2;
/// Files that one thread writes before it asks for more.
const BATCH: usize = 32;
/// Progress is reported after this many files.
const REPORT_EVERY: u64 = 1_024;

/// How the name of a copy ends that is being removed.
pub const REMOVED_END: &str = ".relive-removed";

/// The result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// Files and links.
    pub files: u64,
    pub bytes: u64,
}

impl Store {
    /// Writes the files of a snapshot to `destination`, which must not exist. The directory gets its name when
    /// everything is written and synced: after a kill there is only a directory `.NAME.relive-copy` next to it, which
    /// the next copy to the same place removes.
    ///
    /// The snapshot does not contain ignored files, so the copy does not either.
    pub fn copy(&self, snapshot: &Snapshot, destination: &Path, control: &Control) -> Result<Copied> {
        self.copy_with_rules(snapshot, destination, &OuterRules::default(), control)
    }

    /// Writes the files of a snapshot like [`Self::copy`]. Snapshots of the copy obey these rules from around its original,
    /// see [`Self::outer_rules`].
    pub fn copy_with_rules(
        &self,
        snapshot: &Snapshot,
        destination: &Path,
        rules: &OuterRules,
        control: &Control,
    ) -> Result<Copied> {
        let _pin = self.pin()?;
        let exists = || Error::Io {
            action: "create",
            path: destination.to_owned(),
            source: std::io::ErrorKind::AlreadyExists.into(),
        };
        let (Some(above), Some(name)) = (destination.parent(), destination.file_name()) else { return Err(exists()) };
        if destination.symlink_metadata().is_ok() {
            return Err(exists());
        }
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(".relive-copy");
        let path = above.join(&temporary);
        let disk = self.disk();
        disk.create_directories(above).context("create", above)?;
        remove_tree(disk, &path)?;
        disk.create_directory(CWD, &path).context("create", &path)?;
        let made = self.fill(snapshot, &path, control).and_then(|(copied, files)| {
            // The directory of copies may be a link to another disk.
            let above = above.canonicalize().context("open", above)?;
            let directory = open_directory(&above)?;
            let made = open_child(CWD, &path).context("open", &path)?;
            self.note_base(&above.join(name), &files, (rules, &self.extras(snapshot)?.exclude), &made)?;
            let renamed = disk.rename_new(&directory, &*temporary, name);
            renamed.and_then(|()| disk.sync_directory(&directory)).context("create", destination)?;
            Ok(copied)
        });
        if made.is_err() {
            let _ = remove_tree(disk, &path);
        }
        made
    }

    /// Creates an empty file in the directory of copies. A copy that is made there later syncs it.
    pub fn mark_copy(&self, path: &Path) -> Result<()> {
        self.mark(path, Durability::Disposable)
    }

    /// Creates an empty file in the directory of copies that is still there after a power cut.
    pub fn mark_copy_durably(&self, path: &Path) -> Result<()> {
        self.mark(path, Durability::Synced)
    }

    fn mark(&self, path: &Path, durability: Durability) -> Result<()> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
            return Err(std::io::Error::from(std::io::ErrorKind::InvalidInput)).context("create", path);
        };
        self.disk().create_directories(above).context("create", above)?;
        let directory = open_directory(&above.canonicalize().context("open", above)?)?;
        self.disk().replace(&directory, name, b"", durability).context("create", path)
    }

    /// Removes a directory that [`Self::copy`] made, and everything in it. That it is not there is no error. Refuses if
    /// something is mounted in it.
    ///
    /// The directory gets another name first, see [`Self::removed_copy`], so a removal that fails or is interrupted never
    /// leaves half a copy in its place: what is missing there would look like the work of whoever used the copy.
    pub fn remove_copy(&self, path: &Path) -> Result<()> {
        let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(std::io::Error::from(std::io::ErrorKind::InvalidInput)).context("remove", path);
        };
        // A link in its place is removed, and the directory behind it is somebody else's.
        let real = above.canonicalize().ok().map(|above| above.join(name)).filter(|_| !path.is_symlink());
        let aside = self.removed_copy(path);
        remove_tree(self.disk(), &aside)?;
        if is_directory {
            check_not_mounted(self.disk(), path)?;
            let directory = open_directory(&above.canonicalize().context("open", above)?)?;
            let to = aside.file_name().unwrap_or_default();
            let renamed = self.disk().rename(&directory, name, to);
            renamed.and_then(|()| self.disk().sync_directory(&directory)).context("remove", path)?;
            remove_tree(self.disk(), &aside)?;
        } else {
            remove_tree(self.disk(), path)?;
        }
        real.map_or(Ok(()), |real| self.remove_state(&real))
    }

    /// Removes what a removal left that was interrupted or failed.
    pub fn remove_rest(&self, removed_copy: &Path) -> Result<()> {
        remove_tree(self.disk(), removed_copy)
    }

    /// Returns the name that a copy has while it is removed.
    #[must_use]
    pub fn removed_copy(&self, path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().as_bytes();
        path.with_file_name(OsStr::from_bytes(&[b".", name, REMOVED_END.as_bytes()].concat()))
    }

    /// Writes all files, and returns their paths.
    fn fill(&self, snapshot: &Snapshot, path: &Path, control: &Control) -> Result<(Copied, Vec<FilePath>)> {
        let root = open_child(CWD, path).context("open", path)?;
        let mut view = View::new(self, snapshot)?;
        let (mut directories, mut files, mut links) = (Vec::new(), Vec::new(), Vec::new());
        for file in view.paths()? {
            let Some(state) = view.state(&file)? else { continue };
            match (state.kind, &state.same_as) {
                (EntryKind::Directory, _) => directories.push((file, state)),
                (_, None) => files.push((file, state)),
                (_, Some(first)) => links.push((file, first.clone())),
            }
        }
        let copier = Copier {
            store: self,
            disk: self.disk(),
            root: &root,
            path,
            control,
            next: AtomicUsize::new(0),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        // Sorted, so parents come before their children.
        directories.iter().try_for_each(|(path, _)| copier.create_directory(path))?;
        copier.write_all(&files)?;
        links.iter().try_for_each(|(path, first)| copier.link(path, first))?;
        for (path, state) in directories.iter().rev() {
            let directory = open_beneath(&root, path).context("open", path.as_path())?;
            copier.disk.set_mode(&directory, state.mode).context("set permissions of", path.as_path())?;
        }
        copier.disk.sync_file_system(&root).context("sync", path.as_ref())?;
        let copied = Copied { files: copier.files.into_inner(), bytes: copier.bytes.into_inner() };
        let links = links.into_iter().map(|(path, _)| path);
        Ok((copied, files.into_iter().map(|(path, _)| path).chain(links).collect()))
    }
}

struct Copier<'a> {
    store: &'a Store,
    disk: &'a Disk,
    root: &'a OwnedFd,
    path: &'a Path,
    control: &'a Control,
    next: AtomicUsize,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Copier<'_> {
    fn create_directory(&self, path: &FilePath) -> Result<()> {
        let Some((parent, name)) = path.split() else { return Ok(()) };
        let above = open_beneath(self.root, &parent).context("open", &self.place(&parent))?;
        self.disk.create_directory(&above, name).context("create", &self.place(path))
    }

    fn place(&self, path: &FilePath) -> PathBuf {
        self.path.join(path.as_path())
    }

    fn write_all(&self, files: &[(FilePath, FileState)]) -> Result<()> {
        let threads = if self.disk.is_counted() { 1 } else { THREADS };
        std::thread::scope(|scope| {
            let started: Vec<_> = (1..threads).map(|_| scope.spawn(|| self.work(files))).collect();
            let own = self.work(files);
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            started.into_iter().map(join).fold(own, Result::and)
        })
    }

    fn work(&self, files: &[(FilePath, FileState)]) -> Result<()> {
        // Files of one directory are adjacent.
        let mut open: HashMap<FilePath, OwnedFd> = HashMap::new();
        loop {
            let start = self.next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(rest) = files.get(start..) else { return Ok(()) };
            for (path, state) in rest.iter().take(BATCH) {
                let written = self.control.check().and_then(|()| self.write(path, state, &mut open));
                if written.is_err() {
                    // The other thread has no work left either.
                    self.next.store(files.len(), Ordering::Relaxed);
                    return written;
                }
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn write(&self, path: &FilePath, state: &FileState, open: &mut HashMap<FilePath, OwnedFd>) -> Result<()> {
        let (Some((parent, name)), Some(id)) = (path.split(), state.id) else { return Ok(()) };
        if !open.contains_key(&parent) {
            open.clear();
            open.insert(parent.clone(), open_beneath(self.root, &parent).context("open", &self.place(&parent))?);
        }
        let Some(directory) = open.get(&parent) else { return Ok(()) };
        let bytes = self.store.blob(id)?;
        if state.kind == EntryKind::Symlink {
            self.disk.symlink(&bytes, directory, name).context("create", &self.place(path))?;
        } else {
            let file = self.disk.create(directory, name).context("create", &self.place(path))?;
            self.disk.write(&file, &bytes).context("write", &self.place(path))?;
            self.disk.set_mode(file.as_fd(), state.given_mode()).context("set permissions of", &self.place(path))?;
            self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        if files.is_multiple_of(REPORT_EVERY) {
            self.control.report(Progress::Written { files, of: 0 });
        }
        Ok(())
    }

    fn link(&self, path: &FilePath, first: &FilePath) -> Result<()> {
        self.files.fetch_add(1, Ordering::Relaxed);
        let (Some((from, first)), Some((to, name))) = (first.split(), path.split()) else { return Ok(()) };
        let open = |directory: &FilePath| open_beneath(self.root, directory).context("open", &self.place(directory));
        self.disk.link((open(&from)?, first), (open(&to)?, name)).context("link", &self.place(path))
    }
}
