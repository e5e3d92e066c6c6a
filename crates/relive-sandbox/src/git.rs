//! The repository of a working directory, and the parts of it through which Git executes commands.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::surroundings::GitDirectory;

/// The longest `.git`, `gitdir` or `commondir` file: each is one line.
const LINE_MAX: u64 = 8192;
const CONFIG_MAX: u64 = 1024 * 1024;
/// Names the repository itself. A program could otherwise write one that names a configuration of its own.
const COMMONDIR: &[u8] = b".\n";
const WORKTREE_CONFIG: &[u8] = b"# made by relive, so that a confined program cannot make one\n";

/// Returns the directories of the repository that contains `cwd`. One of a parent directory counts only if it belongs to
/// the same user: anybody can put a `.git` into `/tmp`.
pub(crate) fn look(cwd: &Path) -> Vec<GitDirectory> {
    let Ok(owner) = cwd.metadata().map(|found| found.uid()) else { return Vec::new() };
    for work_tree in cwd.ancestors() {
        let dot_git = work_tree.join(".git");
        let Ok(found) = dot_git.symlink_metadata() else { continue };
        if found.uid() != owner && work_tree != cwd {
            return Vec::new();
        }
        if found.is_dir() {
            return main_directory(&dot_git).into_iter().collect();
        }
        return if found.is_file() { linked_directories(&dot_git).unwrap_or_default() } else { Vec::new() };
    }
    Vec::new()
}

/// Returns a repository. Parts that are missing are made: what is not there cannot be protected.
fn main_directory(path: &Path) -> Option<GitDirectory> {
    if !path.join("HEAD").symlink_metadata().is_ok_and(|head| head.is_file()) {
        return None;
    }
    let hooks = path.join("hooks");
    // Present already, or it cannot be made here, and not by the program either.
    let _ = std::fs::DirBuilder::new().mode(0o755).create(&hooks);
    let commondir = path.join("commondir");
    make(&commondir, COMMONDIR);
    let config = path.join("config");
    let worktree_config = path.join("config.worktree");
    if read(&config, CONFIG_MAX).is_some_and(|text| text.to_ascii_lowercase().contains("worktreeconfig")) {
        make(&worktree_config, WORKTREE_CONFIG);
    }
    let is_link = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let links = [&hooks, &commondir, &config, &worktree_config].into_iter().filter(is_link).cloned().collect();
    Some(GitDirectory {
        path: path.to_owned(),
        pinned: Vec::new(),
        protected: existing([hooks, commondir]),
        configs: existing([config, worktree_config]),
        links,
    })
}

/// Returns the repository of a linked working tree. The program can write its `.git` file, so the file is believed only
/// if the repository names it in turn, from the place where Git keeps linked working trees.
fn linked_directories(dot_git: &Path) -> Option<Vec<GitDirectory>> {
    let text = read(dot_git, LINE_MAX)?;
    let named = text.strip_prefix("gitdir: ")?.lines().next()?;
    let own = dot_git.parent()?.join(named).canonicalize().ok()?;
    let back = read(&own.join("gitdir"), LINE_MAX)?;
    if own.join(back.lines().next()?) != dot_git {
        return None;
    }
    let worktrees = own.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "worktrees"))?;
    let mut common = main_directory(worktrees.parent()?)?;
    common.pinned = vec![worktrees.to_owned(), own.clone()];
    common.protected.extend(existing([own.join("gitdir"), own.join("commondir")]));
    common.configs.extend(existing([own.join("config.worktree")]));
    Some(vec![common])
}

/// Keeps real files and directories: nothing can be mounted on a link.
fn existing<const N: usize>(paths: [PathBuf; N]) -> Vec<PathBuf> {
    let real = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_file() || found.is_dir());
    paths.into_iter().filter(real).collect()
}

/// Makes a small file, unless there is one. It stays: removing it would also remove the mounts of other programs on it.
fn make(path: &Path, text: &[u8]) {
    let made = File::options().write(true).create_new(true).mode(0o644).custom_flags(libc::O_NOFOLLOW).open(path);
    if let Ok(mut file) = made {
        // An empty one would break the repository.
        if file.write_all(text).is_err() {
            let _ = rustix::fs::unlink(path);
        }
    }
}

fn read(path: &Path, most: u64) -> Option<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(at: &Path) -> PathBuf {
        let git = at.join(".git");
        let made = std::process::Command::new("git").args(["init", "-q"]).arg(at).status().unwrap();
        assert!(made.success());
        git
    }

    fn git(at: &Path, words: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let done = std::process::Command::new("git").arg("-C").arg(at).args(who).args(words).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn the_parts_that_execute_commands_are_found_and_those_that_are_missing_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = repository(&root);
        let found = look(&root);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, at);
        assert_eq!(found[0].protected, [at.join("hooks"), at.join("commondir")]);
        assert_eq!(found[0].configs, [at.join("config")]);
        git(&root, &["commit", "--allow-empty", "-qm", "works with the commondir"]);
        git(&root, &["gc", "-q"]);
        assert_eq!(look(&root.join(".git/refs")), found, "from a directory below as well");
    }

    #[test]
    fn a_linked_working_tree_needs_the_repository_that_names_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (main, linked) = (root.join("main"), root.join("linked"));
        let at = repository(&main);
        git(&main, &["commit", "--allow-empty", "-qm", "first"]);
        git(&main, &["worktree", "add", "-q", linked.to_str().unwrap()]);
        let found = look(&linked);
        assert_eq!(found.iter().map(|found| &found.path).collect::<Vec<_>>(), [&at]);
        assert_eq!(found[0].pinned, [at.join("worktrees"), at.join("worktrees/linked")]);

        // A program that has written its own `.git` file gets nothing by it.
        let elsewhere = root.join("elsewhere");
        for part in ["worktrees/linked", "hooks"] {
            std::fs::DirBuilder::new().recursive(true).create(elsewhere.join(part)).unwrap();
        }
        make(&elsewhere.join("HEAD"), b"ref: refs/heads/main\n");
        rustix::fs::unlink(linked.join(".git")).unwrap();
        let lie = format!("gitdir: {}\n", elsewhere.join("worktrees/linked").display());
        make(&linked.join(".git"), lie.as_bytes());
        assert_eq!(look(&linked), []);
    }
}
