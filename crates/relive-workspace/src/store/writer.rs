//! Writes a pack and its index.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

use super::pack::{INDEX_MAGIC, LARGE_OFFSET, OFFSET_DELTA};
use super::{Store, TEMPORARY, delta, open_directory};
use crate::error::{Context as _, Error, Result};
use crate::object::{self, Kind, ObjectId};

/// `PACK`, version 2, and space for the number of objects.
pub(super) const HEADER: [u8; 12] = *b"PACK\0\0\0\x02\0\0\0\0";
const COUNT_AT: u64 = 8;
/// How much is written at once.
const BUFFER: usize = 1 << 20;
/// The free space is checked again after this many bytes.
const SPACE_EVERY: u64 = 64 << 20;

/// A pack that is being written. It becomes part of the store with [`PackWriter::finish`].
#[derive(Debug)]
pub(super) struct PackWriter {
    store: Store,
    directory: OwnedFd,
    path: PathBuf,
    temporary: String,
    file: File,
    buffer: Vec<u8>,
    /// The length of the pack so far, including the buffer.
    len: u64,
    space_checked_at: u64,
    reserve: Reserve,
    entries: Vec<Entry>,
}

/// Whether the space that has to stay free does so while a pack is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserve {
    Kept,
    /// The pack replaces a larger one.
    Used,
}

#[derive(Debug)]
struct Entry {
    id: ObjectId,
    offset: u64,
    crc: u32,
}

/// An object to write: its kind, its length, and its compressed bytes.
pub(super) struct Packed<'a> {
    pub(super) id: ObjectId,
    pub(super) kind: PackedKind,
    pub(super) size: u64,
    pub(super) compressed: &'a [u8],
}

pub(super) enum PackedKind {
    Whole(Kind),
    /// A delta against the object at this offset of the same pack.
    Delta(u64),
}

impl PackWriter {
    pub(super) fn new(store: &Store, reserve: Reserve) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if reserve == Reserve::Kept {
            store.check_space(0)?;
        }
        let path = store.pack_directory();
        let directory = open_directory(&path)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("{TEMPORARY}{}_{number}", std::process::id());
        let file = store.disk().create(&directory, &*temporary).context("create", &path.join(&temporary))?;
        let (buffer, len) = (HEADER.to_vec(), HEADER.len() as u64);
        Ok(Self {
            store: store.clone(),
            directory,
            path,
            temporary,
            file,
            buffer,
            len,
            space_checked_at: 0,
            reserve,
            entries: Vec::new(),
        })
    }

    /// Returns the offset of the next object.
    pub(super) fn offset(&self) -> u64 {
        self.len
    }

    pub(super) fn add(&mut self, object: &Packed<'_>) -> Result<()> {
        let header = object_header(object, self.len);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header);
        crc.update(object.compressed);
        let offset = self.len;
        self.append(&header)?;
        self.append(object.compressed)?;
        self.entries.push(Entry { id: object.id, offset, crc: crc.finalize() });
        Ok(())
    }

    /// Adds an object as it is in another pack, including its header.
    pub(super) fn add_raw(&mut self, id: ObjectId, bytes: &[u8]) -> Result<()> {
        let offset = self.len;
        self.append(bytes)?;
        self.entries.push(Entry { id, offset, crc: crc32fast::hash(bytes) });
        Ok(())
    }

    /// Starts an object whose compressed bytes arrive in pieces.
    pub(super) fn begin(&mut self, size: u64) -> Result<Pieces> {
        let mut header = Vec::new();
        write_header(&mut header, Kind::Blob.code(), size);
        let mut pieces = Pieces { offset: self.len, crc: crc32fast::Hasher::new() };
        self.append_piece(&mut pieces, &header)?;
        Ok(pieces)
    }

    pub(super) fn append_piece(&mut self, pieces: &mut Pieces, bytes: &[u8]) -> Result<()> {
        pieces.crc.update(bytes);
        self.append(bytes)
    }

    pub(super) fn end(&mut self, pieces: Pieces, id: ObjectId) {
        self.entries.push(Entry { id, offset: pieces.offset, crc: pieces.crc.finalize() });
    }

    /// Removes an object whose pieces turned out to be useless.
    pub(super) fn take_back(&mut self, pieces: &Pieces) -> Result<()> {
        self.flush()?;
        self.store.disk().truncate(&self.file, pieces.offset).context("cut", &self.path)?;
        self.len = pieces.offset;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        if self.buffer.len() < BUFFER {
            return Ok(());
        }
        if self.reserve == Reserve::Kept && self.len - self.space_checked_at > SPACE_EVERY {
            self.store.check_space(0)?;
            self.space_checked_at = self.len;
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.store.disk().write(&self.file, &self.buffer).context("write", &self.path.join(&self.temporary))?;
        self.buffer.clear();
        Ok(())
    }

    fn temporary_index(&self) -> String {
        format!("{}.idx", self.temporary)
    }

    /// Abandons the pack.
    pub(super) fn discard(self) {
        // A file that cannot be removed now is removed when the store is opened the next time.
        let _ = self.store.disk().unlink(&self.directory, &*self.temporary);
        let _ = self.store.disk().unlink(&self.directory, self.temporary_index());
    }

    /// Writes the rest and the index, syncs, and renames both. Returns the pack's name without its extension, or `None`
    /// if there was nothing to write.
    pub(super) fn finish(mut self) -> Result<Option<OsString>> {
        if self.entries.is_empty() {
            self.discard();
            return Ok(None);
        }
        match self.write_out() {
            Ok(name) => {
                self.store.refresh()?;
                Ok(Some(name.into()))
            }
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    fn write_out(&mut self) -> Result<String> {
        let disk = self.store.disk().clone();
        let count = u32::try_from(self.entries.len())
            .map_err(|_| Error::DamagedFile { path: self.path.clone(), what: "too many objects for one pack" })?;
        self.flush()?;
        let path = self.path.join(&self.temporary);
        disk.write_at(&self.file, &count.to_be_bytes(), COUNT_AT).context("write", &path)?;
        let trailer = self.checksum().context("read", &path)?;
        disk.write(&self.file, &trailer).context("write", &path)?;
        disk.sync(&self.file).context("sync", &path)?;

        let index = encode_index(&mut self.entries, &trailer);
        let temporary_index = self.temporary_index();
        let written = disk.create(&self.directory, &*temporary_index).and_then(|file| {
            disk.write(&file, &index)?;
            disk.sync(&file)
        });
        written.context("write", &self.path.join(&temporary_index))?;
        let name = format!("pack-{}", ObjectId::from_array(trailer));
        // The index makes the pack visible, so it comes last.
        disk.rename(&self.directory, &*self.temporary, format!("{name}.pack"))
            .and_then(|()| disk.rename(&self.directory, &*temporary_index, format!("{name}.idx")))
            .and_then(|()| disk.sync_directory(&self.directory))
            .context("rename", &path)?;
        Ok(name)
    }

    /// Computes the checksum at the end, because the header is written last.
    fn checksum(&self) -> io::Result<[u8; 32]> {
        let (mut hash, mut at, mut window) = (Sha256::new(), 0, vec![0; BUFFER]);
        while at < self.len {
            let want = usize::try_from(self.len - at).map_or(BUFFER, |left| left.min(BUFFER));
            self.file.read_exact_at(&mut window[..want], at)?;
            hash.update(&window[..want]);
            at += want as u64;
        }
        Ok(hash.finalize().into())
    }
}

/// An object that is being written piece by piece.
#[derive(Debug)]
pub(super) struct Pieces {
    offset: u64,
    crc: crc32fast::Hasher,
}

/// Returns the bytes in front of an object that is added at `offset`.
pub(super) fn object_header(object: &Packed<'_>, offset: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(24);
    match object.kind {
        PackedKind::Whole(kind) => write_header(&mut header, kind.code(), object.size),
        PackedKind::Delta(base) => {
            write_header(&mut header, OFFSET_DELTA, object.size);
            delta::write_offset(&mut header, offset - base);
        }
    }
    header
}

fn write_header(bytes: &mut Vec<u8>, code: u8, size: u64) {
    let mut byte = code << 4 | (size & 15) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        bytes.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    bytes.push(byte);
}

fn encode_index(entries: &mut [Entry], trailer: &[u8; 32]) -> Vec<u8> {
    entries.sort_unstable_by_key(|entry| entry.id);
    let mut index = Vec::with_capacity(1_100 + entries.len() * 40);
    index.extend_from_slice(&INDEX_MAGIC);
    let mut counts = [0_u32; 256];
    entries.iter().for_each(|entry| counts[usize::from(entry.id.as_bytes()[0])] += 1);
    let mut total = 0;
    for count in counts {
        total += count;
        index.extend_from_slice(&total.to_be_bytes());
    }
    entries.iter().for_each(|entry| index.extend_from_slice(entry.id.as_bytes()));
    entries.iter().for_each(|entry| index.extend_from_slice(&entry.crc.to_be_bytes()));
    let mut large: Vec<u64> = Vec::new();
    for entry in &*entries {
        let short = match u32::try_from(entry.offset) {
            Ok(offset) if offset < LARGE_OFFSET => offset,
            _ => {
                large.push(entry.offset);
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "fewer than the objects, which are counted in 32 bits"
                )]
                let place = (large.len() - 1) as u32;
                LARGE_OFFSET | place
            }
        };
        index.extend_from_slice(&short.to_be_bytes());
    }
    large.iter().for_each(|offset| index.extend_from_slice(&offset.to_be_bytes()));
    index.extend_from_slice(trailer);
    let checksum = object::checksum(&index);
    index.extend_from_slice(&checksum);
    index
}
