//! Snapshots that lack files, and restores to them.

use relive_workspace::{Control, Disk, Error, Force, Grade, MergeRequest, RestoreRequest, Settings, Workspace};

use crate::support::{Bed, bed, look, path, shell};

fn small_files() -> Bed {
    Bed::new(Disk::new(), Settings { max_file_bytes: 10, ..Settings::default() })
}

#[test]
fn a_restore_does_not_remove_files_that_could_not_be_stored_then() {
    let mut bed = small_files();
    shell(&bed.root, "mkdir d; echo 'longer than ten bytes' > d/large; mkfifo pipe; echo 1 > a");
    let first = bed.snapshot();
    assert_eq!(first.grade, Grade::Partial);
    shell(&bed.root, "echo short > d/large; echo new > d/new; rm pipe; echo file > pipe; echo 2 > a");
    assert_eq!(bed.snapshot().grade, Grade::Exact);
    let restored = bed.force_restore(&first).unwrap();
    assert!(restored.applied.is_verified());
    assert_eq!(restored.spared, [path("d/large"), path("pipe")]);
    assert_eq!(
        (bed.read("a"), bed.read("d/large"), bed.read("pipe")),
        ("1\n".into(), "short\n".into(), "file\n".into())
    );
    assert!(!bed.path("d/new").exists());
}

#[test]
fn a_path_that_can_no_longer_be_stored_changes_the_snapshot() {
    let mut bed = bed();
    bed.write("a", "1");
    let exact = bed.snapshot();
    shell(&bed.root, "mkfifo pipe");
    let partial = bed.snapshot();
    assert_eq!((exact.grade, partial.grade), (Grade::Exact, Grade::Partial));
    assert!(!partial.is_same_files(&exact));
    assert_eq!(bed.store.diff(&exact, &partial).unwrap(), []);
}

#[test]
fn a_file_that_can_no_longer_be_stored_is_not_shown_as_removed() {
    let mut bed = small_files();
    shell(&bed.root, "mkdir d; echo short > d/large; echo 1 > a");
    let first = bed.snapshot();
    bed.write("d/large", "longer than ten bytes");
    let partial = bed.snapshot();
    assert_eq!(bed.store.diff(&first, &partial).unwrap(), []);
    bed.remove("d/large");
    let last = bed.snapshot();
    let removed: Vec<_> = bed.store.diff(&first, &last).unwrap().into_iter().map(|change| change.path).collect();
    assert!(removed.contains(&path("d/large")), "{removed:?}");
}

#[test]
fn a_copy_of_a_partial_snapshot_is_partial_and_has_the_same_files() {
    let mut bed = bed();
    shell(&bed.root, "mkfifo pipe; echo 1 > a; chmod 600 a");
    let partial = bed.snapshot();
    let copied = bed.store.as_copied(&partial).unwrap();
    let own = bed.directory.path().join("own");
    bed.store.copy(&copied, &own, &Control::default()).unwrap();
    let mut copy = Workspace::open(&bed.store, &own, Settings::default()).unwrap();
    let taken = copy.snapshot(&Control::default()).unwrap();
    assert!(taken.snapshot.is_same_files(&copied));
    assert_eq!(copied.grade, Grade::Partial);
    shell(&bed.root, "rm pipe");
    let exact = bed.snapshot();
    assert_eq!(bed.store.as_copied(&exact).unwrap(), exact);
}

#[test]
fn a_forced_merge_does_not_remove_files_that_could_not_be_stored() {
    let mut bed = small_files();
    shell(&bed.root, "echo short > grown; echo 1 > a");
    let base = bed.snapshot();
    shell(&bed.root, "echo 'longer than ten bytes' > grown; echo 2 > a");
    let theirs = bed.snapshot();
    shell(&bed.root, "echo short > grown; echo 1 > a");
    let request = MergeRequest { base: &base, theirs: &theirs, force: Force::Yes };
    bed.workspace.merge(&request, &Control::default()).unwrap();
    assert_eq!((bed.read("a"), bed.read("grown")), ("2\n".to_owned(), "short\n".to_owned()));
}

#[test]
fn a_restore_spares_what_the_patterns_of_its_time_exclude() {
    let patterns = |include: &[&str], exclude: &[&str]| {
        let owned = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        Settings { include: owned(include), exclude: owned(exclude), ..Settings::default() }
    };
    let mut bed = Bed::new(Disk::new(), patterns(&[], &["*.iso"]));
    shell(&bed.root, "echo dist/ > .gitignore; mkdir dist; echo 1 > dist/a; echo i > x.iso; echo 1 > a; echo s > .env");
    let (first, seen) = (bed.snapshot(), look(&bed.root));
    bed.write("a", "2");
    bed.write("new", "2");
    bed.workspace = Workspace::open(&bed.store, &bed.root, patterns(&["dist/", ".env"], &[])).unwrap();
    let second = bed.snapshot();
    assert_eq!(bed.ls_tree(&second).len(), 6);
    let restored = bed.restore(&first);
    assert_eq!(restored.spared, [path(".env"), path("dist/a"), path("x.iso")]);
    assert_eq!(look(&bed.root), seen);
}

#[test]
fn a_file_below_a_directory_that_is_a_link_now_is_refused_and_nothing_is_written() {
    let mut bed = bed();
    bed.write("d/e/file", "1");
    bed.write("other/file", "1");
    let first = bed.snapshot();
    shell(&bed.root, "rm -r d; ln -s other d");
    let seen = look(&bed.root);
    let paths = [path("d/e/file")];
    let request = RestoreRequest { target: &first, expected: None, paths: &paths, force: Force::No };
    let error = bed.workspace.restore(&request, &Control::default()).unwrap_err();
    assert!(matches!(&error, Error::NotADirectory { above, .. } if *above == path("d")), "{error}");
    assert_eq!(look(&bed.root), seen);
    let paths = [path("d")];
    let restored = bed.workspace.restore(&RestoreRequest { paths: &paths, ..request }, &Control::default()).unwrap();
    assert!(restored.applied.is_verified());
    assert_eq!(bed.read("d/e/file"), "1");
}

#[test]
fn sticky_and_group_bits_of_directories_are_restored_and_copied() {
    let mut bed = bed();
    shell(&bed.root, "mkdir shared group; echo 1 > shared/a; echo 1 > group/a; chmod 1777 shared; chmod 2755 group");
    let (first, seen) = (bed.snapshot(), look(&bed.root));
    assert_eq!(first.grade, Grade::Exact);
    shell(&bed.root, "rm -r group; chmod 755 shared; mkdir -m 1777 fresh");
    bed.snapshot();
    bed.restore(&first);
    assert_eq!(look(&bed.root), seen);
    let own = bed.directory.path().join("own");
    bed.store.copy(&first, &own, &Control::default()).unwrap();
    assert_eq!(look(&own), seen);
}
