//! Garbage collection and packing.

use std::fs;

use relive_workspace::{Control, Disk, Error, Removal, Settings, Snapshot, Store};

use crate::support::{Bed, bed, look, shell};

/// A file system in memory, unmounted when it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Returns `None`, and says so, where this user may not mount anything.
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(directory.path())
            .status();
        if mount.is_ok_and(|status| status.success()) {
            return Some(Self(directory));
        }
        eprintln!("skipped: only root can mount a small disk");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn steps(bed: &mut Bed, count: usize) -> Vec<Snapshot> {
    (0..30).for_each(|number| bed.write(&format!("d{}/f{number}", number % 5), format!("{number}\n").repeat(200)));
    let mut snapshots = Vec::new();
    for step in 0..count {
        let name = format!("d{}/f{}", step % 5, step % 30);
        let text = if bed.path(&name).exists() { bed.read(&name) } else { String::new() };
        bed.write(&name, format!("{text}step {step}\n"));
        snapshots.push(bed.snapshot());
    }
    snapshots
}

#[test]
fn a_collection_keeps_only_live_objects() {
    let mut bed = bed();
    let snapshots = steps(&mut bed, 40);
    let states: Vec<_> =
        snapshots.iter().map(|snapshot| bed.git(&["ls-tree", "-r", &snapshot.tree.to_string()])).collect();
    let planned = bed.store.collect(&snapshots[20..], Removal::DryRun, &Control::default()).unwrap();
    assert!(planned.garbage > 0 && planned.bytes_after < planned.bytes_before && bed.store.pack_count() == 40);
    let done = bed.store.collect(&snapshots[20..], Removal::Remove, &Control::default()).unwrap();
    assert_eq!((planned, done.missing, bed.store.pack_count()), (done, 0, 1), "a dry run says what a collection does");
    assert!(done.bytes_after < done.bytes_before / 5, "{done:?}");
    for (snapshot, state) in snapshots.iter().zip(&states).skip(20) {
        assert_eq!(&bed.git(&["ls-tree", "-r", &snapshot.tree.to_string()]), state);
    }
    bed.git(&["fsck", "--full", "--strict", "--no-dangling"]);
    assert!(matches!(bed.store.diff(&snapshots[0], &snapshots[30]), Err(Error::Missing(_))));
    bed.restore(&snapshots[25]);
    // A second one has nothing to do.
    let inode = |bed: &Bed| fs::read_dir(bed.store.path().join("objects/pack")).unwrap().count();
    let before = inode(&bed);
    let planned = bed.store.collect(&snapshots[20..], Removal::DryRun, &Control::default()).unwrap();
    let again = bed.store.collect(&snapshots[20..], Removal::Remove, &Control::default()).unwrap();
    assert_eq!((planned, again.missing, inode(&bed)), (again, 0, before));
    // Without anything to keep, no pack is left.
    let planned = bed.store.collect(&[], Removal::DryRun, &Control::default()).unwrap();
    assert_eq!(bed.store.collect(&[], Removal::Remove, &Control::default()).unwrap(), planned);
}

#[test]
fn a_cache_forgets_collected_objects() {
    let mut bed = bed();
    bed.write("a/b", "one");
    bed.write("c/d", "two");
    std::thread::sleep(std::time::Duration::from_millis(40));
    let first = bed.snapshot();
    bed.snapshot();
    let collected = bed.store.collect(&[], Removal::Remove, &Control::default()).unwrap();
    assert!(collected.garbage > 0 && collected.bytes_after == 0, "{collected:?}");
    let again = bed.snapshot();
    assert_eq!(again, first);
    bed.git(&["ls-tree", "-r", &again.tree.to_string()]);
    bed.git(&["fsck", "--full", "--no-dangling"]);
    bed.remove("a/b");
    bed.restore(&again);
    assert_eq!(bed.read("a/b"), "one");
}

/// Returns the names and sizes of all packs.
fn packs(bed: &Bed) -> Vec<(std::ffi::OsString, u64)> {
    let entries = fs::read_dir(bed.store.path().join("objects/pack")).unwrap();
    let mut packs: Vec<_> =
        entries.map(|entry| entry.unwrap()).map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).collect();
    packs.sort();
    packs
}

#[test]
fn nothing_is_collected_while_a_pack_or_a_tree_cannot_be_read() {
    let mut bed = bed();
    bed.write("d/a", "one");
    bed.snapshot();
    let before = packs(&bed);
    // The trees of the second snapshot are in the second pack, the content of `d/a` is only in the first.
    bed.write("b", "two");
    let second = bed.snapshot();
    let after = packs(&bed);
    let is_index = |name: &std::ffi::OsString| name.to_str().unwrap().ends_with(".idx");
    let new = after.iter().find(|pack| is_index(&pack.0) && !before.contains(pack)).unwrap();
    let index = bed.store.path().join("objects/pack").join(&new.0);
    let (bytes, gone) = (fs::read(&index).unwrap(), index.with_extension("gone"));
    for damage in ["damaged", "pack gone", "both gone"] {
        match damage {
            "damaged" => fs::write(&index, &bytes[..bytes.len() / 2]).unwrap(),
            "pack gone" => fs::rename(index.with_extension("pack"), &gone).unwrap(),
            _ => {
                fs::rename(index.with_extension("pack"), &gone).unwrap();
                fs::remove_file(&index).unwrap();
            }
        }
        let kept = packs(&bed);
        let store = Store::open(bed.store.path(), Disk::new(), 0).unwrap();
        for removal in [Removal::DryRun, Removal::Remove] {
            let refused = store.collect(&[second], removal, &Control::default()).unwrap_err();
            assert!(matches!(refused, Error::DamagedFile { .. } | Error::Missing(_)), "{damage}: {refused}");
        }
        assert_eq!(packs(&bed), kept, "{damage}");
        if gone.exists() {
            fs::rename(&gone, index.with_extension("pack")).unwrap();
        }
        fs::write(&index, &bytes).unwrap();
        let store = Store::open(bed.store.path(), Disk::new(), 0).unwrap();
        assert!(store.diff(&second, &second).unwrap().is_empty(), "nothing was lost");
    }
    bed.store.collect(&[second], Removal::Remove, &Control::default()).unwrap();
    bed.git(&["fsck", "--full", "--no-dangling"]);
}

#[test]
fn nothing_is_collected_while_a_snapshot_is_pinned() {
    let mut bed = bed();
    bed.write("a", "one");
    let taken = bed.take();
    assert!(matches!(bed.store.collect(&[], Removal::Remove, &Control::default()), Err(Error::Busy { .. })));
    let snapshot = taken.snapshot;
    drop(taken);
    bed.store.collect(&[snapshot], Removal::Remove, &Control::default()).unwrap();
    assert_eq!(bed.ls_tree(&snapshot), ["a"]);
}

#[test]
fn packing_makes_one_pack_and_loses_nothing() {
    let mut bed = bed();
    let snapshots = steps(&mut bed, 10);
    bed.store.pack(&Control::default()).unwrap();
    assert_eq!(bed.store.pack_count(), 1);
    for snapshot in &snapshots {
        bed.git(&["ls-tree", "-r", &snapshot.tree.to_string()]);
    }
    bed.restore(&snapshots[3]);
    bed.git(&["fsck", "--full", "--no-dangling"]);
}

#[test]
fn many_small_packs_are_merged() {
    let mut bed = bed();
    let snapshots = steps(&mut bed, 140);
    assert!(bed.store.pack_count() <= 66, "{}", bed.store.pack_count());
    bed.restore(&snapshots[0]);
}

#[test]
fn another_process_finds_objects_packed_in_the_meantime() {
    let mut bed = bed();
    let snapshots = steps(&mut bed, 5);
    let other = Store::open(bed.store.path(), Disk::new(), 0).unwrap();
    bed.store.collect(&snapshots, Removal::Remove, &Control::default()).unwrap();
    assert!(!other.diff(&snapshots[0], &snapshots[4]).unwrap().is_empty());
    bed.write("later", "x");
    let later = bed.snapshot();
    assert!(!other.diff(&snapshots[0], &later).unwrap().is_empty());
}

#[test]
fn files_left_behind_by_killed_writers_are_removed() {
    let mut bed = bed();
    bed.write("a", "one");
    let snapshot = bed.snapshot();
    let packs = bed.store.path().join("objects/pack");
    fs::write(packs.join("tmp_1_1"), "half").unwrap();
    fs::write(packs.join("tmp_1_1.idx"), "half").unwrap();
    fs::write(packs.join("pack-without-index.pack"), "half").unwrap();
    let store = Store::open(bed.store.path(), Disk::new(), 0).unwrap();
    assert_eq!(fs::read_dir(&packs).unwrap().count(), 2);
    assert!(store.diff(&snapshot, &snapshot).unwrap().is_empty());
}

#[test]
fn a_damaged_object_is_an_error_and_never_returned() {
    let mut bed = bed();
    bed.write("a", "some text that is long enough to be damaged somewhere in the middle of it\n".repeat(20));
    let snapshot = bed.snapshot();
    bed.write("a", "other");
    let mut packs = fs::read_dir(bed.store.path().join("objects/pack")).unwrap().map(|entry| entry.unwrap().path());
    let pack = packs.find(|path| path.extension().is_some_and(|end| end == "pack")).unwrap();
    let bytes = fs::read(&pack).unwrap();
    let mut damaged = 0;
    for at in 12..bytes.len() - 32 {
        let mut broken = bytes.clone();
        broken[at] ^= 0x10;
        fs::write(&pack, &broken).unwrap();
        match bed.try_restore(&snapshot) {
            Err(Error::DamagedObject { .. } | Error::Missing(_)) => damaged += 1,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("byte {at} was not needed"),
        }
        assert_eq!(bed.read("a"), "other", "nothing is written");
    }
    assert!(damaged > 50);
}

#[test]
fn a_damaged_object_does_not_stop_the_snapshots_to_come() {
    let mut bed = bed();
    bed.write("a", "some text that is long enough to be damaged somewhere in the middle of it\n".repeat(20));
    bed.snapshot();
    let mut packs = fs::read_dir(bed.store.path().join("objects/pack")).unwrap().map(|entry| entry.unwrap().path());
    let pack = packs.find(|path| path.extension().is_some_and(|end| end == "pack")).unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    bytes[20] ^= 0x10;
    fs::write(&pack, &bytes).unwrap();
    let snapshots = steps(&mut bed, 120);
    assert_eq!(snapshots.len(), 120);
    bed.write("a", "new");
    bed.snapshot();
}

#[test]
fn a_disk_without_free_space_is_refused_before_writing() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), Disk::new(), u64::MAX / 2).unwrap();
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a"), "x").unwrap();
    let mut workspace = relive_workspace::Workspace::open(&store, root.path(), Settings::default()).unwrap();
    assert!(matches!(workspace.snapshot(&Control::default()), Err(Error::NoSpace { .. })));
    assert_eq!(fs::read_dir(directory.path().join("objects/pack")).unwrap().count(), 0);
}

#[test]
fn a_full_disk_leaves_the_store_unchanged() {
    let Some(disk) = SmallDisk::mount("1m") else { return };
    let directory = &disk.0;
    let store = Store::open(&directory.path().join("store"), Disk::new(), 0).unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut workspace = relive_workspace::Workspace::open(&store, root.path(), Settings::default()).unwrap();
    fs::write(root.path().join("small"), "x").unwrap();
    let first = workspace.snapshot(&Control::default()).unwrap().snapshot;
    let before = look(store.path());
    shell(root.path(), "head -c 3000000 /dev/urandom > large; head -c 3000 /dev/urandom > other");
    let error = workspace.snapshot(&Control::default()).unwrap_err();
    assert!(matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull), "{error}");
    assert_eq!(look(store.path()), before);
    fs::remove_file(root.path().join("large")).unwrap();
    let second = workspace.snapshot(&Control::default()).unwrap().snapshot;
    assert_eq!(store.diff(&first, &second).unwrap().len(), 1);
}

#[test]
fn a_collection_needs_no_reserve() {
    let mut bed = bed();
    bed.write("small", "x");
    shell(&bed.root, "head -c 3000000 /dev/urandom > large");
    let both = bed.snapshot();
    fs::remove_file(bed.path("large")).unwrap();
    let small = bed.snapshot();
    bed.write("small", "y");
    bed.snapshot();
    // All that is free is kept free.
    let store = Store::open(bed.store.path(), Disk::new(), u64::MAX / 2).unwrap();
    let done = store.collect(&[small], Removal::Remove, &Control::default()).unwrap();
    assert_eq!(done.blocked_bytes, 0);
    assert!(done.bytes_before > 3_000_000 && done.bytes_after < 10_000, "{done:?}");
    assert!(matches!(store.diff(&both, &small), Err(Error::Missing(_))));
    bed.restore(&small);
    assert_eq!(bed.read("small"), "x");
    bed.git(&["fsck", "--full", "--strict", "--no-dangling"]);
}

/// Two that take snapshots at once can both store an object.
#[test]
fn a_dry_run_keeps_one_of_the_copies_of_an_object() {
    let (mut bed, mut other) = (bed(), bed());
    shell(&bed.root, "head -c 200000 /dev/urandom > kept");
    fs::copy(bed.path("kept"), other.path("kept")).unwrap();
    let last = bed.snapshot();
    for bed in [&mut bed, &mut other] {
        shell(&bed.root, "head -c 100000 /dev/urandom > garbage");
        bed.snapshot();
        bed.store.pack(&Control::default()).unwrap();
    }
    for entry in fs::read_dir(other.store.path().join("objects/pack")).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), bed.store.path().join("objects/pack").join(entry.file_name())).unwrap();
    }
    // There is no space to write both packs anew at once.
    let store = Store::open(bed.store.path(), Disk::new(), u64::MAX / 2).unwrap();
    let planned = store.collect(&[last], Removal::DryRun, &Control::default()).unwrap();
    let done = store.collect(&[last], Removal::Remove, &Control::default()).unwrap();
    assert_eq!(planned, done);
    assert!((200_000..250_000).contains(&done.bytes_after), "{done:?}");
}

#[test]
fn garbage_is_removed_from_a_disk_without_a_free_byte() {
    let Some(disk) = SmallDisk::mount("4m") else { return };
    let directory = &disk.0;
    let store = Store::open(&directory.path().join("store"), Disk::new(), 1 << 20).unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut workspace = relive_workspace::Workspace::open(&store, root.path(), Settings::default()).unwrap();
    let mut snapshot = || workspace.snapshot(&Control::default()).unwrap().snapshot;
    shell(root.path(), "head -c 1000000 /dev/urandom > kept; head -c 200000 /dev/urandom > f");
    let first = snapshot();
    shell(root.path(), "rm f; head -c 500000 /dev/urandom > g");
    snapshot();
    shell(root.path(), "rm g");
    let last = snapshot();
    shell(directory.path(), "head -c 9m /dev/zero > filler 2> /dev/null || true");
    let announced = store.collect(&[last], Removal::DryRun, &Control::default()).unwrap();
    let done = store.collect(&[last], Removal::Remove, &Control::default()).unwrap();
    assert_eq!(announced, done);
    assert!(done.bytes_before - done.bytes_after > 500_000, "what only garbage is in is removed: {done:?}");
    assert!(done.blocked_bytes > 1_000_000, "the other pack has to be written anew: {done:?}");
    assert!(store.diff(&first, &last).is_ok());
    fs::remove_file(directory.path().join("filler")).unwrap();
    let done = store.collect(&[last], Removal::Remove, &Control::default()).unwrap();
    assert!(done.blocked_bytes == 0 && done.bytes_before - done.bytes_after > 200_000, "{done:?}");
    assert!(matches!(store.diff(&first, &last), Err(Error::Missing(_))));
}

#[test]
fn a_store_may_be_named_by_a_relative_path() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let relative = std::path::Path::new(directory.path().file_name().unwrap()).join("deep/store");
    let store = Store::open(&relative, Disk::new(), 0).unwrap();
    assert!(store.path().is_absolute() && relative.join("HEAD").exists());
}
