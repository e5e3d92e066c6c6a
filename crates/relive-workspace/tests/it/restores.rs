//! Restores and their refusals.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use relive_workspace::{Control, Disk, Error, FilePath, Force, Grade, RestoreRequest, Settings, Workspace};

use crate::support::{Bed, bed, look, path, shell};

#[test]
fn case_71_and_72_a_restore_brings_every_byte_back_and_can_be_undone() {
    let mut bed = bed();
    shell(
        &bed.root,
        "mkdir -p a/b empty; echo one > a/b/one; printf '\\000\\001' > binary; ln -s a/b/one link; ln binary same
         echo run > tool; chmod 700 tool; chmod 711 a; echo gone > gone; echo type > type; mkdir turned; echo x > turned/x",
    );
    let (first, seen) = (bed.snapshot(), look(&bed.root));
    assert_eq!(first.grade, Grade::Exact);
    shell(
        &bed.root,
        "echo two >> a/b/one; rm binary gone; echo new > binary; ln -sf elsewhere link; chmod 644 tool; chmod 755 a
         rmdir empty; echo file > empty; rm type; mkdir -p type/deep; echo y > type/deep/y; rm -r turned; echo f > turned
         mkdir -p new/dir; echo z > new/dir/z",
    );
    let (second, seen_then) = (bed.snapshot(), look(&bed.root));
    let restored = bed.restore(&first);
    assert!(restored.before.snapshot.is_same_files(&second));
    assert_eq!(look(&bed.root), seen);
    assert!(bed.snapshot().is_same_files(&first));
    bed.restore(&second);
    assert_eq!(look(&bed.root), seen_then);
}

#[test]
fn a_restore_over_foreign_changes_is_refused_and_writes_nothing() {
    let mut bed = bed();
    bed.write("a", "1");
    let first = bed.snapshot();
    bed.write("a", "2");
    let expected = bed.snapshot();
    bed.write("other", "theirs");
    let seen = look(&bed.root);
    let request = RestoreRequest { target: &first, expected: Some(&expected), paths: &[], force: Force::No };
    let error = bed.workspace.restore(&request, &Control::default()).unwrap_err();
    assert!(matches!(&error, Error::ChangedSince { paths } if *paths == [path("other")]), "{error}");
    assert_eq!(look(&bed.root), seen);
    let request = RestoreRequest { force: Force::Yes, ..request };
    let restored = bed.workspace.restore(&request, &Control::default()).unwrap();
    assert_eq!(bed.read("a"), "1");
    bed.restore(&restored.before.snapshot);
    assert_eq!(bed.read("other"), "theirs");
}

#[test]
fn a_forced_restore_puts_a_directory_back_that_has_outgrown_the_limits() {
    let limits =
        [Settings { max_files: 3, ..Settings::default() }, Settings { max_total_bytes: 100, ..Settings::default() }];
    for settings in limits {
        let mut bed = Bed::new(Disk::new(), settings);
        bed.write("a", "1");
        let first = bed.snapshot();
        shell(&bed.root, "for i in $(seq 200); do echo $i > f$i; done; echo BAD > a");
        let seen = look(&bed.root);
        let error = bed.try_restore(&first).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
        assert_eq!(look(&bed.root), seen);
        // One file alone, while the directory stays as large as it is.
        let paths = [path("a")];
        let request = RestoreRequest { target: &first, expected: None, paths: &paths, force: Force::Yes };
        assert!(bed.workspace.restore(&request, &Control::default()).unwrap().applied.is_verified());
        assert_eq!((bed.read("a").as_str(), look(&bed.root).len()), ("1", 201));
        let restored = bed.force_restore(&first).unwrap();
        assert!(restored.applied.is_verified());
        assert_eq!(look(&bed.root).len(), 1);
        assert!(bed.snapshot().is_same_files(&first), "the limits hold again");
        bed.restore(&restored.before.snapshot);
        assert_eq!(look(&bed.root).len(), 201, "it can be undone");
        assert!(matches!(bed.workspace.snapshot(&Control::default()), Err(Error::TooLarge { .. })));
    }
}

#[test]
fn single_paths_are_restored_with_the_directories_they_need() {
    let mut bed = bed();
    bed.write("d/e/one", "1");
    bed.write("d/two", "2");
    bed.write("three", "3");
    let first = bed.snapshot();
    shell(&bed.root, "rm -r d; echo changed > three");
    let paths: [FilePath; 1] = [path("d/e/one")];
    let request = RestoreRequest { target: &first, expected: None, paths: &paths, force: Force::No };
    bed.workspace.restore(&request, &Control::default()).unwrap();
    assert_eq!(bed.read("d/e/one"), "1");
    assert_eq!(bed.read("three"), "changed\n");
    assert!(!bed.path("d/two").exists());
    let paths = [path("nowhere")];
    let request = RestoreRequest { paths: &paths, ..request };
    let error = bed.workspace.restore(&request, &Control::default()).unwrap_err();
    assert!(matches!(error, Error::NoSuchPath { .. }), "{error}");
}

#[test]
fn a_partial_snapshot_needs_force() {
    let mut bed = bed();
    shell(&bed.root, "mkfifo pipe; echo 1 > a");
    let first = bed.snapshot();
    bed.write("a", "2");
    let Err(Error::NotExact { grade: Grade::Partial, left_out }) = bed.try_restore(&first) else { panic!() };
    assert_eq!(left_out.iter().map(ToString::to_string).collect::<Vec<_>>(), ["pipe"]);
    assert_eq!(bed.read("a"), "2");
}

#[test]
fn ignored_files_are_never_overwritten_or_removed() {
    let mut bed = bed();
    bed.write("build", "a file that is tracked");
    bed.write("dir/file", "1");
    let first = bed.snapshot();
    shell(&bed.root, "printf 'build\\n*.o\\n' > .gitignore; echo precious > build; echo object > dir/x.o; rm dir/file");
    let error = bed.try_restore(&first).unwrap_err();
    assert!(matches!(&error, Error::InTheWay { paths } if *paths == [path("build")]), "{error}");
    assert_eq!(bed.read("build"), "precious\n");

    // A directory that should be removed and still holds an ignored file stays.
    let second = bed.snapshot();
    shell(&bed.root, "mkdir -p fresh; echo 1 > fresh/file; echo o > fresh/y.o");
    bed.snapshot();
    let applied = bed.restore(&second).applied;
    assert_eq!(applied.kept, [path("fresh")]);
    assert!(bed.path("fresh/y.o").exists() && !bed.path("fresh/file").exists());
}

#[test]
fn an_ignored_file_in_a_directory_that_becomes_a_file_blocks_the_restore() {
    let mut bed = bed();
    bed.write("thing", "file");
    bed.write(".gitignore", "*.o\n");
    let first = bed.snapshot();
    shell(&bed.root, "rm thing; mkdir -p thing/sub; echo 1 > thing/sub/a; echo o > thing/sub/x.o");
    let seen = look(&bed.root);
    let error = bed.try_restore(&first).unwrap_err();
    assert!(matches!(&error, Error::InTheWay { paths } if *paths == [path("thing/sub/x.o")]), "{error}");
    assert_eq!(look(&bed.root), seen);
}

#[test]
fn a_link_in_place_of_a_directory_is_not_followed() {
    let mut bed = bed();
    let outside = bed.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "outside").unwrap();
    bed.write("d/file", "1");
    let first = bed.snapshot();
    bed.write("d/file", "2");
    let request = RestoreRequest { target: &first, expected: None, paths: &[], force: Force::No };
    let prepared = bed.workspace.plan_restore(&request, &Control::default()).unwrap();
    shell(&bed.root, "rm -r d; ln -s ../outside d");
    let error = bed.workspace.apply(&prepared.plan, &Control::default()).unwrap_err();
    assert!(matches!(error, Error::ChangedSince { .. }), "{error}");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "outside");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_change_after_planning_is_refused_before_anything_is_written() {
    let mut bed = bed();
    bed.write("a", "1");
    bed.write("b", "1");
    let first = bed.snapshot();
    bed.write("a", "2");
    bed.write("b", "2");
    let request = RestoreRequest { target: &first, expected: None, paths: &[], force: Force::Yes };
    let prepared = bed.workspace.plan_restore(&request, &Control::default()).unwrap();
    bed.write("b", "theirs");
    let error = bed.workspace.apply(&prepared.plan, &Control::default()).unwrap_err();
    assert!(matches!(&error, Error::ChangedSince { paths } if *paths == [path("b")]), "{error}");
    assert_eq!((bed.read("a"), bed.read("b")), ("2".to_owned(), "theirs".to_owned()));
}

#[test]
fn hard_links_are_created_and_separated() {
    let mut bed = bed();
    shell(&bed.root, "echo 1 > a; ln a b; ln a c; echo 2 > x; echo 2 > y");
    let first = bed.snapshot();
    shell(&bed.root, "rm c; cp b c; ln -f x y; rm a; echo 3 > a");
    let second = bed.snapshot();
    bed.restore(&first);
    let inode = |name: &str| fs::metadata(bed.path(name)).unwrap().ino();
    assert!(inode("a") == inode("b") && inode("b") == inode("c") && inode("x") != inode("y"));
    bed.restore(&second);
    let inode = |name: &str| fs::metadata(bed.path(name)).unwrap().ino();
    assert!(inode("a") != inode("b") && inode("b") != inode("c") && inode("x") == inode("y"));
}

#[test]
fn permissions_of_one_name_do_not_change_another() {
    let mut bed = bed();
    shell(&bed.root, "echo x > a; cp a b; chmod 644 a; chmod 755 b; echo y > c; chmod 600 c");
    let (first, seen) = (bed.snapshot(), look(&bed.root));
    shell(&bed.root, "rm a; ln b a; ln c ../outside; chmod 640 c");
    bed.snapshot();
    bed.restore(&first);
    assert_eq!(look(&bed.root), seen);
    assert_eq!(fs::metadata(bed.directory.path().join("outside")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn permissions_of_empty_directories_are_restored() {
    let mut bed = bed();
    shell(&bed.root, "mkdir empty; chmod 700 empty; echo x > f; chmod 600 f");
    let (first, seen) = (bed.snapshot(), look(&bed.root));
    shell(&bed.root, "chmod 755 empty; chmod 644 f");
    bed.restore(&first);
    assert_eq!(look(&bed.root), seen);
}

#[test]
fn a_restore_of_the_current_state_changes_nothing() {
    let mut bed = bed();
    bed.write("a", "1");
    let first = bed.snapshot();
    let inode = fs::metadata(bed.path("a")).unwrap().ino();
    let applied = bed.restore(&first).applied;
    assert_eq!((applied.written, applied.removed), (0, 0));
    assert_eq!(fs::metadata(bed.path("a")).unwrap().ino(), inode);
}

#[test]
fn only_one_restore_at_a_time() {
    let mut bed = bed();
    bed.write("a", "1");
    let first = bed.snapshot();
    bed.write("a", "2");
    let states = bed.store.path().join("workspaces");
    let state = fs::read_dir(states).unwrap().next().unwrap().unwrap().path();
    let held = fs::File::options().create(true).append(true).open(state.join("lock")).unwrap();
    held.lock().unwrap();
    assert!(matches!(bed.try_restore(&first), Err(Error::Busy { .. })));
    held.unlock().unwrap();
    bed.restore(&first);
}

#[test]
fn files_ignored_by_the_rules_of_the_target_are_not_removed() {
    let mut bed = bed();
    shell(
        &bed.root,
        "printf '*.o\\nout/\\n' > .gitignore; echo 1 > a; echo o > x.o; mkdir -p out/deep; echo b > out/deep/b",
    );
    let (first, seen) = (bed.snapshot(), look(&bed.root));
    shell(&bed.root, "rm .gitignore; echo 2 > a; echo new > new");
    bed.snapshot();
    let restored = bed.restore(&first);
    assert_eq!(restored.spared, [path("out/deep/b"), path("x.o")]);
    assert_eq!(look(&bed.root), seen);
}

#[test]
fn a_restore_that_runs_out_of_space_is_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "none"])
        .arg(directory.path())
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        // Not root.
        return;
    }
    let bed = bed();
    let root = directory.path().join("work");
    fs::create_dir(&root).unwrap();
    let mut workspace =
        relive_workspace::Workspace::open(&bed.store, &root, relive_workspace::Settings::default()).unwrap();
    shell(&root, "head -c 700000 /dev/urandom > large; echo small > small; mkdir d; echo 1 > d/f");
    let first = workspace.snapshot(&Control::default()).unwrap().snapshot;
    shell(
        &root,
        "head -c 700000 /dev/urandom > large; echo other > small; rm -r d; head -c 1000000 /dev/urandom > ../fill",
    );
    let seen = look(&root);
    let request = RestoreRequest { target: &first, expected: None, paths: &[], force: Force::No };
    let error = workspace.restore(&request, &Control::default()).unwrap_err();
    assert!(matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull), "{error}");
    assert_eq!(look(&root), seen, "rolled back, and nothing left over");
    assert!(workspace.interrupted().unwrap().is_none());
    fs::remove_file(directory.path().join("fill")).unwrap();
    assert!(workspace.restore(&request, &Control::default()).unwrap().applied.is_verified());
    drop(workspace);
    std::process::Command::new("umount").arg(directory.path()).status().unwrap();
}

#[test]
fn a_file_that_grew_beyond_every_planned_one_is_not_read() {
    let mut bed = bed();
    bed.write("f", "1");
    let old = bed.snapshot();
    bed.write("f", "2");
    let request = RestoreRequest { target: &old, expected: None, paths: &[], force: Force::Yes };
    let prepared = bed.workspace.plan_restore(&request, &Control::default()).unwrap();
    // Reading this would take an hour.
    fs::File::options().write(true).open(bed.path("f")).unwrap().set_len(1 << 40).unwrap();
    let refused = bed.workspace.apply(&prepared.plan, &Control::default()).unwrap_err();
    assert!(matches!(&refused, Error::ChangedSince { paths } if paths == &[path("f")]), "{refused}");
    drop(prepared);
    let refused = bed.force_restore(&old).unwrap_err();
    assert!(matches!(&refused, Error::InTheWay { paths } if paths == &[path("f")]), "{refused}");
    // What was kept is put back, also if it would not be kept now.
    bed.write("f", "short");
    let settings = Settings { max_file_bytes: 10, ..Settings::default() };
    bed.write("large", "larger than ten bytes");
    let large = bed.snapshot();
    bed.write("large", "x");
    bed.workspace = Workspace::open(&bed.store, &bed.root, settings).unwrap();
    bed.restore(&large);
    assert_eq!(bed.read("large"), "larger than ten bytes");
}

#[test]
fn a_file_that_was_kept_is_replaced_also_if_it_would_not_be_kept_now() {
    let mut bed = bed();
    bed.write("f", "x");
    let small = bed.snapshot();
    bed.write("f", "larger than ten bytes");
    let request = RestoreRequest { target: &small, expected: None, paths: &[], force: Force::Yes };
    let prepared = bed.workspace.plan_restore(&request, &Control::default()).unwrap();
    let settings = Settings { max_file_bytes: 10, ..Settings::default() };
    bed.workspace = Workspace::open(&bed.store, &bed.root, settings).unwrap();
    let applied = bed.workspace.apply(&prepared.plan, &Control::default()).unwrap();
    assert!(applied.left.is_empty() && applied.is_verified(), "{applied:?}");
    assert_eq!(bed.read("f"), "x");
}

#[test]
fn a_name_of_a_set_id_file_that_was_removed_is_a_name_of_that_file_again() {
    let mut bed = bed();
    shell(&bed.root, "echo 1 > a; chmod 4755 a; ln a b");
    let first = bed.snapshot();
    shell(&bed.root, "rm b");
    assert!(bed.restore(&first).applied.is_verified());
    assert_eq!(shell(&bed.root, "stat -c '%h %a' a b"), "2 4755\n2 4755\n");
    assert!(bed.snapshot().is_same_files(&first));
}

#[test]
fn a_set_id_bit_is_a_change_and_a_restore_takes_it_away() {
    let mut bed = bed();
    bed.write("tool", "x");
    bed.chmod("tool", 0o755);
    let first = bed.snapshot();
    bed.chmod("tool", 0o4755);
    let second = bed.snapshot();
    let changes = bed.workspace.store().diff(&first, &second).unwrap();
    assert_eq!(changes.iter().map(|change| change.path.clone()).collect::<Vec<_>>(), [path("tool")]);
    let restored = bed.restore(&first);
    assert!(restored.applied.is_verified() && restored.applied.written == 1, "{:?}", restored.applied);
    assert_eq!(fs::metadata(bed.path("tool")).unwrap().mode() & 0o7777, 0o755);
    // It is never given back.
    let undone = bed.force_restore(&second).unwrap();
    assert!(undone.applied.is_verified(), "{:?}", undone.applied);
    assert_eq!(fs::metadata(bed.path("tool")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn a_plan_is_refused_for_an_ignored_file_in_the_way_before_it_is_carried_out() {
    let mut bed = bed();
    bed.write("out", "1");
    let first = bed.snapshot();
    bed.remove("out");
    bed.write(".gitignore", "out\n");
    bed.write("out", "ignored");
    let request = RestoreRequest { target: &first, expected: None, paths: &[], force: Force::Yes };
    let error = bed.workspace.plan_restore(&request, &Control::default()).unwrap_err();
    assert!(matches!(&error, Error::InTheWay { paths } if *paths == [path("out")]), "{error}");
    assert_eq!(bed.read("out"), "ignored");
}

#[test]
fn one_of_several_names_of_a_file_is_restored_alone() {
    for name in ["h1", "h2", "h3"] {
        let mut bed = bed();
        shell(&bed.root, "echo old > h1; ln h1 h2; ln h1 h3");
        let old = bed.snapshot();
        shell(&bed.root, "echo new > h1");
        let paths = [name.parse().unwrap()];
        let request = RestoreRequest { target: &old, expected: None, paths: &paths, force: Force::No };
        let restored = bed.workspace.restore(&request, &Control::default()).unwrap();
        assert!(restored.applied.is_verified(), "{name}: {:?}", restored.applied);
        for other in ["h1", "h2", "h3"] {
            assert_eq!(bed.read(other), if other == name { "old\n" } else { "new\n" }, "{name}: {other}");
        }
        // All of them, as they were.
        bed.restore(&old);
        assert_eq!(bed.snapshot(), old, "{name}");
    }
}

#[test]
fn case_72_files_that_only_rules_outside_of_the_directory_left_out_are_not_removed() {
    let git = "git -c user.name=t -c user.email=t@t";
    let cases = [
        // Tracked since.
        ("git init -q; git add a", "git add -f .", &[".env", "k.o", "server.key"][..]),
        ("", "git init -q; git add -f .", &[".env", "k.o", "server.key"]),
        ("git init -q; git add a", "rm .gitignore; git add -f .", &[".env", "k.o", "server.key"]),
        // No longer ignored.
        ("git init -q; printf '# x\\nnotes\\n' > .git/info/exclude", ": > .git/info/exclude", &["notes"]),
        ("git init -q; echo notes > .git/info/exclude", "rm -r .git; git init -q", &["notes"]),
        ("git init -q ..; echo /work/notes > ../.gitignore", ": > ../.gitignore", &["notes"]),
        (
            "git init -q ..; echo notes > ../.gitignore; git add a",
            "git add -f .; : > ../.gitignore",
            &[".env", "k.o", "notes", "server.key"],
        ),
    ];
    for (before, after, expected) in cases {
        let mut bed = bed();
        shell(
            &bed.root,
            "echo 1 > a; echo T > .env; echo K > server.key; echo n > notes; echo '*.o' > .gitignore; echo o > k.o",
        );
        shell(&bed.root, before);
        let first = bed.snapshot();
        shell(&bed.root, &format!("{after}; {git} commit -qm x --allow-empty; echo 2 > a; echo new > made"));
        let second = bed.snapshot();
        let restored = bed.restore(&first);
        assert_eq!(restored.spared, expected.iter().copied().map(path).collect::<Vec<_>>(), "{before}, {after}");
        assert!(
            ["a", ".env", "server.key", "notes", "k.o"].iter().all(|name| bed.path(name).exists()),
            "{before}, {after}"
        );
        assert_eq!((bed.read("a").as_str(), bed.path("made").exists()), ("1\n", false), "{before}, {after}");
        bed.restore(&second);
        assert_eq!((bed.read("a").as_str(), bed.read("made").as_str()), ("2\n", "new\n"), "{before}, {after}");
    }
}
