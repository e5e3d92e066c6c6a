use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::*;

struct Repository(tempfile::TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        repository.git(&["init", "-q", "-b", "main"]);
        repository.put("a", "one");
        repository.git(&["add", "a"]);
        repository.git(&["commit", "-qm", "x"]);
        repository
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn git(&self, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]).args(args);
        let output = git.current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "the file belongs to the test")]
    fn put(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "the file belongs to the test")]
    fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
    }

    fn pipe(&self, path: &str) {
        rustix::fs::mkfifoat(CWD, self.path(path), Mode::from_raw_mode(0o600)).unwrap();
    }

    async fn look(&self, directory: &str) -> Option<Git> {
        look(&Pool::default(), self.path(directory)).await
    }

    async fn check(&self, directory: &str) {
        let head = self.git(&["-C", self.path(directory).to_str().unwrap(), "rev-parse", "HEAD"]);
        assert_eq!(self.look(directory).await, Some(Git { head, dirty: None }), "{directory}");
    }
}

#[tokio::test]
async fn the_commit_is_found_wherever_git_keeps_it() {
    let repository = Repository::new();
    repository.check("").await;
    repository.git(&["pack-refs", "--all"]);
    repository.check("").await;
    repository.git(&["worktree", "add", "-q", "-b", "feature/other", "linked"]);
    repository.check("linked").await;
    repository.git(&["checkout", "-q", "--detach"]);
    repository.check(".git").await;
    let nowhere = tempfile::tempdir().unwrap();
    assert_eq!(look(&Pool::default(), nowhere.path().to_owned()).await, None);
    repository.git(&["checkout", "-q", "--orphan", "unborn"]);
    assert_eq!(repository.look("").await, None);
}

/// Sets a trap, and checks that reading the commit does not trigger it and that `git status` does.
async fn trap(name: &str, set: impl Fn(&Repository, &str)) {
    let repository = Repository::new();
    let ran = repository.path("ran");
    set(&repository, &format!("touch {}; cat", ran.display()));
    // A file with a new time and the same content makes `git status` read it again.
    repository.put("a", "two");
    assert!(repository.look("").await.is_some_and(|git| git.dirty.is_none()), "{name}");
    assert!(!ran.exists(), "{name}: looking ran a program");
    let _ = Command::new("git").arg("status").stdin(Stdio::null()).current_dir(repository.0.path()).output().unwrap();
    assert!(ran.exists(), "{name}: the trap does not work");
}

#[tokio::test]
async fn no_program_that_a_repository_names_is_run() {
    trap("fsmonitor", |repository, program| {
        repository.git(&["config", "core.fsmonitor", program]);
    })
    .await;
    trap("hook", |repository, program| {
        use std::os::unix::fs::PermissionsExt as _;
        repository.put(".git/hooks/post-index-change", &format!("#!/bin/sh\n{program} </dev/null\n"));
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(repository.path(".git/hooks/post-index-change"), mode).unwrap();
        // An index with an old time is rewritten by `git status`.
        repository.put("b", "");
        repository.git(&["-c", "core.hooksPath=/dev/null", "add", "b"]);
        repository.git(&["-c", "core.hooksPath=/dev/null", "update-index", "--index-version", "4"]);
        repository.put("b", "");
    })
    .await;
    trap("filter", |repository, program| {
        repository.git(&["config", "filter.evil.clean", program]);
        repository.put(".gitattributes", "a filter=evil\n");
    })
    .await;
    trap("attributes of the repository", |repository, program| {
        repository.git(&["config", "filter.evil.clean", program]);
        repository.put(".git/info/attributes", "* filter=evil\n");
    })
    .await;
    trap("include", |repository, program| {
        repository.put("included", &format!("[core]\n\tfsmonitor = \"{program}\"\n"));
        repository.git(&["config", "include.path", "../included"]);
    })
    .await;
    trap("a filter after 4 MiB of configuration", |repository, program| {
        let config = std::fs::read_to_string(repository.path(".git/config")).unwrap();
        let padding = "# nothing to see here\n".repeat((4 << 20) / 22 + 1);
        repository.put(".git/config", &format!("{config}{padding}[filter \"evil\"]\n\tclean = \"{program}\"\n"));
        repository.put(".gitattributes", "a filter=evil\n");
    })
    .await;
}

#[tokio::test]
async fn files_that_are_not_regular_are_ignored_without_blocking() {
    type Spoil = fn(&Repository);
    let spoil: [(&str, Spoil); 8] = [
        (".git is a pipe", |repository| {
            repository.remove(".git");
            repository.pipe(".git");
        }),
        ("HEAD is a pipe", |repository| {
            repository.remove(".git/HEAD");
            repository.pipe(".git/HEAD");
        }),
        ("the reference is a pipe", |repository| {
            repository.remove(".git/refs/heads/main");
            repository.pipe(".git/refs/heads/main");
        }),
        (".git is a loop", |repository| {
            repository.remove(".git");
            symlink(".git", repository.path(".git")).unwrap();
        }),
        ("HEAD is a loop", |repository| {
            repository.remove(".git/HEAD");
            symlink("HEAD", repository.path(".git/HEAD")).unwrap();
        }),
        ("HEAD is a device", |repository| {
            repository.remove(".git/HEAD");
            symlink("/dev/zero", repository.path(".git/HEAD")).unwrap();
        }),
        ("HEAD has no end", |repository| {
            let file = std::fs::File::options().write(true).open(repository.path(".git/HEAD")).unwrap();
            file.set_len(1 << 42).unwrap();
        }),
        ("HEAD leads out", |repository| repository.put(".git/HEAD", "ref: refs/../../secret")),
    ];
    for (name, spoil) in spoil {
        let repository = Repository::new();
        spoil(&repository);
        let begun = std::time::Instant::now();
        assert_eq!(repository.look("").await, None, "{name}");
        assert!(begun.elapsed() < WITHIN / 2, "{name} took {:?}", begun.elapsed());
    }
    // With a pipe in its place `commondir` is ignored: the repository counts as an ordinary one.
    let repository = Repository::new();
    let head = repository.git(&["rev-parse", "HEAD"]);
    repository.pipe(".git/commondir");
    assert_eq!(repository.look("").await, Some(Git { head, dirty: None }));
}
