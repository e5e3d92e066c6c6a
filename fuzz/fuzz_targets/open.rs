//! Any bytes at all in the place of a journal: see `open_and_repair`, which the tests of `relive-journal` run too.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use relive_core::Uuid;
use relive_journal::data::SpaceRules;
use relive_journal::{DataDirectory, Io};
use tempfile::TempDir;

#[path = "../../crates/relive-journal/tests/it/open_and_repair.rs"]
mod open_and_repair;

thread_local! {
    static PLACE: (TempDir, DataDirectory) = place();
}

fn place() -> (TempDir, DataDirectory) {
    let memory = Path::new("/dev/shm");
    let temp = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
    let rules = SpaceRules { reserve_bytes: 0, floor_bytes: 0 };
    let data = DataDirectory::open(temp.path(), Io::default(), rules).unwrap();
    (temp, data)
}

fuzz_target!(|bytes: &[u8]| {
    PLACE.with(|(_, data)| {
        // As it is, which mostly tries the framing; and with checksums that fit, which tries what is behind it.
        open_and_repair::open_and_repair(data, Uuid::nil(), bytes);
        open_and_repair::open_and_repair(data, Uuid::nil(), &open_and_repair::reseal(bytes));
    });
});
