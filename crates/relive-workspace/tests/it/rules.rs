//! Selected files: the same as in Git, plus Relive's own rules.

use std::fs;

use relive_workspace::{Control, Disk, Error, Grade, Settings, SkipReason, Workspace};

use crate::support::{Bed, Random, bed, git, path, run, shell};

/// Returns the files that `git ls-files` counts as part of the repository.
fn git_files(bed: &Bed) -> Vec<String> {
    let listed =
        run(git().current_dir(&bed.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]));
    let mut files: Vec<_> = listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    files.retain(|path| bed.path(path).symlink_metadata().is_ok());
    files.sort();
    files.dedup();
    files
}

fn check_same_as_git(bed: &mut Bed, what: &str) {
    let snapshot = bed.snapshot();
    let mut ours = bed.ls_tree(&snapshot);
    ours.sort();
    assert_eq!(ours, git_files(bed), "{what}");
}

fn init(bed: &Bed) {
    run(git().current_dir(&bed.root).args(["init", "-q"]));
}

/// Takes snapshots until the stat cache is relied on for every file.
fn settle(bed: &mut Bed) {
    while bed.take().read_bytes > 0 {}
}

fn packs(bed: &Bed) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(bed.store.path().join("objects/pack")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn an_ignore_file_that_is_too_large_is_never_applied_and_named() {
    let mut bed = bed();
    bed.write(".gitignore", format!("*.log\n{}", "# nothing\n".repeat(120_000)));
    bed.write("a.log", "x");
    let first = bed.take();
    settle(&mut bed);
    bed.write("b.log", "x");
    let later = bed.take();
    for (taken, files) in [(&first, 2), (&later, 3)] {
        assert_eq!((taken.files, taken.snapshot.grade), (files, Grade::Partial));
        let skipped: Vec<_> = taken.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.reason)).collect();
        assert_eq!(skipped, [(".gitignore".to_owned(), SkipReason::RulesTooLarge)]);
        assert_eq!(bed.store.skipped(&taken.snapshot).unwrap(), [path(".gitignore")]);
    }
}

#[test]
fn rules_that_the_store_cannot_read_are_read_from_the_disk() {
    for is_gone in [true, false] {
        let mut bed = bed();
        bed.write(".gitignore", "*.log\n");
        settle(&mut bed);
        for pack in packs(&bed) {
            if is_gone {
                fs::remove_file(pack).unwrap();
            } else if pack.extension().is_some_and(|end| end == "pack") {
                let len = fs::read(&pack).unwrap().len();
                fs::write(&pack, vec![0xff; len]).unwrap();
            }
        }
        bed.write("kept", "x");
        bed.write("b.log", "x");
        let taken = bed.take();
        assert_eq!((taken.files, taken.skipped), (2, Vec::new()), "{is_gone}");
    }
}

#[test]
fn classes_that_posix_names_match_git() {
    let names = ["main", "Main", "1x", "_y", "x.o", "-", " s", "a]", "f9", "g", "s/lib", "s/2", "s-lib", "s3lib"];
    for rules in [
        "*\n![[:alpha:]]*\n!*/\n",
        "[[:digit:]_]*\n",
        "[![:lower:]]*\n",
        "*[[:punct:]]\n",
        "[[:xdigit:]][[:xdigit:]]\n",
        "[[:space:]]?\n[[:upper:]]*\n",
        "[[:none:]]*\n[[:alpha:\n[[:alpha\n",
        "s[[:punct:]]lib\n",
        "s[[:graph:]]lib\n",
        "s[[:print:]]lib\n",
        "s[![:alpha:]]lib\n",
        "s[+-9]lib\n",
        "s[/3]lib\n",
        "s[/]lib\n",
    ] {
        let mut bed = bed();
        init(&bed);
        names.iter().for_each(|name| bed.write(name, "x"));
        bed.write(".gitignore", rules);
        check_same_as_git(&mut bed, rules);
    }
}

#[test]
fn nested_negated_anchored_and_starred_rules_match_git() {
    let mut bed = bed();
    init(&bed);
    for path in [
        "a.o",
        "keep.o",
        "src/a.o",
        "src/b.c",
        "src/keep.o",
        "build/x",
        "src/build/x",
        "doc/a/b/c.tmp",
        "doc/c.tmp",
        "a b ",
        "x{1}",
        "#hash",
        "!bang",
    ] {
        bed.write(path, "x");
    }
    bed.write(".gitignore", "*.o\n!keep.o\n/build\ndoc/**/*.tmp\n\\#hash\n\\!bang\na\\ b\\ \nx{1}\n");
    bed.write("src/.gitignore", "!a.o\nb.c\n");
    check_same_as_git(&mut bed, "rules");
    let before = bed.snapshot();
    bed.write("src/.gitignore", "# nothing\n");
    check_same_as_git(&mut bed, "changed rules");
    assert_ne!(bed.snapshot().tree, before.tree);
}

#[test]
fn exclude_files_outside_of_the_tree_apply() {
    let bed = bed();
    init(&bed);
    bed.write("local", "x");
    bed.write("global", "x");
    bed.write("both", "x");
    fs::write(bed.path(".git/info/exclude"), "local\nboth\n").unwrap();
    let excludes = bed.directory.path().join("excludes");
    fs::write(&excludes, "global\n!both\n").unwrap();
    let config = bed.directory.path().join("gitconfig");
    fs::write(&config, format!("[core]\n\texcludesFile = {}\n", excludes.display())).unwrap();
    let settings = Settings { git_configs: vec![config], ..Settings::default() };
    let mut workspace = Workspace::open(&bed.store, &bed.root, settings).unwrap();
    let snapshot = workspace.snapshot(&Control::default()).unwrap().snapshot;
    assert_eq!(bed.ls_tree(&snapshot), [] as [&str; 0]);
}

#[test]
fn tracked_files_are_included_even_if_ignored_or_secret() {
    for version in ["2", "3", "4"] {
        let mut bed = bed();
        init(&bed);
        for path in ["vendor/deep/lib.o", "vendor/other.o", ".env", "tests/server.pem", "new/.env"] {
            bed.write(path, "x");
        }
        bed.write(".gitignore", "vendor/\n*.o\n");
        let add = ["add", "-f", "vendor/deep/lib.o", ".env", "tests/server.pem", ".gitignore"];
        run(git().current_dir(&bed.root).args(["-c", &format!("index.version={version}")]).args(add));
        let taken = bed.take();
        let skipped: Vec<_> = taken.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.reason)).collect();
        assert_eq!(skipped, [("new/.env".to_owned(), SkipReason::Secret)]);
        assert_eq!(taken.snapshot.grade, Grade::Exact, "a secret is out by rule");
        assert_eq!(bed.ls_tree(&taken.snapshot), [".env", ".gitignore", "tests/server.pem", "vendor/deep/lib.o"]);
        run(git().current_dir(&bed.root).args(["rm", "-q", "--cached", "vendor/deep/lib.o"]));
        let snapshot = bed.snapshot();
        assert_eq!(bed.ls_tree(&snapshot), [".env", ".gitignore", "tests/server.pem"]);
    }
}

#[test]
fn tracked_files_of_a_split_index_are_included() {
    for version in ["2", "4"] {
        let mut bed = bed();
        init(&bed);
        for name in ["a", "b", "c", "d"] {
            bed.write(&format!("{name}.o"), name);
        }
        bed.write(".gitignore", "*.o\n");
        let split = format!(
            "git config splitIndex.maxPercentChange 100; git config core.splitIndex true
             git config index.version {version}; git config user.name t; git config user.email t@t
             git add -f a.o b.o c.o .gitignore; git update-index --split-index; git commit -qm x
             git rm -q --cached b.o; echo more >> c.o; git add -f c.o d.o; ls .git/sharedindex.*"
        );
        shell(&bed.root, &split);
        let taken = bed.take();
        assert_eq!(bed.ls_tree(&taken.snapshot), [".gitignore", "a.o", "c.o", "d.o"], "version {version}");
        assert_eq!(taken.snapshot.grade, Grade::Exact);
        shell(&bed.root, "rm .git/sharedindex.*; touch .git/index");
        assert_eq!(bed.snapshot().grade, Grade::Partial, "tracked files are not known");
    }
}

#[test]
fn tracked_files_of_submodules_are_included() {
    let mut bed = bed();
    init(&bed);
    bed.write(".gitignore", "*.o\n");
    bed.write("sub/inner/deep.o", "x");
    bed.write("sub/lib.o", "x");
    bed.write("sub/.env", "x");
    bed.write("sub/other.o", "x");
    let commit = "git config user.name t; git config user.email t@t";
    shell(
        &bed.root,
        &format!(
            "(cd sub/inner; git init -q; {commit}; git add -f deep.o; git commit -qm x)
             (cd sub; git init -q; {commit}; git add -f lib.o .env inner; git commit -qm x); git add -f sub .gitignore"
        ),
    );
    let taken = bed.take();
    assert_eq!(bed.ls_tree(&taken.snapshot), [".gitignore", "sub/.env", "sub/inner/deep.o", "sub/lib.o"]);
    assert_eq!(taken.snapshot.grade, Grade::Exact);
    // A change of the index of a submodule alone, and a `.git` that is a file.
    shell(
        &bed.root,
        "cd sub; git rm -q --cached lib.o; git add -f other.o; mv .git ../.git/s; echo 'gitdir: ../.git/s' > .git",
    );
    let snapshot = bed.snapshot();
    assert_eq!(bed.ls_tree(&snapshot), [".gitignore", "sub/.env", "sub/inner/deep.o", "sub/other.o"]);
    shell(&bed.root, "echo damaged > .git/s/index");
    assert_eq!(bed.snapshot().grade, Grade::Partial);
    shell(&bed.root, "rm sub/.git");
    let snapshot = bed.snapshot();
    assert_eq!((bed.ls_tree(&snapshot), snapshot.grade), (vec![".gitignore".to_owned()], Grade::Exact));
}

#[test]
fn a_workspace_below_the_root_of_a_repository_follows_its_rules() {
    let bed = bed();
    init(&bed);
    for path in ["sub/a.o", "sub/deep/b.o", "sub/deep/c", "sub/anchored", "sub/tracked.o"] {
        bed.write(path, "x");
    }
    bed.write(".gitignore", "*.o\n/sub/anchored\n");
    run(git().current_dir(&bed.root).args(["add", "-f", "sub/tracked.o"]));
    let mut workspace = Workspace::open(&bed.store, &bed.path("sub"), Settings::default()).unwrap();
    let snapshot = workspace.snapshot(&Control::default()).unwrap().snapshot;
    assert_eq!(bed.ls_tree(&snapshot), ["deep/c", "tracked.o"]);
}

#[test]
fn a_linked_worktree_uses_its_own_index() {
    let bed = bed();
    init(&bed);
    bed.write("file", "x");
    bed.write("kept.o", "x");
    bed.write(".gitignore", "*.o\n");
    shell(
        &bed.root,
        "git add -f . && git -c user.name=t -c user.email=t@t commit -qm x && git worktree add -q ../linked",
    );
    let mut workspace = Workspace::open(&bed.store, &bed.directory.path().join("linked"), Settings::default()).unwrap();
    let snapshot = workspace.snapshot(&Control::default()).unwrap().snapshot;
    assert_eq!(bed.ls_tree(&snapshot), [".gitignore", "file", "kept.o"]);
}

#[test]
fn nested_repositories_are_entered() {
    let mut bed = bed();
    init(&bed);
    bed.write("nested/file", "x");
    run(git().current_dir(bed.path("nested")).args(["init", "-q"]));
    bed.write("module/file", "x");
    bed.write("module/.git", "gitdir: ../.git/modules/module\n");
    let taken = bed.take();
    assert_eq!(bed.ls_tree(&taken.snapshot), ["module/file", "nested/file"]);
    assert_eq!(taken.snapshot.grade, Grade::Exact);
}

#[test]
fn include_and_exclude_override_all_other_rules() {
    let settings = Settings {
        include: vec![".env".to_owned(), "dist/keep/".to_owned(), "/cache/one.o".to_owned()],
        exclude: vec!["*.log".to_owned(), "/docs".to_owned()],
        ..Settings::default()
    };
    let mut bed = Bed::new(Disk::new(), settings);
    for path in [
        ".env",
        "id_rsa",
        "dist/keep/a.o",
        "dist/keep/b.log",
        "dist/drop",
        "cache/one.o",
        "cache/two.o",
        "docs/a",
        "a.log",
        "b",
    ] {
        bed.write(path, "x");
    }
    bed.write(".gitignore", "dist/\n*.o\n");
    let taken = bed.take();
    assert_eq!(bed.ls_tree(&taken.snapshot), [".env", ".gitignore", "b", "cache/one.o", "dist/keep/a.o"]);
    let settings = Settings { exclude: vec!["[z-a]".to_owned()], ..Settings::default() };
    let mut workspace = Workspace::open(&bed.store, &bed.root, settings).unwrap();
    assert!(matches!(workspace.snapshot(&Control::default()), Err(Error::InvalidPattern { .. })));
}

#[test]
fn what_is_hidden_from_programs_is_in_no_snapshot_whatever_else_says_so() {
    let mut bed = bed();
    init(&bed);
    for path in ["config/gcloud/token", "config/app", "keys/provider", "keys/readme", "tracked"] {
        bed.write(path, "x");
    }
    run(git().current_dir(&bed.root).args(["add", "tracked", "keys/provider"]));
    let before = bed.take();
    assert_eq!(
        bed.ls_tree(&before.snapshot),
        ["config/app", "config/gcloud/token", "keys/provider", "keys/readme", "tracked"]
    );
    let root = bed.root.canonicalize().unwrap();
    let settings = Settings {
        include: vec!["config/".to_owned(), "keys/".to_owned()],
        hidden: vec![root.join("config/gcloud"), root.join("keys/provider"), "/run/user".into()],
        ..Settings::default()
    };
    // The state of the directory is that of the snapshot before: nothing has to be read again.
    let mut workspace = Workspace::open(&bed.store, &bed.root, settings).unwrap();
    let taken = workspace.snapshot(&Control::default()).unwrap();
    assert_eq!(bed.ls_tree(&taken.snapshot), ["config/app", "keys/readme", "tracked"]);
    let skipped: Vec<_> = taken.skipped.iter().map(|skipped| (skipped.path.to_string(), skipped.reason)).collect();
    let hidden = |path: &str| (path.to_owned(), SkipReason::Secret);
    assert_eq!(skipped, [hidden("config/gcloud"), hidden("keys/provider")]);
    assert_eq!(taken.snapshot.grade, Grade::Exact);
}

#[test]
fn a_rules_file_that_is_a_link_or_not_regular_is_ignored() {
    let mut bed = bed();
    init(&bed);
    bed.write("rules", "*.o\n");
    bed.write("d/a.o", "x");
    bed.write("e/a.o", "x");
    bed.symlink("../rules", "d/.gitignore");
    shell(&bed.root, "mkfifo e/.gitignore");
    let snapshot = bed.snapshot();
    assert_eq!(bed.ls_tree(&snapshot), ["d/.gitignore", "d/a.o", "e/a.o", "rules"]);
}

#[test]
fn white_space_in_rules_is_read_as_git_reads_it() {
    let mut bed = bed();
    init(&bed);
    let spaces = ["\t", "\u{b}", "\u{c}", "\r", "\u{85}", "\u{a0}", "\u{2003}", "\u{2028}", "\u{3000}", " "];
    for space in spaces {
        for name in [space.to_owned(), format!("foo{space}"), format!("{space}foo"), format!("d{space}/foo")] {
            bed.write(&name, "x");
            bed.write(&format!("sub/{name}"), "x");
        }
    }
    bed.write("foo", "x");
    bed.write("sub/foo", "x");
    let mut ends = ["\n", "\r\n", ""].into_iter().cycle();
    for space in spaces {
        for line in [
            space.to_owned(),
            format!("{space}{space}"),
            format!(" {space}"),
            format!("{space} "),
            format!("\\{space}"),
            format!("\\{space} "),
            format!("foo{space}"),
            format!("foo{space}\r"),
            format!("foo\\{space}"),
            format!("foo\\\\{space}"),
            format!("{space}foo"),
            format!("d{space}/"),
            format!("/d{space}"),
            format!("sub/foo{space}"),
            format!("[a{space}"),
            format!("*{space}"),
            format!("foo*\n!foo{space}"),
        ] {
            let end = ends.next().unwrap();
            bed.write(".gitignore", format!("{line}{end}"));
            check_same_as_git(&mut bed, &format!("{line:?} {end:?}"));
        }
    }
}

/// Random rules on a fixed tree, compared with `git ls-files`.
#[test]
fn random_rules_match_git() {
    let rounds = std::env::var("RELIVE_RULES").map_or(40, |rounds| rounds.parse().unwrap());
    let names = ["a", "b", "a.o", "ab", "dir", "x y", "b.txt", ".hidden", "a{b}", "[c]"];
    let pieces = [
        "a", "b", "*", "?", "**", "/", "/", ".o", "dir", "[ab]", "[!a]", "!", "\\", " ", "{", "}", ".", "#", "a{b}",
        "[c]", "x y", "**/", "/**",
    ];
    let mut bed = bed();
    init(&bed);
    for outer in ["", "dir/", "a.d/", "dir/dir/", "b.d/ab/"] {
        for name in names {
            if name != "dir" {
                bed.write(&format!("{outer}{name}"), "x");
            }
        }
    }
    for seed in 0..rounds {
        let mut random = Random::new(seed);
        for file in [".gitignore", "dir/.gitignore", "b.d/.gitignore"] {
            let lines = (0..=random.below(4))
                .map(|_| (0..=random.below(5)).map(|_| *random.pick(&pieces)).collect::<String>() + "\n");
            // `a**/b` is undefined by Git's documentation, and surprising in its code.
            let text: String = lines.filter(|line| stars_stand_alone(line)).collect();
            fs::write(bed.path(file), text).unwrap();
        }
        let rules: Vec<_> = [".gitignore", "dir/.gitignore", "b.d/.gitignore"].map(|file| bed.read(file)).into();
        check_same_as_git(&mut bed, &format!("seed {seed}: {rules:?}"));
    }
}

/// Returns whether every `**` is a whole component.
fn stars_stand_alone(line: &str) -> bool {
    line.trim().trim_start_matches('!').split('/').all(|part| !part.contains("**") || part == "**")
}

#[test]
fn secrets_are_left_out_in_any_directory_in_any_case_and_as_backups() {
    let mut bed = bed();
    let secrets = [
        ".aws/credentials",
        "deploy/.aws/credentials",
        "deploy/deep/.docker/config.json",
        "sub/.kube/config",
        "sub/.kube/config~",
        "sub/.ssh/id_rsa",
        ".ENV",
        ".Env.Local",
        "K.PEM",
        "sub/ID_RSA",
        ".env~",
        "sub/#server.key#",
        "sub/.server.key.swp",
        "sub/server.key.bak",
    ];
    let others = [".ENV.example", "aws/credentials", "sub/.docker/other.json", "config", "keys.txt", "x.bak", "y~"];
    secrets.iter().chain(&others).for_each(|path| bed.write(path, "x"));
    let snapshot = bed.snapshot();
    let mut expected = others.to_vec();
    expected.sort_unstable();
    assert_eq!(bed.ls_tree(&snapshot), expected);
}
