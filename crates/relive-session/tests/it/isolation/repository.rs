//! The repository of a working directory: nothing that Git executes can be changed, and nothing is left behind in it.

#![expect(clippy::disallowed_methods, reason = "a test's own files")]

use std::path::{Path, PathBuf};

use relive_sandbox::{GitConfig, Isolation};
use relive_session::spec::Spec;
use relive_session::stage::{SessionResult, Stage};

use super::world::World;
use crate::harness::*;

/// Attempts on a repository that lacks what has to be protected.
const MISSING: &[&str] = &[
    "mkdir .git/hooks",
    "mkdir .git/h && mv .git/h .git/hooks",
    "ln -s ../evil .git/hooks",
    "echo ../evil > .git/commondir",
    "echo x > .git/c && mv .git/c .git/commondir",
    // Git reads it as soon as the user turns that on, for example by `git sparse-checkout init`.
    "echo x > .git/config.worktree",
    "rmdir .git/hooks && mkdir .git/hooks && echo x > .git/hooks/pre-commit",
    "echo x > .git/hooks/pre-commit",
];

/// Returns the names in a directory.
fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Makes the repository one without hooks, and returns its directory.
fn without_hooks(world: &World) -> PathBuf {
    world.restore();
    let git = world.room.join("home/work/.git");
    std::fs::remove_dir_all(git.join("hooks")).unwrap();
    git
}

#[tokio::test]
async fn missing_parts_of_a_repository_cannot_be_created_inside_and_none_is_left_behind() {
    let Some(world) = World::new("missing").await else { return };
    for (number, attempt) in MISSING.iter().enumerate() {
        let git = without_hooks(&world);
        let before = names(&git);
        for isolation in [Isolation::Confined, Isolation::Sealed] {
            let held = world.exit_code(&format!("{isolation}-{number}"), isolation, attempt).await;
            assert_ne!(held, 0, "{isolation}: {attempt}");
            let left: Vec<String> =
                names(&git).into_iter().filter(|name| !["h", "c"].contains(&name.as_str())).collect();
            assert_eq!(left, before, "{isolation}: {attempt}");
        }
    }
    let git = without_hooks(&world);
    let before = names(&git);
    let works = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git gc -q && git status";
    let (record, printed) = world.run("works", Isolation::Confined, works).await;
    assert_eq!(record.result, SessionResult::Exited(0), "{printed}");
    let new = names(&git)
        .into_iter()
        .filter(|name| ["hooks", "commondir", "config.worktree"].contains(&name.as_str()))
        .count();
    assert_eq!(new, 0, "{before:?} became {:?}", names(&git));
}

#[tokio::test]
async fn mount_points_in_a_repository_stay_until_the_last_session_has_ended() {
    let Some(world) = World::new("shared").await else { return };
    let git = without_hooks(&world);
    let before = names(&git);
    let script =
        "echo ready; read line; mkdir .git/hooks; echo x > .git/hooks/pre-commit; echo x > .git/commondir; true";
    let long = world.launch("long", &world.spec(Isolation::Confined, script)).await;
    long.prints("ready").await;
    assert_eq!(world.exit_code("short", Isolation::Confined, "true").await, 0);
    assert!(git.join("hooks").exists() && git.join("commondir").exists(), "{:?}", names(&git));
    long.connection.write(b"go on\n").await.unwrap();
    long.ended().await;
    assert_eq!(names(&git), before, "{}", long.printed());
}

#[tokio::test]
async fn mount_points_left_by_a_killed_shim_are_removed_by_the_next_session() {
    let Some(world) = World::new("left").await else { return };
    let git = without_hooks(&world);
    let before = names(&git);
    let running = world.launch("killed", &world.spec(Isolation::Confined, "echo ready; read line")).await;
    let program = running.reaches(Stage::Running).await.host_pid.unwrap();
    let shim = running.directory.read_state().unwrap().unwrap().shim_pid;
    // SAFETY: numbers of processes that this test has started.
    unsafe {
        libc::kill(shim, libc::SIGKILL);
        libc::kill(program, libc::SIGKILL);
    }
    wait_until("the shim is gone", || running.directory.lock_is_free().unwrap()).await;
    assert_ne!(names(&git), before, "this test shows nothing: the shim has removed it");
    assert_eq!(world.exit_code("next", Isolation::Confined, "true").await, 0);
    assert_eq!(names(&git), before);

    // What somebody else has put there stays.
    std::fs::create_dir(git.join("hooks")).unwrap();
    std::fs::write(git.join("hooks/post-commit"), "#!/bin/sh\n").unwrap();
    assert_eq!(world.exit_code("kept", Isolation::Confined, "true").await, 0);
    assert!(git.join("hooks/post-commit").exists());
    std::fs::remove_file(git.join("hooks/post-commit")).unwrap();
    assert_eq!(world.exit_code("empty", Isolation::Confined, "true").await, 0);
    assert!(git.join("hooks").exists(), "an empty directory of the user's is the user's");
}

#[tokio::test]
async fn the_file_that_names_the_repository_of_a_linked_working_tree_stays() {
    let Some(world) = World::new("linked").await else { return };
    let make =
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git worktree add -q $ROOM/home/linked";
    assert_eq!(world.exit_code("make", Isolation::None, make).await, 0);
    let linked = world.room.join("home/linked");
    let spec = |isolation, script: &str| Spec { cwd: linked.display().to_string(), ..world.spec(isolation, script) };
    let works = "echo x > file && git add file && git -c user.name=a -c user.email=a@b commit -qm file && git status";
    let (record, printed) = world.run_spec("works", &spec(Isolation::Confined, works)).await;
    assert_eq!(record.result, SessionResult::Exited(0), "{printed}");
    for (number, attempt) in [
        "rm .git && git init -q && echo x > .git/hooks/post-checkout",
        "mv .git moved && git init -q",
        "echo gitdir: evil > .git",
        "echo x > $ROOM/home/work/.git/hooks/pre-commit",
        "echo x > $ROOM/home/work/.git/config",
    ]
    .iter()
    .enumerate()
    {
        for isolation in [Isolation::Confined, Isolation::Sealed] {
            let (held, printed) = world.run_spec(&format!("{isolation}-{number}"), &spec(isolation, attempt)).await;
            assert!(matches!(held.result, SessionResult::Exited(1..)), "{isolation}: {attempt}: {printed}");
            assert!(linked.join(".git").is_file(), "{isolation}: {attempt}");
        }
    }
    let attempt = "rm .git && git init -q && echo x > .git/hooks/post-checkout";
    let (open, printed) = world.run_spec("none", &spec(Isolation::None, attempt)).await;
    assert_eq!(open.result, SessionResult::Exited(0), "{printed}");
}

#[tokio::test]
async fn the_configuration_of_a_repository_can_be_allowed() {
    let Some(world) = World::new("git-config").await else { return };
    let mut spec = world.spec(Isolation::Confined, "git config user.name a && ! echo x > .git/hooks/pre-commit");
    spec.isolation.policy.git_config = GitConfig::Writable;
    let (record, printed) = world.run_spec("config", &spec).await;
    assert_eq!(record.result, SessionResult::Exited(0), "{printed}");
}
