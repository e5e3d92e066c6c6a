//! Counts the bytes of a pack without writing it, so that a dry run announces exactly what a collection frees.

use super::pack::LARGE_OFFSET;
use super::writer::{HEADER, PackWriter, Packed, object_header};
use crate::error::Result;
use crate::object::ObjectId;

/// The bytes of an index without its entries: magic and version, the table of counts, and two checksums.
const INDEX_FIXED: u64 = 8 + 256 * 4 + 32 + 32;
/// The bytes of one entry: id, checksum and offset.
const INDEX_ENTRY: u64 = 32 + 4 + 4;
/// An offset that does not fit into its entry.
const INDEX_LARGE: u64 = 8;
const TRAILER: u64 = 32;

/// Takes the objects of a new pack.
pub(super) trait PackOutput {
    /// Returns the offset of the next object.
    fn offset(&self) -> u64;
    fn add(&mut self, object: &Packed<'_>) -> Result<()>;
    /// Adds an object as it is in another pack, including its header.
    fn add_raw(&mut self, id: ObjectId, bytes: &[u8]) -> Result<()>;
}

impl PackOutput for PackWriter {
    fn offset(&self) -> u64 {
        PackWriter::offset(self)
    }

    fn add(&mut self, object: &Packed<'_>) -> Result<()> {
        PackWriter::add(self, object)
    }

    fn add_raw(&mut self, id: ObjectId, bytes: &[u8]) -> Result<()> {
        PackWriter::add_raw(self, id, bytes)
    }
}

/// The size of a pack that is not written.
#[derive(Debug)]
pub(super) struct PackSize {
    len: u64,
    objects: u64,
    large_offsets: u64,
}

impl Default for PackSize {
    fn default() -> Self {
        Self { len: HEADER.len() as u64, objects: 0, large_offsets: 0 }
    }
}

impl PackSize {
    /// Returns the bytes of the pack and its index; none where nothing was added, because no pack is written then.
    pub(super) fn bytes(&self) -> u64 {
        if self.objects == 0 {
            return 0;
        }
        let index = INDEX_FIXED + self.objects * INDEX_ENTRY + self.large_offsets * INDEX_LARGE;
        self.len + TRAILER + index
    }

    fn count(&mut self, len: usize) {
        self.large_offsets += u64::from(self.len >= u64::from(LARGE_OFFSET));
        self.objects += 1;
        self.len += len as u64;
    }
}

impl PackOutput for PackSize {
    fn offset(&self) -> u64 {
        self.len
    }

    fn add(&mut self, object: &Packed<'_>) -> Result<()> {
        self.count(object_header(object, self.len).len() + object.compressed.len());
        Ok(())
    }

    fn add_raw(&mut self, _: ObjectId, bytes: &[u8]) -> Result<()> {
        self.count(bytes.len());
        Ok(())
    }
}
