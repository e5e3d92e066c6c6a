//! A workspace and a store in a temporary directory, and an oracle that reads a directory byte by byte.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use relive_workspace::{
    Control, Disk, FilePath, Force, RestoreRequest, Restored, Result, Settings, Snapshot, Store, Taken, Workspace,
};

pub(crate) struct Bed {
    pub(crate) root: PathBuf,
    pub(crate) store: Store,
    pub(crate) workspace: Workspace,
    pub(crate) directory: tempfile::TempDir,
}

pub(crate) fn bed() -> Bed {
    Bed::new(Disk::new(), Settings::default())
}

/// Lets its files be removed by whoever owns them.
impl Drop for Bed {
    fn drop(&mut self) {
        let _ = Command::new("chmod").args(["-R", "u+rwX"]).arg(self.directory.path()).output();
    }
}

/// Does something as a user for whom permissions hold, also if the tests are run by root.
pub(crate) fn unprivileged<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let (nobody, nogroup) =
                    (rustix::process::Uid::from_raw(65_534), rustix::process::Gid::from_raw(65_534));
                rustix::thread::set_thread_res_gid(nogroup, nogroup, nogroup).unwrap();
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            act()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Bed {
    pub(crate) fn new(disk: Disk, settings: Settings) -> Self {
        Self::at(tempfile::tempdir().unwrap(), disk, settings)
    }

    pub(crate) fn at(directory: tempfile::TempDir, disk: Disk, settings: Settings) -> Self {
        let root = directory.path().join("work");
        fs::create_dir(&root).unwrap();
        let store = Store::open(&directory.path().join("store"), disk, 0).unwrap();
        let workspace = Workspace::open(&store, &root, settings).unwrap();
        Self { root, store, workspace, directory }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).unwrap();
    }

    pub(crate) fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn symlink(&self, target: &str, path: &str) {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
    }

    pub(crate) fn take(&mut self) -> Taken {
        self.workspace.snapshot(&Control::default()).unwrap()
    }

    pub(crate) fn snapshot(&mut self) -> Snapshot {
        self.take().snapshot
    }

    pub(crate) fn try_restore(&mut self, target: &Snapshot) -> Result<Restored> {
        let request = RestoreRequest { target, expected: None, paths: &[], force: Force::No };
        self.workspace.restore(&request, &Control::default())
    }

    pub(crate) fn force_restore(&mut self, target: &Snapshot) -> Result<Restored> {
        let request = RestoreRequest { target, expected: None, paths: &[], force: Force::Yes };
        self.workspace.restore(&request, &Control::default())
    }

    /// Restores, and requires a verified result.
    pub(crate) fn restore(&mut self, target: &Snapshot) -> Restored {
        let restored = self.try_restore(target).unwrap();
        assert!(restored.applied.is_verified(), "left: {:?}", restored.applied.left);
        restored
    }

    /// Returns the paths of a snapshot's tree, as Git lists them.
    pub(crate) fn ls_tree(&self, snapshot: &Snapshot) -> Vec<String> {
        let listed = self.git(&["ls-tree", "-r", "--name-only", "-z", &snapshot.tree.to_string()]);
        listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
    }

    /// Runs Git on the store.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let mut git = git();
        git.arg("--git-dir").arg(self.store.path()).args(arguments);
        run(&mut git)
    }
}

/// Returns Git without the configuration of this machine.
pub(crate) fn git() -> Command {
    let mut git = Command::new("git");
    git.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("HOME", "/nonexistent").args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*"]);
    git
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn shell(directory: &Path, script: &str) -> String {
    run(Command::new("sh").current_dir(directory).args(["-ec", script]))
}

pub(crate) fn path(text: &str) -> FilePath {
    text.parse().unwrap()
}

/// Everything that a snapshot stores of a file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Directory {
        mode: u32,
    },
    File {
        mode: u32,
        bytes: Vec<u8>,
        first: Vec<u8>,
    },
    Link(Vec<u8>),
    /// A pipe, which no snapshot has.
    Special,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { mode } => write!(f, "directory {mode:o}"),
            Self::Special => write!(f, "special"),
            Self::Link(target) => write!(f, "link to {}", String::from_utf8_lossy(target)),
            Self::File { mode, bytes, first } => {
                let start = &bytes[..bytes.len().min(8)];
                write!(f, "file {mode:o}, {} bytes {start:?}, same as {}", bytes.len(), String::from_utf8_lossy(first))
            }
        }
    }
}

/// Reads a whole directory.
pub(crate) fn look(root: &Path) -> BTreeMap<Vec<u8>, Seen> {
    let (mut seen, mut first) = (BTreeMap::new(), BTreeMap::new());
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let metadata = path.symlink_metadata().unwrap();
            let mode = metadata.mode() & if metadata.is_dir() { 0o3777 } else { 0o1777 };
            let found = if metadata.is_dir() {
                open.push(path);
                Seen::Directory { mode }
            } else if !metadata.is_symlink() && !metadata.is_file() {
                Seen::Special
            } else if metadata.is_symlink() {
                Seen::Link(fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec())
            } else {
                let least = first.entry(metadata.ino()).or_insert_with(|| name.clone());
                *least = name.clone().min(least.clone());
                Seen::File { mode, bytes: fs::read(path).unwrap(), first: metadata.ino().to_le_bytes().to_vec() }
            };
            seen.insert(name, found);
        }
    }
    for found in seen.values_mut() {
        if let Seen::File { first: inode, .. } = found {
            *inode = first[&u64::from_le_bytes(inode.as_slice().try_into().unwrap())].clone();
        }
    }
    seen
}

/// Pseudo-random numbers that are the same in every run.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
