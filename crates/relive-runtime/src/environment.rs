//! The environments of processes, one file each, next to the daemon's socket.
//!
//! They may hold keys, so they are nowhere among the data: the runtime directory is the user's alone and goes with the
//! machine's boot. The directory is `0700` and ours, a file is `0600` and whole from the moment it has its name. Nothing is
//! synced: what a power cut takes is gone as after a boot, and whoever resumes the process brings another. Whatever runs
//! under a UUID, an agent or a program, has its environment here. Everything here blocks.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::Environment;
use relive_core::Uuid;
use relive_journal::{Disk, Pool};

/// Where the environments are.
#[derive(Debug)]
pub(crate) struct Environments {
    directory: PathBuf,
    disk: Disk,
}

impl Environments {
    /// Those of the daemon that has this socket.
    pub(crate) fn next_to(socket: &Path) -> Self {
        Self { directory: socket.with_file_name("env"), disk: Disk::new() }
    }

    /// Returns where the environments are kept.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Keeps the environment of a process, in place of what was kept. An empty one is none.
    pub(crate) fn put(&self, uuid: Uuid, environment: &Environment) -> io::Result<()> {
        if environment.is_empty() {
            return self.remove(uuid);
        }
        self.make_folder()?;
        let path = self.path(uuid);
        let unfinished = path.with_extension("tmp");
        self.disk.unlink(&unfinished)?;
        let file = self.disk.create(&unfinished)?;
        self.disk.append(&file, &serde_json::to_vec(environment)?)?;
        self.disk.rename(&unfinished, &path)
    }

    /// Returns the environment of a process, on a thread that may block; an empty one if it is gone.
    pub(crate) async fn load(self: &Arc<Self>, pool: &Pool, uuid: Uuid) -> io::Result<Environment> {
        let environments = Arc::clone(self);
        let read = pool.run(move || environments.get(uuid)).await.map_err(io::Error::other)?;
        Ok(read?.unwrap_or_default())
    }

    /// The environment of a process, unless it is gone.
    pub(crate) fn get(&self, uuid: Uuid) -> io::Result<Option<Environment>> {
        match std::fs::read(self.path(uuid)) {
            // What is no longer whole is gone.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets the environment of a process.
    pub(crate) fn remove(&self, uuid: Uuid) -> io::Result<()> {
        self.disk.unlink(&self.path(uuid))
    }

    fn path(&self, uuid: Uuid) -> PathBuf {
        self.directory.join(uuid.to_string())
    }

    fn make_folder(&self) -> io::Result<()> {
        match self.disk.mkdir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let found = std::fs::symlink_metadata(&self.directory)?;
        let is_ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
        if is_ours && found.permissions().mode().trailing_zeros() >= 6 {
            return Ok(());
        }
        let message =
            format!("{}: not a directory of yours alone, so no keys are kept there", self.directory.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }
}

/// What the programs of an agent's tools get of its environment: what programs need to run, and what the configuration
/// adds. A key is in neither.
pub(crate) fn for_tools(environment: &Environment, added: &[String]) -> Vec<(String, String)> {
    const USUAL: [&str; 11] = [
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TMPDIR",
        "TZ",
        "USER",
        "XDG_CACHE_HOME",
        "XDG_RUNTIME_DIR",
    ];
    let passes =
        |name: &str| USUAL.contains(&name) || name.starts_with("LC_") || added.iter().any(|added| added == name);
    let kept = environment.variables().filter(|(name, _)| passes(name));
    let mut variables: Vec<_> = kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if environment.get("PATH").is_none() {
        variables.push(("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()));
    }
    // There is no terminal.
    variables.push(("TERM".to_owned(), "dumb".to_owned()));
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str, value: &str) -> Environment {
        std::iter::once((name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn what_is_kept_comes_back_and_is_nobody_elses() {
        let directory = tempfile::tempdir().unwrap();
        let store = Environments::next_to(&directory.path().join("socket"));
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(store.get(one).unwrap(), None);
        store.put(one, &environment("KEY", "old")).unwrap();
        store.put(one, &environment("KEY", "new")).unwrap();
        assert_eq!(store.get(one).unwrap(), Some(environment("KEY", "new")));
        assert_eq!(store.get(two).unwrap(), None);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&store.directory), mode(&store.path(one))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&store.directory).unwrap().count(), 1, "nothing unfinished is left");
        store.remove(one).unwrap();
        store.remove(one).unwrap();
        assert_eq!(store.get(one).unwrap(), None);
    }

    #[test]
    fn a_folder_that_others_may_read_gets_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Environments::next_to(&directory.path().join("socket"));
        store.disk.mkdir(&store.directory).unwrap();
        std::fs::set_permissions(&store.directory, std::fs::Permissions::from_mode(0o750)).unwrap();
        let error = store.put(Uuid::from_u128(1), &environment("KEY", "sk-secret")).unwrap_err();
        assert!(error.to_string().contains("not a directory of yours alone"), "{error}");
        assert_eq!(std::fs::read_dir(&store.directory).unwrap().count(), 0);
    }

    #[test]
    fn what_a_power_cut_left_of_a_file_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let store = Environments::next_to(&directory.path().join("socket"));
        let uuid = Uuid::from_u128(1);
        store.make_folder().unwrap();
        store.disk.create(&store.path(uuid)).unwrap();
        assert_eq!(store.get(uuid).unwrap(), None);
    }
}
