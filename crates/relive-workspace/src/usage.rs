//! The space that a directory takes on the disk.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The unit of `st_blocks`, whatever the file system.
const BLOCK: u64 = 512;

/// Returns the bytes that a directory and everything below it take on the disk: also those of files that no snapshot
/// contains. Links are not followed, a file with several names counts once, and what cannot be read does not count.
#[must_use]
pub fn disk_usage(directory: &Path) -> u64 {
    let (mut bytes, mut seen, mut open) = (0, HashSet::new(), Vec::new());
    let Ok(root) = directory.symlink_metadata() else { return 0 };
    open.extend(root.is_dir().then(|| directory.to_owned()));
    bytes += root.blocks() * BLOCK;
    while let Some(path) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&path) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.nlink() > 1 && !metadata.is_dir() && !seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            bytes += metadata.blocks() * BLOCK;
            if metadata.is_dir() && metadata.dev() == root.dev() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files as a person would")]
mod tests {
    use super::*;

    #[test]
    fn every_file_counts_once_and_holes_do_not() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let empty = disk_usage(root.path());
        std::fs::create_dir(path("d")).unwrap();
        std::fs::write(path("d/a"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(path("d/a"), path("b")).unwrap();
        std::os::unix::fs::symlink("/", path("link")).unwrap();
        std::fs::File::create(path("hole")).unwrap().set_len(1 << 30).unwrap();
        let used = disk_usage(root.path()) - empty;
        assert!((1 << 20..(1 << 20) + (1 << 17)).contains(&used), "{used}");
        assert_eq!(disk_usage(&path("nothing")), 0);
    }
}
