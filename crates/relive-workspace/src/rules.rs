//! The rules that select the files of a workspace.
//!
//! Git's rules: the `.gitignore` of each directory, then `info/exclude`, then `core.excludesFile`; a file that the
//! user's Git index tracks is always included. The workspace's own `exclude` and `include` lists take precedence over
//! them, and a list of names that look like secrets comes last. Reading rules executes nothing and follows no `include`
//! of a Git config.

mod index;
mod repository;

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Error, Result};
use crate::object::ObjectId;
use crate::path::FilePath;
use crate::settings::Settings;
use crate::store::Store;
use repository::Repository;
pub(crate) use repository::Tracked;

/// The largest size of a rules file.
pub(crate) const RULES_MAX: u64 = 1 << 20;

/// Names of files that hold keys and passwords, in any directory. A tracked file with such a name is still included.
/// `docs/workspaces.md` lists all of them.
const SECRETS: &[&str] = &[
    ".env",
    ".env.*",
    ".envrc",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    "!.env.dist",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".htpasswd",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.ppk",
    ".aws/credentials",
    ".docker/config.json",
    ".kube/config",
    ".ssh/",
];

static SECRET_NAMES: LazyLock<Gitignore> = LazyLock::new(|| compile_file(SECRETS.join("\n").as_bytes()));

/// The decision about a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Include(Reach),
    Ignore,
    /// Excluded because its name looks like a secret.
    Secret,
}

/// How the entries of a directory are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    Rules,
    /// The directory is ignored; only entries that are tracked or included by name are selected.
    OnlyListed,
    /// The directory was included by name: everything is selected that is not excluded.
    Everything,
}

/// The rules of a workspace.
#[derive(Debug)]
pub(crate) struct Rules {
    exclude: Gitignore,
    include: Gitignore,
    /// What is hidden from isolated programs, by its path in the workspace.
    hidden: BTreeSet<Vec<u8>>,
    /// Directories that are entered because an `include` names something below them.
    doors: HashSet<Vec<u8>>,
    tracked: Arc<Tracked>,
    /// The files that a copy began with: they count as tracked, because a copy has no index.
    base: Option<Arc<Tracked>>,
    outermost: Arc<DirectoryRules>,
}

/// The rules that apply in a directory: its own, and those of its parents.
#[derive(Debug)]
pub(crate) struct DirectoryRules {
    above: Option<Arc<DirectoryRules>>,
    /// Changes when any of the rules changes.
    fingerprint: u64,
    /// How many bytes to strip from a path in the workspace to get its path relative to these rules.
    strip: usize,
    /// The prefix to add to a path in the workspace, if these rules are in a directory above it.
    prefix: Vec<u8>,
    text: Text,
    matcher: OnceLock<Gitignore>,
    /// Rules of the store that could not be read, of all directories.
    damaged: Arc<OnceLock<ObjectId>>,
}

#[derive(Debug)]
enum Text {
    Bytes(Vec<u8>),
    /// From the last snapshot.
    Stored(Store, ObjectId),
}

/// The `.gitignore` of a directory.
pub(crate) enum IgnoreFile {
    Read(Vec<u8>),
    Unchanged(ObjectId),
    /// Larger than [`RULES_MAX`]: never applied, however it is read.
    TooLarge,
}

impl Rules {
    /// Reads the rules from outside of the workspace. `known` are the files that were tracked the last time, `base` those
    /// that a copy began with.
    pub(crate) fn load(
        root: &Path,
        settings: &Settings,
        (known, base): (Option<&Arc<Tracked>>, Option<&Arc<Tracked>>),
    ) -> Result<Self> {
        let hidden = settings.hidden.iter().filter_map(|path| path.strip_prefix(root).ok());
        let hidden = hidden.map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        Self::of(Repository::find(root), hidden, settings, (known, base))
    }

    /// Returns the rules of a directory that is in no repository, such as a copy.
    pub(crate) fn without_repository(settings: &Settings) -> Result<Self> {
        Self::of(None, BTreeSet::new(), settings, (None, None))
    }

    fn of(
        repository: Option<Repository>,
        hidden: BTreeSet<Vec<u8>>,
        settings: &Settings,
        (known, base): (Option<&Arc<Tracked>>, Option<&Arc<Tracked>>),
    ) -> Result<Self> {
        let tracked = repository.as_ref().map(|repository| repository.tracked(known));
        let tracked = tracked.unwrap_or_else(|| Arc::new(Tracked::none()));
        let mut fingerprint = DefaultHasher::new();
        (&settings.include, &settings.exclude, &hidden, tracked.fingerprint()).hash(&mut fingerprint);
        base.iter().for_each(|base| base.fingerprint().hash(&mut fingerprint));
        let mut chain = Arc::new(DirectoryRules::new(None, fingerprint.finish(), 0, Vec::new(), Vec::new()));
        // The weakest rules first.
        let excludes_file = Repository::excludes_file(repository.as_ref(), settings);
        let weakest = excludes_file.and_then(|path| crate::stat::read_small(&path, RULES_MAX));
        let prefix = repository.as_ref().map(|repository| repository.prefix.clone()).unwrap_or_default();
        let exclude = repository.as_ref().and_then(Repository::info_exclude);
        for text in [weakest, exclude].into_iter().flatten() {
            chain = chain.with(text, 0, prefix.clone());
        }
        for (text, prefix) in repository.iter().flat_map(Repository::ignore_files_above) {
            chain = chain.with(text, 0, prefix);
        }
        let doors = settings.include.iter().flat_map(|pattern| literal_directories(pattern)).collect();
        Ok(Self {
            exclude: compile(&settings.exclude)?,
            include: compile(&settings.include)?,
            hidden,
            doors,
            tracked,
            base: base.cloned(),
            outermost: chain,
        })
    }

    pub(crate) fn outermost(&self) -> Arc<DirectoryRules> {
        self.outermost.clone()
    }

    /// Returns rules of the store that could not be read. Then every decision may be wrong.
    pub(crate) fn damaged(&self) -> Option<ObjectId> {
        self.outermost.damaged.get().copied()
    }

    pub(crate) fn tracked(&self) -> &Arc<Tracked> {
        &self.tracked
    }

    /// Returns whether all tracked files are known. Otherwise some may count as untracked.
    pub(crate) fn is_complete(&self) -> bool {
        self.all_tracked().all(|tracked| tracked.is_complete())
    }

    fn all_tracked(&self) -> impl Iterator<Item = &Arc<Tracked>> {
        [&self.tracked].into_iter().chain(&self.base)
    }

    /// Decides on an entry of a directory with these rules.
    pub(crate) fn decide(&self, rules: &DirectoryRules, reach: Reach, path: &FilePath, is_directory: bool) -> Decision {
        let os_path = path.as_path();
        if self.hidden.contains(path.as_bytes()) {
            return Decision::Secret;
        }
        if self.exclude.matched(os_path, is_directory).is_ignore() {
            return Decision::Ignore;
        }
        if reach == Reach::Everything || self.include.matched(os_path, is_directory).is_ignore() {
            return Decision::Include(Reach::Everything);
        }
        if !is_directory && self.all_tracked().any(|tracked| tracked.contains(path.as_bytes())) {
            return Decision::Include(Reach::Rules);
        }
        let is_ignored = reach == Reach::OnlyListed || rules.ignores(path, is_directory);
        let is_secret = || SECRET_NAMES.matched(os_path, is_directory).is_ignore();
        if !is_ignored && !is_secret() {
            return Decision::Include(Reach::Rules);
        }
        let is_above_tracked = || self.all_tracked().any(|tracked| tracked.contains_below(path.as_bytes()));
        let leads_on = self.doors.contains(path.as_bytes()) || is_above_tracked();
        match (is_directory && leads_on, is_ignored) {
            (true, _) => Decision::Include(Reach::OnlyListed),
            (false, true) => Decision::Ignore,
            (false, false) => Decision::Secret,
        }
    }
}

impl Rules {
    /// Returns whether rules other than those on the disk exclude a file: `ignore_file` returns the rules of each
    /// directory.
    pub(crate) fn ignores(
        &self,
        file: &FilePath,
        store: &Store,
        mut ignore_file: impl FnMut(&FilePath) -> Result<Option<ObjectId>>,
    ) -> Result<bool> {
        let mut rules = self.outermost();
        let mut reach = Reach::Rules;
        let mut directory = FilePath::root();
        let mut steps: Vec<FilePath> = file.parents().collect();
        steps.reverse();
        for (step, is_directory) in steps.iter().map(|step| (step, true)).chain([(file, false)]) {
            if let Some(id) = ignore_file(&directory)? {
                rules = rules.below(&directory, IgnoreFile::Unchanged(id), store);
            }
            let decision = self.decide(&rules, reach, step, is_directory);
            if let Some(id) = self.damaged() {
                return Err(Error::DamagedObject { id, path: store.path().to_owned() });
            }
            match decision {
                Decision::Include(below) => reach = below,
                Decision::Ignore | Decision::Secret => return Ok(true),
            }
            directory = step.clone();
        }
        Ok(false)
    }
}

impl DirectoryRules {
    fn new(above: Option<Arc<Self>>, fingerprint: u64, strip: usize, prefix: Vec<u8>, text: Vec<u8>) -> Self {
        let damaged = above.as_ref().map(|above| above.damaged.clone()).unwrap_or_default();
        Self { above, fingerprint, strip, prefix, text: Text::Bytes(text), matcher: OnceLock::new(), damaged }
    }

    fn with(self: &Arc<Self>, text: Vec<u8>, strip: usize, prefix: Vec<u8>) -> Arc<Self> {
        let id = crate::object::hash(crate::object::Kind::Blob, &text);
        let fingerprint = self.fingerprint_with(id, &prefix);
        Arc::new(Self::new(Some(self.clone()), fingerprint, strip, prefix, text))
    }

    fn fingerprint_with(&self, id: ObjectId, prefix: &[u8]) -> u64 {
        let mut fingerprint = DefaultHasher::new();
        (self.fingerprint, id, prefix).hash(&mut fingerprint);
        fingerprint.finish()
    }

    /// Returns the rules of a subdirectory that has a `.gitignore` of its own.
    pub(crate) fn below(self: &Arc<Self>, directory: &FilePath, file: IgnoreFile, store: &Store) -> Arc<Self> {
        let strip = if directory.is_root() { 0 } else { directory.as_bytes().len() + 1 };
        match file {
            IgnoreFile::TooLarge => self.clone(),
            IgnoreFile::Read(text) => self.with(text, strip, Vec::new()),
            IgnoreFile::Unchanged(id) => {
                let fingerprint = self.fingerprint_with(id, &[]);
                let rules = Self::new(Some(self.clone()), fingerprint, strip, Vec::new(), Vec::new());
                Arc::new(Self { text: Text::Stored(store.clone(), id), ..rules })
            }
        }
    }

    /// Returns a value that changes when the selection of a directory's entries may change.
    pub(crate) fn fingerprint(&self, reach: Reach) -> u64 {
        let mut fingerprint = DefaultHasher::new();
        (self.fingerprint, reach).hash(&mut fingerprint);
        fingerprint.finish()
    }

    fn ignores(&self, path: &FilePath, is_directory: bool) -> bool {
        let mut rules = Some(self);
        while let Some(current) = rules {
            let seen = [&current.prefix, path.as_bytes().get(current.strip..).unwrap_or_default()].concat();
            match current.matcher().matched(Path::new(OsStr::from_bytes(&seen)), is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => rules = current.above.as_deref(),
            }
        }
        false
    }

    fn matcher(&self) -> &Gitignore {
        self.matcher.get_or_init(|| match &self.text {
            Text::Bytes(text) => compile_file(text),
            Text::Stored(store, id) => match store.blob(*id) {
                // As if it were read from the disk.
                Ok(text) if text.len() as u64 > RULES_MAX => Gitignore::empty(),
                Ok(text) => compile_file(&text),
                Err(_) => {
                    let _ = self.damaged.set(*id);
                    Gitignore::empty()
                }
            },
        })
    }
}

/// Compiles the patterns of a configuration, all of which have to be valid.
fn compile(lines: &[String]) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        let invalid = |_| Error::InvalidPattern { pattern: line.clone() };
        builder.add_line(None, &as_git_reads(line).unwrap_or_default()).map_err(invalid)?;
    }
    builder.build().map_err(|_| Error::InvalidPattern { pattern: lines.join(" ") })
}

/// Compiles a `.gitignore`. Lines that are not a valid pattern or not text match nothing.
fn compile_file(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    for line in text.split(|&byte| byte == b'\n') {
        if let Some(line) = std::str::from_utf8(line).ok().and_then(as_git_reads) {
            let _ = builder.add_line(None, &line);
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Rewrites a pattern where the `ignore` crate and Git differ; `None` if it matches nothing in Git.
///
/// In Git, `{` and `}` are ordinary characters, `[!a]` does not match a slash, a pattern that ends with a lone
/// backslash or in a class is invalid, no path has an empty component, and of the white space at the end of a line only
/// spaces do not belong to the pattern.
fn as_git_reads(line: &str) -> Option<String> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.starts_with('#') {
        return None;
    }
    let mut pattern = line.trim_end_matches(' ');
    if pattern.len() < line.len() && ends_with_lone_backslash(pattern) {
        // The first of the spaces is escaped and therefore part of the pattern.
        pattern = &line[..=pattern.len()];
    }
    let (is_negated, pattern) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
    let (is_directory, pattern) = pattern.strip_suffix('/').map_or((false, pattern), |rest| (true, rest));
    if pattern.is_empty() || ends_with_lone_backslash(pattern) || pattern.ends_with('/') || pattern.contains("//") {
        return None;
    }
    let mut text = String::with_capacity(line.len() + 8);
    text.push_str(if is_negated { "!" } else { "" });
    text.push_str(if pattern.contains('/') { "" } else { "**/" });
    rewrite(pattern, &mut text)?;
    keep_last_white_space(&mut text);
    text.push_str(if is_directory { "/" } else { "" });
    Some(text)
}

/// Encloses white space at the end of a pattern, which the `ignore` crate would strip: a list of one alternative.
fn keep_last_white_space(text: &mut String) {
    let Some(last) = text.chars().next_back().filter(|last| last.is_whitespace()) else { return };
    text.truncate(text.len() - last.len_utf8());
    if ends_with_lone_backslash(text) {
        text.pop();
    }
    text.extend(['{', last, '}']);
}

fn ends_with_lone_backslash(text: &str) -> bool {
    text.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// Returns `None` if a class is not closed.
fn rewrite(pattern: &str, text: &mut String) -> Option<()> {
    let mut characters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                text.push('\\');
                text.extend(characters.next());
                continue;
            }
            '{' | '}' if !in_class => text.push('\\'),
            // Three stars mean the same as two.
            '*' if !in_class && text.ends_with("**") => continue,
            _ => {}
        }
        text.push(character);
        if in_class {
            in_class = character != ']';
        } else if character == '[' {
            in_class = true;
            let is_negated = characters.next_if(|next| matches!(next, '!' | '^')).is_some();
            text.push_str(if is_negated { "!" } else { "" });
            // A bracket in first position is a member of the class.
            text.extend(characters.next_if_eq(&']'));
            text.push_str(if is_negated { "/" } else { "" });
        }
    }
    (!in_class).then_some(())
}

/// Returns the directories of a pattern before its first wildcard: only `build` for `build/keep.txt`.
fn literal_directories(pattern: &str) -> Vec<Vec<u8>> {
    let literal = pattern.trim_start_matches('/').split(['*', '?', '[', '\\']).next().unwrap_or_default();
    let slashes = literal.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    slashes.map(|(at, _)| literal.as_bytes()[..at].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_every_name_that_looks_like_a_secret() {
        let text = include_str!("../../../docs/workspaces.md");
        let names = text.split_once("Names that look like secrets:").unwrap().1.split_once("\n\n").unwrap().0;
        let listed: Vec<String> = names.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let (kept, left_out): (Vec<&str>, Vec<&str>) = SECRETS.iter().partition(|name| name.starts_with('!'));
        let kept = kept.iter().map(|name| &name[1..]);
        assert_eq!(listed, left_out.iter().copied().chain(kept).collect::<Vec<_>>());
    }
}
