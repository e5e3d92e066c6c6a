//! The processes of a session that still run, according to the kernel.
//!
//! A program can change every file of its session's directory, or remove all of them. So before anything is concluded from
//! the directory, other than that the shim answers, the kernel is asked: the shims are known by their command line, the
//! members of the tree by the name of their cgroup, or by the marker in their environment.

use std::io;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::directories::create;
use super::{Sessions, shim_lost};
use crate::directory;
use crate::exit::ExitRecord;
use crate::proc::{self, Identity};
use crate::spec::Names;
use crate::tree::Tree;

/// The processes of a session that still run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remains {
    /// Nothing, or a child that waits at the gate of a lost shim.
    Nothing,
    /// A shim that has no program yet, or none any more. In a PID namespace the init of a lost shim looks the same.
    Shim,
    /// The program.
    Program,
}

impl Sessions {
    pub(super) async fn remains(&self, path: &Path) -> io::Result<Remains> {
        let (tree, path) = (self.tree_of(path).await?, path.to_owned());
        spawn_blocking(move || remains(&tree, &path)).await.map_err(io::Error::other)?
    }

    /// Returns the directories of the sessions in a directory of sessions of which something runs. The program may have removed
    /// them.
    pub async fn running_in(&self, sessions: &Path) -> io::Result<Vec<PathBuf>> {
        let plan = self.ladder().await?.plan.clone();
        let sessions = sessions.to_owned();
        let found = spawn_blocking(move || {
            let mut found: Vec<PathBuf> =
                proc::shims()?.into_iter().map(|(_, path)| path).filter(|path| is_in(path, &sessions)).collect();
            let leaves = Tree::leaves_in(&plan).into_iter();
            let named = leaves.filter_map(|leaf| directory::path_of(&sessions, &leaf));
            found.extend(named.filter(|path| {
                let tree = Tree::planned(&plan, &directory::name_of(path));
                tree.has_leaf() && !tree.is_empty()
            }));
            found.sort_unstable();
            found.dedup();
            Ok(found)
        });
        found.await.map_err(io::Error::other)?
    }

    /// Leaves an exit record for a session whose directory its program removed, so that no later owner launches it again.
    pub(super) async fn replace_directory(&self, path: &Path) -> io::Result<ExitRecord> {
        let (path, boot_id) = (path.to_owned(), self.boot_id.clone());
        let left = spawn_blocking(move || {
            let record = shim_lost();
            let written = create(&path, &boot_id, Names::Apart).and_then(|(made, _lock)| made.write_exit(&record));
            if let Err(error) = written {
                // Its owner's own record of the end has to do.
                eprintln!("{}: the end cannot be recorded: {error}", path.display());
            }
            record
        });
        left.await.map_err(io::Error::other)
    }
}

fn is_in(path: &Path, sessions: &Path) -> bool {
    path.parent() == Some(sessions)
}

pub(super) fn remains(tree: &Tree, path: &Path) -> io::Result<Remains> {
    let (shims, members) = (shims_of(path)?, tree.members());
    let is_shim = |pid: &i32| shims.iter().any(|shim| shim.pid == *pid);
    let is_empty = if tree.is_swept() { members.is_empty() } else { tree.is_empty() };
    // Members that cannot be listed run.
    let only_shims = !members.is_empty() && members.iter().all(is_shim);
    if !is_empty && !only_shims {
        return Ok(Remains::Program);
    }
    let mut outside = shims.iter().filter(|shim| !members.contains(&shim.pid)).peekable();
    if outside.peek().is_none() {
        return Ok(Remains::Nothing);
    }
    let pids: Vec<i32> = outside.map(|shim| shim.pid).collect();
    // A process that left its cgroup is still below its shim.
    let runs = proc::descendants(&proc::all()?, &pids).iter().any(|below| !is_shim(&below.pid));
    Ok(if runs { Remains::Program } else { Remains::Shim })
}

/// Returns the shims of a session, which are found by their command line, because everything in the directory may be forged.
pub(super) fn shims_of(path: &Path) -> io::Result<Vec<Identity>> {
    Ok(proc::shims()?.into_iter().filter(|(_, of)| of == path).map(|(shim, _)| shim).collect())
}
