//! Taking a snapshot: a Git tree of the workspace, and a blob of what a tree cannot hold.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::cache::{Cache, Listing, What};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::extras::Extras;
use crate::object::{EntryKind, Kind, ObjectId, TreeEntry, encode_tree};
use crate::path::FilePath;
use crate::rules::Rules;
use crate::scan::{Scan, Scanned};
use crate::stat::stat_at;
use crate::store::{Deflater, ObjectSink, Pin, Store};
use crate::workspace::Workspace;

/// So often the walk is repeated where directories change under it.
const WALKS: usize = 3;
/// At most so many paths are listed; all are counted.
pub const LISTED_MAX: usize = 1_000;

/// The state of a workspace: what a journal has to record to find it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// A Git tree, for `git --git-dir=STORE diff A B`.
    pub tree: ObjectId,
    /// Permissions, empty directories and hard links, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<ObjectId>,
    /// How far it can be relied on.
    pub grade: Grade,
}

impl Snapshot {
    /// Whether both hold the same files.
    #[must_use]
    pub fn is_same_files(&self, other: &Self) -> bool {
        (self.tree, self.extras) == (other.tree, other.extras)
    }
}

/// How far a snapshot can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// It has every file that the rules include, byte for byte.
    Exact,
    /// Some files could not be kept; the list of skipped ones names them.
    Partial,
    /// Something was writing all the time; what was read may never have been there together.
    Moving,
}

impl Grade {
    /// The word that users see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Partial => "partial",
            Self::Moving => "moving",
        }
    }
}

/// A file that is not in a snapshot although the rules do not ignore it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Skipped {
    /// The file.
    pub path: FilePath,
    /// Why.
    pub reason: SkipReason,
}

/// Why a file is not in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Larger than `max_file_bytes`.
    TooLarge,
    /// A FIFO, a socket or a device.
    Special,
    /// Permission denied, or an error while reading.
    Unreadable,
    /// On another file system than the workspace, or mounted from elsewhere.
    OtherFileSystem,
    /// More than 200 directories deep.
    TooDeep,
    /// Replaced by something else again and again.
    Changing,
    /// Its name looks like that of a file with secrets. Does not lower the grade: like an ignored file it is out by
    /// rule, and `include` brings it in.
    Secret,
    /// Left behind by an interrupted restore. Does not lower the grade.
    Temporary,
    /// The bytes are kept; the set-user-id and set-group-id bits are not, and a restore never sets them.
    SetIdBits,
}

impl SkipReason {
    fn lowers_grade(self) -> bool {
        match self {
            Self::Secret | Self::Temporary => false,
            Self::TooLarge
            | Self::Special
            | Self::Unreadable
            | Self::OtherFileSystem
            | Self::TooDeep
            | Self::Changing
            | Self::SetIdBits => true,
        }
    }
}

/// A snapshot that was just taken. Everything it names is on the disk.
#[derive(Debug)]
pub struct Taken {
    /// What to record.
    pub snapshot: Snapshot,
    /// Files in it.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes that had to be read.
    pub read_bytes: u64,
    /// What was skipped, at most [`LISTED_MAX`].
    pub skipped: Vec<Skipped>,
    /// How many were skipped.
    pub skipped_count: u64,
    /// Files and directories that changed all the time, at most [`LISTED_MAX`].
    pub moving: Vec<FilePath>,
    /// Keeps garbage collection away. Drop it once the journal names the snapshot.
    pub pin: Pin,
}

impl Workspace {
    /// Takes a snapshot. Files that did not change since the last one are not read.
    pub fn snapshot(&mut self, control: &Control) -> Result<Taken> {
        self.reopen_if_replaced()?;
        let store = self.store().clone();
        store.refresh()?;
        store.pack_if_many(control)?;
        let pin = store.pin()?;
        store.refresh()?;
        let rules = Rules::load(self.root(), self.settings(), self.tracked.as_ref())?;
        self.tracked = Some(rules.tracked().clone());
        let generation = store.generation()?;
        self.cache.forget_missing(&store, generation);
        let deadline = self.settings().time_limit.map(|limit| control.clock().monotonic() + limit);
        let sink = ObjectSink::new(&store);
        let private = self.private_directories();
        let scan = |cache: &Cache| {
            let (root, root_path, settings) = (self.root_descriptor(), self.root(), self.settings());
            let (store, rules, sink, private) = (&store, &rules, &sink, &private);
            Scan { store, root, root_path, settings, rules, cache, sink, control, private, deadline }.run()
        };
        let built = scan_steadily(self, scan).and_then(|mut scanned| {
            let old = self.cache.are_trees_stored.then_some(&self.cache.listings);
            let trees = TreeBuilder { old, sink: &sink, deflater: Deflater::default() };
            let ids = trees.build(&mut scanned.listings)?;
            Ok((scanned, ids))
        });
        let (scanned, (tree, extras)) = match built {
            Ok(built) => built,
            Err(error) => {
                sink.discard();
                return Err(error);
            }
        };
        sink.finish()?;
        let grade = grade(&scanned);
        let Scanned { listings, mut skipped, mut moving, read_bytes } = scanned;
        let (files, bytes) = totals(&listings);
        self.cache = Cache { generation, listings, are_trees_stored: true };
        let skipped_count = skipped.len() as u64;
        skipped.truncate(LISTED_MAX);
        moving.truncate(LISTED_MAX);
        let snapshot = Snapshot { tree, extras, grade };
        Ok(Taken { snapshot, files, bytes, read_bytes, skipped, skipped_count, moving, pin })
    }
}

/// Files and their bytes.
fn totals(listings: &HashMap<FilePath, Listing>) -> (u64, u64) {
    let sizes = listings.values().flat_map(|listing| &listing.entries).filter_map(|entry| match &entry.what {
        What::File { key, .. } => Some(key.size),
        What::Directory | What::Ignored { .. } => None,
    });
    sizes.fold((0, 0), |(files, bytes), size| (files + 1, bytes + size))
}

fn grade(scanned: &Scanned) -> Grade {
    let is_moving = |skipped: &Skipped| skipped.reason == SkipReason::Changing;
    if !scanned.moving.is_empty() || scanned.skipped.iter().any(is_moving) {
        Grade::Moving
    } else if scanned.skipped.iter().any(|skipped| skipped.reason.lowers_grade()) {
        Grade::Partial
    } else {
        Grade::Exact
    }
}

/// Walks until no directory changed meanwhile: a file that moves from a directory not yet listed to one already listed
/// would otherwise be in neither.
fn scan_steadily(workspace: &Workspace, scan: impl Fn(&Cache) -> Result<Scanned>) -> Result<Scanned> {
    let mut scanned = scan(&workspace.cache)?;
    for walk in 1.. {
        let changed = changed_directories(workspace, &scanned);
        if changed.is_empty() {
            break;
        }
        if walk == WALKS {
            scanned.moving.extend(changed);
            scanned.moving.sort();
            break;
        }
        let generation = workspace.cache.generation;
        scanned = scan(&Cache { generation, listings: scanned.listings, are_trees_stored: false })?;
    }
    Ok(scanned)
}

fn changed_directories(workspace: &Workspace, scanned: &Scanned) -> Vec<FilePath> {
    let is_changed = |(path, listing): &(&FilePath, &Listing)| {
        let name: &[u8] = if path.is_root() { b"." } else { path.as_bytes() };
        let now = stat_at(workspace.root_descriptor(), name).map(|stat| stat.key);
        (now != Ok(listing.key)).then(|| (*path).clone())
    };
    let directories: Vec<_> = scanned.listings.iter().collect();
    let (one, two) = directories.split_at(directories.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| one.iter().filter_map(is_changed).collect::<Vec<_>>());
        let mut changed: Vec<_> = two.iter().filter_map(is_changed).collect();
        changed.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        changed
    })
}

/// Makes trees of listings.
struct TreeBuilder<'a> {
    /// The last snapshot's listings, if their trees are still in the store.
    old: Option<&'a HashMap<FilePath, Listing>>,
    sink: &'a ObjectSink,
    deflater: Deflater,
}

impl TreeBuilder<'_> {
    /// Adds all trees that are new; answers the root's and the extras'.
    fn build(mut self, listings: &mut HashMap<FilePath, Listing>) -> Result<(ObjectId, Option<ObjectId>)> {
        let mut paths: Vec<(usize, FilePath)> = listings.keys().map(|path| (path.depth(), path.clone())).collect();
        // The deepest first, so that what is in a directory is known before the directory.
        paths.sort_unstable_by(|a, b| b.cmp(a));
        for (_, path) in &paths {
            let old = self.old.filter(|old| is_same(old, listings, path)).and_then(|old| old.get(path));
            let tree = match old {
                Some(old) => old.tree,
                None => {
                    let entries = tree_entries(listings, path);
                    let tree = (!entries.is_empty()).then(|| encode_tree(entries));
                    tree.map(|tree| self.sink.add(Kind::Tree, &tree, &mut self.deflater)).transpose()?
                }
            };
            if let Some(listing) = listings.get_mut(path) {
                listing.tree = tree;
            }
        }
        let root = listings.get(&FilePath::root()).and_then(|listing| listing.tree);
        let tree = match root {
            Some(tree) => tree,
            None => self.sink.add(Kind::Tree, &[], &mut self.deflater)?,
        };
        let blob = Extras::of(listings).encode();
        let extras = blob.map(|blob| self.sink.add(Kind::Blob, &blob, &mut self.deflater)).transpose()?;
        Ok((tree, extras))
    }
}

/// Whether the directory held exactly the same at the last snapshot.
fn is_same(old: &HashMap<FilePath, Listing>, new: &HashMap<FilePath, Listing>, path: &FilePath) -> bool {
    let (Some(before), Some(now)) = (old.get(path), new.get(path)) else { return false };
    let mut before = before.entries.iter().filter_map(|entry| tree_entry(old, path, entry));
    let mut now = now.entries.iter().filter_map(|entry| tree_entry(new, path, entry));
    loop {
        match (before.next(), now.next()) {
            (None, None) => return true,
            (before, now) if before != now => return false,
            _ => {}
        }
    }
}

/// What a tree says of an entry, if anything.
fn tree_entry<'a>(
    listings: &HashMap<FilePath, Listing>,
    path: &FilePath,
    entry: &'a crate::cache::Entry,
) -> Option<(&'a [u8], EntryKind, ObjectId)> {
    let (kind, id) = match &entry.what {
        What::Ignored { .. } => return None,
        What::File { kind, id, .. } => (*kind, *id),
        What::Directory => (EntryKind::Directory, listings.get(&path.join(&entry.name))?.tree?),
    };
    Some((&entry.name, kind, id))
}

fn tree_entries(listings: &HashMap<FilePath, Listing>, path: &FilePath) -> Vec<TreeEntry> {
    let Some(listing) = listings.get(path) else { return Vec::new() };
    let entries = listing.entries.iter().filter_map(|entry| tree_entry(listings, path, entry));
    entries.map(|(name, kind, id)| TreeEntry { name: name.into(), kind, id }).collect()
}

impl Store {
    /// What a snapshot has beside its tree.
    pub(crate) fn extras(&self, snapshot: &Snapshot) -> Result<Extras> {
        let Some(id) = snapshot.extras else { return Ok(Extras::default()) };
        Extras::decode(&self.blob(id)?).ok_or_else(|| Error::DamagedObject { id, path: self.path().to_owned() })
    }
}
