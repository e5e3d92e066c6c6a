//! No path leaves the working directory.
//!
//! These tests must be able to fail without harm: whatever is written leads, at worst, elsewhere into the test's own
//! temporary directory. Paths to the machine itself are only ever read.

use proptest::prelude::*;
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use crate::support::{SECRET, World};

/// Returns a directory full of ways out.
fn trapped() -> World {
    let world = World::new();
    world.put("dir/file", "inside");
    world.link("../secret", "out");
    world.link("..", "up");
    world.link("../..", "dir/upup");
    world.link(world.outside.join("secret"), "absolute");
    world.link(world.cwd.join("dir/file"), "absolute_inside");
    world.link(&world.outside, "root");
    world.link("dir/../dir/file", "inside");
    world.link("dir", "dirlink");
    world.link("out", "twice");
    world.link("../work/dir/file", "around");
    world
}

#[tokio::test]
async fn paths_that_lead_outside_are_refused() {
    let world = trapped();
    for inside in ["dir/file", "./dir//file", "dirlink/file", "inside", "dir/./file"] {
        assert_eq!(world.works("read", json!({"path": inside})).await, "inside", "{inside}");
    }
    let secret = world.outside.join("secret");
    let (sibling, absolute) = (format!("{}-sibling/x", world.cwd.display()), secret.to_str().unwrap());
    let through = format!("{}/../secret", world.cwd.display());
    for (path, words) in [
        ("../secret", "has a `..`"),
        ("dir/../dir/file", "has a `..`"),
        (through.as_str(), "has a `..`"),
        (absolute, "outside the working directory"),
        (sibling.as_str(), "outside the working directory"),
        ("out", "leads out"),
        ("twice", "leads out"),
        ("up/secret", "leads out"),
        ("dir/upup/secret", "leads out"),
        ("absolute", "leads out"),
        ("absolute_inside", "leads out"),
        ("root/secret", "leads out"),
        ("around", "leads out"),
        ("", "cannot be a path"),
        ("a\0b", "cannot be a path"),
    ] {
        for (tool, args) in [
            ("read", json!({"path": path})),
            ("list", json!({"path": path})),
            ("search", json!({"path": path, "pattern": "e"})),
            ("write", json!({"path": path, "content": "broken"})),
            ("edit", json!({"path": path, "old": "e", "new": "broken", "all": true})),
        ] {
            world.refused(tool, args, words).await;
        }
    }
    world.refused("write", json!({"path": "up/new", "content": ""}), "leads out").await;
    world.refused("write", json!({"path": "up/new/deep", "content": ""}), "leads out").await;
    assert!(world.outside_is_untouched());
}

#[tokio::test]
async fn files_of_the_machine_are_not_read() {
    let mut world = World::new();
    world.link("/", "root");
    world.link("/proc/self/root", "magic");
    let read = async |world: &World, path: &str, words| world.refused("read", json!({"path": path}), words).await;
    read(&world, "/etc/passwd", "outside the working directory").await;
    read(&world, "/proc/self/root/etc/passwd", "outside the working directory").await;
    read(&world, "root/etc/passwd", "leads out").await;
    read(&world, "magic/etc/passwd", "leads out").await;
    let cwd = format!("/proc/{}/cwd/Cargo.toml", std::process::id());
    for path in [cwd.as_str(), "/proc/self/cwd/Cargo.toml", "/proc/self/environ", "/dev/fd/0", "/dev/stdin"] {
        read(&world, path, "outside the working directory").await;
    }
    world.link("/proc/self/cwd", "cwd");
    world.link("/proc/self/environ", "environ");
    world.link("/dev/fd", "fd");
    for path in ["cwd/Cargo.toml", "environ", "fd/0"] {
        read(&world, path, "leads out").await;
    }
    // Links of the kernel inside the directory are not followed either.
    world.context.cwd = "/proc/self".into();
    read(&world, "root/etc/passwd", "one of the kernel's own").await;
    read(&world, "cwd/Cargo.toml", "one of the kernel's own").await;
    world.refused("list", json!({"path": "fd/0"}), "").await;
}

#[tokio::test]
async fn a_hard_link_to_an_outside_file_is_replaced_not_written_through() {
    let world = World::new();
    std::fs::hard_link(world.outside.join("secret"), world.cwd.join("twin")).unwrap();
    world.works("edit", json!({"path": "twin", "old": "secret", "new": "open"})).await;
    assert!(world.outside_is_untouched());
    std::fs::hard_link(world.outside.join("secret"), world.cwd.join("third")).unwrap();
    world.works("write", json!({"path": "third", "content": "mine"})).await;
    assert_eq!(world.get("third"), "mine");
    assert!(world.outside_is_untouched());
}

/// Another thread keeps changing a directory into a way out and back.
#[tokio::test(flavor = "multi_thread")]
async fn a_way_out_that_comes_and_goes_is_none() {
    let world = World::new();
    world.put("inside/file", "inside");
    world.link("inside", "flip");
    world.link("../", "flop");
    let (one, other) = (world.cwd.join("flip"), world.cwd.join("flop"));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let exchange = || rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                exchange();
            }
        });
        let tries = async {
            for _ in 0..200 {
                let read = world.call("read", json!({"path": "flip/secret"})).await;
                assert!(!read.ok, "{read:?}");
                world.call("write", json!({"path": "flip/secret", "content": "broken"})).await;
                world.call("edit", json!({"path": "flip/secret", "old": "secret", "new": "x", "all": true})).await;
                let _ = rustix::fs::unlink(world.cwd.join("inside/secret"));
            }
        };
        let tried = tokio::task::block_in_place(|| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tokio::runtime::Handle::current().block_on(tries)))
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        tried.unwrap();
    });
    assert!(world.outside_is_untouched());
}

#[tokio::test]
async fn the_working_directory_may_be_given_by_a_symbolic_link() {
    let mut world = World::new();
    world.put("f", "inside");
    let link = world.outside.join("link");
    std::os::unix::fs::symlink(&world.cwd, &link).unwrap();
    let real = world.cwd.join("f");
    world.context.cwd.clone_from(&link);
    assert_eq!(world.works("read", json!({"path": real})).await, "inside");
    assert_eq!(world.works("read", json!({"path": link.join("f")})).await, "inside");
}

fn component() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "..", ".", "", "dir", "file", "out", "up", "upup", "absolute", "root", "inside", "dirlink",
            "twice", "around", "secret", "work", "new",
        ]).prop_map(str::to_owned),
        1 => "[a-z.~\\PC]{0,4}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn nothing_outside_is_read_or_changed(
        parts in prop::collection::vec(component(), 0..7),
        start in prop::sample::select(vec!["", "WORK/", "OUTSIDE/"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = trapped();
            let start = start
                .replace("WORK", world.cwd.to_str().unwrap())
                .replace("OUTSIDE", world.outside.to_str().unwrap());
            let path = format!("{start}{}", parts.join("/").trim_start_matches('/'));
            let read = world.call("read", json!({"path": path})).await;
            prop_assert!(!read.ok || read.text == "inside", "{path:?} read {read:?}");
            let list = world.call("list", json!({"path": path})).await;
            prop_assert!(!list.ok || !list.text.contains("secret"), "{path:?} listed {list:?}");
            let found = world.call("search", json!({"path": path, "pattern": "secret"})).await;
            prop_assert!(!found.text.contains(SECRET), "{path:?} found {found:?}");
            world.call("edit", json!({"path": path, "old": "secret", "new": "x"})).await;
            world.call("write", json!({"path": path, "content": "x"})).await;
            prop_assert!(world.outside_is_untouched(), "{path:?}");
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn relives_own_directories_are_refused_even_below_the_working_directory() {
    let mut world = World::new();
    world.put("data/steps/1/steps.jsonl", "a needle of a journal\n");
    world.put("notes", "a needle of a note\n");
    world.link("data/steps", "shortcut");
    let data = world.cwd.join("data");
    world.context.private = relive_agent::tool::PrivatePaths::new(move || Box::new([data.clone()]));
    for path in ["data/steps/1/steps.jsonl", "shortcut/1/steps.jsonl", "data/new", "data/new/deep", "shortcut/2"] {
        world.refused("write", json!({"path": path, "content": "x"}), "belongs to Relive itself").await;
    }
    for path in ["data/steps/1/steps.jsonl", "shortcut/1/steps.jsonl"] {
        world.refused("edit", json!({"path": path, "old": "needle", "new": "x"}), "belongs to Relive itself").await;
        world.refused("read", json!({"path": path}), "belongs to Relive itself").await;
    }
    world.refused("list", json!({"path": "data"}), "belongs to Relive itself").await;
    world.refused("search", json!({"pattern": "needle", "path": "data"}), "belongs to Relive itself").await;
    let found = world.works("search", json!({"pattern": "needle"})).await;
    assert!(found.contains("note") && !found.contains("journal"), "{found}");
    world.works("write", json!({"path": "database", "content": "x"})).await;
    let journal = std::fs::read_to_string(world.cwd.join("data/steps/1/steps.jsonl")).unwrap();
    assert_eq!(journal, "a needle of a journal\n");
}
