//! The directories in which a program keeps state of its own, such as the conversations of a CLI agent.
//!
//! They are writable for a confined program, except for the parts through which later runs of the same program, which may
//! not be confined, execute commands.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::mounts::c_path;
use crate::real_path::real_path;
use crate::surroundings::Shape;
use crate::{places, system};

const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
const READ_ONLY_FILE: u32 = 0o400;

/// The directories of a program below one directory of the user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// A directory of the user's, which exists.
    pub base: PathBuf,
    /// Directories below it that the program may change. Each is made if it is missing.
    pub directories: Vec<PathBuf>,
    /// The parts below it that stay as they are.
    pub fixed: Vec<Fixed>,
    /// Directories in them for which the program gets empty ones of its own, for as long as it runs: other runs of it execute
    /// what is there.
    #[serde(default)]
    pub private: Vec<PathBuf>,
    /// The home directory of the user, which none of the directories may be or contain.
    #[serde(default)]
    pub home: Option<PathBuf>,
}

/// A part of a program's state that it must not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    pub at: PathBuf,
    pub missing: Missing,
}

/// What is done about a part that is missing. The program could make it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// An empty directory is made.
    Directory,
    /// A file with this content is made.
    File(String),
    /// An empty file is made that is read-only. The program ignores such a file, but not one that it may write.
    ReadOnlyEmptyFile,
}

/// The state of a program on this machine. All paths are canonical and exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundState {
    pub writable: Vec<PathBuf>,
    pub fixed: Vec<(PathBuf, Shape)>,
    pub private: Vec<PathBuf>,
    /// Says which parts cannot be protected.
    pub unprotected: Vec<String>,
    /// Says which directories cannot be used.
    pub problems: Vec<String>,
}

impl FoundState {
    /// Looks for the state of a program, and makes what is missing. `writable` are directories that are writable anyway.
    pub(crate) fn look(states: &[State], writable: &[PathBuf]) -> Self {
        let mut found = Self::default();
        for state in states {
            found.add(state, writable);
        }
        found.writable.sort();
        found.writable.dedup();
        found
    }

    fn add(&mut self, state: &State, writable: &[PathBuf]) {
        if !state.base.is_absolute() {
            self.problems.push(format!("{} is no absolute path", state.base.display()));
            return;
        }
        let Some(base) = real_path(&state.base).ok().filter(|base| is_own_directory(base)) else {
            self.problems.push(format!("{} is no directory of this user", state.base.display()));
            return;
        };
        let directories = self.make_writable(state, &base, writable);
        self.fix(state, &base, &directories);
        self.keep_apart(state, &base, &directories);
        self.writable.extend(directories);
    }

    /// Makes the directories that the program may change, and returns those that it can.
    fn make_writable(&mut self, state: &State, base: &Path, writable: &[PathBuf]) -> Vec<PathBuf> {
        let home = state.home.as_ref().map(|home| real_path(home).unwrap_or_else(|_| home.clone()));
        let mut directories = Vec::new();
        for below in &state.directories {
            match make_directory(base, below) {
                Some(path) if home.as_ref().is_some_and(|home| home.starts_with(&path)) => {
                    self.problems.push(format!(
                        "{} contains the home directory, which would be writable: name a directory in it",
                        path.display()
                    ));
                }
                Some(path) => directories.push(path),
                None => {
                    let path = base.join(below);
                    let target = real_path(&path).unwrap_or_default();
                    // The person has said that a link may lead there.
                    if !writable.iter().any(|other| target.starts_with(other)) {
                        self.problems.push(format!(
                            "{} cannot be made, or is a symbolic link: list its target under `isolation.writable`",
                            path.display()
                        ));
                    }
                }
            }
        }
        directories
    }

    /// Makes the parts that stay as they are, and notes them.
    fn fix(&mut self, state: &State, base: &Path, directories: &[PathBuf]) {
        for Fixed { at, missing } in &state.fixed {
            let path = base.join(at);
            // Elsewhere the program cannot change it.
            let Some(directory) = directories.iter().find(|directory| path.starts_with(directory)) else { continue };
            let Some(parent) = at.parent().and_then(|parent| make_directory(base, parent)) else {
                self.unprotected.push(format!("{} is behind a symbolic link and is not protected", path.display()));
                continue;
            };
            // A directory between them could be renamed otherwise, and another one put in its place.
            let between = parent.ancestors().take_while(|above| *above != directory.as_path());
            self.writable.extend(between.map(Path::to_owned));
            make_missing(&path, missing);
            match path.symlink_metadata() {
                Ok(found) if found.is_symlink() => {
                    self.unprotected.push(format!("{} is a symbolic link and is not protected", path.display()));
                }
                Ok(found) if found.is_dir() => self.fixed.push((path, Shape::Directory)),
                Ok(_) => self.fixed.push((path, Shape::Other)),
                Err(error) => {
                    self.unprotected.push(format!("{} cannot be made and protected: {error}", path.display()));
                }
            }
        }
    }

    /// Makes the directories in whose place the program gets empty ones, and notes them.
    fn keep_apart(&mut self, state: &State, base: &Path, directories: &[PathBuf]) {
        for below in &state.private {
            if !directories.iter().any(|directory| base.join(below).starts_with(directory)) {
                continue;
            }
            match make_directory(base, below) {
                Some(path) => self.private.push(path),
                None => {
                    let path = base.join(below);
                    self.unprotected.push(format!("{} is no directory, so it cannot be kept apart", path.display()));
                }
            }
        }
    }
}

fn is_own_directory(path: &Path) -> bool {
    let found = path.metadata();
    found.is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
        && path.parent().is_some()
}

/// Makes a directory below another one, with those between; `None` if there is anything else in its place.
fn make_directory(base: &Path, below: &Path) -> Option<PathBuf> {
    let mut path = base.to_owned();
    for part in below.components() {
        let Component::Normal(name) = part else { return None };
        if let Some(parent) = open(&path) {
            let _ = rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(PRIVATE_DIRECTORY));
        }
        path.push(name);
    }
    real_path(&path).ok().filter(|found| *found == path && found.is_dir())
}

/// Makes a part, unless there is anything in its place.
fn make_missing(path: &Path, missing: &Missing) {
    let Some((parent, name)) = path.parent().and_then(open).zip(path.file_name()) else { return };
    match missing {
        Missing::Directory => {
            let _ = rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(PRIVATE_DIRECTORY));
        }
        Missing::File(content) => {
            let _ = places::make_file(&parent, Path::new(name), content.as_bytes(), PRIVATE_FILE, None);
        }
        Missing::ReadOnlyEmptyFile => {
            let _ = places::make_file(&parent, Path::new(name), b"", READ_ONLY_FILE, None);
        }
    }
}

/// Opens a directory, which must not be found through a link.
fn open(path: &Path) -> Option<OwnedFd> {
    system::find(&c_path(path).ok()?).ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test's own files")]
mod tests {
    use super::*;

    fn state(base: &Path) -> State {
        let fixed = |at: &str, missing| Fixed { at: at.into(), missing };
        State {
            base: base.to_owned(),
            directories: vec![".cli".into(), ".local/share/cli".into()],
            fixed: vec![
                fixed(".cli/settings.json", Missing::File("{}\n".to_owned())),
                fixed(".cli/plugins", Missing::Directory),
                fixed(".cli/old.json", Missing::ReadOnlyEmptyFile),
            ],
            private: vec![".cli/scripts".into()],
            home: Some(base.to_owned()),
        }
    }

    #[test]
    fn what_is_missing_is_made_and_what_is_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let found = FoundState::look(&[state(&base)], &[]);
        assert_eq!(found.writable, [base.join(".cli"), base.join(".local/share/cli")]);
        let fixed = [
            (base.join(".cli/settings.json"), Shape::Other),
            (base.join(".cli/plugins"), Shape::Directory),
            (base.join(".cli/old.json"), Shape::Other),
        ];
        assert_eq!((found.fixed.as_slice(), found.unprotected.len(), found.problems.len()), (&fixed[..], 0, 0));
        assert_eq!(found.private, [base.join(".cli/scripts")]);
        assert_eq!(std::fs::read_to_string(base.join(".cli/settings.json")).unwrap(), "{}\n");
        std::fs::write(base.join(".cli/settings.json"), "{\"mine\": 1}").unwrap();
        let nothing = base.join(".cli/old.json").metadata().unwrap();
        assert_eq!((nothing.len(), nothing.mode() & 0o777), (0, 0o400));
        std::fs::remove_file(base.join(".cli/old.json")).unwrap();
        std::fs::write(base.join(".cli/old.json"), "mine").unwrap();
        let found = FoundState::look(&[state(&base)], &[]);
        assert_eq!(found.fixed, fixed);
        assert_eq!(std::fs::read_to_string(base.join(".cli/old.json")).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(base.join(".cli/settings.json")).unwrap(), "{\"mine\": 1}");
    }

    #[test]
    fn a_part_further_below_is_made_with_the_directories_before_it_and_these_are_pinned() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let fixed = vec![Fixed { at: ".cli/tmp/bin".into(), missing: Missing::Directory }];
        let directories = vec![".cli".into()];
        let found = FoundState::look(&[State { fixed, directories, private: Vec::new(), ..state(&base) }], &[]);
        assert_eq!(found.fixed, [(base.join(".cli/tmp/bin"), Shape::Directory)]);
        assert_eq!(found.writable, [base.join(".cli"), base.join(".cli/tmp")]);
        assert!(found.unprotected.is_empty() && found.problems.is_empty(), "{found:?}");
    }

    #[test]
    fn the_home_directory_and_those_above_it_do_not_become_writable() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let home = root.join("home");
        std::fs::create_dir(&home).unwrap();
        rustix::fs::symlink(&home, root.join("link")).unwrap();
        let check = |base: PathBuf, below: &str, problem: Option<&str>| {
            let directories = vec![below.into()];
            let state = State { base, directories, home: Some(root.join("link")), ..State::default() };
            let found = FoundState::look(&[state], &[]);
            assert_eq!(found.writable.is_empty(), problem.is_some(), "{found:?}");
            let told = found.problems.join("; ");
            assert!(problem.map_or(told.is_empty(), |problem| told.contains(problem)), "{told}");
        };
        check(home.clone(), "", Some("contains the home directory"));
        check(root.join("link"), "", Some("contains the home directory"));
        check(root.clone(), "", Some("contains the home directory"));
        check(root.clone(), "home", Some("contains the home directory"));
        check(home, ".cli", None);
        check(root.clone(), "other", None);
        check(PathBuf::from("relative"), "", Some("no absolute path"));
    }

    #[test]
    fn a_link_is_not_writable_unless_its_target_is_and_a_part_that_is_a_link_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let target = base.join("target");
        std::fs::create_dir(&target).unwrap();
        rustix::fs::symlink(&target, base.join(".cli")).unwrap();
        let found = FoundState::look(&[state(&base)], &[]);
        assert_eq!(found.writable, [base.join(".local/share/cli")]);
        assert!(found.problems.len() == 1 && found.problems[0].contains("isolation.writable"), "{found:?}");
        assert!(!target.join("settings.json").exists(), "nothing is made behind a link");
        let found = FoundState::look(&[state(&base)], std::slice::from_ref(&target));
        assert!(found.problems.is_empty(), "{found:?}");
        std::fs::remove_file(base.join(".cli")).unwrap();
        std::fs::create_dir(base.join(".cli")).unwrap();
        rustix::fs::symlink(&target, base.join(".cli/settings.json")).unwrap();
        let found = FoundState::look(&[state(&base)], &[]);
        assert!(found.unprotected[0].contains("settings.json is a symbolic link"), "{found:?}");
        let found = FoundState::look(&[State { base: base.join("missing"), ..state(&base) }], &[]);
        assert!(found.writable.is_empty() && found.problems.len() == 1, "{found:?}");
    }
}
