//! The mounts of a plan as single operations, prepared so that none of them allocates.
//!
//! One file system in memory has all empty directories and files of a program. It is mounted on [`SCRATCH`] first and filled
//! there; copies of its parts are then mounted where they belong. What is mounted on [`SCRATCH`] in the end covers it.

use std::ffi::{CStr, CString, NulError};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags};

use crate::plan::{Mount, Plan, RootMount, nearest};
use crate::policy::NamespaceKind;
use crate::surroundings::Shape;
use crate::system;

const SCRATCH: &str = "/tmp";
const DIRECTORY: u32 = 0o755;
const TEMPORARY: u32 = 0o1777;
const UNREADABLE: u32 = 0;
/// What programs expect in `/dev` besides devices.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// One operation of a child.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Keeps the mounts of this namespace from reaching the host.
    Detach,
    /// Copies the mounts at a path, and below it, into a slot.
    Copy {
        path: CString,
        slot: usize,
    },
    MakeReadOnly {
        slot: usize,
    },
    MakeRootReadOnly,
    MakeFileSystem {
        kind: FileSystem,
        slot: usize,
    },
    Attach {
        slot: usize,
        at: CString,
    },
    MakeDirectory {
        at: CString,
        mode: u32,
    },
    MakeFile {
        at: CString,
        mode: u32,
    },
    MakeLink {
        at: CString,
        to: CString,
    },
    BringLoopbackUp,
    /// Listens on a port of the loopback, and sends the listener through the socket in a slot.
    HandOverListener {
        port: u16,
        slot: usize,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FileSystem {
    Memory,
    Proc,
    Terminals,
}

/// The operations of a plan, each with its name for errors.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    pub(crate) list: Vec<(Operation, String)>,
    pub(crate) slots: usize,
    /// The slot for the socket of the proxy.
    pub(crate) proxy: Option<usize>,
}

impl Operations {
    pub(crate) fn new(plan: &Plan) -> std::result::Result<Self, NulError> {
        let mut operations = Self::default();
        if plan.namespaces.has(NamespaceKind::Mount) {
            operations.push(Operation::Detach, "mount");
        }
        if plan.root == RootMount::ReadOnly {
            operations.isolate(&plan.mounts)?;
        } else {
            for mount in &plan.mounts {
                operations.mount_new(mount)?;
            }
        }
        if plan.namespaces.has(NamespaceKind::Net) {
            operations.push(Operation::BringLoopbackUp, "loopback");
        }
        if let Some(port) = plan.proxy_port {
            let slot = operations.slot();
            operations.push(Operation::HandOverListener { port, slot }, "proxy");
            operations.proxy = Some(slot);
        }
        Ok(operations)
    }

    fn push(&mut self, operation: Operation, name: impl Into<String>) {
        self.list.push((operation, name.into()));
    }

    fn slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    fn copy(&mut self, path: &Path) -> std::result::Result<usize, NulError> {
        let slot = self.slot();
        self.push(Operation::Copy { path: c_path(path)?, slot }, format!("mount {}", path.display()));
        Ok(slot)
    }

    fn attach(&mut self, slot: usize, at: &Path) -> std::result::Result<(), NulError> {
        self.push(Operation::Attach { slot, at: c_path(at)? }, format!("mount {}", at.display()));
        Ok(())
    }

    fn isolate(&mut self, mounts: &[Mount]) -> std::result::Result<(), NulError> {
        let mut slots: Vec<Option<usize>> = Vec::with_capacity(mounts.len());
        // The host's, before anything covers it.
        for mount in mounts {
            slots.push(match mount {
                Mount::Writable { at, .. } | Mount::Console { from: at, .. } => Some(self.copy(at)?),
                Mount::ReadOnly { at, .. } => {
                    let slot = self.copy(at)?;
                    self.push(Operation::MakeReadOnly { slot }, format!("mount {}", at.display()));
                    Some(slot)
                }
                Mount::Temporary { .. }
                | Mount::Hidden { .. }
                | Mount::HiddenFile { .. }
                | Mount::Devices { .. }
                | Mount::Terminals { .. }
                | Mount::Proc { .. }
                | Mount::ProcReadOnly { .. } => None,
            });
        }
        let scratch = self.slot();
        self.push(Operation::MakeFileSystem { kind: FileSystem::Memory, slot: scratch }, "tmpfs");
        self.attach(scratch, Path::new(SCRATCH))?;
        self.fill_scratch(mounts)?;
        for (number, mount) in mounts.iter().enumerate() {
            if let Some(is_read_only) = from_scratch(mount) {
                let slot = self.copy(&scratch_path(number))?;
                if is_read_only {
                    self.push(Operation::MakeReadOnly { slot }, format!("mount {}", mount.at().display()));
                }
                slots[number] = Some(slot);
            }
        }
        self.push(Operation::MakeRootReadOnly, "mount /");
        for (mount, slot) in mounts.iter().zip(slots) {
            match slot {
                Some(slot) => self.attach(slot, mount.at())?,
                None => self.mount_new(mount)?,
            }
        }
        Ok(())
    }

    /// Makes the empty directories and files, and in them the places for what is mounted there later.
    fn fill_scratch(&mut self, mounts: &[Mount]) -> std::result::Result<(), NulError> {
        for (number, mount) in mounts.iter().enumerate() {
            let path = scratch_path(number);
            match mount {
                Mount::Temporary { .. } => self.make_directory(&path, TEMPORARY)?,
                Mount::Hidden { .. } => self.make_directory(&path, DIRECTORY)?,
                Mount::HiddenFile { .. } => self.make_file(&path)?,
                Mount::Devices { .. } => {
                    self.make_directory(&path, DIRECTORY)?;
                    for (name, to) in DEVICE_LINKS {
                        let (at, to) = (c_path(&path.join(name))?, CString::new(to)?);
                        self.push(Operation::MakeLink { at, to }, format!("symlink {name}"));
                    }
                }
                Mount::Writable { .. }
                | Mount::ReadOnly { .. }
                | Mount::Console { .. }
                | Mount::Terminals { .. }
                | Mount::Proc { .. }
                | Mount::ProcReadOnly { .. } => {}
            }
        }
        for mount in mounts {
            let above = nearest(mounts, mount.at()).filter(|(_, above)| above.begins_empty());
            let Some((number, above)) = above else { continue };
            let Ok(below) = mount.at().strip_prefix(above.at()) else { continue };
            let mut path = scratch_path(number);
            for part in below.parent().into_iter().flat_map(Path::components) {
                path.push(part);
                self.make_directory(&path, DIRECTORY)?;
            }
            path.extend(below.file_name());
            match mount {
                Mount::Writable { shape: Shape::Other, .. }
                | Mount::ReadOnly { shape: Shape::Other, .. }
                | Mount::Console { .. }
                | Mount::HiddenFile { .. } => self.make_file(&path)?,
                Mount::Writable { shape: Shape::Directory, .. }
                | Mount::ReadOnly { shape: Shape::Directory, .. }
                | Mount::Temporary { .. }
                | Mount::Hidden { .. }
                | Mount::Devices { .. }
                | Mount::Terminals { .. }
                | Mount::Proc { .. }
                | Mount::ProcReadOnly { .. } => self.make_directory(&path, DIRECTORY)?,
            }
        }
        Ok(())
    }

    fn make_directory(&mut self, path: &Path, mode: u32) -> std::result::Result<(), NulError> {
        self.push(Operation::MakeDirectory { at: c_path(path)?, mode }, format!("mkdir {}", path.display()));
        Ok(())
    }

    fn make_file(&mut self, path: &Path) -> std::result::Result<(), NulError> {
        self.push(Operation::MakeFile { at: c_path(path)?, mode: UNREADABLE }, format!("open {}", path.display()));
        Ok(())
    }

    /// Mounts what has no counterpart on the host.
    fn mount_new(&mut self, mount: &Mount) -> std::result::Result<(), NulError> {
        let at = mount.at();
        let slot = match mount {
            Mount::Proc { .. } => self.make_file_system(FileSystem::Proc, "mount-proc"),
            Mount::Terminals { .. } => self.make_file_system(FileSystem::Terminals, "mount-devpts"),
            Mount::ProcReadOnly { at } => {
                let slot = self.copy(at)?;
                self.push(Operation::MakeReadOnly { slot }, format!("mount {}", at.display()));
                slot
            }
            Mount::Writable { .. }
            | Mount::ReadOnly { .. }
            | Mount::Console { .. }
            | Mount::Temporary { .. }
            | Mount::Hidden { .. }
            | Mount::HiddenFile { .. }
            | Mount::Devices { .. } => return Ok(()),
        };
        self.attach(slot, at)
    }

    fn make_file_system(&mut self, kind: FileSystem, name: &str) -> usize {
        let slot = self.slot();
        self.push(Operation::MakeFileSystem { kind, slot }, name);
        slot
    }
}

/// Returns whether a part of it is mounted here, and whether it is read-only.
fn from_scratch(mount: &Mount) -> Option<bool> {
    match mount {
        Mount::Temporary { .. } => Some(false),
        Mount::Hidden { .. } | Mount::HiddenFile { .. } | Mount::Devices { .. } => Some(true),
        Mount::Writable { .. }
        | Mount::ReadOnly { .. }
        | Mount::Console { .. }
        | Mount::Terminals { .. }
        | Mount::Proc { .. }
        | Mount::ProcReadOnly { .. } => None,
    }
}

fn scratch_path(number: usize) -> PathBuf {
    Path::new(SCRATCH).join(number.to_string())
}

pub(crate) fn c_path(path: &Path) -> std::result::Result<CString, NulError> {
    CString::new(path.as_os_str().as_bytes())
}

impl Operation {
    /// Carries it out. Only system calls: nothing is allocated.
    pub(crate) fn run(&self, slots: &mut [Option<OwnedFd>]) -> Result<()> {
        match self {
            Self::Detach => {
                let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
                rustix::mount::mount_change(c"/", flags)
            }
            Self::Copy { path, slot } => fill(slots, *slot, system::copy_mounts(path)?),
            Self::MakeReadOnly { slot } => {
                let mount = slots.get(*slot).and_then(Option::as_ref).ok_or(Errno::BADF)?;
                system::make_read_only(mount.as_fd(), c"")
            }
            Self::MakeRootReadOnly => system::make_read_only(CWD, c"/"),
            Self::MakeFileSystem { kind, slot } => fill(slots, *slot, kind.make()?),
            Self::Attach { slot, at } => {
                let mount = slots.get_mut(*slot).and_then(Option::take).ok_or(Errno::BADF)?;
                system::attach(&mount, at)
            }
            Self::MakeDirectory { at, mode } => match rustix::fs::mkdir(at.as_c_str(), Mode::from_raw_mode(*mode)) {
                Err(Errno::EXIST) => Ok(()),
                made => made,
            },
            Self::MakeFile { at, mode } => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::open(at.as_c_str(), flags, Mode::from_raw_mode(*mode)).map(drop)
            }
            Self::MakeLink { at, to } => rustix::fs::symlink(to.as_c_str(), at.as_c_str()),
            Self::BringLoopbackUp => system::bring_loopback_up(),
            Self::HandOverListener { port, slot } => {
                let proxy = slots.get_mut(*slot).and_then(Option::take).ok_or(Errno::BADF)?;
                system::hand_over_listener(*port, &proxy)
            }
        }
    }
}

fn fill(slots: &mut [Option<OwnedFd>], slot: usize, mount: OwnedFd) -> Result<()> {
    *slots.get_mut(slot).ok_or(Errno::BADF)? = Some(mount);
    Ok(())
}

impl FileSystem {
    fn make(self) -> Result<OwnedFd> {
        let careful = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let (name, options, attributes): (&CStr, &[(&CStr, &CStr)], _) = match self {
            Self::Memory => (c"tmpfs", &[(c"mode", c"0755")], careful),
            Self::Proc => (c"proc", &[], careful | MountAttrFlags::MOUNT_ATTR_NOEXEC),
            Self::Terminals => (
                c"devpts",
                &[(c"ptmxmode", c"0666"), (c"mode", c"0620")],
                MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC,
            ),
        };
        let context = rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
        rustix::mount::fsconfig_create(context.as_fd())?;
        rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    }
}
