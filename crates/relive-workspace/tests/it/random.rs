//! Random edits, then random restores: every byte as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use relive_workspace::{Disk, Grade, Settings, Snapshot};

use crate::support::{Bed, Random, Seen, look};

/// Restores in `make test`; `make soak` sets `RELIVE_RESTORES` to 6,000: one mistake showed only after 1,600.
const RESTORES: usize = 60;
const STEPS: usize = 12;

fn restores() -> usize {
    std::env::var("RELIVE_RESTORES").map_or(RESTORES, |number| number.parse().unwrap())
}

/// Everything below a directory, directories after what is in them.
fn all(root: &Path) -> Vec<PathBuf> {
    look(root).into_keys().rev().map(|name| root.join(std::ffi::OsString::from_vec(name))).collect()
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let length = *random.pick(&[0, 1, 3, 3, 3, 100, 5_000, 70_000]);
    (0..length).map(|_| u8::try_from(random.below(256)).unwrap() & if length == 3 { 1 } else { 0xff }).collect()
}

/// Changes something as a shell command might.
fn edit(root: &Path, random: &mut Random) {
    let names: [&[u8]; 8] = [b"a", b"a-b", b"a0", b"b.txt", b"caf\xe9", b"new\nline", b"z", b"q"];
    let existing = all(root);
    let directories: Vec<PathBuf> =
        existing.iter().filter(|path| path.symlink_metadata().unwrap().is_dir()).cloned().collect();
    let above = if directories.is_empty() || random.below(3) == 0 {
        root.to_owned()
    } else {
        random.pick(&directories).clone()
    };
    let name: &[u8] = random.pick::<&[u8]>(&names);
    let fresh = above.join(std::ffi::OsStr::from_bytes(name));
    let Some(path) = (!existing.is_empty()).then(|| random.pick(&existing).clone()) else {
        return fs::write(fresh, bytes(random)).unwrap();
    };
    let is_file = path.symlink_metadata().unwrap().is_file();
    let is_directory = path.symlink_metadata().unwrap().is_dir();
    // What does not work, for example because a name is taken, does nothing.
    let _ = match random.below(12) {
        0 | 1 => fs::write(&fresh, bytes(random)),
        2 | 3 if is_file => fs::write(&path, bytes(random)),
        4 => fs::rename(&path, &fresh),
        5 if is_file => fs::remove_file(&path),
        5 if is_directory => fs::remove_dir_all(&path),
        5 => fs::remove_file(&path),
        6 => std::os::unix::fs::symlink(*random.pick(&["a", "../..", "/etc/passwd", "nowhere", "."]), &fresh),
        7 => fs::create_dir(&fresh),
        8 if is_file => fs::set_permissions(
            &path,
            fs::Permissions::from_mode(*random.pick(&[0o644, 0o755, 0o600, 0o640, 0o555, 0o444])),
        ),
        8 if is_directory => {
            fs::set_permissions(&path, fs::Permissions::from_mode(*random.pick(&[0o755, 0o700, 0o750, 0o775])))
        }
        9 if is_file => fs::hard_link(&path, &fresh),
        10 if is_file => hide_a_change(&path, random),
        _ => Ok(()),
    };
}

/// Rewrites a file with as many other bytes, and puts its mtime back.
fn hide_a_change(path: &Path, random: &mut Random) -> std::io::Result<()> {
    let modified = fs::metadata(path)?.modified()?;
    let length = fs::metadata(path)?.len();
    let other: Vec<u8> = (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
    let file = fs::File::options().write(true).open(path)?;
    std::io::Write::write_all(&mut &file, &other)?;
    file.set_modified(modified)
}

type History = Vec<(Snapshot, BTreeMap<Vec<u8>, Seen>)>;

/// Edits step by step, then restores random steps; answers what was not byte-equal although said to be exact.
fn wrong_restores(disk: Disk, seed: u64, restores: usize) -> Vec<String> {
    let mut bed = Bed::new(disk, Settings::default());
    let mut random = Random::new(seed);
    let mut history: History = Vec::new();
    let mut wrong = Vec::new();
    for _ in 0..STEPS {
        for _ in 0..random.below(12) {
            edit(&bed.root, &mut random);
        }
        let snapshot = bed.snapshot();
        assert_eq!(snapshot.grade, Grade::Exact);
        history.push((snapshot, look(&bed.root)));
    }
    for _ in 0..restores {
        let (snapshot, seen) = random.pick(&history).clone();
        let (before, restored) = (look(&bed.root), bed.try_restore(&snapshot));
        let now = look(&bed.root);
        if now != seen || !restored.as_ref().is_ok_and(|restored| restored.applied.is_verified()) {
            wrong.push(format!("{:?}", restored.map(|restored| restored.applied.left)));
            let all: BTreeSet<_> =
                seen.keys().chain(now.keys()).filter(|path| seen.get(*path) != now.get(*path)).collect();
            wrong.extend(all.into_iter().map(|path| {
                let (was, is, wanted) = (before.get(path), now.get(path), seen.get(path));
                format!("{}: was {was:?}, is {is:?}, should be {wanted:?}", String::from_utf8_lossy(path))
            }));
        }
        // Something happens before the next one.
        for _ in 0..random.below(4) {
            edit(&bed.root, &mut random);
        }
    }
    wrong
}

#[test]
fn random_restores_are_byte_equal() {
    let first = std::env::var("RELIVE_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..first + restores().div_ceil(10) as u64 {
        let wrong = wrong_restores(Disk::new(), seed, 10);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    }
}

/// The check above can fail: with a stat cache that trusts an equal mtime it does.
#[cfg(feature = "faults")]
#[test]
fn a_cache_that_trusts_equal_mtimes_turns_random_restores_red() {
    let broken = |seed| {
        let faults = std::sync::Arc::new(relive_workspace::Faults::default());
        faults.trust_equal_mtime();
        wrong_restores(Disk::with_faults(faults), seed, 10)
    };
    assert!((0..20).any(|seed| !broken(seed).is_empty()));
}
