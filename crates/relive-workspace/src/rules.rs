//! The rules that select the files of a workspace.
//!
//! Git's rules: the `.gitignore` of each directory, then `info/exclude`, then `core.excludesFile`; a file that the
//! user's Git index tracks is always included. The workspace's own `exclude` and `include` lists take precedence over
//! them, and a list of names that look like secrets comes last. Reading rules executes nothing and follows no `include`
//! of a Git config.

mod index;
mod outer;
mod patterns;
mod recorded;
mod repository;

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};

use ignore::Match;
use ignore::gitignore::Gitignore;

use crate::error::Result;
use crate::object::ObjectId;
use crate::path::FilePath;
use crate::settings::Settings;
use crate::store::Store;
pub use outer::OuterRules;
use patterns::{compile, compile_file, compile_names, literal_directories};
pub(crate) use recorded::RecordedRules;
use repository::Repository;
pub(crate) use repository::Tracked;

/// The largest size of a rules file.
pub(crate) const RULES_MAX: u64 = 1 << 20;

/// Names of files that hold keys and passwords, in any directory and in upper or lower case. A tracked file with such a
/// name is still included. `docs/workspaces.md` lists all of them.
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

/// How editors and people name a backup of such a file; `NAME` is its own name.
const BACKUPS: &[&str] =
    &["NAME~", "NAME.bak", "NAME.old", "NAME.orig", "NAME.save", "NAME.swp", ".NAME.swp", "#NAME#"];

static SECRET_NAMES: LazyLock<Gitignore> = LazyLock::new(|| compile_names(&secret_patterns()));

/// Returns the patterns of all names that look like secrets, each for any directory.
fn secret_patterns() -> Vec<String> {
    let (kept, left_out): (Vec<&str>, Vec<&str>) = SECRETS.iter().partition(|name| name.starts_with('!'));
    let mut patterns = Vec::new();
    for name in left_out {
        // Without this, a pattern with a slash matches only at the top.
        patterns.push(format!("**/{name}"));
        let (above, own) = name.rsplit_once('/').map_or(("", name), |(above, own)| (above, own));
        let above = if above.is_empty() { String::new() } else { format!("{above}/") };
        let backups = BACKUPS.iter().filter(|_| !own.is_empty());
        patterns.extend(backups.map(|backup| format!("**/{above}{}", backup.replace("NAME", own))));
    }
    // The last pattern that matches counts.
    patterns.extend(kept.iter().map(|name| format!("!**/{}", &name[1..])));
    patterns
}

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

/// What a copy keeps of the directory that it was made of.
#[derive(Debug, Default)]
pub(crate) struct CopyOrigin {
    /// The files that it began with; `None` for a directory that is no copy.
    pub(crate) base: Option<Arc<Tracked>>,
    /// The rules around that directory.
    pub(crate) outer: OuterRules,
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
    /// The rules from outside of the workspace that a snapshot records.
    recorded: OuterRules,
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
    /// Reads the rules from outside of the workspace. `known` are the files that were tracked the last time.
    pub(crate) fn load(
        root: &Path,
        settings: &Settings,
        known: Option<&Arc<Tracked>>,
        origin: &CopyOrigin,
    ) -> Result<Self> {
        let hidden = settings.hidden.iter().filter_map(|path| path.strip_prefix(root).ok());
        let hidden = hidden.map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        Self::of(Repository::find(root), hidden, settings, (known, origin))
    }

    /// Returns the rules of a directory that is in no repository, such as a copy.
    pub(crate) fn without_repository(settings: &Settings) -> Result<Self> {
        Self::of(None, BTreeSet::new(), settings, (None, &CopyOrigin::default()))
    }

    fn of(
        repository: Option<Repository>,
        hidden: BTreeSet<Vec<u8>>,
        settings: &Settings,
        (known, CopyOrigin { base, outer }): (Option<&Arc<Tracked>>, &CopyOrigin),
    ) -> Result<Self> {
        let tracked = repository.as_ref().map(|repository| repository.tracked(known));
        let tracked = tracked.unwrap_or_else(|| Arc::new(Tracked::none()));
        let mut fingerprint = DefaultHasher::new();
        (&settings.include, &settings.exclude, &hidden, tracked.fingerprint()).hash(&mut fingerprint);
        base.iter().for_each(|base| base.fingerprint().hash(&mut fingerprint));
        let mut chain = Arc::new(DirectoryRules::new(None, fingerprint.finish(), 0, Vec::new(), Vec::new()));
        // The weakest rules first.
        let around = OuterRules::of(repository.as_ref(), settings);
        for (text, prefix) in outer.files().chain(around.files()) {
            chain = chain.with(text.to_vec(), 0, prefix.to_vec());
        }
        let doors = settings.include.iter().flat_map(|pattern| literal_directories(pattern)).collect();
        Ok(Self {
            exclude: compile(&settings.exclude)?,
            include: compile(&settings.include)?,
            hidden,
            doors,
            tracked,
            base: base.clone(),
            outermost: chain,
            recorded: if base.is_some() { OuterRules::default() } else { around.condensed() },
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

    /// Returns the rules from outside of the workspace, for a snapshot to record.
    pub(crate) fn recorded(&self) -> &OuterRules {
        &self.recorded
    }

    /// Returns the rules without the Git index: which files it listed at another time is not known.
    pub(crate) fn without_index(self) -> Self {
        Self { tracked: Arc::new(Tracked::none()), ..self }
    }

    /// Returns the rules with others from outside of the workspace, those that a snapshot recorded.
    pub(crate) fn with_outer(mut self, outer: &OuterRules) -> Self {
        self.outermost = outer.files().fold(Arc::new(DirectoryRules::new(None, 0, 0, Vec::new(), Vec::new())), {
            |chain, (text, prefix)| chain.with(text.to_vec(), 0, prefix.to_vec())
        });
        self
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
        let backups = text.split_once("So do backups of them:").unwrap().1.split_once(".\n").unwrap().0;
        assert_eq!(backups.split('`').skip(1).step_by(2).collect::<Vec<_>>(), BACKUPS);
    }
}
