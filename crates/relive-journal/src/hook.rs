//! The hook between [`crate::Disk`] and the kernel: empty, or, in a `faults` build, the test's [`crate::faults`].

use std::fs::File;
use std::io;
use std::path::Path;
#[cfg(feature = "faults")]
use std::sync::Arc;

#[cfg(feature = "faults")]
use crate::faults::{Faults, Names};

/// One change to the disk.
#[derive(Debug)]
#[cfg_attr(not(feature = "faults"), expect(dead_code, reason = "only a faults build looks inside"))]
pub(crate) enum Op<'a> {
    Create { path: &'a Path },
    Write { file: &'a File, bytes: &'a [u8] },
    Overwrite { file: &'a File, bytes: &'a [u8] },
    Truncate { file: &'a File, len: u64 },
    Allocate,
    Sync { file: &'a File },
    SyncDir { path: &'a Path },
    Rename { from: &'a Path, to: &'a Path },
    Unlink { path: &'a Path },
    Mkdir { path: &'a Path },
}

/// Whether [`crate::Disk`] makes a change itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "faults"), expect(dead_code, reason = "only a faults build skips"))]
pub(crate) enum Verdict {
    Proceed,
    Skip,
}

#[cfg(not(feature = "faults"))]
#[derive(Debug, Clone, Default)]
pub(crate) struct Hook;

#[cfg(not(feature = "faults"))]
#[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the shape of the faults build")]
impl Hook {
    pub(crate) fn watches(&self) -> bool {
        false
    }

    pub(crate) fn before(&self, _op: &Op<'_>) -> io::Result<Verdict> {
        Ok(Verdict::Proceed)
    }

    pub(crate) fn after(&self, _op: &Op<'_>) {}

    pub(crate) fn offer<'a>(&self, _file: &File, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        Ok(bytes)
    }

    pub(crate) fn before_read(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn grants_every_lock(&self) -> bool {
        false
    }

    pub(crate) fn repairs(&self) -> bool {
        true
    }

    pub(crate) fn keeps_names_in_order(&self) -> Option<bool> {
        None
    }
}

#[cfg(feature = "faults")]
#[derive(Debug, Clone, Default)]
pub(crate) struct Hook(Option<Arc<Faults>>);

#[cfg(feature = "faults")]
impl Hook {
    /// Returns whether every byte must go through the hook.
    pub(crate) fn watches(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn new(faults: Arc<Faults>) -> Self {
        Self(Some(faults))
    }

    pub(crate) fn before(&self, op: &Op<'_>) -> io::Result<Verdict> {
        self.0.as_ref().map_or(Ok(Verdict::Proceed), |faults| faults.before(op))
    }

    pub(crate) fn after(&self, op: &Op<'_>) {
        if let Some(faults) = &self.0 {
            faults.after(op);
        }
    }

    /// Returns the part of a write that the kernel is offered.
    pub(crate) fn offer<'a>(&self, file: &File, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        self.0.as_ref().map_or(Ok(bytes), |faults| faults.offer(file, bytes))
    }

    pub(crate) fn before_read(&self, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |faults| faults.before_read(path))
    }

    pub(crate) fn grants_every_lock(&self) -> bool {
        self.0.as_ref().is_some_and(|faults| faults.switches().no_lock)
    }

    /// The order of names that a test sets, if there is one.
    pub(crate) fn keeps_names_in_order(&self) -> Option<bool> {
        self.0.as_ref().map(|faults| faults.switches().names != Names::Apart)
    }

    pub(crate) fn repairs(&self) -> bool {
        !self.0.as_ref().is_some_and(|faults| faults.switches().no_repair)
    }
}
