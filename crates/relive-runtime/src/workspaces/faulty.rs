//! A disk on which removals of copies fail in the middle, for tests.

use std::sync::{Arc, LazyLock};

use relive_workspace::{Disk, Faults};

use crate::faults::is_on;

/// How many changes of the disk a removal is allowed: some files are removed, and not all.
const CHANGES: u64 = 5;

static FAULTS: LazyLock<Arc<Faults>> = LazyLock::new(Arc::default);

fn are_wanted() -> bool {
    is_on("failing-removal")
}

pub(super) fn disk() -> Disk {
    if are_wanted() { Disk::with_faults(Arc::clone(&FAULTS)) } else { Disk::new() }
}

pub(super) fn begin_removal() {
    if are_wanted() {
        FAULTS.stop_after(CHANGES);
    }
}

pub(super) fn end_removal() {
    FAULTS.allow_all();
}
