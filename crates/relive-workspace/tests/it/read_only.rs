//! Directories and files that their owner may not write to.

use std::fs;

use relive_workspace::{Error, Grade};

use crate::support::{bed, look, shell, unprivileged};

#[test]
fn files_in_read_only_directories_are_restored_and_the_directories_stay_read_only() {
    unprivileged(|| {
        let mut bed = bed();
        shell(&bed.root, "mkdir -p d/e; echo 1 > d/a; echo 1 > d/e/b; echo 1 > d/c; chmod 555 d/e d");
        let (first, before) = (bed.snapshot(), look(&bed.root));
        shell(&bed.root, "chmod 755 d d/e; echo 2 > d/a; rm d/c; mkdir d/new; echo 2 > d/new/x; echo 2 > d/e/b");
        shell(&bed.root, "chmod 400 d/a; chmod 555 d/new d/e d");
        let after = look(&bed.root);
        let restored = bed.restore(&first);
        assert!(look(&bed.root) == before);
        bed.restore(&restored.before.snapshot);
        assert!(look(&bed.root) == after);
    });
}

#[test]
fn a_copy_of_read_only_directories_is_equal_and_can_be_removed() {
    unprivileged(|| {
        let mut bed = bed();
        shell(&bed.root, "mkdir -p d/e; echo 1 > d/e/b; chmod 555 d/e d");
        let snapshot = bed.snapshot();
        let copy = bed.directory.path().join("copy");
        bed.store.copy(&snapshot, &copy, &Default::default()).unwrap();
        assert!(look(&copy) == look(&bed.root));
        for mode in ["555", "000", "300", "100"] {
            shell(&copy, &format!("chmod 755 d; chmod {mode} d/e; chmod {mode} d"));
            bed.store.remove_copy(&copy).unwrap();
            assert!(copy.symlink_metadata().is_err(), "{mode}");
            bed.store.copy(&snapshot, &copy, &Default::default()).unwrap();
        }
    });
}

#[test]
fn an_unreadable_file_makes_the_snapshot_partial_and_is_never_overwritten() {
    unprivileged(|| {
        let mut bed = bed();
        shell(&bed.root, "mkdir d; echo 1 > d/a; echo 1 > f; echo 1 > g");
        let first = bed.snapshot();
        shell(&bed.root, "echo 2 > d/a; chmod 000 d; echo 2 > f; chmod 000 f; echo 2 > g");
        assert_eq!(bed.snapshot().grade, Grade::Partial);
        let refused = bed.force_restore(&first).unwrap_err();
        let is_named = |path: &str| refused.to_string().contains(&bed.path(path).display().to_string());
        assert!(matches!(refused, Error::Io { .. }) && is_named("d"), "{refused}");
        shell(&bed.root, "chmod 755 d");
        // The file itself cannot be compared, so it is in the way.
        assert!(matches!(bed.force_restore(&first), Err(Error::InTheWay { .. })));
        assert_eq!(bed.read("g"), "2\n", "nothing was written");
        shell(&bed.root, "chmod 644 f");
        bed.restore(&first);
        assert_eq!(["d/a", "f", "g"].map(|path| bed.read(path)), ["1\n", "1\n", "1\n"]);
    });
}

#[test]
fn a_repository_whose_packs_cannot_be_listed_counts_as_one() {
    unprivileged(|| {
        let mut bed = bed();
        shell(&bed.root, "echo 1 > f; mkdir -p .git/objects/info .git/objects/pack");
        bed.snapshot();
        let found = || bed.workspace.repositories().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(found().is_empty(), "its list of packs is empty");
        shell(&bed.root, "chmod 000 .git/objects/pack");
        assert_eq!(found(), [".git"]);
        shell(&bed.root, "chmod 755 .git/objects/pack; rmdir .git/objects/pack");
        assert!(found().is_empty(), "it has none");
    });
}

#[test]
fn a_directory_of_somebody_else_is_refused_before_anything_is_written() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut bed = bed();
    shell(&bed.root, "mkdir d; echo 1 > d/a; echo 1 > z; chmod 755 d");
    let first = bed.snapshot();
    shell(&bed.root, "echo 2 > d/a; echo 2 > z; chmod -R a+rX .");
    shell(bed.directory.path(), "chmod 755 .; chown -R 65534 store work; chown -R 0 work/d");
    let refused = unprivileged(|| bed.force_restore(&first).unwrap_err());
    assert!(refused.to_string().contains(&format!("write to {}", bed.path("d").display())), "{refused}");
    assert_eq!([bed.read("d/a"), bed.read("z")], ["2\n", "2\n"]);
    fs::read_dir(bed.path("d")).unwrap();
}
