//! The store, as Git reads it.

use std::fs;

use relive_workspace::{BlameVersion, Snapshot};

use crate::support::{Bed, bed, git, look, path, run, shell};

/// Returns Git's own snapshot of the same directory, in a repository with the same kind of ids.
fn git_tree(root: &std::path::Path, at: &std::path::Path) -> String {
    run(git().args(["init", "-q", "--bare", "--object-format=sha256"]).arg(at));
    run(git()
        .arg("--git-dir")
        .arg(at)
        .args(["-c", "core.bare=false", "-c", "core.autocrlf=false", "--work-tree"])
        .arg(root)
        .args(["add", "-A"]));
    run(git().arg("--git-dir").arg(at).arg("write-tree")).trim().to_owned()
}

#[test]
fn trees_match_git() {
    let mut bed = bed();
    shell(
        &bed.root,
        "mkdir -p a a.d sub/deep; echo 1 > a/x; echo 2 > a-b; echo 3 > a0; echo 4 > a.d/y; echo 5 > sub/deep/z
         ln -s nowhere dangling; ln -s loop loop; printf 'x' > \"$(printf 'caf\\351')\"; printf 'y' > \"$(printf 'new\\nline')\"
         echo '#!/bin/sh' > run; chmod 755 run; : > nothing; head -c 300000 /dev/urandom > random
         i=0; while [ $i -lt 300 ]; do echo $i > sub/f$i; i=$((i+1)); done",
    );
    let snapshot = bed.snapshot();
    let theirs = git_tree(&bed.root, &bed.directory.path().join("git"));
    assert_eq!(snapshot.tree.to_string(), theirs);
    shell(&bed.root, "rm -r a; echo changed > a0; mkdir a; echo back > a/x; mv sub moved");
    let again = bed.snapshot();
    assert_eq!(again.tree.to_string(), git_tree(&bed.root, &bed.directory.path().join("git2")));
}

#[test]
fn git_reads_the_store() {
    let mut bed = bed();
    bed.write("file", "one\ntwo\n");
    let first = bed.snapshot();
    bed.write("file", "one\nthree\n");
    bed.write("new", "x\n");
    let second = bed.snapshot();
    let (a, b) = (first.tree.to_string(), second.tree.to_string());
    let diff = bed.git(&["diff", &a, &b]);
    assert!(diff.contains("-two\n+three\n") && diff.contains("+++ b/new"), "{diff}");
    bed.git(&["fsck", "--full", "--strict", "--no-dangling", &b]);
    let packs = fs::read_dir(bed.store.path().join("objects/pack")).unwrap();
    for pack in packs.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "idx"))
    {
        bed.git(&["verify-pack", pack.to_str().unwrap()]);
    }
    // Relive's own diff agrees.
    let changes = bed.store.diff(&first, &second).unwrap();
    let ours = bed.store.unified_diff(&changes).unwrap();
    let essence =
        |text: &str| text.lines().filter(|line| !line.starts_with("index ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(essence(&ours), essence(&diff));
}

#[test]
fn unified_diffs_name_odd_files_and_other_kinds_as_git_does() {
    let mut bed = bed();
    shell(
        &bed.root,
        "echo 1 > 'a b'; echo 1 > 'q\"t'; mkdir d e; echo 1 > d/x; echo 1 > e/y; echo one > f; ln -s one l",
    );
    let first = bed.snapshot();
    shell(
        &bed.root,
        r#"echo 2 > 'a b'; echo 2 > 'q"t'; rm -r d e f l; echo 2 > d; ln -s one f; echo one > l; echo 2 > "$(printf 'n\nl\377')"
           mkdir "$(printf 's\tt')"; echo 2 > "$(printf 's\tt/b s')"; ln -s d e"#,
    );
    let second = bed.snapshot();
    check_diff(&bed, &first, &second);
}

#[test]
fn unified_diffs_match_git() {
    let mut bed = bed();
    shell(&bed.root, "seq 1 60 > a; seq 1 5 > b; printf 'no end' > c; printf 'x\\000y' > d; echo e > e; ln -s one l");
    let first = bed.snapshot();
    shell(
        &bed.root,
        "sed -i -e 5d -e 's/^12$/twelve/' -e '50i new' a; seq 0 5 > b; printf 'no end\\nnow' > c; printf 'x\\000z' > d; rm e
         chmod 755 b; ln -sf two l",
    );
    let second = bed.snapshot();
    check_diff(&bed, &first, &second);
}

#[track_caller]
fn check_diff(bed: &Bed, first: &Snapshot, second: &Snapshot) {
    let theirs = bed.git(&[
        "-c",
        "diff.noprefix=false",
        "diff",
        "--no-renames",
        "--diff-algorithm=histogram",
        &first.tree.to_string(),
        &second.tree.to_string(),
    ]);
    let changes = bed.store.diff(first, second).unwrap();
    let ours = bed.store.unified_diff(&changes).unwrap();
    let essence = |text: &str| {
        // Git repeats a line of the text after the second `@@`.
        let line = |line: &str| match line.strip_prefix("@@") {
            Some(rest) => format!("@@{}@@", rest.split("@@").next().unwrap()),
            None => line.to_owned(),
        };
        text.lines().filter(|line| !line.starts_with("index ")).map(line).collect::<Vec<_>>()
    };
    assert_eq!(essence(&ours), essence(&theirs));
}

#[test]
fn the_store_is_private() {
    let mut bed = bed();
    bed.write("a", "x");
    bed.snapshot();
    bed.workspace.save_cache().unwrap();
    for (name, seen) in look(bed.store.path()) {
        let (is_private, name) = (
            match seen {
                crate::support::Seen::Directory { mode } => mode == 0o700,
                crate::support::Seen::File { mode, .. } => mode == 0o600,
                crate::support::Seen::Link(_) | crate::support::Seen::Special => false,
            },
            String::from_utf8_lossy(&name).into_owned(),
        );
        assert!(is_private, "{name}");
    }
}

fn blamed(bed: &Bed, versions: &[BlameVersion]) -> Vec<(String, usize)> {
    let lines = bed.store.blame(versions, &path("f")).unwrap();
    lines.into_iter().map(|line| (line.text, line.version)).collect()
}

fn expected(lines: &[(&str, usize)]) -> Vec<(String, usize)> {
    lines.iter().map(|(text, version)| ((*text).to_owned(), *version)).collect()
}

#[test]
fn blame_names_the_version_that_wrote_a_line() {
    let mut bed = bed();
    let mut versions: Vec<BlameVersion> = Vec::new();
    for text in ["a\nb\n", "a\nb\n", "a\nx\nb\n", "a\nx\nb\nc\n", "a\nx\nc\n"] {
        bed.write("f", text);
        versions.push(bed.snapshot().into());
    }
    assert_eq!(blamed(&bed, &versions), expected(&[("a", 0), ("x", 2), ("c", 3)]));
    bed.write("f", "a\nx\nb\n");
    versions.push(bed.snapshot().into());
    assert_eq!(blamed(&bed, &versions), expected(&[("a", 0), ("x", 2), ("b", 0)]), "lines that come back");
    bed.remove("f");
    versions.push(bed.snapshot().into());
    assert!(bed.store.blame(&versions, &path("f")).is_err());
    bed.write("f", "new\n");
    versions.push(bed.snapshot().into());
    assert_eq!(blamed(&bed, &versions), expected(&[("new", 7)]));
}

#[test]
fn blame_finds_merged_lines_in_the_copy_they_come_from() {
    let mut bed = bed();
    let mut version = |text: &str, copy, merges| {
        bed.write("f", text);
        BlameVersion { snapshot: bed.snapshot(), copy, merges }
    };
    let versions = [
        version("a\nb\nc\n", None, None),
        version("a\nb\nc\n", Some(5), None),
        version("here\na\nb\nc\n", None, None),
        version("a\nb\nc\nthere\n", Some(5), None),
        version("here\na\nb\nc\nthere\nnobody's\n", None, Some(5)),
    ];
    let found = expected(&[("here", 2), ("a", 0), ("b", 0), ("c", 0), ("there", 3), ("nobody's", 4)]);
    assert_eq!(blamed(&bed, &versions), found);
}
