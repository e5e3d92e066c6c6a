//! The files with environments of versions before the keeper: each is read once and removed.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use relive_core::Uuid;
use relive_journal::Disk;
use relive_keeper::VALUE_MAX_BYTES;

use super::Environments;

/// Moves the environments in these files. Unreadable files stay, and are reported.
pub(super) fn move_from(directory: &Path, environments: &Arc<Environments>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let disk = Disk::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let uuid = name.parse::<Uuid>().ok();
        let moved = match uuid {
            Some(uuid) => move_one(&path, uuid, environments).and_then(|()| disk.unlink(&path)),
            // A file of a daemon that was killed while it wrote.
            None if name.ends_with(".tmp") => disk.unlink(&path),
            None => Ok(()),
        };
        if let Err(error) = moved {
            environments
                .warnings
                .warn(format!("{}: an environment of an earlier version stays: {error}", path.display()));
        }
    }
    // It stays if it contains foreign files.
    let _ = rustix::fs::rmdir(directory);
}

fn move_one(path: &Path, uuid: Uuid, environments: &Arc<Environments>) -> io::Result<()> {
    let mut bytes = Vec::new();
    crate::user_file::open(path)?.take(VALUE_MAX_BYTES as u64).read_to_end(&mut bytes)?;
    match serde_json::from_slice(&bytes) {
        // A resume in the meantime provided a newer one.
        Ok(environment) if environments.of(uuid).is_empty() => environments.put(uuid, &environment),
        // An incomplete file counts as gone.
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{environment, place};
    use super::*;

    #[test]
    fn files_of_an_earlier_version_are_moved_once_and_removed() {
        let (directory, environments) = place();
        let (disk, old) = (Disk::new(), directory.path().join("env"));
        let write = |name: &str, text: &str| {
            let file = disk.create(&old.join(name)).unwrap();
            disk.append(&file, text.as_bytes()).unwrap();
        };
        let (one, two, torn) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        environments.recover(&directory.path().join("socket"));
        disk.mkdir(&old).unwrap();
        write(&one.to_string(), r#"{"KEY":"sk-old"}"#);
        write(&two.to_string(), r#"{"KEY":"sk-old"}"#);
        write(&format!("{one}.tmp"), r#"{"KEY":"sk"#);
        write(&torn.to_string(), r#"{"KEY":"sk"#);
        environments.put(two, &environment("KEY", "newer")).unwrap();
        // Those of processes that are not there are forgotten.
        environments.put(Uuid::from_u128(4), &environment("KEY", "sk-old")).unwrap();
        disk.mkdir(environments.data.directory(one).path()).unwrap();
        disk.mkdir(environments.data.directory(two).path()).unwrap();
        environments.recover(&directory.path().join("socket"));
        assert_eq!(environments.of(one), environment("KEY", "sk-old"));
        assert_eq!(environments.of(two), environment("KEY", "newer"));
        assert!(environments.of(torn).is_empty() && environments.of(Uuid::from_u128(4)).is_empty());
        assert!(!old.exists());
    }
}
