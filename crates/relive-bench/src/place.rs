//! The directory of a run, on a real disk, removed at the end.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

const PREFIX: &str = "relive-bench-";
const REMOVERS: usize = 32;
/// A directory with more entries than this is emptied by several threads.
const MANY: usize = 64;

/// The run's directory. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Place {
    root: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.root) {
            eprintln!("{}: not removed: {error}", self.root.display());
        }
    }
}

impl Place {
    pub(crate) fn new() -> Result<Self> {
        let above = match std::env::var_os("RELIVE_BENCH_DIR") {
            Some(directory) => PathBuf::from(directory),
            // target/<profile>/relive-bench
            None => std::env::current_exe()?.ancestors().nth(2).ok_or("the program has no directory")?.to_owned(),
        };
        remove_leftovers(&above)?;
        let root = above.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&root)?;
        Ok(Self { root: root.canonicalize()? })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Creates a new directory for one row.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// Returns where one row leaves ended processes for another, because creating them takes long.
    pub(crate) fn histories(&self) -> PathBuf {
        self.root.join("histories")
    }

    /// Describes the file system of the directory, for people.
    pub(crate) fn file_system(&self) -> Result<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mount = mounts.lines().filter_map(parse_mount).filter(|(point, ..)| self.root.starts_with(point));
        // The last of the longest: later mounts hide earlier ones.
        let Some((_, kind, device)) = mount.max_by_key(|(point, ..)| point.len()) else {
            return Ok("unknown".to_owned());
        };
        Ok(match kind {
            "tmpfs" | "ramfs" => format!("{kind}: NOT A DISK, syncs cost nothing; set RELIVE_BENCH_DIR to one that is"),
            _ => format!("{kind} on {device}"),
        })
    }
}

/// Parses the mount point, file system and device of a line of `mountinfo`.
fn parse_mount(line: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    Some((before.split(' ').nth(4)?, after.next()?, after.next()?))
}

/// Removes the directories of interrupted runs.
fn remove_leftovers(above: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(above) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let gone = pid.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if gone {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a directory, a large one with several threads: on a file system that discards freed blocks a single thread
/// waits.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    let paths: Vec<PathBuf> = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let remove_all = |paths: &[PathBuf]| paths.iter().try_for_each(|path| remove_one(path));
    if paths.len() < MANY {
        remove_all(&paths)?;
    } else {
        std::thread::scope(|scope| {
            let share = paths.len().div_ceil(REMOVERS);
            let started: Vec<_> = paths.chunks(share).map(|paths| scope.spawn(move || remove_all(paths))).collect();
            started.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })?;
    }
    Ok(fs::remove_dir(directory)?)
}

fn remove_one(path: &Path) -> Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { remove(path) } else { Ok(fs::remove_file(path)?) }
}
