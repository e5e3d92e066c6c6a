//! The store: Git objects in packs, in a bare repository that belongs to Relive.
//!
//! Every snapshot with new objects adds one pack: one or two syncs for any number of objects, where loose objects would
//! need one each. Users can inspect it with Git (`git --git-dir=STORE diff A B`).

mod collect;
mod delta;
mod measure;
mod pack;
mod sink;
mod writer;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock};
use rustix::io::Errno;

use crate::control::Control;
use crate::disk::{Disk, Durability};
use crate::error::{Context as _, Error, Result};
use crate::object::{self, Kind, ObjectId, TreeEntry};
use pack::Pack;

pub use collect::{Collected, Removal};
pub(crate) use delta::read_offset;
pub(crate) use sink::{Deflater, LargeFile, ObjectSink};

/// Makes the directory a bare repository with SHA-256 objects. Git must never remove anything, because it does not know
/// about snapshots.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\
    [extensions]\n\tobjectformat = sha256\n\tpreciousObjects = true\n[gc]\n\tauto = 0\n";
/// A branch that never exists.
const HEAD: &str = "ref: refs/heads/none\n";
const PACKS: &str = "objects/pack";
/// Increases with each removal of objects, so that stat caches know when the objects they name may be gone.
const GENERATION: &str = "generation";
/// How often taking a pin is tried.
const PIN_TRIES: usize = 200;
const PIN_PAUSE: Duration = Duration::from_millis(5);
/// With more small packs than this, a snapshot merges them into one.
const SMALL_PACKS_MAX: usize = 64;
/// The prefix of files that are being written.
const TEMPORARY: &str = "tmp_";

/// A store of objects, cheap to clone. Clones share the list of packs.
#[derive(Debug, Clone)]
pub struct Store(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    disk: Disk,
    free_floor_bytes: u64,
    packs: RwLock<Vec<Arc<Pack>>>,
}

/// Prevents the collection of objects that no journal names yet. Drop it once one does.
#[derive(Debug)]
pub struct Pin(File);

impl Drop for Pin {
    fn drop(&mut self) {
        // Closing alone is not enough: a child that is being spawned has a copy of every descriptor until it executes
        // its program.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Store {
    /// Opens the store at `root`, and creates it if it does not exist. Nothing is written if less than
    /// `free_floor_bytes` of the disk would stay free.
    pub fn open(root: &Path, disk: Disk, free_floor_bytes: u64) -> Result<Self> {
        disk.create_directories(&root.join(PACKS)).context("create", root)?;
        disk.create_directories(&root.join("refs")).context("create", root)?;
        let root = root.canonicalize().context("open", root)?;
        let directory = open_directory(&root)?;
        // The generation is there from the beginning, because a full disk has no space for it later.
        for (name, text) in [("config", CONFIG), ("HEAD", HEAD), (GENERATION, "0\n")] {
            if !root.join(name).exists() {
                disk.replace(&directory, name, text.as_bytes(), Durability::Synced)
                    .context("create", &root.join(name))?;
            }
        }
        let store = Self(Arc::new(Shared { root, disk, free_floor_bytes, packs: RwLock::default() }));
        store.sweep()?;
        store.refresh()?;
        Ok(store)
    }

    /// Returns the directory of the store, for `git --git-dir`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.root
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.0.disk
    }

    fn pack_directory(&self) -> PathBuf {
        self.0.root.join(PACKS)
    }

    /// Prevents garbage collection until the pin is dropped. Waits a moment for a running collection, then refuses.
    pub fn pin(&self) -> Result<Pin> {
        for _ in 1..PIN_TRIES {
            match self.lock(FlockOperation::NonBlockingLockShared) {
                Err(Error::Busy { .. }) => std::thread::sleep(PIN_PAUSE),
                other => return other,
            }
        }
        self.lock(FlockOperation::NonBlockingLockShared)
    }

    fn lock(&self, operation: FlockOperation) -> Result<Pin> {
        let path = self.0.root.join("lock");
        lock_file(&path, operation)?.map(Pin).ok_or_else(|| Error::Busy { path: self.0.root.clone() })
    }

    /// Removes files left behind by killed writers, and the state of workspaces that are gone, unless the store is in use.
    fn sweep(&self) -> Result<()> {
        let Ok(_alone) = self.lock(FlockOperation::NonBlockingLockExclusive) else { return Ok(()) };
        let path = self.pack_directory();
        let directory = open_directory(&path)?;
        for name in names(&path)? {
            let unfinished = match name.as_bytes().strip_suffix(b".pack") {
                Some(stem) => !path.join(OsStr::from_bytes(&[stem, b".idx"].concat())).exists(),
                None => name.as_bytes().starts_with(TEMPORARY.as_bytes()),
            };
            if unfinished {
                self.0.disk.unlink(&directory, &*name).context("remove", &path.join(&name))?;
            }
        }
        self.sweep_states();
        Ok(())
    }

    /// Updates the list of packs.
    pub(crate) fn refresh(&self) -> Result<()> {
        let path = self.pack_directory();
        let mut packs = self.0.packs.write().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for name in names(&path)? {
            if !name.as_bytes().ends_with(b".idx") || name.as_bytes().starts_with(TEMPORARY.as_bytes()) {
                continue;
            }
            let index = path.join(&name);
            match packs.iter().find(|pack| pack.index_path() == index) {
                Some(known) => found.push(known.clone()),
                // A garbage collection may remove it at this moment. A damaged pack must not prevent the use of the
                // others: its objects are then missing.
                None => match Pack::open(&index) {
                    Err(Error::DamagedFile { .. }) => {}
                    opened => found.extend(opened?.map(Arc::new)),
                },
            }
        }
        *packs = found;
        Ok(())
    }

    /// Refuses if a pack cannot be read. Reading goes on without it, but nothing may be removed: it may be repaired.
    fn check_packs(&self) -> Result<()> {
        let (path, packs) = (self.pack_directory(), self.packs());
        for name in names(&path)? {
            let index = path.join(&name);
            let is_index = name.as_bytes().ends_with(b".idx") && !name.as_bytes().starts_with(TEMPORARY.as_bytes());
            if is_index && !packs.iter().any(|pack| pack.index_path() == index) {
                Pack::open(&index)?;
                return Err(Error::DamagedFile { path: index, what: "its pack is missing" });
            }
        }
        Ok(())
    }

    fn packs(&self) -> Vec<Arc<Pack>> {
        self.0.packs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn contains(&self, id: ObjectId) -> bool {
        self.0.packs.read().unwrap_or_else(PoisonError::into_inner).iter().any(|pack| pack.find(id).is_some())
    }

    /// Reads an object and checks that its bytes hash to its id.
    pub(crate) fn read(&self, id: ObjectId) -> Result<(Kind, Vec<u8>)> {
        if let Some(found) = self.read_known(id)? {
            return Ok(found);
        }
        self.refresh()?;
        self.read_known(id)?.ok_or(Error::Missing(id))
    }

    fn read_known(&self, id: ObjectId) -> Result<Option<(Kind, Vec<u8>)>> {
        for pack in self.packs() {
            if let Some(offset) = pack.find(id) {
                let damaged = || Error::DamagedObject { id, path: pack.path().to_owned() };
                let (kind, bytes) = match pack.read(offset) {
                    Ok(read) => read,
                    // Replaced by a larger pack in the meantime.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(_) => return Err(damaged()),
                };
                return if object::hash(kind, &bytes) == id { Ok(Some((kind, bytes))) } else { Err(damaged()) };
            }
        }
        Ok(None)
    }

    /// Reads a blob.
    pub fn blob(&self, id: ObjectId) -> Result<Vec<u8>> {
        match self.read(id)? {
            (Kind::Blob, bytes) => Ok(bytes),
            (Kind::Tree, _) => Err(Error::DamagedObject { id, path: self.0.root.clone() }),
        }
    }

    pub(crate) fn tree(&self, id: ObjectId) -> Result<Vec<TreeEntry>> {
        let damaged = || Error::DamagedObject { id, path: self.0.root.clone() };
        match self.read(id)? {
            (Kind::Tree, bytes) => object::decode_tree(&bytes).ok_or_else(damaged),
            (Kind::Blob, _) => Err(damaged()),
        }
    }

    /// Returns how often objects were removed.
    pub(crate) fn generation(&self) -> Result<u64> {
        let path = self.0.root.join(GENERATION);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                text.trim().parse().map_err(|_| Error::DamagedFile { path, what: "it does not contain a number" })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(source) => Err(Error::Io { action: "read", path, source }),
        }
    }

    /// Refuses to write `bytes` more if too little space would be left.
    pub(crate) fn check_space(&self, bytes: u64) -> Result<()> {
        let free_bytes = self.free_bytes()?;
        let floor_bytes = self.0.free_floor_bytes;
        if !self.has_space(free_bytes, bytes) {
            return Err(Error::NoSpace { path: self.0.root.clone(), free_bytes, floor_bytes });
        }
        Ok(())
    }

    /// Tells whether so many bytes fit above the reserve of a disk with so much free space.
    fn has_space(&self, free_bytes: u64, bytes: u64) -> bool {
        free_bytes >= self.0.free_floor_bytes.saturating_add(bytes)
    }

    fn free_bytes(&self) -> Result<u64> {
        let found = rustix::fs::statvfs(&self.0.root).context("look at", &self.0.root)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Returns the bytes of all packs and their indexes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.packs().iter().map(|pack| pack.bytes()).sum()
    }

    #[must_use]
    pub fn pack_count(&self) -> usize {
        self.packs().len()
    }

    /// Merges many small packs into one. Where that fails, for example because an object is damaged or the disk is full,
    /// the packs stay as they are: a snapshot does not need it.
    pub(crate) fn pack_if_many(&self, control: &Control) -> Result<()> {
        if self.packs().iter().filter(|pack| pack.bytes() < collect::SMALL_PACK).count() <= SMALL_PACKS_MAX {
            return Ok(());
        }
        match self.pack(control) {
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Opens a lock file and takes its lock; `None` if it is locked.
pub(crate) fn lock_file(path: &Path, operation: FlockOperation) -> Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = open_own(path, flags, Mode::from_raw_mode(0o600))?;
    match flock(&file, operation) {
        Ok(()) => Ok(Some(file.into())),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).context("lock", path),
    }
}

/// Opens one of Relive's own directories by its real path.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd> {
    open_own(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens one of Relive's own files by its real path. A link in it was made by somebody else, and is not followed: files
/// would be written to another directory, and removed from it.
pub(crate) fn open_own(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW;
    rustix::fs::openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS).context("open", path)
}

fn names(directory: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries = std::fs::read_dir(directory).context("read", directory)?;
    let mut names =
        entries.map(|entry| Ok(entry.context("read", directory)?.file_name())).collect::<Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}
