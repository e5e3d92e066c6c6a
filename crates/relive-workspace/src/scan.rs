//! Walks a workspace: lists every directory, examines every file, and reads every changed file.

mod lister;
mod queue;
mod read;

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use crate::cache::{Cache, Entry, Listing, Listings, Past, Trust, UnreadFile, UnreadFiles, What};
use crate::control::{Control, Progress};
use crate::error::{Context as _, Error, Limit, Result};
use crate::object::EntryKind;
use crate::path::FilePath;
use crate::rules::{DirectoryRules, IgnoreFile, RULES_MAX, Reach, Rules};
use crate::settings::Settings;
use crate::snapshot::{SkipReason, Skipped};
use crate::stat::{
    FileKey, Stat, Time, birth_at, open_child, open_child_of_same_mount, read_small_at, stat_at, stat_of,
};
use crate::store::{Deflater, ObjectSink, Store};
use lister::Lister;
use queue::Queue;
pub(crate) use read::TICK;
use read::{COARSE_TICK, Outcome, Reader, Steadiness};

/// More threads do not help: file lookups in the operating system are the limit.
const THREADS: usize = 2;
/// Files that one thread reads before another may take over.
const BATCH: usize = 64;
/// Directories deeper than this are skipped: each level may need a descriptor.
const DEPTH_MAX: usize = 200;
/// Directories with a longer path are skipped: with the name of a file behind it, it is as long as the kernel takes.
const PATH_BYTES_MAX: usize = 4_095 - 1 - 255;
const IGNORE_FILE: &[u8] = b".gitignore";
/// Progress is reported after this many files.
const REPORT_EVERY: u64 = 4_096;

/// The inputs of a walk.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    pub(crate) store: &'a Store,
    pub(crate) root: &'a OwnedFd,
    pub(crate) root_path: &'a std::path::Path,
    pub(crate) settings: &'a Settings,
    pub(crate) rules: &'a Rules,
    pub(crate) cache: &'a Cache,
    /// The files of the last snapshot; `cache` may be those of an earlier walk for the same one.
    pub(crate) last: &'a Cache,
    pub(crate) sink: &'a ObjectSink,
    pub(crate) control: &'a Control,
    /// Device and inode of directories that are not part of any workspace.
    pub(crate) private: &'a HashSet<(u64, u64)>,
    /// When to give up, on the control's monotonic clock.
    pub(crate) deadline: Option<Duration>,
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) listings: Listings,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) moving: Vec<FilePath>,
    pub(crate) unread: UnreadFiles,
    /// Bytes of the files that were read.
    pub(crate) read_bytes: u64,
}

enum Job {
    Directory { parent: Arc<OwnedFd>, path: FilePath, rules: Arc<DirectoryRules>, reach: Reach },
    Files { directory: Arc<OwnedFd>, path: FilePath, names: Vec<(Box<[u8]>, FileType)> },
}

/// The state shared by all threads.
struct Shared<'a> {
    scan: &'a Scan<'a>,
    reader: Reader<'a>,
    device: u64,
    /// Files changed at this moment or later are read again the next time.
    recent: Time,
    /// The same where file times have no fractions of a second.
    recent_in_seconds: Time,
    files: AtomicU64,
    bytes: AtomicU64,
    read_bytes: AtomicU64,
    /// The inodes of the last snapshot, which are needed only for files that are older than it and not in it.
    inodes: OnceLock<HashMap<u64, Past>>,
}

/// The findings of one thread.
#[derive(Default)]
struct Worker {
    found: Scanned,
    read: Vec<(FilePath, Vec<Entry>)>,
    deflater: Deflater,
}

impl Scan<'_> {
    pub(crate) fn run(&self) -> Result<Scanned> {
        let started = self.control.clock().now();
        let stat = stat_of(self.root).context("look at", self.root_path)?;
        let reader = Reader { sink: self.sink, control: self.control, max_file_bytes: self.settings.max_file_bytes };
        let shared = Shared {
            scan: self,
            reader,
            device: stat.device,
            recent: Time::before(started, TICK),
            recent_in_seconds: Time::before(started, COARSE_TICK),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            inodes: OnceLock::new(),
        };
        let root = Arc::new(open_child(self.root, ".").context("open", self.root_path)?);
        let (path, rules) = (FilePath::root(), self.rules.outermost());
        let queue = Queue::new(Job::Directory { parent: root, path, rules, reach: Reach::Rules });
        let threads = if self.store.disk().is_counted() { 1 } else { THREADS };
        let workers = std::thread::scope(|scope| {
            let started: Vec<_> = (1..threads).map(|_| scope.spawn(|| shared.work(&queue))).collect();
            let mut workers = vec![shared.work(&queue)];
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.extend(started.into_iter().map(join));
            workers
        });
        let mut scanned = Scanned { read_bytes: shared.read_bytes.into_inner(), ..Scanned::default() };
        let mut read = Vec::new();
        for worker in workers {
            let worker = worker?;
            scanned.listings.extend(worker.found.listings);
            scanned.skipped.extend(worker.found.skipped);
            scanned.moving.extend(worker.found.moving);
            scanned.unread.extend(worker.found.unread);
            read.extend(worker.read);
        }
        for (path, entries) in read {
            if let Some(listing) = scanned.listings.get_mut(&path).map(Arc::make_mut) {
                listing.entries.extend(entries);
                listing.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            }
        }
        scanned.skipped.sort();
        scanned.moving.sort();
        Ok(scanned)
    }
}

impl Shared<'_> {
    fn work(&self, queue: &Queue<Job>) -> Result<Worker> {
        let mut worker = Worker::default();
        // A thread that ends early, for whatever reason, must not leave the others waiting.
        let _closed = queue.close_on_drop();
        while let Some(job) = queue.next() {
            let done = match job {
                Job::Directory { parent, path, rules, reach } => {
                    self.directory(&mut worker, &parent, path, &rules, reach)
                }
                Job::Files { directory, path, names } => self.files(&mut worker, &directory, path, names),
            };
            queue.done(done?);
        }
        Ok(worker)
    }

    fn check(&self) -> Result<()> {
        let control = self.scan.control;
        control.check()?;
        if self.scan.deadline.is_some_and(|deadline| control.clock().monotonic() > deadline) {
            let limit = self.scan.settings.time_limit.unwrap_or_default();
            let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::TimedOut { path: self.scan.root_path.to_owned(), limit_ms });
        }
        Ok(())
    }

    /// Counts files and their bytes against the limits.
    fn count(&self, files: u64, bytes: u64) -> Result<()> {
        let (settings, path) = (self.scan.settings, self.scan.root_path);
        let before = self.files.fetch_add(files, Ordering::Relaxed);
        let all_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if before + files > settings.max_files {
            return Err(Error::TooLarge { path: path.to_owned(), limit: Limit::Files, most: settings.max_files });
        }
        if all_bytes > settings.max_total_bytes {
            let most = settings.max_total_bytes;
            return Err(Error::TooLarge { path: path.to_owned(), limit: Limit::TotalBytes, most });
        }
        if before / REPORT_EVERY != (before + files) / REPORT_EVERY {
            let read = self.read_bytes.load(Ordering::Relaxed);
            self.scan.control.report(Progress::Scanned { files: before + files, bytes: read });
        }
        Ok(())
    }

    fn directory(
        &self,
        worker: &mut Worker,
        parent: &OwnedFd,
        path: FilePath,
        rules: &Arc<DirectoryRules>,
        reach: Reach,
    ) -> Result<Vec<Job>> {
        self.check()?;
        let (directory, stat) = match self.open_directory(parent, &path) {
            Ok(opened) => opened,
            Err(why) => return self.not_listed(worker, path, why),
        };
        if self.scan.private.contains(&stat.identity()) {
            return Ok(Vec::new());
        }
        let cached = self.scan.cache.listings.get(&path);
        let known = cached.filter(|cached| cached.has_names_of(&stat.key));
        let names = match known {
            Some(_) => Vec::new(),
            None => match list(&directory) {
                Ok(names) => names,
                Err(error) => return self.not_listed(worker, path.clone(), NotListed::of(error, &path)),
            },
        };
        let has_ignore_file = match known {
            Some(known) => known.find(IGNORE_FILE).is_some(),
            None => names.binary_search_by(|found| (*found.name).cmp(IGNORE_FILE)).is_ok(),
        };
        let ignore_file = if has_ignore_file { self.ignore_file(&directory, cached) } else { None };
        let rules = match ignore_file {
            Some(IgnoreFile::TooLarge) => {
                let path = path.join(IGNORE_FILE);
                worker.found.skipped.push(Skipped { path, reason: SkipReason::RulesTooLarge });
                rules.clone()
            }
            Some(file) => rules.below(&path, file, self.scan.store),
            None => rules.clone(),
        };
        let fingerprint = rules.fingerprint(reach);
        let is_known = known.is_some_and(|known| known.rules == fingerprint);
        // What a file is that was ignored, and may be no longer, is not in the cache.
        let names = match known {
            Some(_) if !is_known => match list(&directory) {
                Ok(names) => names,
                Err(error) => return self.not_listed(worker, path.clone(), NotListed::of(error, &path)),
            },
            _ => names,
        };
        let lister = Lister { shared: self, cached, fingerprint, rules, reach, path, directory, worker };
        match known.filter(|_| is_known) {
            Some(known) => lister.run_known(known),
            None => lister.run(stat.key, names),
        }
    }

    fn open_directory(&self, parent: &OwnedFd, path: &FilePath) -> Result<(Arc<OwnedFd>, Stat), NotListed> {
        let opened = match path.split() {
            Some((_, name)) => open_child_of_same_mount(parent, name),
            None => open_child(parent, "."),
        };
        let directory = opened.map_err(|error| NotListed::of(error, path))?;
        let stat = stat_of(&directory).map_err(|error| NotListed::of(error, path))?;
        match () {
            () if stat.device != self.device => Err(NotListed::Skipped(SkipReason::OtherFileSystem)),
            () if path.depth() > DEPTH_MAX || path.as_bytes().len() > PATH_BYTES_MAX => {
                Err(NotListed::Skipped(SkipReason::TooDeep))
            }
            () => Ok((Arc::new(directory), stat)),
        }
    }

    /// Returns the directory's own `.gitignore`. A symbolic link does not count, as in Git.
    fn ignore_file(&self, directory: &OwnedFd, cached: Option<&Arc<Listing>>) -> Option<IgnoreFile> {
        let name = IGNORE_FILE;
        let stat = stat_at(directory, name).ok()?;
        if stat.file_type() == FileType::RegularFile && stat.key.size > RULES_MAX {
            return Some(IgnoreFile::TooLarge);
        }
        if let Some(Entry { what: What::File { id, key, trust: Trust::Yes, .. }, .. }) =
            cached.and_then(|cached| cached.find(name))
            && *key == stat.key
            && stat.file_type() == FileType::RegularFile
            // The first walk of this snapshot may have found it: then the store does not have it yet.
            && self.scan.store.contains(*id)
        {
            return Some(IgnoreFile::Unchanged(*id));
        }
        read_small_at(directory, name, RULES_MAX).map(IgnoreFile::Read)
    }

    fn files(
        &self,
        worker: &mut Worker,
        directory: &OwnedFd,
        path: FilePath,
        names: Vec<(Box<[u8]>, FileType)>,
    ) -> Result<Vec<Job>> {
        let mut entries = Vec::with_capacity(names.len());
        for (name, file_type) in names {
            self.check()?;
            let file = path.join(&name);
            let outcome = if file_type == FileType::Symlink {
                self.reader.symlink(directory, &name, &file, &mut worker.deflater)?
            } else {
                self.reader.file(directory, &name, &file, &mut worker.deflater)?
            };
            match outcome {
                Outcome::Gone => {}
                Outcome::Skipped(reason) => {
                    if let Ok(Stat { key: FileKey { inode, .. }, .. }) = stat_at(directory, &*name) {
                        let past = self.past(directory, &name, &file, inode);
                        worker.found.unread.insert(file.clone(), UnreadFile { inode, past });
                    }
                    worker.found.skipped.push(Skipped { path: file, reason });
                }
                Outcome::Stored { id, stat, steadiness } => {
                    self.read_bytes.fetch_add(stat.key.size, Ordering::Relaxed);
                    let is_recent = self.is_recent(&stat.key) || steadiness == Steadiness::Moving;
                    let trust = if is_recent { Trust::TooRecent } else { Trust::Yes };
                    if stat.has_set_id_bits() {
                        let reason = SkipReason::SetIdBits;
                        worker.found.skipped.push(Skipped { path: file.clone(), reason });
                    }
                    let past = self.past(directory, &name, &file, stat.key.inode);
                    if steadiness == Steadiness::Moving {
                        worker.found.moving.push(file);
                    }
                    let (kind, key, links) = (kind(&stat.key), stat.key, stat.links);
                    let what = What::File { kind, id, key, links, trust, past };
                    entries.push(Entry { name, what });
                }
            }
        }
        worker.read.push((path, entries));
        Ok(Vec::new())
    }

    fn not_listed(&self, worker: &mut Worker, path: FilePath, why: NotListed) -> Result<Vec<Job>> {
        match why {
            NotListed::Gone => {}
            NotListed::Skipped(reason) => {
                worker.found.unread.extend(self.scan.last.files_below(&path));
                worker.found.skipped.push(Skipped { path, reason });
            }
            NotListed::Failed(error) => return Err(error),
        }
        Ok(Vec::new())
    }

    /// Returns where a file that had to be read was before.
    fn past(&self, directory: &OwnedFd, name: &[u8], path: &FilePath, inode: u64) -> Past {
        match self.scan.cache.file(path) {
            // Also if it was replaced since, as editors do: it stays the successor of that file.
            Some(What::File { past: Past::Elsewhere, .. }) => return Past::Elsewhere,
            Some(What::File { key, .. }) if key.inode == inode => return Past::Known,
            _ => {}
        }
        if let Some(unread) = self.scan.last.unread.get(path).filter(|unread| unread.inode == inode) {
            return unread.past;
        }
        let is_older = |begun: Time| birth_at(directory, name, inode).is_some_and(|birth| birth < begun);
        if !self.scan.last.begun.is_some_and(is_older) {
            return Past::Known;
        }
        let inodes = self.inodes.get_or_init(|| self.scan.last.inodes());
        inodes.get(&inode).copied().unwrap_or(Past::Elsewhere)
    }

    /// Returns whether a file was changed so recently that another change may leave its times as they are.
    fn is_recent(&self, key: &FileKey) -> bool {
        key.is_since(if key.has_whole_seconds() { self.recent_in_seconds } else { self.recent })
    }

    /// Returns whether the cached bytes still match the file.
    fn is_unchanged(&self, key: &FileKey, trust: Trust, now: &Stat) -> bool {
        if self.scan.store.disk().trusts_equal_mtime() {
            return key.mtime == now.key.mtime && key.size == now.key.size && key.mode == now.key.mode;
        }
        trust == Trust::Yes && *key == now.key
    }
}

/// The reason why the entries of a directory are not known.
enum NotListed {
    Gone,
    Skipped(SkipReason),
    Failed(Error),
}

impl NotListed {
    fn of(error: Errno, path: &FilePath) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Self::Gone,
            Errno::XDEV => Self::Skipped(SkipReason::OtherFileSystem),
            Errno::ACCESS | Errno::PERM => Self::Skipped(SkipReason::Unreadable),
            error if path.is_root() || read::is_fatal(error) => {
                Self::Failed(Error::Io { action: "read", path: path.as_path().to_owned(), source: error.into() })
            }
            // For example a damaged disk: the rest can be kept.
            _ => Self::Skipped(SkipReason::Unreadable),
        }
    }
}

struct Name {
    name: Box<[u8]>,
    file_type: FileType,
}

impl Name {
    /// Returns the name of an entry. Of one that is ignored only whether it is a directory matters.
    fn of(entry: &Entry) -> Self {
        let file_type = match entry.what {
            What::Directory | What::Ignored { is_directory: true } => FileType::Directory,
            What::File { kind: EntryKind::Symlink, .. } => FileType::Symlink,
            What::File { .. } | What::Ignored { is_directory: false } => FileType::RegularFile,
        };
        Self { name: entry.name.clone(), file_type }
    }
}

/// Returns the entries of a directory by name, without `.git`.
fn list(directory: &OwnedFd) -> Result<Vec<Name>, Errno> {
    let mut buffer = [const { MaybeUninit::uninit() }; 32 << 10];
    let mut entries = RawDir::new(directory, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b".." | b".git") {
            continue;
        }
        let mut file_type = entry.file_type();
        if file_type == FileType::Unknown {
            file_type = match stat_at(directory, name) {
                Ok(stat) => stat.file_type(),
                Err(Errno::NOENT) => continue,
                // Reading it says what is wrong with it.
                Err(_) => FileType::RegularFile,
            };
        }
        names.push(Name { name: name.into(), file_type });
    }
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(names)
}

fn kind(key: &FileKey) -> EntryKind {
    if FileType::from_raw_mode(key.mode) == FileType::Symlink {
        EntryKind::Symlink
    } else if key.mode & 0o100 != 0 {
        EntryKind::Executable
    } else {
        EntryKind::File
    }
}
