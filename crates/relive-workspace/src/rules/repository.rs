//! The user's Git repository, which is never changed: its tracked files and its ignore rules.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::CWD;

use super::RULES_MAX;
use super::index::Index;
use crate::settings::Settings;
use crate::stat::{FileKey, Time, read_small, stat_at};

/// A larger index is not read.
const INDEX_MAX: u64 = 512 << 20;
/// The bytes of the paths of all directories together. An index with more is not used.
const DIRECTORY_BYTES_MAX: usize = 64 << 20;
/// The largest `.git` file, `commondir` or `HEAD`: each is one line.
const LINE_MAX: u64 = 64 << 10;

/// A Git repository around a workspace.
#[derive(Debug)]
pub(super) struct Repository {
    /// The directory that holds `.git`.
    work_tree: PathBuf,
    git_directory: PathBuf,
    /// The main repository's directory for a linked worktree, else the same.
    common_directory: PathBuf,
    /// The path of the workspace relative to the work tree: empty, or ending with a slash.
    pub(super) prefix: Vec<u8>,
}

impl Repository {
    /// Finds the repository that contains `root`. A repository in a parent directory counts only if it belongs to the
    /// same user: anybody can put a `.git` into `/tmp`.
    pub(super) fn find(root: &Path) -> Option<Self> {
        let owner = stat_at(CWD, root).ok()?.uid;
        for work_tree in root.ancestors() {
            let dot_git = work_tree.join(".git");
            let Ok(stat) = stat_at(CWD, &dot_git) else { continue };
            if stat.uid != owner && work_tree != root {
                return None;
            }
            let git_directory = if dot_git.is_dir() { dot_git } else { follow(&dot_git, "gitdir: ")? };
            let common_directory =
                follow(&git_directory.join("commondir"), "").unwrap_or_else(|| git_directory.clone());
            let below = root.strip_prefix(work_tree).ok()?.as_os_str().as_bytes();
            let prefix = if below.is_empty() { Vec::new() } else { [below, b"/"].concat() };
            return Some(Self { work_tree: work_tree.to_owned(), git_directory, common_directory, prefix });
        }
        None
    }

    pub(super) fn info_exclude(&self) -> Option<Vec<u8>> {
        read_small(&self.common_directory.join("info/exclude"), RULES_MAX)
    }

    /// Returns the `.gitignore` files of directories above the workspace, the outermost first, each with the path of
    /// the workspace relative to it.
    pub(super) fn ignore_files_above(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut files = Vec::new();
        let mut start = 0;
        while start < self.prefix.len() {
            let directory = self.work_tree.join(OsStr::from_bytes(&self.prefix[..start]));
            let text = read_small(&directory.join(".gitignore"), RULES_MAX);
            files.extend(text.map(|text| (text, self.prefix[start..].to_vec())));
            start += self.prefix[start..].iter().position(|&byte| byte == b'/').map_or(self.prefix.len(), |at| at + 1);
        }
        files
    }

    /// Returns the file that `core.excludesFile` names, or the default.
    pub(super) fn excludes_file(repository: Option<&Self>, settings: &Settings) -> Option<PathBuf> {
        let own = repository.map(|repository| repository.common_directory.join("config"));
        let named = own.iter().chain(settings.git_configs.iter().rev()).find_map(|config| {
            let text = read_small(config, RULES_MAX)?;
            let value = config_value(&String::from_utf8_lossy(&text), "core", "excludesfile")?;
            Some(match (value.strip_prefix("~/"), &settings.home) {
                (Some(below), Some(home)) => home.join(below),
                _ => PathBuf::from(value),
            })
        });
        named.or_else(|| settings.excludes_file.clone())
    }

    /// Returns the tracked files in the workspace; `known` if the index has not changed.
    pub(super) fn tracked(&self, known: Option<&Arc<Tracked>>) -> Arc<Tracked> {
        let path = self.git_directory.join("index");
        let key = stat_at(CWD, &path).ok().map(|stat| stat.key);
        let is_settled = |tracked: &&Arc<Tracked>| tracked.key.is_some() && tracked.key == key && tracked.is_settled;
        if let Some(known) = known.filter(is_settled) {
            return known.clone();
        }
        let config = read_small(&self.common_directory.join("config"), RULES_MAX).unwrap_or_default();
        let format = config_value(&String::from_utf8_lossy(&config), "extensions", "objectformat");
        let id_bytes = if format.as_deref() == Some("sha256") { 32 } else { 20 };
        let read = |path: &Path| Index::parse(&read_small(path, INDEX_MAX)?, id_bytes);
        let index = read(&path);
        let shared = index.as_ref().and_then(Index::shared);
        let shared = shared.map(|id| read(&self.git_directory.join(format!("sharedindex.{id}"))));
        let has_shared = !matches!(shared, Some(None));
        let paths = index.and_then(|index| index.files(shared.flatten()));
        let is_complete = key.is_none() || paths.is_some() && has_shared;
        let tracked = Tracked::new(paths.unwrap_or_default(), &self.prefix, key);
        let is_complete = tracked.is_complete && is_complete;
        let is_settled = tracked.is_settled && is_complete;
        Arc::new(Tracked { is_complete, is_settled, ..tracked })
    }
}

/// Reads a path from a file with one line; a relative path starts at the file's directory.
fn follow(file: &Path, before: &str) -> Option<PathBuf> {
    let text = read_small(file, LINE_MAX)?;
    let line = text.strip_prefix(before.as_bytes())?.split(|&byte| byte == b'\n').next()?;
    Some(file.parent()?.join(OsStr::from_bytes(line)))
}

/// Returns the last value of a key of a Git config. Includes are not followed, and named sections are ignored.
fn config_value(text: &str, section: &str, key: &str) -> Option<String> {
    let (mut in_section, mut value) = (false, None);
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            in_section = header.split(']').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(section));
        } else if let Some((name, rest)) = line.split_once('=').filter(|_| in_section)
            && name.trim().eq_ignore_ascii_case(key)
        {
            value = Some(rest.trim().trim_matches('"').to_owned());
        }
    }
    value
}

/// The paths that the user's Git index tracks, relative to the workspace.
#[derive(Debug)]
pub(crate) struct Tracked {
    files: HashSet<Box<[u8]>>,
    directories: HashSet<Box<[u8]>>,
    fingerprint: u64,
    key: Option<FileKey>,
    /// Whether the index is old enough for its [`FileKey`] to be reliable.
    is_settled: bool,
    is_complete: bool,
}

impl Tracked {
    /// Returns the tracked files of a directory that is in no repository.
    pub(super) fn none() -> Self {
        let (files, directories) = (HashSet::new(), HashSet::new());
        Self { files, directories, fingerprint: 0, key: None, is_settled: false, is_complete: true }
    }

    /// Returns these files; nothing is known of them if the list could not be read.
    pub(crate) fn listed(paths: Option<Vec<Vec<u8>>>) -> Self {
        match paths {
            Some(paths) => Self::new(paths, &[], None),
            None => Self { is_complete: false, ..Self::none() },
        }
    }

    fn new(mut paths: Vec<Vec<u8>>, prefix: &[u8], key: Option<FileKey>) -> Self {
        paths.retain(|path| path.starts_with(prefix));
        let mut tracked = Self { key, ..Self::none() };
        let recently = Time::before(std::time::SystemTime::now(), std::time::Duration::from_secs(1));
        tracked.is_settled = key.is_some_and(|key| !key.is_since(recently));
        let (mut fingerprint, mut directory_bytes) = (DefaultHasher::new(), 0);
        for path in paths {
            let path = &path[prefix.len()..];
            path.hash(&mut fingerprint);
            let mut above = path;
            while let Some(slash) = above.iter().rposition(|&byte| byte == b'/') {
                above = &above[..slash];
                if !tracked.directories.insert(above.into()) {
                    break;
                }
                directory_bytes += above.len();
            }
            if directory_bytes > DIRECTORY_BYTES_MAX {
                // A path can have as many directories as it has bytes.
                return Self { key, is_complete: false, ..Self::none() };
            }
            tracked.files.insert(path.into());
        }
        tracked.fingerprint = fingerprint.finish();
        tracked
    }

    /// Returns whether the whole index could be read. Otherwise tracked files may count as untracked.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(super) fn contains(&self, path: &[u8]) -> bool {
        self.files.contains(path)
    }

    pub(super) fn contains_below(&self, directory: &[u8]) -> bool {
        self.directories.contains(directory)
    }
}
