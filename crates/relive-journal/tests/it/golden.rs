//! Files as version 1 writes them. They are never written again: a change of the format that cannot read them fails.
//!
//! `RELIVE_BLESS_GOLDEN=1 cargo test -p relive-journal -- --ignored bless_golden` makes them, and prints their hashes.

use std::path::{Path, PathBuf};

use relive_core::{Limits, Pid, ProcessStatus, Timestamp, Uuid};
use relive_journal::data::{ClockReading, ForkPoint, GcReason, GcRules, Known};
use relive_journal::events::Gap;
use relive_journal::history::{CallState, Phase};
use relive_journal::payload::Blobs;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::Body;
use relive_journal::recovery::Recovery;
use relive_journal::{Disk, Hash, Health, Io, JournalState, Next, ProcInfo, ProcessMeta};

use crate::support::{
    Fixture, append, call_started, completed, copy_tree, every_kind, files, input, lines, model_ended, model_started,
    now, open, put_after, remove, spawn_request, step, temp, uuid_of,
};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// Every golden journal, for tests that mutate them.
pub(crate) fn journals() -> Vec<Vec<u8>> {
    let journals = files(&golden()).into_iter().filter(|(path, _)| path.ends_with("steps.jsonl"));
    journals.map(|(_, bytes)| bytes).collect()
}

fn uuid_at(millisecond: i64) -> Uuid {
    relive_core::uuid_v7(Timestamp::from_millisecond(millisecond).unwrap(), [7; 10])
}

const ORIGINAL: i64 = 1_700_000_000_000;
const COLLECTED: i64 = 1_700_000_000_001;
const FORK: i64 = 1_700_000_000_002;
