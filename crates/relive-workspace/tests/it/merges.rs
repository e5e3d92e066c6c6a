//! Merges.

use relive_workspace::{
    Change, Conflict, ConflictKind, Control, Error, Force, MergeRequest, Settings, Snapshot, Workspace,
};

use crate::support::{Bed, bed, look, shell};

/// Creates a base, changes it in two ways, and merges the second into the first.
fn merge(base: &str, ours: &str, theirs: &str, force: Force) -> (Bed, Result<Vec<Conflict>, Error>, Snapshot) {
    let mut bed = bed();
    shell(&bed.root, base);
    let start = bed.snapshot();
    shell(&bed.root, theirs);
    let changed = bed.snapshot();
    bed.restore(&start);
    shell(&bed.root, ours);
    let request = MergeRequest { base: &start, theirs: &changed, force };
    let before = bed.snapshot();
    let merged = bed.workspace.merge(&request, &Control::default()).map(|merged| {
        assert!(merged.applied.is_verified(), "{:?}", merged.applied);
        merged.conflicts
    });
    (bed, merged, before)
}

fn check_conflict(base: &str, ours: &str, theirs: &str, expected: &[(&str, ConflictKind)]) {
    let (mut bed, merged, before) = merge(base, ours, theirs, Force::No);
    let Err(Error::Conflicts { conflicts }) = merged else { panic!("{merged:?}") };
    let found: Vec<_> = conflicts.iter().map(|conflict| (conflict.path.to_string(), conflict.kind)).collect();
    assert_eq!(found, expected.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect::<Vec<_>>());
    assert!(bed.snapshot().is_same_files(&before), "nothing is written");
}

#[test]
fn case_75_different_files_merge_and_the_same_lines_conflict() {
    let base = "echo 1 > a; echo 1 > b";
    let (bed, merged, _) = merge(base, "echo ours > a", "echo theirs > b; echo new > c", Force::No);
    assert_eq!(merged.unwrap(), []);
    assert_eq!((bed.read("a"), bed.read("b"), bed.read("c")), ("ours\n".into(), "theirs\n".into(), "new\n".into()));
    check_conflict(base, "echo ours > a", "echo theirs > a", &[("a", ConflictKind::Lines)]);
}

#[test]
fn a_file_that_is_ignored_and_gone_stays_and_is_reported() {
    let mut bed = bed();
    shell(
        &bed.root,
        "git init -q; echo '*.o' > .gitignore; echo 1 > a; echo 1 > gone.o; echo 1 > both.o; git add -f .",
    );
    let base = bed.snapshot();
    shell(&bed.root, "echo 2 > a; rm gone.o both.o");
    let theirs = bed.snapshot();
    bed.restore(&base);
    bed.remove("both.o");
    let request = MergeRequest { base: &base, theirs: &theirs, force: Force::No };
    let prepared = bed.workspace.plan_merge(&request, &Control::default()).unwrap();
    let not_removed: Vec<_> = prepared.not_removed.iter().map(ToString::to_string).collect();
    assert_eq!((not_removed, prepared.plan.changes.len()), (vec!["gone.o".to_owned()], 1));
}

#[test]
fn different_lines_of_one_file_merge() {
    let base = "seq 1 20 > a";
    let (bed, merged, _) = merge(base, "sed -i s/^2$/two/ a", "sed -i s/^18$/eighteen/ a; chmod 755 a", Force::No);
    assert_eq!(merged.unwrap(), []);
    assert!(bed.read("a").contains("two\n") && bed.read("a").contains("eighteen\n"));
    assert_eq!(shell(&bed.root, "stat -c %a a"), "755\n");
}

#[test]
fn other_changes_on_both_sides_conflict() {
    let base = "printf 'a\\000b' > binary; echo 1 > a; echo 1 > b; mkdir d; echo 1 > d/f; ln -s one link";
    check_conflict(base, "printf 'x\\000' > binary", "printf 'y\\000' > binary", &[("binary", ConflictKind::Binary)]);
    check_conflict(base, "rm a", "echo 2 > a", &[("a", ConflictKind::RemovedAndChanged)]);
    check_conflict(base, "echo 2 > a", "rm a", &[("a", ConflictKind::RemovedAndChanged)]);
    check_conflict(base, "echo x > n", "echo y > n", &[("n", ConflictKind::BothAdded)]);
    check_conflict(base, "rm a; mkdir a; echo 1 > a/x", "echo 2 > a", &[("a", ConflictKind::Type)]);
    check_conflict(base, "chmod 600 b", "chmod 700 b", &[("b", ConflictKind::Mode)]);
    check_conflict(base, "ln -sf two link", "ln -sf three link", &[("link", ConflictKind::Type)]);
    check_conflict(base, "echo f > n", "mkdir n; echo 1 > n/x", &[("n", ConflictKind::Type)]);
}

#[test]
fn the_same_change_on_both_sides_is_not_a_conflict() {
    let (_, merged, _) = merge("echo 1 > a; echo 1 > b", "echo 2 > a; rm b", "echo 2 > a; rm b", Force::No);
    assert_eq!(merged.unwrap(), []);
}

#[test]
fn force_writes_markers_and_keeps_the_rest_and_can_be_undone() {
    let base = "echo 1 > a; echo 1 > b; printf '\\0001' > c";
    let ours = "echo ours > a; rm b; printf '\\0002' > c; echo f > n";
    let theirs = "echo theirs > a; echo 2 > b; printf '\\0003' > c; echo d > d; mkdir n; echo 1 > n/x";
    let (mut bed, merged, before) = merge(base, ours, theirs, Force::Yes);
    assert_eq!(merged.unwrap().len(), 4);
    assert!(bed.read("a").contains("<<<<<<<") && bed.read("a").contains("theirs"));
    assert!(!bed.path("b").exists() && bed.path("n").is_file());
    assert_eq!((bed.read("c"), bed.read("d")), ("\0".to_owned() + "2", "d\n".to_owned()));
    bed.restore(&before);
    assert!(!bed.path("d").exists());
}

#[test]
fn conflict_markers_are_on_lines_of_their_own() {
    for (base, ours, theirs) in [
        ("1", "ours", "theirs"),
        ("1\\n", "1", "1\\ntheirs"),
        ("1\\n", "1", "2"),
        ("", "ours", "theirs"),
        ("1", "1\\n", "2"),
    ] {
        let write = |text: &str| format!("printf '{text}' > a");
        let (bed, merged, _) = merge(&write(base), &write(ours), &write(theirs), Force::Yes);
        assert_eq!(merged.unwrap().len(), 1, "{base:?} {ours:?} {theirs:?}");
        let text = bed.read("a");
        for marker in ["<<<<<<< ours", "=======", ">>>>>>> theirs"] {
            assert_eq!(text.lines().filter(|line| *line == marker).count(), 1, "{base:?} {ours:?} {theirs:?}: {text}");
        }
        let side = |text: &str| text.replace("\\n", "").chars().next_back().unwrap();
        assert!(text.contains(side(ours)) && text.contains(side(theirs)), "{text}");
    }
}

#[test]
fn a_merge_creates_and_removes_directories() {
    let base = "mkdir -p old/deep; echo 1 > old/deep/f; mkdir empty";
    let (bed, merged, _) = merge(base, "true", "rm -r old; rmdir empty; mkdir -p new/e; chmod 700 new", Force::No);
    assert_eq!(merged.unwrap(), []);
    assert_eq!(look(&bed.root).keys().map(Vec::as_slice).collect::<Vec<_>>(), [&b"new"[..], b"new/e"]);
}

#[test]
fn two_agents_merge_their_changes_into_one_directory() {
    let mut bed = bed();
    shell(&bed.root, "seq 1 30 > shared; echo x > one; echo x > two");
    let base = bed.snapshot();
    let mut changed = Vec::new();
    for (name, script) in
        [("first", "echo 1 > one; sed -i s/^3$/three/ shared"), ("second", "echo 2 > two; sed -i s/^27$/end/ shared")]
    {
        let own = bed.directory.path().join(name);
        bed.store.copy(&base, &own, &Control::default()).unwrap();
        let mut workspace =
            relive_workspace::Workspace::open(&bed.store, &own, relive_workspace::Settings::default()).unwrap();
        shell(&own, script);
        changed.push(workspace.snapshot(&Control::default()).unwrap().snapshot);
    }
    for theirs in &changed {
        let request = MergeRequest { base: &base, theirs, force: Force::No };
        assert_eq!(bed.workspace.merge(&request, &Control::default()).unwrap().conflicts, []);
    }
    assert_eq!((bed.read("one"), bed.read("two")), ("1\n".to_owned(), "2\n".to_owned()));
    assert!(bed.read("shared").contains("three\n") && bed.read("shared").contains("end\n"));
}

#[test]
fn a_snapshot_that_lacks_files_is_not_merged() {
    let mut bed = bed();
    shell(&bed.root, "echo 1 > a; echo 1 > b");
    let base = bed.snapshot();
    shell(&bed.root, "rm b; mkfifo b");
    let theirs = bed.snapshot();
    let request = MergeRequest { base: &base, theirs: &theirs, force: Force::No };
    assert!(matches!(bed.workspace.merge(&request, &Control::default()), Err(Error::NotExact { .. })));
}

#[test]
fn a_file_that_became_ignored_is_neither_merged_nor_shown_as_removed() {
    let base = "mkdir -p d/e; echo precious > a.log; echo 1 > d/e/b.log; echo 1 > gone";
    let (mut bed, merged, _) = merge(base, "true", "echo '*.log' > .gitignore; rm gone", Force::No);
    assert_eq!(merged.unwrap(), []);
    assert_eq!((bed.read("a.log"), bed.read("d/e/b.log")), ("precious\n".to_owned(), "1\n".to_owned()));
    assert!(bed.path(".gitignore").exists() && !bed.path("gone").exists());
    bed.remove(".gitignore");
    let before = bed.snapshot();
    shell(&bed.root, "echo '*.log' > .gitignore");
    let after = bed.snapshot();
    let paths = |changes: Vec<Change>| changes.iter().map(|change| change.path.to_string()).collect::<Vec<_>>();
    assert_eq!(paths(bed.store.diff(&before, &after).unwrap()), [".gitignore"]);
}

#[test]
fn tracked_files_that_the_rules_of_a_copy_ignore_are_not_removed_by_a_merge() {
    let mut bed = bed();
    shell(&bed.root, "echo lib > lib.o; echo key > .env; echo '*.o' > .gitignore; git init -q; git add -f .");
    let base = bed.snapshot();
    let own = bed.directory.path().join("own");
    bed.store.copy(&base, &own, &Control::default()).unwrap();
    shell(&own, "echo new > new");
    let mut copy = Workspace::open(&bed.store, &own, Settings::default()).unwrap();
    let theirs = copy.snapshot(&Control::default()).unwrap().snapshot;
    let request = MergeRequest { base: &base, theirs: &theirs, force: Force::No };
    bed.workspace.merge(&request, &Control::default()).unwrap();
    assert_eq!(
        (bed.read("lib.o"), bed.read(".env"), bed.read("new")),
        ("lib\n".into(), "key\n".into(), "new\n".into())
    );
    // A tracked file that is removed was removed.
    bed.remove("lib.o");
    let after = bed.snapshot();
    assert!(bed.store.diff(&base, &after).unwrap().iter().any(|change| change.path.to_string() == "lib.o"));
}

/// Merges by force, checks what conflicted, and returns every path of the result.
fn force(base: &str, ours: &str, theirs: &str, expected: &[(&str, ConflictKind)]) -> (Bed, Vec<String>) {
    let (bed, merged, _) = merge(base, ours, theirs, Force::Yes);
    let conflicts = merged.unwrap();
    let found: Vec<_> = conflicts.iter().map(|conflict| (conflict.path.to_string(), conflict.kind)).collect();
    assert_eq!(found, expected.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect::<Vec<_>>());
    let paths = look(&bed.root).into_keys().map(|path| String::from_utf8(path).unwrap()).collect();
    (bed, paths)
}

#[test]
fn a_directory_that_the_other_side_replaced_by_a_file_stays_while_it_has_other_changes() {
    use ConflictKind::{RemovedAndChanged, Type};
    let base = "mkdir -p d/sub; echo 1 > d/x; echo 1 > d/sub/y; echo 1 > z";
    let replace = "rm -r d; echo file > d; echo 2 > z";
    let conflicts = [("d", Type), ("d/x", RemovedAndChanged)];
    check_conflict(base, "echo ours > d/x", replace, &conflicts);
    let (bed, paths) = force(base, "echo ours > d/x", replace, &conflicts);
    assert_eq!(paths, ["d", "d/sub", "d/sub/y", "d/x", "z"]);
    assert_eq!((bed.read("d/x"), bed.read("d/sub/y"), bed.read("z")), ("ours\n".into(), "1\n".into(), "2\n".into()));
    // A new file there, or an empty directory, would be lost too.
    check_conflict(base, "echo new > d/sub/new", replace, &[("d", Type)]);
    check_conflict(base, "mkdir d/empty", "rm -r d; ln -s z d", &[("d", Type)]);
    let (bed, _) = force(base, "echo new > d/sub/new", replace, &[("d", Type)]);
    assert_eq!((bed.read("d/sub/new"), bed.read("z")), ("new\n".into(), "2\n".into()));
    let (bed, paths) = force(base, "echo ours > z", "rm -r d; echo file > d", &[]);
    assert_eq!((paths, bed.read("d")), (vec!["d".to_owned(), "z".to_owned()], "file\n".to_owned()));
}

#[test]
fn a_file_that_replaced_a_directory_stays_when_the_other_side_adds_files_there() {
    use ConflictKind::{RemovedAndChanged, Type};
    let (base, ours) = ("mkdir d; echo 1 > d/x; echo 1 > z", "rm -r d; echo file > d");
    check_conflict(base, ours, "echo new > d/new; echo 2 > z", &[("d", Type)]);
    let theirs = "echo 2 > d/x; mkdir d/deep; echo new > d/deep/new; echo 2 > z";
    let (bed, paths) = force(base, ours, theirs, &[("d", Type), ("d/x", RemovedAndChanged)]);
    assert_eq!((paths, bed.read("d")), (vec!["d".to_owned(), "z".to_owned()], "file\n".to_owned()));
    assert_eq!(bed.read("z"), "2\n");
    // A file that the other side replaced by a directory, and this side changed.
    let (bed, paths) = force(base, "echo ours > z", "rm z; mkdir z; echo 1 > z/in", &[("z", Type)]);
    assert_eq!((paths, bed.read("z")), (vec!["d".to_owned(), "d/x".to_owned(), "z".to_owned()], "ours\n".to_owned()));
}

#[test]
fn a_new_file_in_a_directory_that_this_side_removed_brings_the_directory_back() {
    let base = "mkdir -p d/sub; echo 1 > d/sub/x; chmod 700 d";
    let (bed, merged, _) = merge(base, "rm -r d", "echo new > d/sub/new", Force::No);
    assert_eq!((merged.unwrap(), bed.read("d/sub/new")), (vec![], "new\n".to_owned()));
    assert_eq!(shell(&bed.root, "stat -c %a d; ls d/sub"), "700\nnew\n");
}

#[test]
fn a_merge_keeps_and_makes_and_separates_hard_links() {
    let check = |base: &str, ours: &str, theirs: &str, expected: &str| {
        let (bed, merged, _) = merge(base, ours, theirs, Force::No);
        assert_eq!(merged.unwrap(), [], "{base:?} {ours:?} {theirs:?}");
        // The number of names of each file, and what is in it.
        let found = shell(&bed.root, "for f in *; do echo $(stat -c %h $f) $f $(cat $f); done");
        assert_eq!(found, expected, "{base:?} {ours:?} {theirs:?}");
    };
    let linked = "echo 1 > a; ln a b; echo 1 > z";
    check(linked, "echo ours > z", "echo 2 > a", "2 a 2\n2 b 2\n1 z ours\n");
    check(linked, "echo ours > z", "ln a c", "3 a 1\n3 b 1\n3 c 1\n1 z ours\n");
    check(linked, "echo ours > z", "rm b; echo 1 > b", "1 a 1\n1 b 1\n1 z ours\n");
    check(linked, "rm b; echo 1 > b", "echo 2 > z", "1 a 1\n1 b 1\n1 z 2\n");
    check("echo 1 > a; echo 1 > b", "true", "rm b; ln a b", "2 a 1\n2 b 1\n");
    check("echo 1 > a", "true", "echo 2 > n; ln n o", "1 a 1\n2 n 2\n2 o 2\n");
    // Names that were joined here only, one of which gets other bytes.
    check("echo 1 > a; echo 1 > b; echo 1 > c", "ln -f a b; ln -f a c", "echo 2 > a", "1 a 2\n2 b 1\n2 c 1\n");
}

#[test]
fn a_new_name_of_a_set_id_file_is_a_name_of_that_file() {
    for name in ["A", "c"] {
        let theirs = format!("chmod 755 a; ln a {name}");
        let (bed, merged, _) = merge("echo 1 > a; chmod 4755 a", "chmod 4755 a", &theirs, Force::No);
        assert_eq!(merged.unwrap(), [], "{name}");
        assert_eq!(shell(&bed.root, &format!("stat -c '%h %a' a {name}")), "2 4755\n2 4755\n", "{name}");
    }
}

#[test]
fn case_75_patterns_that_are_excluded_later_do_not_hide_the_changes_of_a_copy() {
    let bed = bed();
    shell(&bed.root, "echo 1 > a; echo 1 > x.txt; echo 1 > gone.txt; echo 1 > i.iso");
    let taken = |workspace: &mut Workspace| workspace.snapshot(&Control::default()).unwrap().snapshot;
    let excluding = |patterns: &[&str]| Settings {
        exclude: patterns.iter().map(|&pattern| pattern.to_owned()).collect(),
        ..Settings::default()
    };
    let first = taken(&mut Workspace::open(&bed.store, &bed.root, excluding(&["*.iso"])).unwrap());
    let own = bed.directory.path().join("own");
    bed.store.copy(&first, &own, &Control::default()).unwrap();
    shell(&own, "echo 2 > a; echo 2 > x.txt; echo 2 > new.txt; rm gone.txt; echo 2 > n.iso");
    let later = excluding(&["*.iso", "*.txt"]);
    let theirs = taken(&mut Workspace::open(&bed.store, &own, later.clone()).unwrap());
    let mut target = Workspace::open(&bed.store, &bed.root, later).unwrap();
    let request = MergeRequest { base: &first, theirs: &theirs, force: Force::No };
    assert!(target.merge(&request, &Control::default()).unwrap().applied.is_verified());
    assert_eq!([bed.read("a"), bed.read("x.txt"), bed.read("new.txt")], ["2\n", "2\n", "2\n"]);
    assert!(!bed.path("gone.txt").exists() && !bed.path("n.iso").exists() && bed.path("i.iso").exists());
    // What is excluded now counts again.
    assert_eq!(bed.ls_tree(&taken(&mut target)), ["a"]);
}
