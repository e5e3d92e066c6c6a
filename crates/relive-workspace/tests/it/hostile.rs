//! A repository that tries to harm its reader.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use relive_workspace::{Error, Grade, SkipReason};

use crate::support::{bed, git, run, shell};

/// Returns the inode, times and bytes of everything in the repository's own directory.
fn fingerprint(root: &Path) -> BTreeMap<std::path::PathBuf, (u64, i64, i64, Vec<u8>)> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = open.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let bytes = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (metadata.ino(), metadata.mtime_nsec(), metadata.ctime_nsec(), bytes));
    }
    found
}

#[test]
fn case_74_a_hostile_repository_causes_no_execution_no_hang_and_no_lost_snapshot() {
    let mut bed = bed();
    run(git().current_dir(&bed.root).args(["init", "-q"]));
    let bait = bed.directory.path().join("executed");
    let program = bed.directory.path().join("program");
    fs::write(&program, format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", bait.display())).unwrap();
    shell(bed.directory.path(), "chmod 755 program");
    bed.write("good", "kept\r\n");
    bed.write("lfs.bin", "raw bytes");
    bed.write("deep/file", "kept");
    run(git().current_dir(&bed.root).args(["add", "."]));
    let at = program.display();
    let config = format!(
        "[core]\n\tfsmonitor = {at}\n\thooksPath = {0}\n\tsshCommand = {at}\n\tpager = {at}\n\tautocrlf = true\n\
         [filter \"evil\"]\n\tclean = {at}\n\tsmudge = {at}\n\tprocess = {at}\n\trequired = true\n\
         [diff \"evil\"]\n\ttextconv = {at}\n\tcommand = {at}\n[merge \"evil\"]\n\tdriver = {at}\n\
         [include]\n\tpath = pipe\n[include]\n\tpath = {0}/loop\n[core]\n\texcludesFile = {0}/pipe\n",
        bed.root.display()
    );
    fs::write(bed.path(".git/config"), config).unwrap();
    fs::write(bed.path(".git/hooks/post-index-change"), fs::read(&program).unwrap()).unwrap();
    bed.write(".gitattributes", "* filter=evil diff=evil merge=evil text eol=crlf ident\n*.bin filter=lfs\n");
    shell(
        &bed.root,
        "mkfifo pipe .git/info/pipe; rm -f .git/info/exclude; ln -s pipe .git/info/exclude
         ln -s loop loop; ln -s . self; ln -s / root; mkdir cycle; ln -s ../cycle cycle/again
         truncate -s 4G sparse; mkdir sub; mkfifo sub/.gitignore; ln -s /dev/zero sub/zero; echo kept > sub/file
         chmod 755 .git/hooks/post-index-change",
    );
    let before = fingerprint(&bed.path(".git"));
    let begun = Instant::now();
    let taken = bed.take();
    let again = bed.snapshot();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!((taken.snapshot.grade, again.tree), (Grade::Partial, taken.snapshot.tree));
    let skipped: Vec<_> = taken.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.reason)).collect();
    let special = |path: &str| (path.to_owned(), SkipReason::Special);
    let expected = [special("pipe"), ("sparse".to_owned(), SkipReason::TooLarge), special("sub/.gitignore")];
    assert_eq!(skipped, expected);
    let id = bed.store.state(&again, &"good".parse().unwrap()).unwrap().unwrap().id.unwrap();
    assert_eq!(bed.store.blob(id).unwrap(), b"kept\r\n", "bytes as they are");
    let listed = bed.ls_tree(&again);
    for path in ["deep/file", "lfs.bin", "loop", "self", "root", "cycle/again", "sub/file", "sub/zero"] {
        assert!(listed.iter().any(|listed| listed == path), "{path}");
    }

    // Restores and merges do not touch it either.
    let request = relive_workspace::RestoreRequest {
        target: &again,
        expected: None,
        paths: &[],
        force: relive_workspace::Force::Yes,
    };
    shell(&bed.root, "echo x > good; rm -r deep; rm loop; echo x > loop");
    let restored = bed.workspace.restore(&request, &relive_workspace::Control::default()).unwrap();
    assert!(restored.applied.is_verified());
    assert_eq!(fingerprint(&bed.path(".git")), before, "the repository is as it was");
    assert!(!bait.exists(), "something was run: {}", fs::read_to_string(&bait).unwrap_or_default());
}

#[test]
fn a_damaged_or_lying_index_is_harmless() {
    let mut bed = bed();
    run(git().current_dir(&bed.root).args(["init", "-q"]));
    bed.write("a", "x");
    bed.write("b.o", "x");
    bed.write(".gitignore", "*.o\n");
    run(git().current_dir(&bed.root).args(["add", "-f", "."]));
    let index = fs::read(bed.path(".git/index")).unwrap();
    for at in 0..index.len() {
        let mut broken = index.clone();
        broken[at] ^= 0xff;
        fs::write(bed.path(".git/index"), &broken[..index.len() - at % 3]).unwrap();
        assert!(bed.ls_tree_len() >= 2, "byte {at}");
    }
    fs::remove_file(bed.path(".git/index")).unwrap();
    shell(&bed.root, "mkfifo .git/index");
    assert_eq!(bed.ls_tree_len(), 2);
}

impl crate::support::Bed {
    fn ls_tree_len(&mut self) -> usize {
        usize::try_from(self.take().files).unwrap()
    }
}

/// An index entry of version 4, which removes `removed` bytes of the path before it and adds `added`.
fn entry(removed: &[u8], added: &[u8]) -> Vec<u8> {
    let mut entry = vec![0; 24];
    entry.extend(0o100_644_u32.to_be_bytes());
    entry.extend([0; 12 + 20 + 2]);
    [entry, removed.to_vec(), added.to_vec(), vec![0]].concat()
}

fn index(version: u32, entries: &[Vec<u8>], extension: &[u8]) -> Vec<u8> {
    let count = u32::try_from(entries.len()).unwrap();
    let head = [b"DIRC".as_slice(), &version.to_be_bytes(), &count.to_be_bytes()].concat();
    [head, entries.concat(), extension.to_vec(), vec![0; 20]].concat()
}

#[test]
fn a_small_index_that_stands_for_much_memory_is_not_read_and_named() {
    let mut bed = bed();
    run(git().current_dir(&bed.root).args(["init", "-q"]));
    bed.write("a", "x");
    let exact = bed.snapshot();
    assert_eq!(exact.grade, Grade::Exact);
    // Each entry repeats the path of the one before.
    let repeated = [vec![entry(&[0], &vec![b'a'; 1 << 20])], vec![entry(&[0], b""); 200_000]].concat();
    // Directories of paths that differ at their beginning.
    let deep = |number: u32| [format!("{number}/").into_bytes(), b"a/".repeat(2_000)].concat();
    let padded = |path: Vec<u8>| {
        let mut entry = entry(b"", &path);
        entry.resize(entry.len().div_ceil(8) * 8, 0);
        entry
    };
    let directories: Vec<_> = (0..2_000).map(|number| padded(deep(number))).collect();
    let many = |path_len: usize, count| {
        vec![entry(&[0], &vec![b'a'; path_len])].into_iter().chain(vec![entry(&[0], b""); count])
    };
    let sum: Vec<_> = many(4_000, 100_000).collect();
    for (what, text) in [
        ("one long path", index(4, &repeated, b"")),
        ("directories", index(2, &directories, b"")),
        ("sum of paths", index(4, &sum, b"")),
    ] {
        fs::write(bed.path(".git/index"), text).unwrap();
        assert_eq!(bed.snapshot().grade, Grade::Partial, "{what}");
    }
    let partial = bed.snapshot();
    let named = |paths: &[relive_workspace::FilePath]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(named(&bed.store.skipped(&partial).unwrap()), [".git/index"]);
    let refused = bed.try_restore(&partial).unwrap_err();
    assert!(matches!(&refused, Error::NotExact { left_out, .. } if named(left_out) == [".git/index"]), "{refused:?}");
}

#[test]
fn removed_entries_of_a_split_index_take_no_more_memory_than_it_has_entries() {
    let mut bed = bed();
    run(git().current_dir(&bed.root).args(["init", "-q"]));
    bed.write("a.o", "x");
    bed.write(".gitignore", "*.o\n");
    let shared = index(4, &[entry(&[0], b"a.o")], b"");
    fs::write(bed.path(&format!(".git/sharedindex.{}", "11".repeat(20))), shared).unwrap();
    // One run of four billion words.
    let run = [u32::MAX.to_be_bytes(), 1_u32.to_be_bytes()].concat();
    let marker = (u64::from(u32::MAX) << 1 | 1).to_be_bytes();
    let link = [vec![0x11; 20], run, marker.to_vec(), vec![0; 4]].concat();
    let extension = [b"link".as_slice(), &u32::try_from(link.len()).unwrap().to_be_bytes(), &link].concat();
    fs::write(bed.path(".git/index"), index(4, &[], &extension)).unwrap();
    let taken = bed.take();
    assert_eq!((taken.snapshot.grade, taken.files), (Grade::Exact, 1), "the shared entry is removed");
}
