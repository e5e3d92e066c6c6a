//! The user's Git repository, which is never changed: its tracked files and its ignore rules.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType};

use super::RULES_MAX;
use super::index::{Index, Listed};
use crate::path::FilePath;
use crate::settings::Settings;
use crate::stat::{FileKey, Time, read_small, stat_at};

/// A larger index is not read.
const INDEX_MAX: u64 = 512 << 20;
/// The bytes of the paths of all directories together. An index with more is not used.
const DIRECTORY_BYTES_MAX: usize = 64 << 20;
/// The largest `.git` file, `commondir` or `HEAD`: each is one line.
const LINE_MAX: u64 = 64 << 10;
/// The most submodules whose index is read, those of submodules included.
const SUBMODULES_MAX: usize = 1_000;

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
            let GitDirectories { own: git_directory, common: common_directory } = GitDirectories::find(&dot_git)?;
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

    /// Returns the tracked files in the workspace, also those of submodules; `known` if no index has changed.
    pub(super) fn tracked(&self, known: Option<&Arc<Tracked>>) -> Arc<Tracked> {
        if let Some(known) = known.filter(|known| known.is_current(&self.git_directory.join("index"))) {
            return known.clone();
        }
        let GitDirectories { own, common } = self.directories();
        let mut all = Indexes { paths: Vec::new(), seen: Vec::new(), bytes: 0, is_complete: true };
        let mut open = vec![(Vec::new(), GitDirectories { own, common })];
        let mut submodules = 0;
        while let Some((above, directories)) = open.pop() {
            for path in all.read(&above, &directories) {
                let path = [&*above, &*path].concat();
                let Ok(checked) = FilePath::from_bytes(&*path) else { continue };
                let work_tree = self.work_tree.join(checked.as_path());
                let is_directory = stat_at(CWD, &work_tree).is_ok_and(|stat| stat.file_type() == FileType::Directory);
                if !path.starts_with(&self.prefix) || !is_directory {
                    continue;
                }
                submodules += 1;
                if submodules > SUBMODULES_MAX {
                    all.is_complete = false;
                    break;
                }
                let dot_git = work_tree.join(".git");
                match GitDirectories::find(&dot_git).filter(|_| dot_git.symlink_metadata().is_ok()) {
                    Some(directories) => open.push(([&*path, b"/"].concat(), directories)),
                    // It is not checked out.
                    None => all.seen.push((dot_git, None)),
                }
            }
        }
        let Indexes { paths, seen, is_complete, .. } = all;
        let tracked = Tracked::new(paths, &self.prefix, seen);
        let is_complete = tracked.is_complete && is_complete;
        let is_settled = tracked.is_settled && is_complete;
        Arc::new(Tracked { is_complete, is_settled, ..tracked })
    }

    fn directories(&self) -> GitDirectories {
        GitDirectories { own: self.git_directory.clone(), common: self.common_directory.clone() }
    }
}

/// The directories of a repository.
#[derive(Debug)]
struct GitDirectories {
    own: PathBuf,
    /// Those of the main repository for a linked worktree, else the same.
    common: PathBuf,
}

impl GitDirectories {
    /// Follows a `.git`, which is a directory, or a file that names one.
    fn find(dot_git: &Path) -> Option<Self> {
        let own = if dot_git.is_dir() { dot_git.to_owned() } else { follow(dot_git, "gitdir: ")? };
        let common = follow(&own.join("commondir"), "").unwrap_or_else(|| own.clone());
        Some(Self { own, common })
    }
}

/// The content of the index of a repository, and of those of its submodules.
struct Indexes {
    /// Relative to the work tree.
    paths: Vec<Vec<u8>>,
    /// The files that were read, or looked for.
    seen: Vec<(PathBuf, Option<FileKey>)>,
    bytes: u64,
    /// Whether all of them could be read.
    is_complete: bool,
}

impl Indexes {
    /// Adds the files of an index, whose work tree is at a path of the whole one. Returns its submodules.
    fn read(&mut self, above: &[u8], GitDirectories { own, common }: &GitDirectories) -> Vec<Vec<u8>> {
        let path = own.join("index");
        let key = stat_at(CWD, &path).ok().map(|stat| stat.key);
        self.seen.push((path.clone(), key));
        if key.is_none() {
            return Vec::new();
        }
        let config = read_small(&common.join("config"), RULES_MAX).unwrap_or_default();
        let format = config_value(&String::from_utf8_lossy(&config), "extensions", "objectformat");
        let id_bytes = if format.as_deref() == Some("sha256") { 32 } else { 20 };
        // All of them together are as large as one may be: many submodules may name the same large one.
        let mut left = INDEX_MAX.saturating_sub(self.bytes);
        let mut parse = |path: &Path| {
            let bytes = read_small(path, left)?;
            left -= bytes.len() as u64;
            Index::parse(&bytes, id_bytes)
        };
        let index = parse(&path);
        let shared = index.as_ref().and_then(Index::shared);
        let shared = shared.map(|id| parse(&own.join(format!("sharedindex.{id}"))));
        let has_shared = !matches!(shared, Some(None));
        self.bytes = INDEX_MAX - left;
        let listed = index.and_then(|index| index.listed(shared.flatten()));
        self.is_complete &= listed.is_some() && has_shared;
        let Listed { files, submodules } = listed.unwrap_or_default();
        match above {
            [] => self.paths.extend(files),
            above => self.paths.extend(files.into_iter().map(|path| [above, &*path].concat())),
        }
        submodules
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
    /// The index files that were read, that of the repository first.
    seen: Vec<(PathBuf, Option<FileKey>)>,
    /// Whether they are old enough for their [`FileKey`]s to be reliable.
    is_settled: bool,
    is_complete: bool,
}

impl Tracked {
    /// Returns the tracked files of a directory that is in no repository.
    pub(super) fn none() -> Self {
        let (files, directories) = (HashSet::new(), HashSet::new());
        Self { files, directories, fingerprint: 0, seen: Vec::new(), is_settled: false, is_complete: true }
    }

    /// Returns these files; nothing is known of them if the list could not be read.
    pub(crate) fn listed(paths: Option<Vec<Vec<u8>>>) -> Self {
        match paths {
            Some(paths) => Self::new(paths, &[], Vec::new()),
            None => Self { is_complete: false, ..Self::none() },
        }
    }

    fn new(mut paths: Vec<Vec<u8>>, prefix: &[u8], seen: Vec<(PathBuf, Option<FileKey>)>) -> Self {
        paths.retain(|path| path.starts_with(prefix));
        let mut tracked = Self::none();
        let recently = Time::before(std::time::SystemTime::now(), std::time::Duration::from_secs(1));
        let is_old = |key: &Option<FileKey>| key.is_none_or(|key| !key.is_since(recently));
        let has_index = seen.first().is_some_and(|(_, key)| key.is_some());
        tracked.is_settled = has_index && seen.iter().all(|(_, key)| is_old(key));
        tracked.seen = seen;
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
                return Self { is_complete: false, ..Self::none() };
            }
            tracked.files.insert(path.into());
        }
        tracked.fingerprint = fingerprint.finish();
        tracked
    }

    /// Returns whether they are those of this index and its submodules as they are now.
    fn is_current(&self, index: &Path) -> bool {
        let is_same = |(path, key): &(PathBuf, Option<FileKey>)| stat_at(CWD, path).ok().map(|stat| stat.key) == *key;
        self.is_settled && self.seen.first().is_some_and(|(path, _)| path == index) && self.seen.iter().all(is_same)
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
