//! A model of the page cache, and of the content of a disk after a power cut.
//!
//! It is as unkind as POSIX allows: an entry is not safe because its file was synced; data lost by a failed sync is not
//! saved by a later one, only by being written again; unsynced data may survive, or not, or in part.
//!
//! It is kinder than a disk in one point: of appended data a prefix survives, never a later page without an earlier
//! one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::Names;

/// The files below one directory.
#[derive(Debug)]
pub(super) struct Model {
    root: PathBuf,
    nodes: Vec<Node>,
    by_inode: HashMap<u64, usize>,
    /// The directory in which each file was created, and its name there.
    made_as: HashMap<usize, (usize, OsString)>,
    names: Names,
}

type Entries = BTreeMap<OsString, usize>;

#[derive(Debug)]
enum Node {
    File(Content),
    Dir(Dir),
}

#[derive(Debug, Default)]
struct Content {
    now: Vec<u8>,
    on_disk: Vec<u8>,
    /// The length up to which the cache has nothing to write back.
    clean: usize,
    /// The shortest length of the file since its last sync, if it was truncated.
    cut: Option<usize>,
    /// Data that the cache holds and a failed sync lost: it reads correctly, and is zeros on the disk.
    lost: Vec<Range<usize>>,
}

#[derive(Debug, Default)]
struct Dir {
    now: Entries,
    on_disk: Entries,
    /// Names whose last change a failed sync lost.
    lost: BTreeSet<OsString>,
    /// The changes since the last sync, in order.
    changes: Vec<(OsString, Option<usize>)>,
}

impl Content {
    fn cut(&mut self, len: usize) {
        self.now.resize(len, 0);
        self.clean = self.clean.min(len);
        self.lost.retain_mut(|range| {
            range.end = range.end.min(len);
            range.start < range.end
        });
        if len < self.on_disk.len() {
            self.cut = Some(self.cut.map_or(len, |shortest| shortest.min(len)));
        }
    }

    fn synced(&mut self) {
        self.on_disk.clone_from(&self.now);
        for range in &self.lost {
            self.on_disk[range.clone()].fill(0);
        }
        self.clean = self.now.len();
        self.cut = None;
    }

    fn sync_failed(&mut self) {
        if self.clean < self.now.len() {
            self.lost.push(self.clean..self.now.len());
        }
        self.clean = self.now.len();
    }

    /// Returns the synced data and, by chance, a part of what followed it.
    fn after_cut(&self, dice: Option<&mut Dice>) -> Vec<u8> {
        let mut bytes = self.on_disk.clone();
        let Some(dice) = dice else { return bytes };
        let kept = self.cut.unwrap_or(bytes.len());
        let appended = self.now.get(kept..).unwrap_or_default();
        let part = &appended[..dice.roll(appended.len() + 1)];
        match (self.cut, dice.roll(3)) {
            (Some(_), 0) => return bytes,
            // Appended data overwrote truncated data, whose end is still there.
            (Some(_), 1) => {
                let end = bytes.len().max(kept + part.len());
                bytes.resize(end, 0);
                bytes[kept..kept + part.len()].copy_from_slice(part);
                return bytes;
            }
            _ => {}
        }
        bytes.truncate(kept);
        bytes.extend_from_slice(part);
        if dice.roll(3) == 0 {
            // A later page was written and an earlier one was not.
            let from = kept + dice.roll(part.len() + 1);
            let to = (from + PAGE).min(bytes.len());
            bytes[from..to].fill(0);
        }
        if dice.roll(2) == 1 {
            // The length was written and the bytes were not.
            let zeros = dice.roll(appended.len() - part.len() + 1);
            bytes.resize(bytes.len() + zeros, 0);
        }
        bytes
    }
}

impl Dir {
    fn set(&mut self, name: OsString, node: Option<usize>) -> Option<usize> {
        self.lost.remove(&name);
        self.changes.push((name.clone(), node));
        match node {
            Some(node) => self.now.insert(name, node),
            None => self.now.remove(&name),
        }
    }

    fn names(&self) -> BTreeSet<OsString> {
        self.now.keys().chain(self.on_disk.keys()).cloned().collect()
    }

    fn synced(&mut self) {
        self.changes.clear();
        let names = self.names();
        for name in names.difference(&self.lost) {
            match self.now.get(name) {
                Some(node) => self.on_disk.insert(name.clone(), *node),
                None => self.on_disk.remove(name),
            };
        }
    }

    fn sync_failed(&mut self) {
        let changed = self.names().into_iter().filter(|name| self.now.get(name) != self.on_disk.get(name));
        self.lost.extend(changed);
    }

    fn after_cut(&self, names: Names, dice: Option<&mut Dice>) -> Entries {
        let Some(dice) = dice else { return self.on_disk.clone() };
        if names == Names::InOrder {
            let mut entries = self.on_disk.clone();
            for (name, node) in &self.changes[..dice.roll(self.changes.len() + 1)] {
                match node {
                    Some(node) => entries.insert(name.clone(), *node),
                    None => entries.remove(name),
                };
            }
            return entries;
        }
        match dice.roll(3) {
            0 => self.on_disk.clone(),
            1 => self.now.clone(),
            _ => {
                let mut pick = |name: OsString| {
                    let side = if dice.roll(2) == 1 { &self.now } else { &self.on_disk };
                    side.get(&name).copied().map(|node| (name, node))
                };
                self.names().into_iter().filter_map(&mut pick).collect()
            }
        }
    }
}

impl Model {
    /// Reads everything below `root`, which counts as synced.
    pub(super) fn of(root: &Path, names: Names) -> io::Result<Self> {
        let (by_inode, made_as) = (HashMap::new(), HashMap::new());
        let mut model = Self { root: root.to_owned(), nodes: Vec::new(), by_inode, made_as, names };
        model.import(root)?;
        Ok(model)
    }

    fn import(&mut self, path: &Path) -> io::Result<usize> {
        let metadata = fs::metadata(path)?;
        let number = self.nodes.len();
        if metadata.is_dir() {
            self.nodes.push(Node::Dir(Dir::default()));
            let mut entries = Entries::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                entries.insert(entry.file_name(), self.import(&entry.path())?);
            }
            self.nodes[number] = Node::Dir(Dir { now: entries.clone(), on_disk: entries, ..Dir::default() });
        } else {
            let now = fs::read(path)?;
            let (on_disk, clean) = (now.clone(), now.len());
            self.nodes.push(Node::File(Content { now, on_disk, clean, ..Content::default() }));
            self.by_inode.insert(metadata.ino(), number);
        }
        Ok(number)
    }

    fn number_of(&self, path: &Path) -> Option<usize> {
        let below = path.strip_prefix(&self.root).ok()?;
        below.components().try_fold(0, |at, component| match (&self.nodes[at], component) {
            (Node::Dir(dir), Component::Normal(name)) => dir.now.get(name).copied(),
            _ => None,
        })
    }

    fn dir(&mut self, path: &Path) -> Option<&mut Dir> {
        let number = self.number_of(path)?;
        match &mut self.nodes[number] {
            Node::Dir(dir) => Some(dir),
            Node::File(_) => None,
        }
    }

    fn set_entry(&mut self, path: &Path, node: Option<usize>) -> Option<usize> {
        let name = path.file_name()?.to_owned();
        self.dir(path.parent()?)?.set(name, node)
    }

    fn link(&mut self, path: &Path, node: Node) {
        let number = self.nodes.len();
        self.nodes.push(node);
        self.set_entry(path, Some(number));
    }

    pub(super) fn created(&mut self, path: &Path) {
        if let Ok(metadata) = fs::metadata(path) {
            self.by_inode.insert(metadata.ino(), self.nodes.len());
        }
        if let (Some(directory), Some(name)) = (path.parent().and_then(|above| self.number_of(above)), path.file_name())
        {
            self.made_as.insert(self.nodes.len(), (directory, name.to_owned()));
        }
        self.link(path, Node::File(Content::default()));
    }

    pub(super) fn made_dir(&mut self, path: &Path) {
        self.link(path, Node::Dir(Dir::default()));
    }

    pub(super) fn unlinked(&mut self, path: &Path) {
        self.set_entry(path, None);
    }

    pub(super) fn renamed(&mut self, from: &Path, to: &Path) {
        if let Some(number) = self.set_entry(from, None) {
            self.set_entry(to, Some(number));
        }
    }

    fn content(&mut self, file: &File) -> Option<&mut Content> {
        let inode = file.metadata().ok()?.ino();
        match self.nodes.get_mut(*self.by_inode.get(&inode)?)? {
            Node::File(content) => Some(content),
            Node::Dir(_) => None,
        }
    }

    pub(super) fn wrote(&mut self, file: &File, bytes: &[u8]) {
        if let Some(content) = self.content(file) {
            content.now.extend_from_slice(bytes);
        }
    }

    /// Models an overwrite like a truncation and a new write: a part of the new data may survive, or the old data.
    pub(super) fn overwrote(&mut self, file: &File, bytes: &[u8]) {
        if let Some(content) = self.content(file) {
            let mut now = bytes.to_vec();
            now.extend_from_slice(content.now.get(bytes.len()..).unwrap_or_default());
            content.cut(0);
            content.now = now;
        }
    }

    pub(super) fn cut(&mut self, file: &File, len: u64) {
        if let Some(content) = self.content(file) {
            content.cut(usize::try_from(len).unwrap_or(0));
        }
    }

    pub(super) fn synced(&mut self, file: &File) {
        if let Some(content) = self.content(file) {
            content.synced();
        }
        if self.names == Names::InOrder {
            self.name_synced(file);
        }
    }

    /// If names keep their order: writes the name of a new file to the disk, if it still has that name. A name from a rename
    /// does not count.
    fn name_synced(&mut self, file: &File) {
        let number = file.metadata().ok().and_then(|metadata| self.by_inode.get(&metadata.ino()).copied());
        let Some((number, (directory, name))) = number.and_then(|number| Some((number, self.made_as.get(&number)?)))
        else {
            return;
        };
        if let Node::Dir(dir) = &mut self.nodes[*directory]
            && dir.now.get(name) == Some(&number)
            && !dir.lost.contains(name)
        {
            dir.on_disk.insert(name.clone(), number);
        }
    }

    pub(super) fn sync_failed(&mut self, file: &File) {
        if let Some(content) = self.content(file) {
            content.sync_failed();
        }
    }

    pub(super) fn dir_synced(&mut self, path: &Path) {
        if let Some(dir) = self.dir(path) {
            dir.synced();
        }
    }

    pub(super) fn dir_sync_failed(&mut self, path: &Path) {
        if let Some(dir) = self.dir(path) {
            dir.sync_failed();
        }
    }

    /// Writes the content after a power cut to the new directory `to`.
    pub(super) fn materialize(&self, to: &Path, dice: Option<Dice>) -> io::Result<()> {
        self.materialize_node(0, to, &mut { dice })
    }

    #[expect(clippy::disallowed_methods, reason = "what a power cut leaves is not written by Relive")]
    fn materialize_node(&self, number: usize, to: &Path, dice: &mut Option<Dice>) -> io::Result<()> {
        match &self.nodes[number] {
            Node::File(content) => fs::write(to, content.after_cut(dice.as_mut())),
            Node::Dir(dir) => {
                fs::create_dir(to)?;
                for (name, child) in dir.after_cut(self.names, dice.as_mut()) {
                    self.materialize_node(child, &to.join(name), dice)?;
                }
                Ok(())
            }
        }
    }
}

/// The unit in which a disk writes; smaller than any real one, so that a small script has many.
const PAGE: usize = 64;

/// Numbers from a seed (splitmix64).
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (sides as u64)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::disk::Disk;
    use crate::faults::{Faults, Injection, PowerCut, Switches};

    use super::*;

    /// Runs `work` below a new directory; returns the names and contents after a strict power cut.
    fn after_cut(injection: Injection, work: impl FnOnce(&Disk, &Path)) -> Vec<(String, Vec<u8>)> {
        let temp = tempfile::tempdir().unwrap();
        let (root, to) = (temp.path().join("root"), temp.path().join("cut"));
        Disk::new().mkdir(&root).unwrap();
        let faults = Arc::new(Faults::new(&root, injection, Switches::default()).unwrap());
        work(&Disk::with_faults(Arc::clone(&faults)), &root);
        faults.power_cut(&to, PowerCut::Strict).unwrap();
        let entries = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap());
        let mut left: Vec<_> = entries.map(read).collect();
        left.sort();
        left
    }

    fn file(name: &str, bytes: &[u8]) -> (String, Vec<u8>) {
        (name.to_owned(), bytes.to_vec())
    }

    #[test]
    fn a_file_survives_if_it_and_its_directory_were_synced() {
        let left = after_cut(Injection::None, |disk, root| {
            for (name, sync, sync_dir) in
                [("a", true, true), ("b", false, true), ("c", true, false), ("d", false, false)]
            {
                let made = disk.create(&root.join(name)).unwrap();
                disk.append(&made, b"x").unwrap();
                if sync {
                    disk.sync(&made).unwrap();
                }
                if sync_dir {
                    disk.sync_dir(root).unwrap();
                }
            }
        });
        assert_eq!(left, [file("a", b"x"), file("b", b"")]);
    }

    #[test]
    fn a_later_sync_does_not_save_data_lost_by_a_failed_one() {
        let write = |cut: bool| {
            after_cut(Injection::Fail(4, 5), move |disk, root| {
                let made = disk.create(&root.join("a")).unwrap();
                disk.sync_dir(root).unwrap();
                disk.append(&made, b"one").unwrap();
                disk.sync(&made).unwrap_err();
                if cut {
                    disk.truncate(&made, 0).unwrap();
                }
                disk.append(&made, b"two").unwrap();
                disk.sync(&made).unwrap();
            })
        };
        assert_eq!(write(false), [file("a", b"\0\0\0two")]);
        assert_eq!(write(true), [file("a", b"two")]);
    }

    #[test]
    fn a_rename_survives_only_after_the_directory_is_synced() {
        let replace = |synced: bool| {
            after_cut(Injection::None, move |disk, root| {
                disk.replace(&root.join("a"), b"old").unwrap();
                disk.put(&root.join("a"), b"new").unwrap();
                if synced {
                    disk.sync_dir(root).unwrap();
                }
            })
        };
        assert_eq!(replace(false), [file("a", b"old")]);
        assert_eq!(replace(true), [file("a", b"new")]);
    }

    #[test]
    fn an_entry_lost_by_a_failed_sync_survives_only_if_created_again() {
        let make = |again: bool| {
            after_cut(Injection::Fail(2, 5), move |disk, root| {
                disk.create(&root.join("a")).unwrap();
                disk.sync_dir(root).unwrap_err();
                if again {
                    disk.unlink(&root.join("a")).unwrap();
                    disk.create(&root.join("a")).unwrap();
                }
                disk.sync_dir(root).unwrap();
            })
        };
        assert_eq!(make(false), []);
        assert_eq!(make(true), [file("a", b"")]);
    }

    #[test]
    fn only_writes_are_halved() {
        let left = after_cut(Injection::None, |_, _| {});
        assert_eq!(left, []);
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a");
        let run = |injection| {
            let _ = Disk::new().unlink(&path);
            let faults = Arc::new(Faults::new(temp.path(), injection, Switches::default()).unwrap());
            let disk = Disk::with_faults(Arc::clone(&faults));
            let made = disk.create(&path).and_then(|made| disk.append(&made, b"1234"));
            (made.is_ok(), fs::read(&path).ok(), faults.stopped(), faults.injected().unwrap_or_default())
        };
        assert_eq!(run(Injection::StopHalfway(1)), (false, None, true, "create a".to_owned()));
        assert_eq!(
            run(Injection::StopHalfway(2)),
            (false, Some(b"12".to_vec()), true, "write 4 bytes to a".to_owned())
        );
        assert_eq!(run(Injection::FailHalfway(1, 28)), (false, None, false, "create a".to_owned()));
        assert_eq!(
            run(Injection::FailHalfway(2, 28)),
            (false, Some(b"12".to_vec()), false, "write 4 bytes to a".to_owned())
        );
    }
}
