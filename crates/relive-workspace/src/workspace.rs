//! A directory with snapshots.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FlockOperation, flock};

use crate::cache::Cache;
use crate::disk::Durability;
use crate::error::{Context as _, Error, RefusedRoot, Result};
use crate::object;
use crate::path::FilePath;
use crate::rules::{CopyOrigin, OuterRules, Rules, Tracked};
use crate::settings::{Limits, Settings};
use crate::stat::{birth_at, has_local_times, open_child, read_small, stat_at, stat_of};
use crate::store::{Store, lock_file, open_directory};

/// The largest cache that is read; without a cache every file is hashed once.
const CACHE_MAX: u64 = 1 << 30;
const CACHE: &str = "cache";
/// The file with the path of a workspace.
const ROOT: &str = "root";
/// The file with the paths of the files that a copy began with.
const BASE: &str = "base";
const BASE_MAX: u64 = 1 << 30;
/// The file with the rules around the directory that a copy was made of.
const OUTER: &str = "outer-rules";
const OUTER_MAX: u64 = 64 << 20;
/// The file with the patterns that were excluded when a copy was made.
const EXCLUDED: &str = "excluded";
/// The file with the identity of the directory of a copy.
const MADE: &str = "made";
const MADE_MAX: u64 = 1 << 10;
const EXCLUDED_MAX: u64 = 1 << 20;
/// The longest path.
const PATH_MAX: u64 = 4_096;
/// The directory below the store with the state of each workspace.
pub(crate) const STATES: &str = "workspaces";

/// A directory of which snapshots are taken, with its stat cache in memory.
///
/// It changes the directory only in a restore or merge. It reads the user's Git repository and never changes it.
#[derive(Debug)]
pub struct Workspace {
    store: Store,
    root: PathBuf,
    descriptor: OwnedFd,
    settings: Settings,
    /// The directory of the stat cache and of an unfinished plan.
    state: PathBuf,
    pub(crate) cache: Cache,
    pub(crate) tracked: Option<Arc<Tracked>>,
    /// What is known of the directory that it is a copy of.
    origin: CopyOrigin,
}

impl Workspace {
    /// Opens a directory as a workspace.
    ///
    /// Refuses `/`, the home directory and its parents, private directories, and directories inside the store.
    pub fn open(store: &Store, root: &Path, mut settings: Settings) -> Result<Self> {
        let path = root.canonicalize().context("open", root)?;
        let refused = |why| Error::RefusedRoot { path: path.clone(), why };
        if !path.is_dir() {
            return Err(refused(RefusedRoot::NotADirectory));
        }
        if path.parent().is_none() {
            return Err(refused(RefusedRoot::FileSystemRoot));
        }
        let home = settings.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        if home.is_some_and(|home| home.starts_with(&path)) {
            return Err(refused(RefusedRoot::Home));
        }
        if path.starts_with(store.path()) {
            return Err(refused(RefusedRoot::Store));
        }
        // The directories in it may be workspaces: copies are.
        if settings.private.iter().any(|private| private.canonicalize().is_ok_and(|private| private == path)) {
            return Err(refused(RefusedRoot::Private));
        }
        let descriptor = open_child(CWD, &path).context("open", &path)?;
        let state = store.state_directory(&path);
        store.create_state_directory(&state)?;
        let cache =
            read_small(&state.join(CACHE), CACHE_MAX).and_then(|bytes| Cache::decode(&bytes)).unwrap_or_default();
        let origin = CopyOrigin { base: read_base(&state), outer: read_outer(&state) };
        // A pattern that was added since would hide what was changed in the copy.
        settings.exclude = read_excluded(&state).unwrap_or(settings.exclude);
        let workspace =
            Self { store: store.clone(), root: path, descriptor, settings, state, cache, tracked: None, origin };
        workspace.note_root()?;
        Ok(workspace)
    }

    /// Saves the path of the workspace next to its state, for people who inspect the store.
    fn note_root(&self) -> Result<()> {
        if self.state.join(ROOT).exists() {
            return Ok(());
        }
        let (directory, text) = (open_directory(&self.state)?, self.root.as_os_str().as_bytes());
        let written = self.store.disk().replace(&directory, ROOT, text, Durability::Disposable);
        written.context("write", &self.state.join(ROOT))
    }

    /// Returns the canonical path of the directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets the excluded patterns, and returns those of before.
    pub(crate) fn replace_excluded(&mut self, exclude: Vec<String>) -> Vec<String> {
        std::mem::replace(&mut self.settings.exclude, exclude)
    }

    /// Sets the limits, and returns those of before.
    pub(crate) fn replace_limits(&mut self, limits: Limits) -> Limits {
        let Settings { max_files, max_total_bytes, time_limit, .. } = &mut self.settings;
        Limits {
            max_files: std::mem::replace(max_files, limits.max_files),
            max_total_bytes: std::mem::replace(max_total_bytes, limits.max_total_bytes),
            time_limit: std::mem::replace(time_limit, limits.time_limit),
        }
    }

    pub(crate) fn root_descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Reads the rules that select the files of the workspace.
    pub(crate) fn rules(&self, settings: &Settings) -> Result<Rules> {
        Rules::load(&self.root, settings, self.tracked.as_ref(), &self.origin)
    }

    /// Opens the directory again if it was replaced.
    pub(crate) fn reopen_if_replaced(&mut self) -> Result<()> {
        let now = stat_at(CWD, &self.root).context("look at", &self.root)?;
        let opened = stat_of(&self.descriptor).context("look at", &self.root)?;
        if now.identity() != opened.identity() {
            self.descriptor = open_child(CWD, &self.root).context("open", &self.root)?;
            self.cache = Cache::default();
        }
        Ok(())
    }

    /// Returns whether this machine's clock stamps the files.
    pub(crate) fn has_local_times(&self) -> bool {
        has_local_times(&self.descriptor)
    }

    /// Returns Relive's own directories, which are never part of a snapshot.
    pub(crate) fn private_directories(&self) -> HashSet<(u64, u64)> {
        let paths = self.settings.private.iter().map(PathBuf::as_path).chain([self.store.path()]);
        paths.filter_map(|path| Some(stat_at(CWD, path).ok()?.identity())).collect()
    }

    /// Saves the stat cache for the next time the workspace is opened. It is not synced: without it the next snapshot
    /// reads every file once.
    pub fn save_cache(&self) -> Result<()> {
        let directory = open_directory(&self.state)?;
        let written = self.store.disk().replace(&directory, CACHE, &self.cache.encode(), Durability::Disposable);
        written.context("write", &self.state.join(CACHE))
    }

    /// Excludes other restores and merges of this directory.
    pub(crate) fn lock(&self) -> Result<StateLock> {
        let file = lock_file(&self.state.join("lock"), FlockOperation::NonBlockingLockExclusive)?;
        file.map(StateLock).ok_or_else(|| Error::Busy { path: self.root.clone() })
    }
}

impl Store {
    /// Returns the directory with the state of the workspace at this real path.
    fn state_directory(&self, root: &Path) -> PathBuf {
        let key = object::checksum(root.as_os_str().as_bytes());
        let name: String = key[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        self.path().join(STATES).join(name)
    }

    fn create_state_directory(&self, state: &Path) -> Result<()> {
        if state.is_dir() {
            return Ok(());
        }
        let above = self.path().join(STATES);
        self.disk().create_directories(&above).context("create", &above)?;
        let created = self.disk().create_directory(open_directory(&above)?, state.file_name().unwrap_or_default());
        match created {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            created => created.context("create", state),
        }
    }

    /// Reads the rules that apply to the files of a directory and are not in it: those of the repository around it, and for a
    /// copy those of the directory that it was made of. A copy of the directory keeps them.
    #[must_use]
    pub fn outer_rules(&self, directory: &Path, settings: &Settings) -> OuterRules {
        let Ok(root) = directory.canonicalize() else { return OuterRules::default() };
        read_outer(&self.state_directory(&root)).and(OuterRules::around(&root, settings))
    }

    /// Saves the paths of the files that a copy at this real path begins with, the rules around its original and the
    /// excluded patterns, before anybody changes them. A copy has no Git index that would say which of its files belong to
    /// the project whatever the ignore rules are. `made` is the directory, which does not have its name yet.
    pub(crate) fn note_base(
        &self,
        root: &Path,
        paths: &[FilePath],
        (outer, excluded): (&OuterRules, &[String]),
        made: &OwnedFd,
    ) -> Result<()> {
        self.remove_state(root)?;
        let state = self.state_directory(root);
        self.create_state_directory(&state)?;
        let bytes = checked(paths.iter().map(FilePath::as_bytes));
        let excluded = checked(excluded.iter().map(String::as_bytes));
        let directory = open_directory(&state)?;
        let root = root.as_os_str().as_bytes();
        let outer = outer.encode();
        let made = made_as(made).unwrap_or_default();
        let files = [
            (ROOT, root, Durability::Disposable),
            (MADE, made.as_bytes(), Durability::Synced),
            (OUTER, &*outer, Durability::Synced),
            (EXCLUDED, &*excluded, Durability::Synced),
            (BASE, &*bytes, Durability::Synced),
        ];
        for (name, bytes, durability) in files {
            self.disk().replace(&directory, name, bytes, durability).context("write", &state.join(name))?;
        }
        Ok(())
    }

    /// Tells whether the directory of a copy is still the one that was made. A copy whose state is gone was removed, and
    /// whoever made a directory in its place has not brought its files back.
    #[must_use]
    pub fn look_at_copy(&self, path: &Path) -> CopyState {
        let is_missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        let real = match path.symlink_metadata().and_then(|_| path.canonicalize()) {
            Err(error) if is_missing(&error) => return CopyState::Gone,
            // Whoever opens it says what is wrong.
            Err(_) => return CopyState::There,
            Ok(real) => real,
        };
        let state = self.state_directory(&real);
        let made = read_small(&state.join(MADE), MADE_MAX).filter(|made| !made.is_empty());
        let is_made = match made {
            Some(made) => {
                open_child(CWD, &real).is_ok_and(|now| made_as(&now).is_none_or(|now| now.as_bytes() == made))
            }
            // Made by an earlier version, or where nothing identifies a directory for good.
            None => state.join(BASE).symlink_metadata().is_ok(),
        };
        if is_made { CopyState::There } else { CopyState::Replaced }
    }

    /// Tells whether a copy was made at a path whose removal nobody has told this store of.
    #[must_use]
    pub fn remembers_copy(&self, path: &Path) -> bool {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let real = above.canonicalize().map(|above| above.join(name));
        real.is_ok_and(|real| self.state_directory(&real).join(BASE).symlink_metadata().is_ok())
    }

    /// Removes the state of the workspace at this real path, which is gone, unless an interrupted plan waits for it.
    pub(crate) fn remove_state(&self, root: &Path) -> Result<()> {
        let state = self.state_directory(root);
        if crate::plan::has_plan(&state) { Ok(()) } else { crate::remove::remove_tree(self.disk(), &state) }
    }

    /// Removes the state of all directories that are gone. Without it, a directory is read once more. That of a copy stays until
    /// the copy is removed here: it tells that somebody else has removed it.
    pub(crate) fn sweep_states(&self) {
        let Ok(entries) = std::fs::read_dir(self.path().join(STATES)) else { return };
        for state in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Some(root) = read_small(&state.join(ROOT), PATH_MAX) else { continue };
            let root = Path::new(std::ffi::OsStr::from_bytes(&root));
            let is_missing = root.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
            let is_copy = state.join(BASE).symlink_metadata().is_ok();
            if is_missing && !is_copy && state == self.state_directory(root) {
                // One that cannot be removed takes some room, and nothing else: the store is needed for all the others.
                let _ = self.remove_state(root);
            }
        }
    }
}

/// What is at the path of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    There,
    Gone,
    /// Something else than the directory that was made.
    Replaced,
}

/// Returns what tells a directory from every other one that is made at its path, also if it gets the same inode. `None` if
/// its file system does not tell that reliably.
fn made_as(directory: &OwnedFd) -> Option<String> {
    let inode = has_local_times(directory).then(|| stat_of(directory).ok())??.key.inode;
    let birth = birth_at(directory, ".", inode).map(|birth| format!("{} {}", birth.seconds, birth.nanoseconds));
    Some(format!("{inode} {}", birth.unwrap_or_default()))
}

/// Returns the files that a copy began with, by its state; `None` if it is no copy.
fn read_base(state: &Path) -> Option<Arc<Tracked>> {
    let path = state.join(BASE);
    path.symlink_metadata().ok()?;
    let bytes = read_small(&path, BASE_MAX).unwrap_or_default();
    let paths = bytes.split_last_chunk::<32>().filter(|(body, checksum)| object::checksum(body) == **checksum);
    let split =
        |body: &[u8]| body.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect();
    Some(Arc::new(Tracked::listed(paths.map(|(body, _)| split(body)))))
}

/// Returns fields without zero bytes as one text with a checksum.
fn checked<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes: Vec<u8> = fields.flat_map(|field| [field, b"\0"].concat()).collect();
    bytes.extend_from_slice(&object::checksum(&bytes));
    bytes
}

/// Returns the patterns that were excluded when a copy was made, by its state; `None` if that is not known.
fn read_excluded(state: &Path) -> Option<Vec<String>> {
    let bytes = read_small(&state.join(EXCLUDED), EXCLUDED_MAX)?;
    let (body, checksum) = bytes.split_last_chunk::<32>()?;
    let body = std::str::from_utf8(body).ok().filter(|body| object::checksum(body.as_bytes()) == *checksum)?;
    Some(body.split_terminator('\0').map(str::to_owned).collect())
}

/// Returns the rules around the directory that a copy was made of, by its state.
fn read_outer(state: &Path) -> OuterRules {
    read_small(&state.join(OUTER), OUTER_MAX).and_then(|bytes| OuterRules::decode(&bytes)).unwrap_or_default()
}

/// The right to change the files of a workspace.
#[derive(Debug)]
pub(crate) struct StateLock(File);

impl Drop for StateLock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
