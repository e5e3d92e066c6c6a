//! Random edits, then random restores: every byte has to be as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use relive_workspace::{Disk, Error, Grade, Settings, Snapshot};

use crate::support::{Bed, Random, Seen, look};

/// Restores in `make test`; `make soak` sets `RELIVE_RESTORES` to 6,000: one mistake showed only after 1,600.
const RESTORES: usize = 60;
const STEPS: usize = 12;

fn restores() -> usize {
    std::env::var("RELIVE_RESTORES").map_or(RESTORES, |number| number.parse().unwrap())
}

/// Returns everything below a directory, directories after their content.
fn all(root: &Path) -> Vec<PathBuf> {
    look(root).into_keys().rev().map(|name| root.join(std::ffi::OsString::from_vec(name))).collect()
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let length = *random.pick(&[0, 1, 3, 3, 3, 100, 5_000, 70_000]);
    (0..length).map(|_| u8::try_from(random.below(256)).unwrap() & if length == 3 { 1 } else { 0xff }).collect()
}

/// Makes a change like those of a shell command.
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
    // A change that fails, for example because a name exists, does nothing.
    let _ = match random.below(25) {
        // Not through a link, which may lead out of the workspace, and not into a pipe that nobody reads.
        0..4 if fresh.symlink_metadata().is_ok_and(|found| !found.is_file()) => Ok(()),
        0..4 => fs::write(&fresh, bytes(random)),
        4..8 if is_file => fs::write(&path, bytes(random)),
        8 | 9 => fs::rename(&path, &fresh),
        10 | 11 if is_directory => fs::remove_dir_all(&path),
        10 | 11 => fs::remove_file(&path),
        12 | 13 => {
            std::os::unix::fs::symlink(*random.pick(&["a", "../..", "/nonexistent/outside", "nowhere", "."]), &fresh)
        }
        14 | 15 => fs::create_dir(&fresh),
        16 | 17 if is_file => fs::set_permissions(
            &path,
            fs::Permissions::from_mode(*random.pick(&[0o644, 0o755, 0o600, 0o640, 0o555, 0o444, 0o1644])),
        ),
        16 | 17 if is_directory => fs::set_permissions(
            &path,
            fs::Permissions::from_mode(*random.pick(&[0o755, 0o700, 0o750, 0o775, 0o1777, 0o2755])),
        ),
        18 | 19 if is_file => fs::hard_link(&path, &fresh),
        20 | 21 if is_file => hide_a_change(&path, random),
        22 => make_pipe(&fresh),
        _ => Ok(()),
    };
}

/// Makes a file that no snapshot can have.
fn make_pipe(path: &Path) -> std::io::Result<()> {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    Ok(rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)?)
}

/// Rewrites a file with as many other bytes, and resets its mtime.
fn hide_a_change(path: &Path, random: &mut Random) -> std::io::Result<()> {
    let modified = fs::metadata(path)?.modified()?;
    let length = fs::metadata(path)?.len();
    let other: Vec<u8> = (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
    let file = fs::File::options().write(true).open(path)?;
    std::io::Write::write_all(&mut &file, &other)?;
    file.set_modified(modified)
}

type Files = BTreeMap<Vec<u8>, Seen>;
type History = Vec<(Snapshot, Files)>;

/// Edits step by step, then restores random steps; returns the restores that claimed to be exact and were not
/// byte-equal.
fn wrong_restores(disk: Disk, seed: u64, restores: usize) -> Vec<String> {
    let mut bed = Bed::new(disk, Settings::default());
    let mut random = Random::new(seed);
    let mut history: History = Vec::new();
    let mut wrong = Vec::new();
    for _ in 0..STEPS {
        for _ in 0..random.below(12) {
            edit(&bed.root, &mut random);
        }
        let (snapshot, seen) = (bed.snapshot(), look(&bed.root));
        let has_pipe = seen.values().any(|found| *found == Seen::Special);
        assert_eq!(snapshot.grade, if has_pipe { Grade::Partial } else { Grade::Exact });
        history.push((snapshot, seen));
    }
    for _ in 0..restores {
        let (snapshot, seen) = random.pick(&history).clone();
        let before = look(&bed.root);
        let restored = bed.force_restore(&snapshot);
        let Some(now) = outcome(&before, &seen, &bed.root, restored.as_ref().err()) else { continue };
        let seen = seen.into_iter().filter(|(_, found)| *found != Seen::Special).collect::<BTreeMap<_, _>>();
        if now != seen || !restored.as_ref().is_ok_and(|restored| restored.applied.is_verified()) {
            wrong.push(format!("{:?}", restored.map(|restored| restored.applied.left)));
            let all: BTreeSet<_> =
                seen.keys().chain(now.keys()).filter(|path| seen.get(*path) != now.get(*path)).collect();
            wrong.extend(all.into_iter().map(|path| {
                let (was, is, wanted) = (before.get(path), now.get(path), seen.get(path));
                format!("{}: was {was:?}, is {is:?}, should be {wanted:?}", String::from_utf8_lossy(path))
            }));
        }
        // More edits before the next restore.
        for _ in 0..random.below(4) {
            edit(&bed.root, &mut random);
        }
    }
    wrong
}

/// Returns the files after a restore that a snapshot can have. `None` if nothing was done, because a pipe, or a file in
/// whose place there was a pipe, was in the way.
fn outcome(before: &Files, then: &Files, root: &Path, error: Option<&Error>) -> Option<Files> {
    let mut now = look(root);
    if matches!(error, Some(Error::InTheWay { .. } | Error::ChangedSince { .. })) {
        assert_eq!(now, *before, "refused, and still changed something");
        assert!(before.values().chain(then.values()).any(|found| *found == Seen::Special), "{error:?}");
        return None;
    }
    // What could not be stored, then or now, stays with the directories that it is in.
    let was_special = |path: &[u8]| then.get(path) == Some(&Seen::Special);
    let is_below_special =
        |path: &[u8]| path.iter().enumerate().any(|(at, byte)| *byte == b'/' && was_special(&path[..at]));
    let is_kept = |path: &[u8], found: &Seen| *found == Seen::Special || was_special(path) || is_below_special(path);
    let kept: Vec<Vec<u8>> =
        now.iter().filter(|(path, found)| is_kept(path, found)).map(|(path, _)| path.clone()).collect();
    let holds_kept = |path: &[u8]| kept.iter().any(|kept| kept.starts_with(&[path, b"/"].concat()));
    now.retain(|path, found| !is_kept(path, found) && (then.contains_key(path) || !holds_kept(path)));
    let mut firsts: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (path, found) in &mut now {
        if let Seen::File { first, .. } = found {
            *first = firsts.entry(first.clone()).or_insert_with(|| path.clone()).clone();
        }
    }
    Some(now)
}

#[test]
fn random_restores_are_byte_equal() {
    let first = std::env::var("RELIVE_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..first + restores().div_ceil(10) as u64 {
        let wrong = wrong_restores(Disk::new(), seed, 10);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    }
}

/// Shows that the check above can fail: it does with a stat cache that trusts an equal mtime.
#[cfg(feature = "faults")]
#[test]
fn random_restores_detect_a_cache_that_trusts_equal_mtimes() {
    let broken = |seed| {
        let faults = std::sync::Arc::new(relive_workspace::Faults::default());
        faults.trust_equal_mtime();
        wrong_restores(Disk::with_faults(faults), seed, 10)
    };
    assert!((0..20).any(|seed| !broken(seed).is_empty()));
}
