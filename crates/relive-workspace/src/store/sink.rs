//! Collects the new objects of a snapshot: compressed by any thread, written to one pack.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flate2::{Compress, Compression, FlushCompress, Status};

use super::Store;
use super::writer::{PackWriter, Packed, PackedKind, Reserve};
use crate::error::{Context as _, Result};
use crate::object::{Hasher, Kind, ObjectId, hash};

/// Fast: the model takes seconds, but the next tool call must not wait.
const LEVEL: Compression = Compression::new(1);
/// How much is read at once from a large file.
const WINDOW: usize = 256 << 10;

/// Compresses object after object with one set of buffers.
pub(crate) struct Deflater {
    state: Compress,
    output: Vec<u8>,
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").finish_non_exhaustive()
    }
}

impl Default for Deflater {
    fn default() -> Self {
        Self { state: Compress::new(LEVEL, true), output: Vec::new() }
    }
}

impl Deflater {
    pub(super) fn compress(&mut self, bytes: &[u8]) -> std::io::Result<&[u8]> {
        self.state.reset();
        self.output.clear();
        self.output.reserve(bytes.len() + bytes.len() / 512 + 64);
        self.push(bytes, FlushCompress::Finish)?;
        Ok(&self.output)
    }

    /// Compresses another piece; the result is appended to `output`.
    fn push(&mut self, mut bytes: &[u8], flush: FlushCompress) -> std::io::Result<()> {
        loop {
            self.output.reserve(4_096);
            let before = self.state.total_in();
            let status = self.state.compress_vec(bytes, &mut self.output, flush)?;
            let taken = usize::try_from(self.state.total_in() - before).unwrap_or(bytes.len());
            bytes = &bytes[taken..];
            let is_done = match status {
                Status::StreamEnd => true,
                Status::Ok | Status::BufError => {
                    bytes.is_empty()
                        && matches!(flush, FlushCompress::None)
                        && self.output.len() < self.output.capacity()
                }
            };
            if is_done {
                return Ok(());
            }
        }
    }
}

/// Collects the new objects of a snapshot.
#[derive(Debug)]
pub(crate) struct ObjectSink {
    store: Store,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    writer: Option<PackWriter>,
    added: HashSet<ObjectId>,
}

impl State {
    fn writer(&mut self, store: &Store) -> Result<&mut PackWriter> {
        if self.writer.is_none() {
            self.writer = Some(PackWriter::new(store, Reserve::Kept)?);
        }
        // Created above.
        self.writer.as_mut().ok_or_else(|| crate::Error::Busy { path: store.path().to_owned() })
    }
}

/// A file that is read in pieces.
pub(crate) struct LargeFile<'a> {
    pub(crate) file: &'a File,
    pub(crate) path: &'a Path,
    pub(crate) len: u64,
}

impl LargeFile<'_> {
    /// Passes every piece of the first `len` bytes to `each`; returns `false` if there are fewer.
    fn pieces(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let (mut window, mut at) = (vec![0; WINDOW], 0);
        while at < self.len {
            let want = usize::try_from(self.len - at).map_or(WINDOW, |left| left.min(WINDOW));
            match self.file.read_at(&mut window[..want], at).context("read", self.path)? {
                0 => return Ok(false),
                read => {
                    at += read as u64;
                    each(&window[..read])?;
                }
            }
        }
        Ok(true)
    }

    /// Computes the id of the first `len` bytes; `None` if there are fewer.
    pub(crate) fn hash(&self, mut check: impl FnMut() -> Result<()>) -> Result<Option<ObjectId>> {
        let mut hasher = Hasher::new(Kind::Blob, self.len);
        let is_whole = self.pieces(|bytes| {
            hasher.update(bytes);
            check()
        })?;
        Ok(is_whole.then(|| hasher.finish()))
    }
}

impl ObjectSink {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, id: ObjectId) -> bool {
        self.store.contains(id) || self.lock().added.contains(&id)
    }

    /// Adds an object unless the store has it.
    pub(crate) fn add(&self, kind: Kind, bytes: &[u8], deflater: &mut Deflater) -> Result<ObjectId> {
        let id = hash(kind, bytes);
        if self.has(id) {
            return Ok(id);
        }
        let compressed = deflater.compress(bytes).context("compress", self.store.path())?;
        let mut state = self.lock();
        if state.added.insert(id) {
            let kind = PackedKind::Whole(kind);
            state.writer(&self.store)?.add(&Packed { id, kind, size: bytes.len() as u64, compressed })?;
        }
        Ok(id)
    }

    /// Adds a file without holding it in memory; `None` if it becomes shorter in the meantime. The caller has to find
    /// out whether it changes otherwise.
    pub(crate) fn add_large(
        &self,
        large: &LargeFile<'_>,
        deflater: &mut Deflater,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<Option<ObjectId>> {
        let Some(id) = large.hash(&mut check)? else { return Ok(None) };
        if self.has(id) {
            return Ok(Some(id));
        }
        let mut state = self.lock();
        let writer = state.writer(&self.store)?;
        let mut pieces = writer.begin(large.len)?;
        let mut hasher = Hasher::new(Kind::Blob, large.len);
        deflater.state.reset();
        deflater.output.clear();
        let mut step = |bytes: &[u8], flush| {
            check()?;
            hasher.update(bytes);
            deflater.push(bytes, flush).context("compress", large.path)?;
            writer.append_piece(&mut pieces, &deflater.output)?;
            deflater.output.clear();
            Ok(())
        };
        let read = large.pieces(|bytes| step(bytes, FlushCompress::None));
        let is_whole = read.and_then(|is_whole| step(&[], FlushCompress::Finish).map(|()| is_whole));
        // It may have changed since it was first hashed.
        let id = hasher.finish();
        match is_whole {
            Ok(true) if !state.added.contains(&id) && !self.store.contains(id) => {
                state.writer(&self.store)?.end(pieces, id);
                state.added.insert(id);
                Ok(Some(id))
            }
            other => {
                state.writer(&self.store)?.take_back(&pieces)?;
                other.map(|is_whole| is_whole.then_some(id))
            }
        }
    }

    /// Adds everything to the store and syncs it.
    pub(crate) fn finish(self) -> Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.writer.map_or(Ok(()), |writer| writer.finish().map(drop))
    }

    /// Drops everything that was added.
    pub(crate) fn discard(self) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = state.writer {
            writer.discard();
        }
    }
}
