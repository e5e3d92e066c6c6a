//! The stat cache: the content of every directory at the last snapshot, so that only changed files are read.
//!
//! It is disposable. It is correct as long as a file whose bytes change also changes its [`FileKey`]; files that were
//! changed so recently that this is not certain are read again the next time.

use std::collections::HashMap;
use std::sync::Arc;

use crate::object::{EntryKind, ID_BYTES, ObjectId};
use crate::path::FilePath;
use crate::stat::{FileKey, Time};
use crate::store::Store;

const MAGIC: &[u8; 8] = b"relivec4";

/// The content of each directory. A directory in which nothing changed is the same object in the next snapshot.
pub(crate) type Listings = HashMap<FilePath, Arc<Listing>>;

/// The content of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// The store's generation for which every id is known to be in the store.
    pub(crate) generation: u64,
    pub(crate) listings: Listings,
    /// Whether the trees, and all objects they name, are known to be in the store.
    pub(crate) are_trees_stored: bool,
    /// When the walk began. A file that is older and not in the listings was left out of them, or was elsewhere. Absent if
    /// another machine's clock stamps the files.
    pub(crate) begun: Option<Time>,
    pub(crate) unread: UnreadFiles,
}

/// The files that the last snapshot lacks because they could not be read, or not whole.
pub(crate) type UnreadFiles = HashMap<FilePath, UnreadFile>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnreadFile {
    pub(crate) inode: u64,
    pub(crate) past: Past,
}

/// The content of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The fingerprint of the rules that selected the entries.
    pub(crate) rules: u64,
    pub(crate) key: FileKey,
    /// How many names the directory had; absent if it was changed just before it was listed.
    pub(crate) names: Option<u64>,
    /// Sorted by name.
    pub(crate) entries: Vec<Entry>,
    /// `None` if nothing below the directory is part of the snapshot.
    pub(crate) tree: Option<ObjectId>,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Box<[u8]>,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A regular file or a link.
    File {
        kind: EntryKind,
        id: ObjectId,
        key: FileKey,
        links: u64,
        trust: Trust,
        past: Past,
    },
    Directory,
    /// Excluded by the rules.
    Ignored {
        is_directory: bool,
    },
}

/// Whether an unchanged [`FileKey`] will mean unchanged bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    Yes,
    /// The file was changed just before it was read.
    TooRecent,
}

/// Where a file was before the first snapshot that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// It is new since the snapshot before, or another name of it is in that one.
    Known,
    /// It existed under a name that is in no snapshot: an ignored one, or one outside of the workspace.
    Elsewhere,
}

impl Listing {
    /// Returns whether the directory with this key still has exactly the names of the entries. Names that were left out,
    /// of sockets for example, are not among them, and have to be listed again.
    pub(crate) fn has_names_of(&self, key: &FileKey) -> bool {
        self.names == Some(self.entries.len() as u64) && self.key == *key
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok().map(|at| &self.entries[at])
    }
}

impl Cache {
    /// Returns the file at a path.
    pub(crate) fn file(&self, path: &FilePath) -> Option<&What> {
        let (directory, name) = path.split()?;
        Some(&self.listings.get(&directory)?.find(name)?.what)
    }

    /// Returns all files below a directory, with those that were not read.
    pub(crate) fn files_below(&self, directory: &FilePath) -> UnreadFiles {
        let mut found = UnreadFiles::new();
        for (path, listing) in self.listings.iter().filter(|(path, _)| path.is_within(directory)) {
            for entry in &listing.entries {
                if let What::File { key, past, .. } = &entry.what {
                    found.insert(path.join(&entry.name), UnreadFile { inode: key.inode, past: *past });
                }
            }
        }
        let unread = self.unread.iter().filter(|(path, _)| path.is_within(directory));
        found.extend(unread.map(|(path, file)| (path.clone(), *file)));
        found
    }

    /// Returns whether a file at a path existed before the first snapshot that has it, under a name that is in none.
    pub(crate) fn was_elsewhere(&self, path: &FilePath) -> bool {
        matches!(self.file(path), Some(What::File { past: Past::Elsewhere, .. }))
    }

    /// Returns the inodes of all files, and where each was before.
    pub(crate) fn inodes(&self) -> HashMap<u64, Past> {
        let mut inodes = HashMap::new();
        for entry in self.listings.values().flat_map(|listing| &listing.entries) {
            if let What::File { key, past, .. } = &entry.what {
                inodes.insert(key.inode, *past);
            }
        }
        inodes
    }

    /// Forgets directories that name objects removed by a garbage collection.
    pub(crate) fn forget_missing(&mut self, store: &Store, generation: u64) {
        if self.generation == generation {
            return;
        }
        let has = |entry: &Entry| match &entry.what {
            What::File { id, .. } => store.contains(*id),
            What::Directory | What::Ignored { .. } => true,
        };
        self.listings.retain(|_, listing| listing.entries.iter().all(has));
        // A tree may have been kept by chance, without the objects it names.
        self.are_trees_stored = false;
        self.generation = generation;
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        write_number(&mut bytes, self.generation);
        bytes.push(u8::from(self.begun.is_some()));
        self.begun.iter().for_each(|begun| write_time(&mut bytes, *begun));
        write_number(&mut bytes, self.unread.len() as u64);
        for (path, UnreadFile { inode, past }) in &self.unread {
            write_bytes(&mut bytes, path.as_bytes());
            write_number(&mut bytes, *inode);
            bytes.push(u8::from(*past == Past::Elsewhere));
        }
        write_number(&mut bytes, self.listings.len() as u64);
        for (path, listing) in &self.listings {
            write_bytes(&mut bytes, path.as_bytes());
            write_number(&mut bytes, listing.rules);
            write_key(&mut bytes, &listing.key);
            write_number(&mut bytes, listing.names.map_or(0, |names| names.saturating_add(1)));
            bytes.push(u8::from(listing.tree.is_some()));
            listing.tree.iter().for_each(|tree| bytes.extend_from_slice(tree.as_bytes()));
            write_number(&mut bytes, listing.entries.len() as u64);
            for entry in &listing.entries {
                write_bytes(&mut bytes, &entry.name);
                write_what(&mut bytes, &entry.what);
            }
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the output of [`Self::encode`]; `None` if it is of another version or damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = body.strip_prefix(MAGIC)?;
        let generation = read_number(&mut rest)?;
        let begun = if read_byte(&mut rest)? == 0 { None } else { Some(read_time(&mut rest)?) };
        let unread = (0..read_number(&mut rest)?).map(|_| {
            let path = FilePath::from_bytes(read_bytes(&mut rest)?).ok()?;
            let inode = read_number(&mut rest)?;
            let past = if read_byte(&mut rest)? == 0 { Past::Known } else { Past::Elsewhere };
            Some((path, UnreadFile { inode, past }))
        });
        let unread = unread.collect::<Option<UnreadFiles>>()?;
        let count = read_number(&mut rest)?;
        let mut listings = HashMap::with_capacity(usize::try_from(count).ok()?.min(1 << 20));
        for _ in 0..count {
            let path = FilePath::from_bytes(read_bytes(&mut rest)?).ok()?;
            let rules = read_number(&mut rest)?;
            let key = read_key(&mut rest)?;
            let names = read_number(&mut rest)?.checked_sub(1);
            let tree = if read_byte(&mut rest)? == 0 { None } else { Some(read_id(&mut rest)?) };
            let entries = (0..read_number(&mut rest)?).map(|_| {
                let name = read_bytes(&mut rest)?.into();
                Some(Entry { name, what: read_what(&mut rest)? })
            });
            let entries = entries.collect::<Option<Vec<_>>>()?;
            listings.insert(path, Arc::new(Listing { rules, key, names, entries, tree }));
        }
        rest.is_empty().then_some(Self { generation, listings, are_trees_stored: true, begun, unread })
    }
}

fn write_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn write_bytes(bytes: &mut Vec<u8>, text: &[u8]) {
    write_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

fn write_key(bytes: &mut Vec<u8>, key: &FileKey) {
    write_number(bytes, key.inode);
    write_number(bytes, key.size);
    write_time(bytes, key.mtime);
    write_time(bytes, key.ctime);
    bytes.extend_from_slice(&key.mode.to_le_bytes());
}

fn write_time(bytes: &mut Vec<u8>, time: Time) {
    bytes.extend_from_slice(&time.seconds.to_le_bytes());
    bytes.extend_from_slice(&time.nanoseconds.to_le_bytes());
}

fn write_what(bytes: &mut Vec<u8>, what: &What) {
    match what {
        What::File { kind, id, key, links, trust, past } => {
            bytes.push(match kind {
                EntryKind::File => 0,
                EntryKind::Executable => 1,
                EntryKind::Symlink => 2,
                EntryKind::Directory => 3,
            });
            bytes.push(u8::from(*trust == Trust::Yes) | u8::from(*past == Past::Elsewhere) << 1);
            bytes.extend_from_slice(id.as_bytes());
            write_key(bytes, key);
            write_number(bytes, *links);
        }
        What::Directory => bytes.push(3),
        What::Ignored { is_directory } => bytes.push(if *is_directory { 5 } else { 4 }),
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

fn read_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest, N)?.try_into().ok()
}

fn read_byte(rest: &mut &[u8]) -> Option<u8> {
    read_array::<1>(rest).map(|[byte]| byte)
}

fn read_number(rest: &mut &[u8]) -> Option<u64> {
    read_array(rest).map(u64::from_le_bytes)
}

fn read_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(read_number(rest)?).ok()?;
    take(rest, len)
}

fn read_id(rest: &mut &[u8]) -> Option<ObjectId> {
    read_array::<ID_BYTES>(rest).map(ObjectId::from_array)
}

fn read_time(rest: &mut &[u8]) -> Option<Time> {
    let seconds = read_array(rest).map(i64::from_le_bytes)?;
    Some(Time { seconds, nanoseconds: read_array(rest).map(u32::from_le_bytes)? })
}

fn read_key(rest: &mut &[u8]) -> Option<FileKey> {
    Some(FileKey {
        inode: read_number(rest)?,
        size: read_number(rest)?,
        mtime: read_time(rest)?,
        ctime: read_time(rest)?,
        mode: read_array(rest).map(u32::from_le_bytes)?,
    })
}

fn read_what(rest: &mut &[u8]) -> Option<What> {
    let kind = match read_byte(rest)? {
        0 => EntryKind::File,
        1 => EntryKind::Executable,
        2 => EntryKind::Symlink,
        3 => return Some(What::Directory),
        4 => return Some(What::Ignored { is_directory: false }),
        5 => return Some(What::Ignored { is_directory: true }),
        _ => return None,
    };
    let marks = read_byte(rest)?;
    let trust = if marks & 1 == 1 { Trust::Yes } else { Trust::TooRecent };
    let past = if marks & 2 == 2 { Past::Elsewhere } else { Past::Known };
    Some(What::File { kind, trust, past, id: read_id(rest)?, key: read_key(rest)?, links: read_number(rest)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Kind, hash};

    fn sample() -> Cache {
        let time = Time { seconds: -5, nanoseconds: 7 };
        let key = FileKey { inode: 1, size: 2, mtime: time, ctime: time, mode: 0o100_644 };
        let id = hash(Kind::Blob, b"x");
        let what = What::File { kind: EntryKind::File, id, key, links: 1, trust: Trust::Yes, past: Past::Elsewhere };
        let entries = vec![
            Entry { name: b"a\n".as_slice().into(), what },
            Entry { name: b"b".as_slice().into(), what: What::Directory },
            Entry { name: b"c".as_slice().into(), what: What::Ignored { is_directory: true } },
        ];
        let listing = Listing { rules: 9, key, names: Some(3), entries, tree: Some(id) };
        let listings = HashMap::from([(FilePath::root(), Arc::new(listing))]);
        let unread = [("u", Past::Known), ("v", Past::Elsewhere)]
            .map(|(path, past)| (FilePath::from_bytes(path.as_bytes()).unwrap(), UnreadFile { inode: 7, past }));
        Cache { generation: 3, listings, are_trees_stored: true, begun: Some(time), unread: unread.into() }
    }

    #[test]
    fn a_cache_is_unchanged_after_saving_and_loading() {
        let read = Cache::decode(&sample().encode()).unwrap();
        assert_eq!((read.generation, read.begun, &read.listings), (3, sample().begun, &sample().listings));
        assert_eq!(read.unread, sample().unread);
    }

    #[test]
    fn the_names_of_a_directory_are_known_only_if_all_are_entries_and_its_key_is_trusted() {
        let listing = Arc::unwrap_or_clone(sample().listings.remove(&FilePath::root()).unwrap());
        let key = listing.key;
        assert!(listing.has_names_of(&key));
        let changed = FileKey { ctime: Time { seconds: -4, nanoseconds: 7 }, ..key };
        assert!(!listing.has_names_of(&changed));
        assert!(!Listing { names: None, ..listing.clone() }.has_names_of(&key));
        assert!(!Listing { names: Some(4), ..listing }.has_names_of(&key));
    }

    #[test]
    fn a_damaged_cache_is_ignored() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x40;
            assert!(Cache::decode(&broken).is_none());
            assert!(Cache::decode(&bytes[..at]).is_none());
        }
    }
}
