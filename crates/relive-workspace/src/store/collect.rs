//! Garbage collection, and merging many small packs into one.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::ErrorKind;
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::Serialize;

use super::delta;
use super::measure::{PackOutput, PackSize};
use super::pack::Pack;
use super::sink::Deflater;
use super::writer::{PackWriter, Packed, PackedKind, Reserve};
use super::{GENERATION, Store, open_directory, open_own};
use crate::control::Control;
use crate::disk::Durability;
use crate::error::{Context as _, Error, Result};
use crate::object::{EntryKind, Kind, ObjectId};
use crate::snapshot::Snapshot;

/// A pack of this size is kept while most of it is in use: rewriting it would cost more than it gains.
const LARGE_PACK: u64 = 64 << 20;
/// [`Store::pack`] merges packs smaller than this.
pub(super) const SMALL_PACK: u64 = 8 << 20;
/// How much of a large pack may be garbage, as one part in this many.
const GARBAGE_PART: usize = 5;
/// The longest chain of deltas, because each of them has to be read.
const CHAIN_MAX: u32 = 24;
/// Larger objects are stored whole: a delta needs both versions in memory.
const DELTA_MAX: usize = 4 << 20;

/// Whether garbage is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Only counts.
    DryRun,
    /// Removes it.
    Remove,
}

/// The result of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Collected {
    /// Objects before the collection.
    pub objects: u64,
    /// Objects that no snapshot needs.
    pub garbage: u64,
    /// Contents of files that a snapshot needs and the store does not have.
    pub missing: u64,
    /// The size of the store before.
    pub bytes_before: u64,
    /// The size of the store afterwards. A dry run counts it as the removal does, and writes nothing.
    pub bytes_after: u64,
    /// The size of packs with garbage that stay, or would stay, because the disk has too little space to write the rest of
    /// them anew.
    pub blocked_bytes: u64,
}

/// An object to keep, and the earlier version of the same path that may be the base of its delta.
#[derive(Debug, Clone, Copy)]
struct Live {
    id: ObjectId,
    base: Option<ObjectId>,
}

/// From how many packs a dry run has dropped each object.
type Dropped = HashMap<ObjectId, usize>;

impl Store {
    /// Removes every object that none of `live` needs. Pass the snapshots of one process in order: each version of a
    /// file is then stored as its difference from the previous one.
    ///
    /// Refuses with [`Error::Busy`] while there is a [`super::Pin`], and if a pack or a tree cannot be read: what it
    /// names is not known, and may be all that is left of a file.
    pub fn collect(&self, live: &[Snapshot], removal: Removal, control: &Control) -> Result<Collected> {
        let _alone = self.lock(FlockOperation::NonBlockingLockExclusive)?;
        self.refresh()?;
        self.check_packs()?;
        let packs = self.packs();
        let (objects, missing) = Mark::default().run(self, live, control)?;
        let needed: HashSet<ObjectId> = objects.iter().map(|object| object.id).collect();
        let all: HashSet<ObjectId> = packs.iter().flat_map(|pack| pack.ids()).collect();
        let garbage = all.iter().filter(|id| !needed.contains(id)).count();
        let mut collected = Collected {
            objects: all.len() as u64,
            garbage: garbage as u64,
            missing,
            bytes_before: self.bytes(),
            bytes_after: 0,
            blocked_bytes: 0,
        };
        let is_kept = |pack: &Arc<Pack>| {
            let (count, used) =
                pack.ids().fold((0, 0), |(all, used), id| (all + 1, used + usize::from(needed.contains(&id))));
            used == count && packs.len() == 1 || pack.bytes() >= LARGE_PACK && (count - used) * GARBAGE_PART <= count
        };
        let (kept, replaced): (Vec<_>, Vec<_>) = packs.iter().cloned().partition(is_kept);
        let is_garbage = |pack: &Arc<Pack>| !pack.ids().any(|id| needed.contains(&id));
        let (garbage, replaced): (Vec<_>, Vec<_>) = replaced.into_iter().partition(is_garbage);
        collected.bytes_after = match removal {
            Removal::DryRun => {
                let free_bytes = self.free_bytes()? + size_of(&garbage);
                let (left, blocked_bytes) = self.measure(&kept, replaced, objects, (free_bytes, control))?;
                collected.blocked_bytes = blocked_bytes;
                left
            }
            Removal::Remove => {
                // First what needs no space: a collection is how space is made on a full disk.
                self.remove_packs(&garbage)?;
                collected.blocked_bytes = self.replace_or_shrink(&kept, replaced, objects, control)?;
                self.bytes()
            }
        };
        Ok(collected)
    }

    /// Returns the bytes that [`Self::replace_or_shrink`] would leave with so much free space, and what it would return.
    fn measure(
        &self,
        kept: &[Arc<Pack>],
        replaced: Vec<Arc<Pack>>,
        objects: Vec<Live>,
        (mut free_bytes, control): (u64, &Control),
    ) -> Result<(u64, u64)> {
        if self.has_space(free_bytes, size_of(&replaced)) {
            let mut size = PackSize::default();
            self.copy_objects(kept, objects, control, &mut size)?;
            return Ok((size_of(kept) + size.bytes(), 0));
        }
        let (mut left, mut blocked_bytes) = (size_of(kept) + size_of(&replaced), 0);
        let mut dropped = Dropped::new();
        for pack in with_garbage(replaced, &objects) {
            let needed = self.needed_of(&pack, &objects, &dropped);
            let needed_ids: HashSet<ObjectId> = needed.iter().map(|object| object.id).collect();
            let size = self.size_of_objects(needed, control)?;
            if size > free_bytes / 2 {
                blocked_bytes += pack.bytes();
                continue;
            }
            let freed_bytes = pack.bytes().saturating_sub(size);
            free_bytes += freed_bytes;
            left -= freed_bytes;
            for id in pack.ids().filter(|id| !needed_ids.contains(id)) {
                *dropped.entry(id).or_default() += 1;
            }
        }
        Ok((left, blocked_bytes))
    }

    /// Merges all small packs into one. Nothing is removed. Refuses like [`Store::collect`].
    pub fn pack(&self, control: &Control) -> Result<()> {
        let _alone = self.lock(FlockOperation::NonBlockingLockExclusive)?;
        self.refresh()?;
        let (kept, replaced): (Vec<_>, Vec<_>) = self.packs().into_iter().partition(|pack| pack.bytes() >= SMALL_PACK);
        if replaced.len() < 2 {
            return Ok(());
        }
        let objects = replaced.iter().flat_map(|pack| pack.ids()).map(|id| Live { id, base: None }).collect();
        self.check_space(size_of(&replaced))?;
        self.replace(&kept, &replaced, objects, (Reserve::Kept, control))
    }

    /// Replaces packs; where that needs more than there is above the reserve, only those with garbage, one after the
    /// other. Returns the size of those for which even that is too little.
    fn replace_or_shrink(
        &self,
        kept: &[Arc<Pack>],
        replaced: Vec<Arc<Pack>>,
        objects: Vec<Live>,
        control: &Control,
    ) -> Result<u64> {
        match self.check_space(size_of(&replaced)) {
            Err(Error::NoSpace { .. }) => {}
            Err(error) => return Err(error),
            Ok(()) => {
                self.replace(kept, &replaced, objects, (Reserve::Kept, control))?;
                return Ok(0);
            }
        }
        let mut blocked_bytes = 0;
        for pack in with_garbage(replaced, &objects) {
            let needed = self.needed_of(&pack, &objects, &Dropped::new());
            // The reserve is for the journals, which grow meanwhile.
            if self.size_of_objects(needed.clone(), control)? > self.free_bytes()? / 2 {
                blocked_bytes += pack.bytes();
                continue;
            }
            self.replace(&[], std::slice::from_ref(&pack), needed, (Reserve::Used, control))?;
        }
        Ok(blocked_bytes)
    }

    /// Returns the objects of a pack that are neither garbage nor in another pack as well.
    fn needed_of(&self, pack: &Pack, objects: &[Live], dropped: &Dropped) -> Vec<Live> {
        let packs = self.packs();
        let is_only_here = |id: ObjectId| {
            let copies = packs.iter().filter(|pack| pack.find(id).is_some()).count();
            copies <= 1 + dropped.get(&id).copied().unwrap_or_default()
        };
        let is_needed = |object: &&Live| pack.find(object.id).is_some() && is_only_here(object.id);
        objects.iter().filter(is_needed).copied().collect()
    }

    /// Returns the bytes of a pack with these objects.
    fn size_of_objects(&self, objects: Vec<Live>, control: &Control) -> Result<u64> {
        let mut size = PackSize::default();
        self.copy_objects(&[], objects, control, &mut size)?;
        Ok(size.bytes())
    }

    /// Writes `objects`, except those in kept packs, to a new pack and removes the replaced packs.
    fn replace(
        &self,
        kept: &[Arc<Pack>],
        replaced: &[Arc<Pack>],
        objects: Vec<Live>,
        (reserve, control): (Reserve, &Control),
    ) -> Result<()> {
        if replaced.is_empty() {
            return Ok(());
        }
        let mut writer = PackWriter::new(self, reserve)?;
        if let Err(error) = self.copy_objects(kept, objects, control, &mut writer) {
            writer.discard();
            return Err(error);
        }
        let name = writer.finish()?;
        let is_replaced = |pack: &&Arc<Pack>| name.as_deref() != pack.path().file_stem();
        let removed: Vec<_> = replaced.iter().filter(is_replaced).cloned().collect();
        self.remove_packs(&removed)
    }

    fn remove_packs(&self, packs: &[Arc<Pack>]) -> Result<()> {
        if packs.is_empty() {
            return Ok(());
        }
        self.note_removal()?;
        let path = self.pack_directory();
        let directory = open_directory(&path)?;
        for pack in packs {
            for file in [pack.index_path(), pack.path()] {
                self.disk().unlink(&directory, file.file_name().unwrap_or_default()).context("remove", file)?;
            }
        }
        self.refresh()
    }

    /// Makes every cache look again which objects there are. On a full disk the file is overwritten, which needs no space:
    /// the number only grows, and is within one sector.
    fn note_removal(&self) -> Result<()> {
        let text = format!("{}\n", self.generation()? + 1);
        let (root, path) = (open_directory(self.path())?, self.path().join(GENERATION));
        match self.disk().replace(&root, GENERATION, text.as_bytes(), Durability::Synced) {
            Err(full) if matches!(full.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                let opened = open_own(&path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
                let file = opened.map(File::from).map_err(|_| full).context("write", &path)?;
                self.disk().write_at(&file, text.as_bytes(), 0).context("write", &path)?;
                self.disk().sync(&file).context("sync", &path)
            }
            written => written.context("write", &path),
        }
    }

    /// Copies `objects` to a new pack, except those in kept packs.
    fn copy_objects(
        &self,
        kept: &[Arc<Pack>],
        objects: Vec<Live>,
        control: &Control,
        output: &mut impl PackOutput,
    ) -> Result<()> {
        let mut rewrite = Rewrite { store: self, written: HashMap::new(), deflater: Deflater::default() };
        for object in objects {
            let is_kept = kept.iter().any(|pack| pack.find(object.id).is_some());
            if !is_kept && !rewrite.written.contains_key(&object.id) {
                control.check()?;
                rewrite.add(output, &object)?;
            }
        }
        Ok(())
    }
}

fn size_of(packs: &[Arc<Pack>]) -> u64 {
    packs.iter().map(|pack| pack.bytes()).sum()
}

/// Returns the packs with garbage. What needs least space to be written anew comes first, and makes space for the others.
fn with_garbage(mut packs: Vec<Arc<Pack>>, objects: &[Live]) -> Vec<Arc<Pack>> {
    let needed: HashSet<ObjectId> = objects.iter().map(|object| object.id).collect();
    let in_use = |pack: &Arc<Pack>| pack.ids().filter(|id| needed.contains(id)).count();
    packs.retain(|pack| in_use(pack) < pack.ids().count());
    packs.sort_by_key(|pack| (pack.bytes() * in_use(pack) as u64) / (pack.ids().count() as u64).max(1));
    packs
}

/// Copies objects to a new pack.
struct Rewrite<'a> {
    store: &'a Store,
    /// The offset of each object in the new pack, and the length of its chain of deltas.
    written: HashMap<ObjectId, (u64, u32)>,
    deflater: Deflater,
}

impl Rewrite<'_> {
    fn add(&mut self, output: &mut impl PackOutput, object: &Live) -> Result<()> {
        let id = object.id;
        let offset = output.offset();
        if let Some(chain) = self.add_delta(output, object)? {
            self.written.insert(id, (offset, chain));
            return Ok(());
        }
        self.written.insert(id, (offset, 0));
        let packs = self.store.packs();
        let pack = packs.iter().find(|pack| pack.find(id).is_some()).ok_or(Error::Missing(id))?;
        match pack.raw(id).map_err(|_| Error::DamagedObject { id, path: pack.path().to_owned() })? {
            Some(bytes) => output.add_raw(id, &bytes),
            None => {
                let (kind, bytes) = self.store.read(id)?;
                let compressed = self.deflater.compress(&bytes).context("compress", self.store.path())?;
                output.add(&Packed { id, kind: PackedKind::Whole(kind), size: bytes.len() as u64, compressed })
            }
        }
    }

    /// Adds the object as a delta if that is much shorter; returns the length of its chain.
    fn add_delta(&mut self, output: &mut impl PackOutput, object: &Live) -> Result<Option<u32>> {
        let Some(base) = object.base else { return Ok(None) };
        let Some(&(base_offset, chain)) = self.written.get(&base) else { return Ok(None) };
        if chain >= CHAIN_MAX {
            return Ok(None);
        }
        let ((base_kind, from), (kind, bytes)) = (self.store.read(base)?, self.store.read(object.id)?);
        if kind != base_kind || from.len().max(bytes.len()) > DELTA_MAX {
            return Ok(None);
        }
        let delta = delta::encode(&from, &bytes);
        if delta.len() > bytes.len() / 2 {
            return Ok(None);
        }
        let compressed = self.deflater.compress(&delta).context("compress", self.store.path())?;
        let kind = PackedKind::Delta(base_offset);
        output.add(&Packed { id: object.id, kind, size: delta.len() as u64, compressed })?;
        Ok(Some(chain + 1))
    }
}

/// Marks every object that snapshots need.
#[derive(Default)]
struct Mark {
    seen: HashSet<ObjectId>,
    /// The latest version seen of each path.
    latest: HashMap<(Vec<u8>, Kind), ObjectId>,
    live: Vec<Live>,
    missing: u64,
}

impl Mark {
    fn run(mut self, store: &Store, snapshots: &[Snapshot], control: &Control) -> Result<(Vec<Live>, u64)> {
        // An interrupted restore or merge is finished or rolled back with these, whatever the journals name.
        for change in store.interrupted_changes()? {
            for id in [&change.before, &change.after].into_iter().flatten().filter_map(|state| state.id) {
                self.add(store, id, [b"/", change.path.as_bytes()].concat(), Kind::Blob)?;
            }
        }
        for snapshot in snapshots {
            control.check()?;
            if let Some(extras) = snapshot.extras {
                // No file can have this path.
                self.add(store, extras, b"//".to_vec(), Kind::Blob)?;
            }
            let mut open = vec![(Vec::new(), snapshot.tree)];
            while let Some((path, id)) = open.pop() {
                if !self.add(store, id, path.clone(), Kind::Tree)? {
                    continue;
                }
                for entry in store.tree(id)? {
                    let path = [&*path, b"/", &*entry.name].concat();
                    match entry.kind {
                        EntryKind::Directory => open.push((path, entry.id)),
                        EntryKind::File | EntryKind::Executable | EntryKind::Symlink => {
                            self.add(store, entry.id, path, Kind::Blob)?;
                        }
                    }
                }
            }
        }
        Ok((self.live, self.missing))
    }

    /// Returns whether the object was not marked yet and is in the store. A tree that is not there is an error: the
    /// objects that it names may be.
    fn add(&mut self, store: &Store, id: ObjectId, path: Vec<u8>, kind: Kind) -> Result<bool> {
        if !self.seen.insert(id) {
            self.latest.insert((path, kind), id);
            return Ok(false);
        }
        if !store.contains(id) {
            self.missing += 1;
            return if kind == Kind::Tree { Err(Error::Missing(id)) } else { Ok(false) };
        }
        let base = self.latest.insert((path, kind), id);
        self.live.push(Live { id, base });
        Ok(true)
    }
}
