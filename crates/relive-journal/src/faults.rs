//! Faults on purpose, for tests: stop at the n-th change, fail it, or cut the power.
//!
//! [`Faults`] counts every change that passes the seam and keeps a model of what a disk would still hold after a power
//! cut: a file's bytes as of its last sync, a folder's entries as of its own. Nothing is really synced, so that a sweep
//! over every point of a script takes seconds. The model is as unkind as POSIX allows: an entry is not safe because
//! its file was synced, and bytes whose sync failed are not saved by a later one.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hook::{Op, Verdict};

/// Parts of the protocol that a `faults` build can leave out, to prove that the tests notice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Switches {
    /// Files are never synced.
    pub no_sync: bool,
    /// Folders are never synced.
    pub no_dir_sync: bool,
    /// A torn tail is appended to as it is.
    pub no_repair: bool,
    /// Locks are always granted.
    pub no_lock: bool,
}

/// What happens at the chosen change. Changes are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injection {
    /// Nothing.
    None,
    /// This change and all later ones do not happen, as if the process had been killed before it.
    Stop(u64),
    /// As [`Self::Stop`], but if it is a write, half of it happens.
    StopHalfway(u64),
    /// This change fails with this error number, and nothing of it happens.
    Fail(u64, i32),
    /// As [`Self::Fail`], but if it is a write, half of it happens.
    FailHalfway(u64, i32),
}

/// How much of what was not synced a power cut leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// Nothing.
    Strict,
    /// Some of it, chosen by this seed: a part of each file's end, some of it zeros; each folder's entries or not.
    Mixed(u64),
}

/// The faults of one [`crate::Disk`].
#[derive(Debug)]
pub struct Faults {
    switches: Switches,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    injection: Injection,
    count: u64,
    stopped: bool,
    /// What the rest of a halved write meets.
    rest_fails: Option<i32>,
    model: Model,
}

const STOPPED: i32 = 125; // ECANCELED: nothing else here gives it.

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Faults {
    /// Faults for what is below `root`, which is taken as being on the disk as it is.
    pub fn new(root: &Path, injection: Injection, switches: Switches) -> io::Result<Self> {
        let model = Model::of(root)?;
        let state = State { injection, count: 0, stopped: false, rest_fails: None, model };
        Ok(Self { switches, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lock().count
    }

    /// Whether the world was stopped.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.lock().stopped
    }

    pub(crate) fn switches(&self) -> Switches {
        self.switches
    }

    /// Writes what the disk would hold after a power cut to the new folder `to`.
    pub fn power_cut(&self, to: &Path, cut: PowerCut) -> io::Result<()> {
        let mut dice = match cut {
            PowerCut::Strict => None,
            PowerCut::Mixed(seed) => Some(Dice(seed)),
        };
        let state = self.lock();
        state.model.materialize(0, to, &mut dice)
    }

    pub(crate) fn before(&self, op: &Op<'_>) -> io::Result<Verdict> {
        let mut state = self.lock();
        let outcome = state.step();
        match (outcome, op) {
            (Err(error), Op::Sync { file }) if !state.stopped => {
                state.model.sync_failed(file);
                Err(error)
            }
            (Err(error), _) => Err(error),
            (Ok(_), Op::Sync { .. } | Op::SyncDir { .. }) => Ok(Verdict::Skip),
            (Ok(_), _) => Ok(Verdict::Proceed),
        }
    }

    pub(crate) fn offer<'a>(&self, _file: &File, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let mut state = self.lock();
        if let Some(error) = state.rest_fails.take() {
            state.stopped = error == STOPPED;
            return Err(errno(error));
        }
        let halved = state.step()?;
        if halved.is_some() && bytes.len() > 1 {
            state.rest_fails = halved;
            return Ok(&bytes[..bytes.len() / 2]);
        }
        match halved {
            None => Ok(bytes),
            Some(error) => {
                state.stopped = error == STOPPED;
                Err(errno(error))
            }
        }
    }

    pub(crate) fn after(&self, op: &Op<'_>) {
        let mut state = self.lock();
        let model = &mut state.model;
        match op {
            Op::Create { path } => model.created(path),
            Op::Write { file, bytes } => model.file(file, |content, _| content.extend_from_slice(bytes)),
            Op::Truncate { file, len } => {
                model.file(file, |content, _| content.resize(usize::try_from(*len).unwrap_or(0), 0));
            }
            Op::Allocate => {}
            Op::Sync { file } if !self.switches.no_sync => model.synced(file),
            Op::SyncDir { path } if !self.switches.no_dir_sync => model.dir_synced(path),
            Op::Sync { .. } | Op::SyncDir { .. } => {}
            Op::Rename { from, to } => model.renamed(from, to),
            Op::Unlink { path } => {
                model.unlinked(path);
            }
            Op::Mkdir { path } => model.link(path, Node::empty_dir()),
        }
    }
}

impl State {
    /// Counts a change. `Err` if it does not happen, `Some` if a write happens by half and then meets that error.
    fn step(&mut self) -> io::Result<Option<i32>> {
        if self.stopped {
            return Err(errno(STOPPED));
        }
        self.count += 1;
        let count = self.count;
        match self.injection {
            Injection::Stop(at) if at == count => {
                self.stopped = true;
                Err(errno(STOPPED))
            }
            Injection::Fail(at, error) if at == count => Err(errno(error)),
            Injection::StopHalfway(at) if at == count => Ok(Some(STOPPED)),
            Injection::FailHalfway(at, error) if at == count => Ok(Some(error)),
            Injection::None
            | Injection::Stop(_)
            | Injection::Fail(..)
            | Injection::StopHalfway(_)
            | Injection::FailHalfway(..) => Ok(None),
        }
    }
}

/// What is in the page cache, and what is on the disk.
#[derive(Debug)]
struct Model {
    root: PathBuf,
    nodes: Vec<Node>,
    by_inode: HashMap<u64, usize>,
}

type Entries = BTreeMap<OsString, usize>;

#[derive(Debug)]
enum Node {
    File {
        now: Vec<u8>,
        on_disk: Vec<u8>,
        /// From here to there the cached bytes were given up by a failed sync.
        lost: std::ops::Range<usize>,
    },
    Dir {
        now: Entries,
        on_disk: Entries,
    },
}

impl Node {
    fn empty_dir() -> Self {
        Self::Dir { now: Entries::new(), on_disk: Entries::new() }
    }
}

impl Model {
    fn of(root: &Path) -> io::Result<Self> {
        let mut model = Self { root: root.to_owned(), nodes: Vec::new(), by_inode: HashMap::new() };
        model.import(root)?;
        Ok(model)
    }

    fn import(&mut self, path: &Path) -> io::Result<usize> {
        let metadata = fs::metadata(path)?;
        let number = self.nodes.len();
        if metadata.is_dir() {
            self.nodes.push(Node::empty_dir());
            let mut entries = Entries::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                entries.insert(entry.file_name(), self.import(&entry.path())?);
            }
            self.nodes[number] = Node::Dir { now: entries.clone(), on_disk: entries };
        } else {
            let bytes = fs::read(path)?;
            self.nodes.push(Node::File { now: bytes.clone(), on_disk: bytes, lost: 0..0 });
            self.by_inode.insert(metadata.ino(), number);
        }
        Ok(number)
    }

    fn find(&self, path: &Path) -> Option<usize> {
        let below = path.strip_prefix(&self.root).ok()?;
        below.components().try_fold(0, |at, component| match (&self.nodes[at], component) {
            (Node::Dir { now, .. }, Component::Normal(name)) => now.get(name).copied(),
            _ => None,
        })
    }

    /// The entries of the folder that `path` is in, and its name there.
    fn place(&mut self, path: &Path) -> Option<(&mut Entries, OsString)> {
        let name = path.file_name()?.to_owned();
        let parent = self.find(path.parent()?)?;
        match &mut self.nodes[parent] {
            Node::Dir { now, .. } => Some((now, name)),
            Node::File { .. } => None,
        }
    }

    fn link(&mut self, path: &Path, node: Node) {
        let number = self.nodes.len();
        self.nodes.push(node);
        if let Some((entries, name)) = self.place(path) {
            entries.insert(name, number);
        }
    }

    fn created(&mut self, path: &Path) {
        if let Ok(metadata) = fs::metadata(path) {
            self.by_inode.insert(metadata.ino(), self.nodes.len());
        }
        self.link(path, Node::File { now: Vec::new(), on_disk: Vec::new(), lost: 0..0 });
    }

    fn unlinked(&mut self, path: &Path) -> Option<usize> {
        let (entries, name) = self.place(path)?;
        entries.remove(&name)
    }

    fn renamed(&mut self, from: &Path, to: &Path) {
        if let Some(number) = self.unlinked(from)
            && let Some((entries, name)) = self.place(to)
        {
            entries.insert(name, number);
        }
    }

    fn node_of(&mut self, file: &File) -> Option<&mut Node> {
        let inode = file.metadata().ok()?.ino();
        let number = *self.by_inode.get(&inode)?;
        self.nodes.get_mut(number)
    }

    fn file(&mut self, file: &File, change: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>)) {
        if let Some(Node::File { now, on_disk, .. }) = self.node_of(file) {
            change(now, on_disk);
        }
    }

    fn synced(&mut self, file: &File) {
        if let Some(Node::File { now, on_disk, lost }) = self.node_of(file) {
            on_disk.clone_from(now);
            let lost = lost.start.min(now.len())..lost.end.min(now.len());
            on_disk[lost].fill(0);
        }
    }

    fn sync_failed(&mut self, file: &File) {
        if let Some(Node::File { now, on_disk, lost }) = self.node_of(file) {
            *lost = on_disk.len().min(now.len())..now.len();
        }
    }

    fn dir_synced(&mut self, path: &Path) {
        if let Some(number) = self.find(path)
            && let Node::Dir { now, on_disk } = &mut self.nodes[number]
        {
            on_disk.clone_from(now);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "what a power cut leaves is not written by Relive")]
    fn materialize(&self, number: usize, to: &Path, dice: &mut Option<Dice>) -> io::Result<()> {
        match &self.nodes[number] {
            Node::File { now, on_disk, .. } => fs::write(to, after_cut(now, on_disk, dice)),
            Node::Dir { now, on_disk } => {
                fs::create_dir(to)?;
                let lucky = dice.as_mut().is_some_and(|dice| dice.roll(2) == 1);
                for (name, child) in if lucky { now } else { on_disk } {
                    self.materialize(*child, &to.join(name), dice)?;
                }
                Ok(())
            }
        }
    }
}

/// A file after the cut: what was synced, and by luck a part of what was appended since, its end perhaps zeros.
fn after_cut(now: &[u8], on_disk: &[u8], dice: &mut Option<Dice>) -> Vec<u8> {
    let mut bytes = on_disk.to_vec();
    if let Some(dice) = dice
        && let Some(appended) = now.strip_prefix(on_disk)
    {
        bytes.extend_from_slice(&appended[..dice.roll(appended.len() + 1)]);
        let zeros = dice.roll(appended.len() + 1).min(now.len() - bytes.len());
        if dice.roll(2) == 1 {
            bytes.resize(bytes.len() + zeros, 0);
        }
    }
    bytes
}

/// Numbers from a seed (splitmix64).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (sides as u64)).unwrap_or(0)
    }
}
