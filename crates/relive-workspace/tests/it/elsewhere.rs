//! Files that were there before under a name that is in no snapshot.

use std::fs;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use relive_workspace::{Control, FilePath, Force, OlderFiles, RestoreRequest, Settings, Snapshot, Workspace};

use crate::support::{Bed, bed, path, shell, unprivileged};

/// Waits until the clock with which files are stamped has advanced since this file was created.
fn await_tick(file: &Path) {
    let born = file.symlink_metadata().unwrap().created().unwrap();
    let born = born.duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = || {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        std::time::Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
    };
    while now() <= born {
        std::thread::yield_now();
    }
}

fn plan(bed: &mut Bed, target: &Snapshot, force: Force) -> OlderFiles {
    let request = RestoreRequest { target, expected: None, paths: &[], force };
    bed.workspace.plan_restore(&request, &Control::default()).unwrap().older
}

fn paths(all: &[&str]) -> Vec<FilePath> {
    all.iter().map(|text| path(text)).collect()
}

#[test]
fn a_file_that_was_renamed_from_an_ignored_name_is_removed_only_by_force() {
    let mut bed = bed();
    bed.write("app.js", "source");
    bed.write("old.txt", "tracked");
    bed.write(".gitignore", "*.o\nbuild/\nmodules/\n");
    bed.write(".env", "KEY=1");
    bed.write("x.o", "object");
    bed.write("build/out.js", "built");
    bed.write("modules/m/index.js", "module");
    let outside = bed.directory.path().join("outside");
    fs::write(&outside, "from outside").unwrap();
    await_tick(&outside);
    let first = bed.snapshot();
    shell(
        &bed.root,
        "mv .env env.txt; mv x.o x.bin; mv build/out.js out.js; mv modules mods; mv ../outside inside
         mv old.txt renamed.txt; echo more >> renamed.txt; echo new > new.txt",
    );
    let kept = ["env.txt", "inside", "mods/m/index.js", "out.js", "x.bin"];
    assert_eq!(plan(&mut bed, &first, Force::No), OlderFiles { kept: paths(&kept), lost: Vec::new() });
    assert_eq!(plan(&mut bed, &first, Force::Yes), OlderFiles { kept: Vec::new(), lost: paths(&kept) });
    // Later snapshots, an editor that replaces the file, another name, and another daemon change nothing of it.
    bed.snapshot();
    shell(&bed.root, "sed -i s/1/2/ env.txt; mv x.bin y.bin");
    bed.snapshot();
    bed.workspace.save_cache().unwrap();
    bed.workspace = Workspace::open(&bed.store, &bed.root, Settings::default()).unwrap();
    let restored = bed.restore(&first);
    let kept = ["env.txt", "inside", "mods/m/index.js", "out.js", "y.bin"];
    assert_eq!(restored.older, OlderFiles { kept: paths(&kept), lost: Vec::new() });
    assert_eq!((bed.read("env.txt").as_str(), bed.read("old.txt").as_str()), ("KEY=2", "tracked"));
    assert!(!bed.path("renamed.txt").exists() && !bed.path("new.txt").exists());
    let forced = bed.force_restore(&first).unwrap();
    assert_eq!(forced.older.lost, paths(&kept));
    assert!(bed.snapshot().is_same_files(&first));
    bed.restore(&forced.before.snapshot);
    assert_eq!(bed.read("env.txt"), "KEY=2");
}

#[test]
fn a_file_that_was_replaced_by_an_ignored_one_is_put_back_and_it_is_said() {
    let mut bed = bed();
    bed.write("app.js", "source");
    bed.write(".env", "KEY=1");
    await_tick(&bed.path(".env"));
    let first = bed.snapshot();
    shell(&bed.root, "mv .env app.js");
    let restored = bed.restore(&first);
    assert_eq!(restored.older, OlderFiles { kept: Vec::new(), lost: paths(&["app.js"]) });
    assert_eq!(bed.read("app.js"), "source");
    bed.restore(&restored.before.snapshot);
    assert_eq!(bed.read("app.js"), "KEY=1");
}

#[test]
fn a_file_whose_inode_is_new_or_known_is_removed() {
    let mut bed = bed();
    bed.write(".env", "KEY=1");
    bed.write("a", "1");
    await_tick(&bed.path("a"));
    let first = bed.snapshot();
    // The number of the inode may be that of the old file.
    shell(&bed.root, "rm .env; echo new > new; cp -p a copied; mv a b; ln b c; echo 2 >> b");
    assert_eq!(plan(&mut bed, &first, Force::No), OlderFiles::default());
    let restored = bed.restore(&first);
    assert!(restored.spared.is_empty());
    assert!(bed.snapshot().is_same_files(&first));
}

#[test]
fn a_file_that_could_not_be_read_for_a_while_was_not_renamed() {
    unprivileged(|| {
        let mut bed = bed();
        shell(&bed.root, "mkdir d; echo 1 > f; echo 1 > d/g");
        await_tick(&bed.path("d/g"));
        let first = bed.snapshot();
        shell(&bed.root, "echo 1 > late; chmod 000 f d late");
        await_tick(&bed.path("late"));
        bed.snapshot();
        bed.snapshot();
        bed.workspace.save_cache().unwrap();
        bed.workspace = Workspace::open(&bed.store, &bed.root, Settings::default()).unwrap();
        shell(&bed.root, "chmod 644 f late; chmod 755 d; echo 2 > f; echo 2 > d/g");
        assert_eq!(plan(&mut bed, &first, Force::No), OlderFiles::default());
        bed.restore(&first);
        assert!(bed.snapshot().is_same_files(&first));
    });
}
