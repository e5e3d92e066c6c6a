//! The repository of a working directory, and the parts of it through which Git executes commands.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use relive_types::program::quote;
use rustix::io::Errno;

use crate::places::{Place, Places};
use crate::planted::PlantedRepository;
use crate::surroundings::GitDirectory;

/// The longest `.git`, `gitdir` or `commondir` file: each is one line.
const LINE_MAX: u64 = 8192;
const CONFIG_MAX: u64 = 1024 * 1024;

/// The Git repository of a working directory.
#[derive(Debug, Default)]
pub(crate) struct Repository {
    pub(crate) directories: Vec<GitDirectory>,
    /// The `.git` of a linked working tree or of a submodule, which names a repository.
    pub(crate) file: Option<PathBuf>,
    /// Descriptions of what should be protected and cannot be.
    pub(crate) unprotected: Vec<String>,
    /// What does not become writable, and how it would.
    pub(crate) read_only: Option<String>,
    pub(crate) places: Places,
}

/// Finds the repository that contains `cwd`. One of a parent directory counts only if it belongs to the same user: anybody
/// can put a `.git` into `/tmp`. What a program can change is not asked whether it is a repository: a program could make it one
/// afterwards.
pub(crate) fn find_repository(cwd: &Path, writable: &[PathBuf]) -> Repository {
    let mut repository = Repository::default();
    let Ok(owner) = cwd.metadata().map(|found| found.uid()) else { return repository };
    for work_tree in cwd.ancestors() {
        let dot_git = work_tree.join(".git");
        let Ok(found) = dot_git.symlink_metadata() else {
            if is_bare(work_tree) && work_tree.metadata().is_ok_and(|found| found.uid() == owner) {
                repository.add(work_tree, Vec::new());
                if work_tree == cwd {
                    repository.guard(cwd, PlantedRepository::InBare);
                }
                return repository;
            }
            continue;
        };
        if found.uid() != owner && work_tree != cwd {
            return repository;
        }
        if !is_git_directory(cwd) {
            repository.guard(cwd, PlantedRepository::InWorkTree);
        }
        let is_writable =
            std::iter::once(cwd).chain(writable.iter().map(PathBuf::as_path)).any(|path| dot_git.starts_with(path));
        if found.is_dir() {
            if is_writable || is_repository(&dot_git) {
                repository.add(&dot_git, vec![dot_git.clone()]);
            } else if cwd.starts_with(&dot_git) {
                repository.add(&dot_git, Vec::new());
            }
        } else if found.is_file() {
            if repository.add_linked(&dot_git).is_none() {
                repository.add_separate(&dot_git, cwd, writable);
            }
            repository.file = Some(dot_git);
        } else if is_writable && found.is_symlink() {
            repository.unprotected.push(link(&dot_git));
        }
        return repository;
    }
    repository
}

impl Repository {
    fn guard(&mut self, cwd: &Path, planted: PlantedRepository) {
        if let Err(error) = self.places.guard(cwd, planted) {
            let cwd = cwd.display();
            self.unprotected.push(format!("a repository that the program plants in {cwd} is not disabled: {error}"));
        } else if self.places.guarded().is_none() {
            let cwd = cwd.display();
            self.unprotected.push(format!(
                "a repository that the program plants in {cwd} is not disabled if its shim is killed: its path is not UTF-8"
            ));
        }
    }

    /// Adds the directory of a repository. Parts that are missing are made: what is not there cannot be protected.
    fn add(&mut self, path: &Path, pinned: Vec<PathBuf>) {
        // Git reads the configuration of a working tree once somebody turns that on, and by then the program may have made it.
        let wanted = [Place::Hooks, Place::CommonDirectory, Place::Config, Place::WorktreeConfig];
        self.make_missing(path, &wanted);
        let parts = |places: &[Place]| {
            places.iter().map(|place| path.join(place.name())).filter(|path| is_real(path)).collect()
        };
        self.directories.push(GitDirectory {
            pinned,
            protected: parts(&[Place::Hooks, Place::CommonDirectory]),
            configs: parts(&[Place::Config, Place::WorktreeConfig]),
        });
    }

    fn make_missing(&mut self, path: &Path, wanted: &[Place]) {
        let not_made = |(place, error): (Place, Errno)| {
            let path = path.join(place.name());
            let is_missing = path.symlink_metadata().is_err();
            is_missing.then(|| format!("{} cannot be made, and is not protected: {error}", path.display()))
        };
        self.unprotected.extend(self.places.make(path, wanted).into_iter().filter_map(not_made));
        let unreal = wanted.iter().map(|place| path.join(place.name())).filter(|path| !is_real(path));
        self.unprotected.extend(unreal.filter_map(|path| {
            let found = path.symlink_metadata().ok()?;
            Some(if found.is_symlink() { link(&path) } else { odd(&path) })
        }));
    }

    /// Adds the repository of a linked working tree. The program can write its `.git` file, so the file is believed only if
    /// the repository names it in turn, from the place where Git keeps linked working trees.
    fn add_linked(&mut self, dot_git: &Path) -> Option<()> {
        let text = read_file(dot_git, LINE_MAX)?;
        let named = text.strip_prefix("gitdir: ")?.lines().next()?;
        let own = dot_git.parent()?.join(named).canonicalize().ok()?;
        let back = read_file(&own.join("gitdir"), LINE_MAX)?;
        if own.join(back.lines().next()?) != dot_git {
            return None;
        }
        let worktrees = own.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "worktrees"))?;
        let common = worktrees.parent().filter(|common| is_repository(common))?;
        self.add(common, vec![common.to_owned(), worktrees.to_owned(), own.clone()]);
        self.make_missing(&own, &[Place::WorktreeConfig]);
        let directory = self.directories.last_mut()?;
        let real =
            |names: &[&str]| names.iter().map(|name| own.join(name)).filter(|path| is_real(path)).collect::<Vec<_>>();
        directory.protected.extend(real(&["gitdir", "commondir"]));
        directory.configs.extend(real(&[Place::WorktreeConfig.name()]));
        Some(())
    }

    /// Adds a repository that is kept apart from its working tree. One that the program can write anyway needs no proof; another
    /// one, such as that of a submodule, becomes writable only if it names the working tree in turn.
    fn add_separate(&mut self, dot_git: &Path, cwd: &Path, writable: &[PathBuf]) -> Option<()> {
        let text = read_file(dot_git, LINE_MAX)?;
        let named = text.strip_prefix("gitdir: ")?.lines().next()?;
        let work_tree = dot_git.parent()?;
        let own = work_tree.join(named).canonicalize().ok().filter(|own| own.is_dir() && own.parent().is_some())?;
        let is_writable =
            std::iter::once(cwd).chain(writable.iter().map(PathBuf::as_path)).any(|path| own.starts_with(path));
        let is_named = || is_git_directory(&own) && work_tree_of(&own).is_some_and(|named| named == work_tree);
        if !is_writable && !is_named() {
            self.read_only = is_git_directory(&own).then(|| {
                format!(
                    "git: commits are refused, because {own} does not say that {tree} is its working tree; if {own} is your \
                     repository: git -C {quoted} config core.worktree {quoted}",
                    own = own.display(),
                    tree = work_tree.display(),
                    quoted = quote(&work_tree.display().to_string()),
                )
            });
            return None;
        }
        // One that contains the working directory is that of another program.
        if !cwd.starts_with(&own) {
            self.add(&own, vec![own.clone()]);
        }
        Some(())
    }
}

/// Returns whether a directory is a bare repository. Its configuration, which a confined program cannot change, says so also
/// while the program has moved the other parts away.
fn is_bare(path: &Path) -> bool {
    let is_said = |text: String| {
        let mut lines = text.lines().map(|line| line.replace([' ', '\t'], "").to_ascii_lowercase());
        lines.any(|line| line == "bare=true" || line == "bare")
    };
    is_git_directory(path) || read_file(&path.join("config"), CONFIG_MAX).is_some_and(is_said)
}

/// Returns the working tree that the configuration of a repository names.
fn work_tree_of(path: &Path) -> Option<PathBuf> {
    let config = read_file(&path.join("config"), CONFIG_MAX)?;
    let named = config.lines().find_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        key.trim().eq_ignore_ascii_case("worktree").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    path.join(named).canonicalize().ok()
}

/// Returns whether Git would take a directory for a repository.
fn is_repository(path: &Path) -> bool {
    path.join("HEAD").symlink_metadata().is_ok_and(|head| head.is_file() || head.is_symlink())
}

/// Returns whether a directory is that of a repository, whatever it is called.
pub(crate) fn is_git_directory(path: &Path) -> bool {
    is_repository(path) && ["objects", "refs"].iter().all(|name| path.join(name).is_dir())
}

/// Returns whether a path is protected by mounting it on itself: not if it is a link or a pipe.
fn is_real(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file() || found.is_dir())
}

/// Says that a link is not protected.
pub(crate) fn link(path: &Path) -> String {
    format!("{} is a link, and not protected", path.display())
}

/// Says that something else in the place of a file is not protected.
fn odd(path: &Path) -> String {
    format!("{} is neither a file nor a directory, and not protected", path.display())
}

fn read_file(path: &Path, most: u64) -> Option<String> {
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

    fn write(path: &Path, text: &str) {
        use std::io::Write as _;
        let file = File::options().write(true).create_new(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn git(at: &Path, words: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let done = std::process::Command::new("git").arg("-C").arg(at).args(who).args(words).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Returns the pinned directories and the parts that are protected.
    fn found(cwd: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let found = find_repository(cwd, &[]);
        let all =
            |parts: fn(&GitDirectory) -> &Vec<PathBuf>| found.directories.iter().flat_map(parts).cloned().collect();
        (
            all(|directory| &directory.pinned),
            found.directories.iter().flat_map(|one| one.protected.iter().chain(&one.configs)).cloned().collect(),
        )
    }

    #[test]
    fn the_parts_that_execute_commands_are_found_and_those_that_are_missing_are_made_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = repository(&root);
        let parts = ["hooks", "commondir", "config", "config.worktree"].map(|name| at.join(name));
        assert_eq!(found(&root), (vec![at.clone()], parts.to_vec()));
        assert!(!parts[1].exists() && !parts[3].exists(), "they are removed with the last launch");
        assert_eq!(found(&at.join("refs")).1, parts, "from a directory below as well");
        let held = find_repository(&root, &[]);
        drop(find_repository(&root, &[]));
        assert_eq!(std::fs::read_to_string(&parts[1]).unwrap(), ".\n", "another launch needs it");
        git(&root, &["commit", "--allow-empty", "-qm", "works with the commondir"]);
        git(&root, &["gc", "-q"]);
        drop(held);
        assert!(!parts[1].exists());
    }

    #[test]
    fn a_directory_that_is_no_repository_yet_is_protected_where_it_is_writable() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = repository(&root);
        rustix::fs::unlink(at.join("HEAD")).unwrap();
        let below = root.join("below");
        std::fs::DirBuilder::new().create(&below).unwrap();
        assert_eq!(found(&root).0, std::slice::from_ref(&at));
        assert_eq!(found(&below), (Vec::new(), Vec::new()), "that of a parent becomes writable by being a repository");
        assert_eq!(find_repository(&below, &[root]).directories.len(), 1, "unless it is writable anyway");
        assert_eq!(
            found(&at.join("hooks")),
            (Vec::new(), ["hooks", "commondir", "config", "config.worktree"].map(|name| at.join(name)).to_vec())
        );
        rustix::fs::symlink("refs/heads/main", at.join("HEAD")).unwrap();
        assert_eq!(found(&below).0, [at], "Git accepts a link");
    }

    #[test]
    fn a_linked_part_of_a_repository_is_reported_as_unprotected() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = repository(&root);
        let elsewhere = root.join("elsewhere");
        rustix::fs::rename(at.join("hooks"), &elsewhere).unwrap();
        rustix::fs::symlink(&elsewhere, at.join("hooks")).unwrap();
        assert_eq!(
            find_repository(&root, &[]).unprotected,
            [format!("{} is a link, and not protected", at.join("hooks").display())]
        );
        rustix::fs::rename(&at, root.join("moved")).unwrap();
        rustix::fs::symlink(root.join("moved"), &at).unwrap();
        let linked = find_repository(&root, &[]);
        assert_eq!(linked.unprotected, [format!("{} is a link, and not protected", at.display())]);
        assert_eq!(linked.directories, []);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_part_is_reported_as_unprotected() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let pipe = repository(&root).join("commondir");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let said = format!("{} is neither a file nor a directory, and not protected", pipe.display());
        assert_eq!(find_repository(&root, &[]).unprotected, [said]);
    }

    #[test]
    fn a_separate_repository_is_writable_and_protected_once_it_names_its_working_tree() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (tree, apart) = (root.join("its tree"), root.join("apart"));
        std::fs::DirBuilder::new().create(&tree).unwrap();
        let separate = format!("--separate-git-dir={}", apart.display());
        git(&tree, &["init", "-q", &separate]);
        let refused = find_repository(&tree, &[]);
        assert_eq!((refused.directories, refused.file), (Vec::new(), Some(tree.join(".git"))));
        let said = refused.read_only.unwrap();
        assert!(said.starts_with(&format!("git: commits are refused, because {}", apart.display())), "{said}");
        // The command that it names works.
        assert!(said.contains(&format!("; if {} is your repository: git ", apart.display())), "{said}");
        let command = said.rsplit_once(": git ").unwrap().1;
        let run = std::process::Command::new("sh").args(["-c", &format!("git {command}")]).status().unwrap();
        assert!(run.success(), "{said}");
        let named = find_repository(&tree, &[]);
        assert_eq!(named.read_only, None);
        assert_eq!(named.directories[0].pinned, std::slice::from_ref(&apart));
        let [hooks, commondir, config, of_tree] =
            ["hooks", "commondir", "config", "config.worktree"].map(|name| apart.join(name));
        assert_eq!(
            (&named.directories[0].protected, &named.directories[0].configs),
            (&vec![hooks, commondir], &vec![config, of_tree])
        );
        git(&tree, &["commit", "--allow-empty", "-qm", "works with a working tree that is named"]);
    }

    #[test]
    fn a_linked_working_tree_needs_the_repository_that_names_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (main, linked) = (root.join("main"), root.join("linked"));
        let at = repository(&main);
        git(&main, &["commit", "--allow-empty", "-qm", "first"]);
        git(&main, &["worktree", "add", "-q", linked.to_str().unwrap()]);
        let found = find_repository(&linked, &[]);
        assert_eq!(found.directories[0].pinned, [at.clone(), at.join("worktrees"), at.join("worktrees/linked")]);
        assert_eq!(found.file, Some(linked.join(".git")));

        // A program that has written its own `.git` file gets nothing by it.
        let elsewhere = root.join("elsewhere");
        for part in ["worktrees/linked", "hooks"] {
            std::fs::DirBuilder::new().recursive(true).create(elsewhere.join(part)).unwrap();
        }
        write(&elsewhere.join("HEAD"), "ref: refs/heads/main\n");
        rustix::fs::unlink(linked.join(".git")).unwrap();
        let lie = format!("gitdir: {}\n", elsewhere.join("worktrees/linked").display());
        write(&linked.join(".git"), &lie);
        let found = find_repository(&linked, &[]);
        assert_eq!((found.directories, found.file), (Vec::new(), Some(linked.join(".git"))));
    }
}
