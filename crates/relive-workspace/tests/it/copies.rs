//! Copies of snapshots in directories of their own.

use std::fs;
use std::process::Command;

use relive_workspace::{Control, Disk, Error, Force, Grade, RestoreRequest, Settings, Store, Workspace};

use crate::support::{bed, git, look, run, shell, unprivileged};

#[test]
fn a_copy_is_byte_equal_and_independent() {
    let mut bed = bed();
    shell(
        &bed.root,
        "mkdir -p a/b empty locked; echo 1 > a/b/c; ln -s ../x a/link; echo run > run; chmod 750 run; ln run same
         printf '\\000\\377' > binary; echo x > locked/f; chmod 500 locked
         i=0; while [ $i -lt 200 ]; do echo $i > a/f$i; i=$((i+1)); done",
    );
    let (snapshot, seen) = (bed.snapshot(), look(&bed.root));
    let own = bed.directory.path().join("own");
    let copied = bed.store.copy(&snapshot, &own, &Control::default()).unwrap();
    assert_eq!(copied.files, 206);
    assert_eq!(look(&own), seen);
    let mut workspace = Workspace::open(&bed.store, &own, Settings::default()).unwrap();
    assert!(workspace.snapshot(&Control::default()).unwrap().snapshot.is_same_files(&snapshot));
    shell(&own, "echo more >> a/b/c; echo more >> same");
    assert_eq!(look(&bed.root), seen);
}

#[test]
fn files_that_a_copy_began_with_stay_in_its_snapshots_whatever_is_ignored() {
    let mut bed = bed();
    shell(&bed.root, "mkdir dist; echo dist/ > .gitignore; echo 1 > dist/app.js; echo V=1 > .env; echo 1 > a");
    run(git().current_dir(&bed.root).args(["init", "-q"]));
    run(git().current_dir(&bed.root).args(["add", "-f", "."]));
    let first = bed.snapshot();
    let own = bed.directory.path().join("own");
    bed.store.copy(&first, &own, &Control::default()).unwrap();
    let open = || Workspace::open(&bed.store, &own, Settings::default()).unwrap();
    let take = || open().snapshot(&Control::default()).unwrap();
    assert!(take().snapshot.is_same_files(&first), "{:?}", take().skipped);
    shell(&own, "echo 2 > dist/app.js; echo new > dist/new.js; echo V=2 > .env; echo a >> .gitignore; echo 2 > a");
    let second = take();
    let changed: Vec<_> = bed.store.diff(&first, &second.snapshot).unwrap();
    let changed: Vec<_> = changed.into_iter().map(|change| change.path.to_string()).collect();
    assert_eq!(changed, [".env", ".gitignore", "a", "dist/app.js"]);
    // They go back, and a copy of the copy has them too.
    let request = RestoreRequest { target: &first, expected: None, paths: &[], force: Force::No };
    assert!(open().restore(&request, &Control::default()).unwrap().applied.is_verified());
    assert_eq!(fs::read_to_string(own.join("dist/app.js")).unwrap(), "1\n");
    assert!(own.join("dist/new.js").exists());
    let again = bed.directory.path().join("again");
    bed.store.copy(&second.snapshot, &again, &Control::default()).unwrap();
    let mut again = Workspace::open(&bed.store, &again, Settings::default()).unwrap();
    let third = again.snapshot(&Control::default()).unwrap().snapshot;
    assert!(third.is_same_files(&second.snapshot));
    // Where the list is lost, the snapshots say that they may lack files.
    for state in fs::read_dir(bed.store.path().join("workspaces")).unwrap().map(|state| state.unwrap().path()) {
        if state.join("base").exists() {
            fs::write(state.join("base"), "damaged").unwrap();
        }
    }
    assert_eq!(take().snapshot.grade, Grade::Partial);
}

#[test]
fn rules_around_a_directory_apply_in_its_copy_and_in_copies_of_that() {
    let bed = bed();
    shell(
        &bed.root,
        "git init -q; mkdir -p top/s/excl .git/info; echo '*.o' > .gitignore; printf 'excl/\\n/top/s/one\\n' > .git/info/exclude
         echo '!keep.o' > top/.gitignore; echo 1 > top/s/a; echo 1 > top/s/k.o",
    );
    let directory = bed.root.join("top/s");
    let mut workspace = Workspace::open(&bed.store, &directory, Settings::default()).unwrap();
    let first = workspace.snapshot(&Control::default()).unwrap().snapshot;
    assert_eq!(bed.ls_tree(&first), ["a"]);
    let (copy, again) = (bed.directory.path().join("copy"), bed.directory.path().join("again"));
    let rules = bed.store.outer_rules(&directory, &Settings::default());
    bed.store.copy_with_rules(&first, &copy, &rules, &Control::default()).unwrap();
    let rules = bed.store.outer_rules(&copy, &Settings::default());
    bed.store.copy_with_rules(&first, &again, &rules, &Control::default()).unwrap();
    for own in [directory, copy, again] {
        shell(
            &own,
            "mkdir -p excl; touch k.o keep.o excl/x one top; mkdir -p below; touch below/n.o below/one below/b",
        );
        let taken = Workspace::open(&bed.store, &own, Settings::default()).unwrap().snapshot(&Control::default());
        let taken = taken.unwrap().snapshot;
        assert_eq!(bed.ls_tree(&taken), ["a", "below/b", "below/one", "keep.o", "top"], "{}", own.display());
    }
    let mut own = Workspace::open(&bed.store, &bed.root, Settings::default()).unwrap();
    assert_eq!(own.snapshot(&Control::default()).unwrap().snapshot.grade, Grade::Exact);
}

#[test]
fn the_state_of_a_directory_that_is_gone_is_removed() {
    let mut bed = bed();
    bed.write("a", "1");
    let snapshot = bed.snapshot();
    let states = bed.store.path().join("workspaces");
    let count = || fs::read_dir(&states).unwrap().count();
    let own = bed.directory.path().join("own");
    bed.store.copy(&snapshot, &own, &Control::default()).unwrap();
    Workspace::open(&bed.store, &own, Settings::default()).unwrap().save_cache().unwrap();
    assert_eq!(count(), 2);
    bed.store.remove_copy(&own).unwrap();
    assert_eq!(count(), 1, "that of the copy is gone, and that of the other directory is not");
    // One that somebody else removed, and one that a link is in place of.
    for name in ["first", "second"] {
        bed.store.copy(&snapshot, &bed.directory.path().join(name), &Control::default()).unwrap();
        Workspace::open(&bed.store, &bed.directory.path().join(name), Settings::default()).unwrap();
    }
    shell(bed.directory.path(), "rm -r first; ln -s work own");
    bed.store.remove_copy(&own).unwrap();
    assert_eq!(count(), 3);
    Store::open(bed.store.path(), Disk::new(), 0).unwrap();
    assert_eq!(count(), 3, "that somebody else removed the first is known until it is removed here");
    bed.store.remove_copy(&bed.directory.path().join("first")).unwrap();
    assert_eq!(count(), 2);
}

#[test]
fn a_state_that_cannot_be_removed_does_not_keep_the_store_from_opening() {
    unprivileged(|| {
        let mut bed = bed();
        bed.write("a", "1");
        let snapshot = bed.snapshot();
        let gone = bed.directory.path().join("gone");
        bed.store.copy(&snapshot, &gone, &Control::default()).unwrap();
        shell(bed.directory.path(), "rm -r gone; chmod 500 store/workspaces");
        Store::open(bed.store.path(), Disk::new(), 0).unwrap();
    });
}

#[test]
fn a_copy_never_overwrites_and_removes_the_remains_of_a_killed_copy() {
    let mut bed = bed();
    bed.write("a", "1");
    let snapshot = bed.snapshot();
    let own = bed.directory.path().join("own");
    fs::create_dir(&own).unwrap();
    assert!(matches!(bed.store.copy(&snapshot, &own, &Control::default()), Err(Error::Io { .. })));
    fs::remove_dir(&own).unwrap();
    let half = bed.directory.path().join(".own.relive-copy");
    fs::create_dir_all(half.join("locked")).unwrap();
    shell(&half, "echo half > locked/file; ln -s / root; chmod 500 locked");
    bed.store.copy(&snapshot, &own, &Control::default()).unwrap();
    assert!(!half.exists());
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
}

#[test]
fn a_cancelled_copy_leaves_nothing() {
    let mut bed = bed();
    bed.write("a", "1");
    let snapshot = bed.snapshot();
    let own = bed.directory.path().join("own");
    let control = Control::default().with_cancel(std::sync::Arc::new(true.into()));
    assert!(matches!(bed.store.copy(&snapshot, &own, &control), Err(Error::Cancelled)));
    assert_eq!(fs::read_dir(bed.directory.path()).unwrap().count(), 2, "the workspace and the store");
}

#[test]
fn a_copy_with_a_mount_in_it_is_not_removed() {
    let mut bed = bed();
    bed.write("first", "1");
    bed.write("sub/deep/file", "1");
    let snapshot = bed.snapshot();
    let (own, mine) = (bed.directory.path().join("own"), bed.directory.path().join("mine"));
    bed.store.copy(&snapshot, &own, &Control::default()).unwrap();
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("precious"), "1").unwrap();
    let seen = look(&own);
    let (mine_path, own_path) = (mine.display().to_string(), own.display().to_string());
    for (arguments, point) in [
        (vec!["-t", "ramfs", "none"], "sub/deep"),
        (vec!["--bind", &*mine_path], "sub/deep"),
        (vec!["--bind", &*mine_path], ""),
        (vec!["--bind", &*own_path], "sub"),
    ] {
        let point = own.join(point);
        let mount = Command::new("mount").args(&arguments).arg(&point).status();
        if !mount.is_ok_and(|status| status.success()) {
            // Only root may mount.
            return;
        }
        let removed = bed.store.remove_copy(&own);
        run(Command::new("umount").arg(&point));
        let Err(Error::Mounted { path }) = removed else { panic!("{arguments:?}: {removed:?}") };
        assert_eq!(path, fs::canonicalize(&point).unwrap());
        assert_eq!(look(&own), seen, "{arguments:?}");
        assert!(mine.join("precious").exists());
    }
    shell(
        &own,
        &format!("ln -s {} link; ln -s {}/precious file; mkdir none; chmod 0 none", mine.display(), mine.display()),
    );
    bed.store.remove_copy(&own).unwrap();
    assert!(!own.exists() && mine.join("precious").exists());
}
