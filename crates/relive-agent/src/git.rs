//! How the repository of a folder stands: its commit, read from its files, and whether anything differs from it, by
//! `git status`.
//!
//! Always holds: nothing that stands in the repository is run. An agent that may write files must not get a program
//! run by writing `.git/config`, so `git` is asked only where nothing there names a program that it would run, and
//! without the user's own configuration. It has little time, too: what it cannot say by then is left unsaid.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use relive_journal::Pool;
use relive_journal::record::Git;
use tokio::io::AsyncReadExt as _;

/// How long `git status` may take.
const STATUS_WITHIN: Duration = Duration::from_secs(2);
/// Of a file of a repository's, no more than this is read.
const FILE_MAX: u64 = 4 << 20;
/// What a configuration says that would have `git status` run a program, or fetch something.
const RUNS_PROGRAMS: [&str; 5] = ["filter", "include", "fsmonitor", "promisor", "partialclone"];

/// Whether `git status` is asked, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is.
    Ask,
    /// It is not: it has been too slow.
    Leave,
}

/// How the repository of `folder` stands; `None` where there is none, or no commit in it.
pub async fn look(pool: &Pool, folder: PathBuf, status: Status) -> Option<Git> {
    let (head, top) = pool.run(move || head(&folder)).await.ok()??;
    let dirty = match top {
        Some(top) if status == Status::Ask => is_dirty(&top).await,
        Some(_) | None => None,
    };
    Some(Git { head, dirty })
}

/// The commit, and the folder where `git` may be asked for more.
fn head(folder: &Path) -> Option<(String, Option<PathBuf>)> {
    let top = folder.ancestors().find(|folder| folder.join(".git").exists())?;
    let dot_git = top.join(".git");
    // In a linked work tree it is a file that says where.
    let own = match read(&dot_git) {
        Some(text) => top.join(text.strip_prefix("gitdir:")?.trim()),
        None => dot_git,
    };
    let common = read(&own.join("commondir")).map_or_else(|| own.clone(), |path| own.join(path.trim()));
    let head = read(&own.join("HEAD"))?;
    let commit = match head.trim().strip_prefix("ref:") {
        None => head.trim().to_owned(),
        Some(name) => {
            let name = name.trim();
            // The name is a path below the folder of the repository, or it is none of git's.
            let loose = || name.starts_with("refs/") && !name.contains("..");
            let packed = || {
                let refs = read(&common.join("packed-refs"))?;
                let line = refs.lines().find(|line| line.split_once(' ').is_some_and(|(_, of)| of == name))?;
                line.split_once(' ').map(|(commit, _)| commit.to_owned())
            };
            loose().then(|| read(&common.join(name))).flatten().or_else(packed)?.trim().to_owned()
        }
    };
    let is_commit = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let configurations = [common.join("config"), own.join("config.worktree")];
    let harmless =
        configurations.iter().all(|path| !path.exists() || read(path).is_some_and(|text| is_harmless(&text)));
    is_commit.then(|| (commit, harmless.then(|| top.to_owned())))
}

/// Whether nothing in a configuration has `git status` run a program.
fn is_harmless(configuration: &str) -> bool {
    let text = configuration.to_lowercase();
    !RUNS_PROGRAMS.iter().any(|word| text.contains(word))
}

fn read(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether a file that the repository knows differs from its commit.
async fn is_dirty(top: &Path) -> Option<bool> {
    let mut git = tokio::process::Command::new("git");
    git.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks"]);
    git.args(["status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"]);
    git.current_dir(top).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_NO_LAZY_FETCH", "1");
    git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = git.spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let asked = async {
        let mut first = [0; 1];
        if stdout.read(&mut first).await.ok()? > 0 {
            return Some(true);
        }
        child.wait().await.ok()?.success().then_some(false)
    };
    tokio::time::timeout(STATUS_WITHIN, asked).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Repository(tempfile::TempDir);

    impl Repository {
        fn new() -> Self {
            let repository = Self(tempfile::tempdir().unwrap());
            repository.git(&["init", "-q", "-b", "main"]);
            repository.put("a", "one");
            repository.git(&["add", "a"]);
            repository.commit();
            repository
        }

        fn git(&self, args: &[&str]) -> String {
            let mut git = std::process::Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]).args(args);
            let output = git.current_dir(self.0.path()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }

        fn commit(&self) {
            self.git(&["commit", "-qm", "x"]);
        }

        #[expect(clippy::disallowed_methods, reason = "what it makes is the test's own")]
        fn put(&self, path: &str, text: &str) {
            std::fs::write(self.0.path().join(path), text).unwrap();
        }

        async fn check(&self, folder: &str, dirty: Option<bool>) {
            let folder = self.0.path().join(folder);
            let head = self.git(&["-C", folder.to_str().unwrap(), "rev-parse", "HEAD"]);
            assert_eq!(look(&Pool::default(), folder, Status::Ask).await, Some(Git { head, dirty }));
        }
    }

    #[tokio::test]
    async fn the_commit_is_found_wherever_git_keeps_it() {
        let repository = Repository::new();
        repository.check("", Some(false)).await;
        repository.git(&["pack-refs", "--all"]);
        repository.check("", Some(false)).await;
        repository.git(&["worktree", "add", "-q", "-b", "other", "linked"]);
        repository.check("linked", Some(false)).await;
        repository.git(&["checkout", "-q", "--detach"]);
        repository.check(".git", Some(false)).await;
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(look(&Pool::default(), nowhere.path().to_owned(), Status::Ask).await, None);
        repository.git(&["checkout", "-q", "--orphan", "unborn"]);
        assert_eq!(look(&Pool::default(), repository.0.path().to_owned(), Status::Ask).await, None);
    }

    #[tokio::test]
    async fn what_is_changed_or_staged_is_dirty_and_what_nobody_added_is_not() {
        let repository = Repository::new();
        repository.put("b", "unknown");
        repository.check("", Some(false)).await;
        repository.put("a", "another");
        repository.check("", Some(true)).await;
        repository.git(&["add", "a"]);
        repository.check("", Some(true)).await;
        repository.commit();
        repository.check("", Some(false)).await;
    }

    #[tokio::test]
    async fn nothing_that_the_repository_names_is_run() {
        for (key, attributes) in [("core.fsmonitor", ""), ("filter.evil.clean", "a filter=evil\n")] {
            let repository = Repository::new();
            let ran = repository.0.path().join("ran");
            repository.git(&["config", key, &format!("touch {}; cat", ran.display())]);
            repository.put(".gitattributes", attributes);
            repository.put("a", "two");
            let found = look(&Pool::default(), repository.0.path().to_owned(), Status::Ask).await.unwrap();
            assert_eq!(found.dirty, None, "{key}");
            assert!(!ran.exists(), "{key}");
            // The trap works: git itself steps into it.
            let _ = std::process::Command::new("git").arg("status").current_dir(repository.0.path()).output().unwrap();
            assert!(ran.exists(), "{key}");
        }
    }
}
