//! Takes snapshots: a Git tree of the workspace, and a blob with the parts that a tree cannot hold.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cache::{Cache, Listing, Listings, UnreadFiles, What};
use crate::control::Control;
use crate::diff::View;
use crate::error::{Error, Result};
use crate::extras::Extras;
use crate::object::{EntryKind, Kind, ObjectId, TreeEntry, encode_tree};
use crate::path::FilePath;
use crate::rules::OuterRules;
use crate::scan::{Scan, Scanned};
use crate::settings::{Limits, Settings};
use crate::stat::{Time, stat_at};
use crate::store::{Deflater, ObjectSink, Pin, Store};
use crate::workspace::Workspace;

/// How often the walk is repeated if directories change during it.
const WALKS: usize = 3;
/// The largest number of listed paths; all are counted.
pub const LISTED_MAX: usize = 1_000;

/// The state of a workspace: what a journal records in order to find it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// A Git tree, for `git --git-dir=STORE diff A B`.
    pub tree: ObjectId,
    /// Permissions, empty directories and hard links, if there are unusual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<ObjectId>,
    /// How reliable it is.
    pub grade: Grade,
}

impl Snapshot {
    /// Returns whether both contain the same files.
    #[must_use]
    pub fn is_same_files(&self, other: &Self) -> bool {
        (self.tree, self.extras) == (other.tree, other.extras)
    }

    /// Returns whether it contains no file at all.
    #[must_use]
    pub fn has_no_files(&self) -> bool {
        self.tree == crate::object::hash(crate::object::Kind::Tree, &[])
    }

    /// Returns the snapshot with the worse of its grade and `best`.
    #[must_use]
    pub fn at_best(self, best: Grade) -> Self {
        let grade = match (self.grade, best) {
            (Grade::Moving, _) | (_, Grade::Moving) => Grade::Moving,
            (Grade::Partial, _) | (_, Grade::Partial) => Grade::Partial,
            (Grade::Exact, Grade::Exact) => Grade::Exact,
        };
        Self { grade, ..self }
    }
}

/// The reliability of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// It contains every file that the rules include, byte for byte.
    Exact,
    /// Some files could not be stored; the list of skipped ones names them.
    Partial,
    /// Files changed all the time; the stored versions may never have existed together.
    Moving,
}

impl Grade {
    /// Returns the word that users see.
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
    pub path: FilePath,
    pub reason: SkipReason,
}

/// The reason why a file is not in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Larger than `max_file_bytes`.
    TooLarge,
    /// A FIFO, a socket or a device.
    Special,
    /// Permission denied, or a read error.
    Unreadable,
    /// On another file system than the workspace, or mounted from elsewhere.
    OtherFileSystem,
    /// More than 200 directories deep, or with a path that is too long for the kernel.
    TooDeep,
    /// Replaced repeatedly during the walk.
    Changing,
    /// Its name looks like that of a file with secrets, or it is hidden from isolated programs. This does not lower the grade: like
    /// an ignored file it is excluded by a rule. `include` brings in the former.
    Secret,
    /// A file left behind by an interrupted restore. This does not lower the grade.
    Temporary,
    /// A `.gitignore` that is too large to be applied. Its bytes are stored, and so are the files that it ignores.
    RulesTooLarge,
    /// The bytes and the bits are stored, but a restore never sets the set-user-id and set-group-id bits. This does not lower
    /// the grade: a restore that writes the file says so.
    SetIdBits,
}

impl SkipReason {
    const ALL: [Self; 10] = [
        Self::TooLarge,
        Self::Special,
        Self::Unreadable,
        Self::OtherFileSystem,
        Self::TooDeep,
        Self::Changing,
        Self::Secret,
        Self::Temporary,
        Self::RulesTooLarge,
        Self::SetIdBits,
    ];

    /// Returns the name in JSON and in the store.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Special => "special",
            Self::Unreadable => "unreadable",
            Self::OtherFileSystem => "other_file_system",
            Self::TooDeep => "too_deep",
            Self::Changing => "changing",
            Self::Secret => "secret",
            Self::Temporary => "temporary",
            Self::RulesTooLarge => "rules_too_large",
            Self::SetIdBits => "set_id_bits",
        }
    }

    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name().as_bytes() == name)
    }

    /// Returns whether the file existed, and neither its bytes nor a rule that excludes it is in the snapshot; or whether
    /// it is a rule that does not count. These files lower the grade and are recorded, so that they can be named.
    pub(crate) fn leaves_out(self) -> bool {
        match self {
            Self::Secret | Self::Temporary | Self::SetIdBits => false,
            Self::TooLarge
            | Self::Special
            | Self::Unreadable
            | Self::OtherFileSystem
            | Self::TooDeep
            | Self::Changing
            | Self::RulesTooLarge => true,
        }
    }
}

/// A snapshot that was just taken. All its objects are on the disk.
#[derive(Debug)]
pub struct Taken {
    /// The snapshot to record.
    pub snapshot: Snapshot,
    /// The number of files in it.
    pub files: u64,
    /// The bytes of these files.
    pub bytes: u64,
    /// The bytes that had to be read.
    pub read_bytes: u64,
    /// The skipped files, at most [`LISTED_MAX`].
    pub skipped: Vec<Skipped>,
    /// The number of skipped files.
    pub skipped_count: u64,
    /// Files and directories that changed all the time, at most [`LISTED_MAX`].
    pub moving: Vec<FilePath>,
    /// Prevents garbage collection. Drop it once the journal names the snapshot.
    pub pin: Pin,
}

impl Workspace {
    /// Takes a snapshot without the limits on files, bytes and time.
    pub(crate) fn snapshot_of_any_size(&mut self, control: &Control) -> Result<Taken> {
        let limits = self.replace_limits(Limits::default());
        let taken = self.snapshot(control);
        self.replace_limits(limits);
        taken
    }

    /// Takes a snapshot. Files that did not change since the last one are not read.
    pub fn snapshot(&mut self, control: &Control) -> Result<Taken> {
        self.reopen_if_replaced()?;
        let store = self.store().clone();
        store.refresh()?;
        store.pack_if_many(control)?;
        let pin = store.pin()?;
        store.refresh()?;
        let rules = self.rules(self.settings())?;
        self.tracked = Some(rules.tracked().clone());
        let generation = store.generation()?;
        self.cache.forget_missing(&store, generation);
        let deadline = self.settings().time_limit.map(|limit| control.clock().monotonic() + limit);
        let sink = ObjectSink::new(&store);
        let private = self.private_directories();
        let begun = self.has_local_times().then(Time::stamped_now);
        let last = &self.cache;
        let scan = |cache: &Cache| {
            let (root, root_path, settings) = (self.root_descriptor(), self.root(), self.settings());
            let (store, rules, sink, private) = (&store, &rules, &sink, &private);
            Scan { store, root, root_path, settings, rules, cache, last, sink, control, private, deadline }.run()
        };
        let built = scan_steadily(self, scan).and_then(|mut scanned| {
            let old = self.cache.are_trees_stored.then_some(&self.cache.listings);
            let trees = TreeBuilder { old, sink: &sink, deflater: Deflater::default() };
            let ids = trees.build(&mut scanned, (self.settings(), rules.recorded()))?;
            Ok((scanned, ids))
        });
        let built = match rules.damaged() {
            Some(id) => Err(Error::DamagedObject { id, path: store.path().to_owned() }),
            None => built,
        };
        let (scanned, (tree, extras)) = match built {
            Ok(built) => built,
            Err(error) => {
                sink.discard();
                if rules.damaged().is_some() && !self.cache.listings.is_empty() {
                    // Without the cache all rules are read from the disk.
                    self.cache = Cache::default();
                    drop(pin);
                    return self.snapshot(control);
                }
                return Err(error);
            }
        };
        sink.finish()?;
        let grade = grade(&scanned);
        let Scanned { listings, mut skipped, mut moving, unread, read_bytes } = scanned;
        let (files, bytes) = totals(&listings);
        self.cache = Cache { generation, listings, are_trees_stored: true, begun, unread };
        let skipped_count = skipped.len() as u64;
        skipped.truncate(LISTED_MAX);
        moving.truncate(LISTED_MAX);
        // Tracked files that are ignored may be missing.
        let at_best = if rules.is_complete() { Grade::Exact } else { Grade::Partial };
        let snapshot = Snapshot { tree, extras, grade }.at_best(at_best);
        Ok(Taken { snapshot, files, bytes, read_bytes, skipped, skipped_count, moving, pin })
    }
}

/// Returns the number of files and their bytes.
fn totals(listings: &Listings) -> (u64, u64) {
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
    } else if scanned.skipped.iter().any(|skipped| skipped.reason.leaves_out()) {
        Grade::Partial
    } else {
        Grade::Exact
    }
}

/// Repeats the walk until no directory changed during it: a file that moves from a directory not yet listed to one
/// already listed would otherwise be in neither.
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
        let listings = scanned.listings;
        scanned =
            scan(&Cache { generation, listings, are_trees_stored: false, begun: None, unread: UnreadFiles::new() })?;
    }
    Ok(scanned)
}

fn changed_directories(workspace: &Workspace, scanned: &Scanned) -> Vec<FilePath> {
    let is_changed = |(path, listing): &(&FilePath, &Arc<Listing>)| {
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

/// Builds trees from listings.
struct TreeBuilder<'a> {
    /// The last snapshot's listings, if their trees are still in the store.
    old: Option<&'a Listings>,
    sink: &'a ObjectSink,
    deflater: Deflater,
}

impl TreeBuilder<'_> {
    /// Adds all new trees; returns the ids of the root and of the extras.
    fn build(mut self, scanned: &mut Scanned, rules: (&Settings, &OuterRules)) -> Result<(ObjectId, Option<ObjectId>)> {
        let Scanned { listings, skipped, .. } = scanned;
        let mut paths: Vec<(usize, FilePath)> = listings.keys().map(|path| (path.depth(), path.clone())).collect();
        // Deepest first, so that the content of a directory is known before the directory.
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
            if let Some(listing) = listings.get_mut(path).filter(|listing| listing.tree != tree) {
                Arc::make_mut(listing).tree = tree;
            }
        }
        let root = listings.get(&FilePath::root()).and_then(|listing| listing.tree);
        let tree = match root {
            Some(tree) => tree,
            None => self.sink.add(Kind::Tree, &[], &mut self.deflater)?,
        };
        let blob = Extras::of(listings, skipped, rules).encode();
        let extras = blob.map(|blob| self.sink.add(Kind::Blob, &blob, &mut self.deflater)).transpose()?;
        Ok((tree, extras))
    }
}

/// Returns whether the directory had exactly the same content at the last snapshot.
fn is_same(old: &Listings, new: &Listings, path: &FilePath) -> bool {
    let (Some(before), Some(now)) = (old.get(path), new.get(path)) else { return false };
    if Arc::ptr_eq(before, now) {
        let tree = |listings: &Listings, path: &FilePath| listings.get(path).map(|listing| listing.tree);
        let mut directories = now.entries.iter().filter(|entry| matches!(entry.what, What::Directory));
        return directories.all(|entry| {
            let path = path.join(&entry.name);
            tree(old, &path) == tree(new, &path)
        });
    }
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

/// Returns the tree entry of a directory entry, if it has one.
fn tree_entry<'a>(
    listings: &Listings,
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

fn tree_entries(listings: &Listings, path: &FilePath) -> Vec<TreeEntry> {
    let Some(listing) = listings.get(path) else { return Vec::new() };
    let entries = listing.entries.iter().filter_map(|entry| tree_entry(listings, path, entry));
    entries.map(|(name, kind, id)| TreeEntry { name: name.into(), kind, id }).collect()
}

impl Store {
    /// Returns the snapshot of a copy of the files: paths that could not be stored and set-id bits are not in it, and
    /// the grade stays.
    pub fn as_copied(&self, snapshot: &Snapshot) -> Result<Snapshot> {
        let mut extras = self.extras(snapshot)?;
        let original = extras.clone();
        extras.skipped.clear();
        extras.outer = OuterRules::default();
        let mut view = View::new(self, snapshot)?;
        extras.usual.file &= 0o1777;
        extras.usual.executable &= 0o1777;
        for (path, mode) in original.modes.iter().filter(|(_, mode)| **mode & 0o6000 != 0) {
            let Some(state) = view.state(path)? else { continue };
            let given = state.given_mode();
            if given == extras.usual.of(state.kind) {
                extras.modes.remove(path);
            } else if given != *mode {
                extras.modes.insert(path.clone(), given);
            }
        }
        if extras == original {
            return Ok(*snapshot);
        }
        let sink = ObjectSink::new(self);
        let added = extras.encode().map(|blob| sink.add(Kind::Blob, &blob, &mut Deflater::default())).transpose();
        match added {
            Ok(extras) => sink.finish().map(|()| Snapshot { extras, ..*snapshot }),
            Err(error) => {
                sink.discard();
                Err(error)
            }
        }
    }

    /// Returns the parts of a snapshot that are not in its tree.
    pub(crate) fn extras(&self, snapshot: &Snapshot) -> Result<Extras> {
        let Some(id) = snapshot.extras else { return Ok(Extras::default()) };
        Extras::decode(&self.blob(id)?).ok_or_else(|| Error::DamagedObject { id, path: self.path().to_owned() })
    }
}
