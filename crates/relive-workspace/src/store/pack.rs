//! Reads packs: Git's pack format version 2 and index version 2, with SHA-256 ids.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::{Decompress, FlushDecompress, Status};

use super::delta;
use crate::error::{Context as _, Error, Result};
use crate::object::{ID_BYTES, Kind, ObjectId};

/// The first bytes of an index.
pub(super) const INDEX_MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
const FANOUT: usize = INDEX_MAGIC.len();
const IDS: usize = FANOUT + 256 * 4;
/// Marks an offset that is in the table of large offsets.
pub(super) const LARGE_OFFSET: u32 = 1 << 31;
pub(super) const OFFSET_DELTA: u8 = 6;
const ID_DELTA: u8 = 7;
/// The longest chain of deltas that is followed. Relive's own chains are shorter, Git's have at most 4,095.
const CHAIN_MAX: usize = 4_096;
/// The largest object, so that a damaged length does not exhaust memory.
const OBJECT_MAX: u64 = 16 << 30;
/// How much compressed data is read at once.
const WINDOW: usize = 64 << 10;

thread_local! {
    /// Reused, because creating one costs more than inflating a small object.
    static INFLATER: RefCell<Decompress> = RefCell::new(Decompress::new(true));
}

/// A pack whose index is in memory.
#[derive(Debug)]
pub(super) struct Pack {
    path: PathBuf,
    index_path: PathBuf,
    /// Opened at the first read: most packs are only searched.
    file: OnceLock<File>,
    bytes: u64,
    index: Vec<u8>,
    count: usize,
    /// The offsets of all objects in order, to find where one ends.
    offsets: OnceLock<Vec<u64>>,
}

/// The start of an object in a pack.
struct Header {
    code: u8,
    size: u64,
    /// The offset of its compressed bytes.
    body: u64,
    base: Option<Base>,
}

enum Base {
    Offset(u64),
    Id(ObjectId),
}

impl Pack {
    /// Opens a pack by its index; `None` if either is gone.
    pub(super) fn open(index_path: &Path) -> Result<Option<Self>> {
        let path = index_path.with_extension("pack");
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let index = match std::fs::read(index_path) {
            Err(error) if gone(&error) => return Ok(None),
            other => other.context("read", index_path)?,
        };
        let bytes = match std::fs::metadata(&path) {
            Err(error) if gone(&error) => return Ok(None),
            other => other.context("look at", &path)?.len() + index.len() as u64,
        };
        let damaged = |what| Error::DamagedFile { path: index_path.to_owned(), what };
        if !index.starts_with(&INDEX_MAGIC) || index.len() < IDS {
            return Err(damaged("not a pack index"));
        }
        let count = read_u32(&index, FANOUT + 255 * 4) as usize;
        let fanout_grows = (1..256).all(|at| fanout(&index, at - 1) <= fanout(&index, at));
        if index.len() < IDS + count * (ID_BYTES + 8) + 2 * ID_BYTES || !fanout_grows {
            return Err(damaged("truncated"));
        }
        let index_path = index_path.to_owned();
        Ok(Some(Self { path, index_path, file: OnceLock::new(), bytes, index, count, offsets: OnceLock::new() }))
    }

    fn file(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = File::open(&self.path)?;
        Ok(self.file.get_or_init(|| file))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn index_path(&self) -> &Path {
        &self.index_path
    }

    /// Returns the bytes of the pack and its index.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn id(&self, at: usize) -> &[u8] {
        &self.index[IDS + at * ID_BYTES..][..ID_BYTES]
    }

    /// Returns every object of the pack.
    pub(super) fn ids(&self) -> impl Iterator<Item = ObjectId> {
        (0..self.count).filter_map(|at| ObjectId::from_slice(self.id(at)))
    }

    fn position(&self, id: ObjectId) -> Option<usize> {
        let first = usize::from(id.as_bytes()[0]);
        let mut low = if first == 0 { 0 } else { fanout(&self.index, first - 1) };
        let mut high = fanout(&self.index, first);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.id(middle).cmp(id.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    fn offset(&self, at: usize) -> u64 {
        let offsets = IDS + self.count * (ID_BYTES + 4);
        let short = read_u32(&self.index, offsets + at * 4);
        if short & LARGE_OFFSET == 0 {
            return u64::from(short);
        }
        let large = offsets + self.count * 4 + (short & !LARGE_OFFSET) as usize * 8;
        self.index
            .get(large..large + 8)
            .map_or(u64::MAX, |bytes| bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    /// Returns the offset of the object.
    pub(super) fn find(&self, id: ObjectId) -> Option<u64> {
        self.position(id).map(|at| self.offset(at))
    }

    /// Reads the object at an offset, resolving deltas.
    pub(super) fn read(&self, offset: u64) -> io::Result<(Kind, Vec<u8>)> {
        let (mut at, mut deltas) = (offset, Vec::new());
        loop {
            let header = self.header(at)?;
            let bytes = self.inflate(header.body, header.size)?;
            let base = match header.base {
                None => {
                    let kind = Kind::from_code(header.code).ok_or_else(damaged)?;
                    let whole = deltas.iter().rev().try_fold(bytes, |base, delta: &Vec<u8>| delta::apply(&base, delta));
                    return Ok((kind, whole.ok_or_else(damaged)?));
                }
                Some(Base::Offset(base)) => base,
                Some(Base::Id(id)) => self.find(id).ok_or_else(damaged)?,
            };
            if deltas.len() >= CHAIN_MAX {
                return Err(damaged());
            }
            deltas.push(bytes);
            at = base;
        }
    }

    /// Returns the bytes of an object as they are in the pack, including the header; `None` if it is a delta.
    pub(super) fn raw(&self, id: ObjectId) -> io::Result<Option<Vec<u8>>> {
        let at = self.position(id).ok_or_else(damaged)?;
        let offset = self.offset(at);
        if self.header(offset)?.base.is_some() {
            return Ok(None);
        }
        let offsets = self.offsets.get_or_init(|| {
            let mut offsets: Vec<u64> = (0..self.count).map(|at| self.offset(at)).collect();
            offsets.sort_unstable();
            offsets
        });
        let next = offsets.partition_point(|&other| other <= offset);
        let end = match offsets.get(next) {
            Some(&end) => end,
            None => self.file()?.metadata()?.len().saturating_sub(ID_BYTES as u64),
        };
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(offset)).map_err(|_| damaged())?];
        self.file()?.read_exact_at(&mut bytes, offset)?;
        let crc = read_u32(&self.index, IDS + self.count * ID_BYTES + at * 4);
        if crc32fast::hash(&bytes) != crc {
            return Err(damaged());
        }
        Ok(Some(bytes))
    }

    fn header(&self, offset: u64) -> io::Result<Header> {
        let mut buffer = [0; 64];
        let read = self.file()?.read_at(&mut buffer, offset)?;
        let mut bytes = buffer[..read].iter().copied();
        let first = bytes.next().ok_or_else(damaged)?;
        let (code, mut size, mut shift, mut more) = (first >> 4 & 7, u64::from(first & 15), 4, first & 0x80 != 0);
        while more {
            let byte = bytes.next().ok_or_else(damaged)?;
            size |= u64::from(byte & 0x7f).checked_shl(shift).ok_or_else(damaged)?;
            shift += 7;
            more = byte & 0x80 != 0;
        }
        let base = match code {
            OFFSET_DELTA => {
                let back = delta::read_offset(&mut bytes).filter(|&back| back > 0).ok_or_else(damaged)?;
                Some(Base::Offset(offset.checked_sub(back).ok_or_else(damaged)?))
            }
            ID_DELTA => {
                let id: Vec<u8> = bytes.by_ref().take(ID_BYTES).collect();
                Some(Base::Id(ObjectId::from_slice(&id).ok_or_else(damaged)?))
            }
            _ => None,
        };
        if size > OBJECT_MAX {
            return Err(damaged());
        }
        let taken = (read - bytes.len()) as u64;
        Ok(Header { code, size, body: offset + taken, base })
    }

    fn inflate(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        INFLATER.with_borrow_mut(|inflater| {
            inflater.reset(true);
            self.inflate_with(inflater, offset, size)
        })
    }

    fn inflate_with(&self, inflater: &mut Decompress, mut offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let size = usize::try_from(size).map_err(|_| damaged())?;
        // A damaged length must not allocate more than there is.
        let mut whole = Vec::with_capacity(size.clamp(64, 1 << 20));
        let mut window = vec![0; (size + size / 256 + 64).min(WINDOW)];
        loop {
            let read = self.file()?.read_at(&mut window, offset)?;
            let mut input = &window[..read];
            loop {
                if whole.len() == whole.capacity() {
                    whole.reserve(whole.len().min(size.saturating_sub(whole.len())).max(64));
                }
                let before = (inflater.total_in(), inflater.total_out());
                let status = inflater.decompress_vec(input, &mut whole, FlushDecompress::None)?;
                let taken = inflater.total_in() - before.0;
                input = &input[usize::try_from(taken).map_err(|_| damaged())?..];
                offset += taken;
                if status == Status::StreamEnd {
                    return if whole.len() == size { Ok(whole) } else { Err(damaged()) };
                }
                if whole.len() > size || (read == 0 && inflater.total_out() == before.1) {
                    return Err(damaged());
                }
                if input.is_empty() && whole.len() < whole.capacity() {
                    break;
                }
            }
        }
    }
}

fn damaged() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

fn fanout(index: &[u8], first: usize) -> usize {
    read_u32(index, FANOUT + first * 4) as usize
}
