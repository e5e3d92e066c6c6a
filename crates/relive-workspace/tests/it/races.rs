//! Other programs that act while files are put back: before each single change.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use relive_workspace::{Control, Disk, Faults, Force, RestoreRequest, Restored, Result, Settings, Snapshot};

use crate::support::{Bed, look, shell};

/// A file system with or without the flags of `renameat2`.
fn bed(can_only_rename: bool) -> (Bed, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    if can_only_rename {
        faults.without_rename_flags();
    }
    (Bed::new(Disk::with_faults(faults.clone()), Settings::default()), faults)
}

fn restore(bed: &mut Bed, target: &Snapshot, expected: &Snapshot) -> Result<Restored> {
    let request = RestoreRequest { target, expected: Some(expected), paths: &[], force: Force::No };
    bed.workspace.restore(&request, &Control::default())
}

/// Lets `act` happen once in each restore, before a later change each time, until the restore has no more changes.
fn at_each_change(mut attempt: impl FnMut(u64) -> u64) {
    for at in 0.. {
        if attempt(at) <= at {
            assert!(at > 5, "the restore made only {at} changes");
            return;
        }
    }
}

fn create(path: &Path, text: &str) -> bool {
    let created = fs::OpenOptions::new().write(true).create_new(true).open(path);
    created.and_then(|mut file| file.write_all(text.as_bytes())).is_ok()
}

#[test]
fn a_file_that_appears_while_files_are_put_back_is_never_overwritten() {
    for can_only_rename in [false, true] {
        at_each_change(|at| {
            let (mut bed, faults) = bed(can_only_rename);
            bed.write("kept", "k");
            bed.write("d/new", "old");
            bed.write("d/h1", "linked");
            shell(&bed.root, "ln d/h1 d/h2; ln -s h1 d/link");
            let old = bed.snapshot();
            shell(&bed.root, "rm -r d; mkdir d; touch d/x");
            let now = bed.snapshot();
            let made: Arc<[AtomicBool; 3]> = Arc::default();
            let names = ["d/new", "d/h2", "d/link"];
            let (paths, done) = (names.map(|name| bed.path(name)), made.clone());
            faults.before_each_change(move |number| {
                if number == at {
                    (0..3).for_each(|of| done[of].store(create(&paths[of], "precious"), Ordering::SeqCst));
                }
            });
            let restored = restore(&mut bed, &old, &now);
            for (name, _) in names.iter().zip(&*made).filter(|(_, made)| made.load(Ordering::SeqCst)) {
                assert_eq!(bed.read(name), "precious", "{name} before change {at}, {can_only_rename}");
                assert!(!restored.as_ref().is_ok_and(|restored| restored.applied.is_verified()), "{at}");
            }
            faults.changes()
        });
    }
}

#[test]
fn a_file_that_somebody_writes_while_it_is_removed_stays() {
    for can_only_rename in [false, true] {
        at_each_change(|at| {
            let (mut bed, faults) = bed(can_only_rename);
            bed.write("kept", "k");
            let old = bed.snapshot();
            bed.write("gone", "new");
            let now = bed.snapshot();
            let (path, written) = (bed.path("gone"), Arc::new(AtomicBool::new(false)));
            let done = written.clone();
            faults.before_each_change(move |number| {
                // Other programs replace files too.
                let other = path.with_file_name("other");
                if number == at && path.exists() && create(&other, "precious") {
                    done.store(fs::rename(&other, &path).is_ok(), Ordering::SeqCst);
                }
            });
            let _ = restore(&mut bed, &old, &now);
            if written.load(Ordering::SeqCst) {
                assert_eq!(bed.read("gone"), "precious", "before change {at}, {can_only_rename}");
            }
            faults.changes()
        });
    }
}

#[test]
fn a_file_that_somebody_writes_while_it_is_replaced_stays() {
    at_each_change(|at| {
        let (mut bed, faults) = bed(false);
        bed.write("changed", "old");
        let old = bed.snapshot();
        bed.write("changed", "new");
        let now = bed.snapshot();
        let (path, written) = (bed.path("changed"), Arc::new(AtomicBool::new(false)));
        let done = written.clone();
        faults.before_each_change(move |number| {
            let other = path.with_file_name("other");
            if number == at && create(&other, "precious") {
                done.store(fs::rename(&other, &path).is_ok(), Ordering::SeqCst);
            }
        });
        let restored = restore(&mut bed, &old, &now);
        if written.load(Ordering::SeqCst) {
            assert_eq!(bed.read("changed"), "precious", "before change {at}: {restored:?}");
        }
        faults.changes()
    });
}

#[test]
fn a_link_that_takes_the_place_of_a_directory_is_never_followed() {
    for can_only_rename in [false, true] {
        at_each_change(|at| {
            let (mut bed, faults) = bed(can_only_rename);
            shell(&bed.root, "mkdir -p d/e; echo 1 > d/changed; echo 1 > d/gone; echo 1 > d/e/deep; echo 1 > d/mode");
            let old = bed.snapshot();
            shell(
                &bed.root,
                "echo 2 > d/changed; rm d/gone; chmod 600 d/mode; chmod 700 d/e; echo 2 > d/more; echo 2 > d/e/deep",
            );
            let now = bed.snapshot();
            let outside = bed.directory.path().join("outside");
            fs::create_dir(&outside).unwrap();
            shell(
                &outside,
                "mkdir e; echo 2 > changed; echo 2 > more; echo 2 > e/deep; echo 1 > mode; chmod 600 mode; chmod 700 e",
            );
            let before = look(&outside);
            let (path, target) = (bed.path("d"), outside.clone());
            faults.before_each_change(move |number| {
                if number == at && fs::rename(&path, path.with_file_name("moved")).is_ok() {
                    std::os::unix::fs::symlink(&target, &path).unwrap();
                }
            });
            let _ = restore(&mut bed, &old, &now);
            assert!(look(&outside) == before, "before change {at}, {can_only_rename}");
            faults.changes()
        });
    }
}
