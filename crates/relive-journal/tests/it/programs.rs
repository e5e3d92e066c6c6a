//! What the beginning and the end of a program cost, and that a power cut finds both.

use std::sync::Arc;

use relive_core::Uuid;
use relive_journal::data::SpawnRequest;
use relive_journal::faults::{Faults, Injection, Names, PowerCut, Switches};
use relive_journal::{DataDirectory, Disk, Io, Writer};

use crate::support::{append, completed, open, spawn_request, uuid};

/// A data directory on a disk that treats names like this.
fn on_disk_with(names: Names) -> (tempfile::TempDir, Arc<Faults>, DataDirectory) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("data");
    Disk::new().mkdir(&root).unwrap();
    let switches = Switches { names, ..Switches::default() };
    let faults = Arc::new(Faults::new(&root, Injection::None, switches).unwrap());
    let data = open(&root, Io::new(Disk::with_faults(Arc::clone(&faults))));
    (temp, faults, data)
}

fn begin(data: &DataDirectory) -> (Uuid, Writer) {
    let uuid = uuid();
    let request = SpawnRequest { meta: None, ..spawn_request(uuid, data.next_pid().unwrap()) };
    (uuid, data.spawn(request).unwrap())
}

/// The syncs of a program's beginning, and of its end.
fn costs(data: &DataDirectory) -> (u64, u64) {
    data.reserve_pids(1).unwrap();
    let disk = &data.io().disk;
    let before = disk.counts();
    let (uuid, mut writer) = begin(data);
    let begun = disk.counts();
    append(&mut writer, vec![completed()]);
    data.retire(uuid, writer.history()).unwrap();
    (begun.since(before).syncs, disk.counts().since(begun).syncs)
}

#[test]
fn a_program_costs_two_syncs_to_begin_and_one_to_end() {
    assert_eq!(costs(&on_disk_with(Names::InOrder).2), (2, 1));
}

#[test]
fn a_disk_nobody_knows_costs_a_program_two_syncs_more() {
    assert_eq!(costs(&on_disk_with(Names::Apart).2), (4, 1));
}

/// Its marker in `live/` was not synced: the one beside its history was.
#[test]
fn a_program_that_has_begun_is_live_after_a_power_cut() {
    let (temp, faults, data) = on_disk_with(Names::InOrder);
    let (uuid, _writer) = begin(&data);
    let cut = temp.path().join("cut");
    faults.power_cut(&cut, PowerCut::Strict).unwrap();
    assert!(!cut.join("live").join(uuid.to_string()).exists(), "the marker was synced after all");
    let after = open(&cut, Io::default());
    let live: Vec<Uuid> = after.live().unwrap().into_iter().map(|live| live.uuid).collect();
    assert_eq!(live, [uuid]);
    assert!(after.is_marked(uuid));
}

#[test]
fn a_program_that_has_ended_leaves_no_marker() {
    let (_temp, _faults, data) = on_disk_with(Names::InOrder);
    let (uuid, mut writer) = begin(&data);
    append(&mut writer, vec![completed()]);
    data.retire(uuid, writer.history()).unwrap();
    let left: Vec<_> = ["steps", "live"]
        .iter()
        .flat_map(|name| std::fs::read_dir(data.root().join(name)).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, [uuid.to_string()]);
}
