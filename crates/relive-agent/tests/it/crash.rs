//! Calls interrupted by a crash: the findings, and their consequences.

use relive_journal::Hash;
use relive_journal::recovery::{Finding, Recovery, Settlement};
use serde_json::{Value, json};

use crate::support::{World, find};

async fn settle(world: &World, tool: &str, recovery: &Recovery) -> Settlement {
    recovery.settle(find(tool).look(world.context.clone(), recovery.clone(), "key:1".to_owned()).await)
}

/// Checks every point at which a change can be interrupted. `before` is the file's text, if it exists.
async fn check(tool: &str, args: Value, before: Option<&str>, after: &str) {
    let world = World::new();
    if let Some(before) = before {
        world.put("d/f", before);
    }
    let recovery = world.prepare(tool, args.clone()).await.unwrap();
    let expect = Recovery::Check {
        path: world.cwd.join("d/f"),
        before: before.map(|text| Hash::of(text.as_bytes())),
        after: Some(Hash::of(after.as_bytes())),
    };
    assert_eq!(recovery, expect);
    assert_eq!(world.cwd.join("d").exists(), before.is_some(), "prepare changes nothing");

    // Before anything was done.
    assert_eq!(settle(&world, tool, &recovery).await, Settlement::Run);
    // With its directory created, and another file in it.
    world.put("d/.relive-temporary", "");
    assert_eq!(settle(&world, tool, &recovery).await, Settlement::Run);
    // After it was done, before its result was recorded.
    let ran = world.run(tool, args.clone(), recovery.clone()).await;
    assert!(ran.ok && world.get("d/f") == after, "{ran:?}");
    assert_eq!(settle(&world, tool, &recovery).await, Settlement::Done);
    assert_eq!(find(tool).found_done(args.to_string(), recovery.clone()), ran);
    // Running it again does not apply it twice.
    assert!(world.run(tool, args.clone(), recovery.clone()).await.ok);
    assert_eq!(world.get("d/f"), after);
    // Another program changed the file.
    world.put("d/f", "somebody else's");
    assert_eq!(settle(&world, tool, &recovery).await, Settlement::Doubt);
    let refused = world.run(tool, args, recovery.clone()).await;
    assert!(!refused.ok && refused.text.contains("changed by another program"), "{refused:?}");
    assert_eq!(world.get("d/f"), "somebody else's");
}

#[tokio::test]
async fn the_hash_of_the_file_decides_whether_a_change_is_done() {
    check("write", json!({"path": "d/f", "content": "new"}), None, "new").await;
    check("write", json!({"path": "d/f", "content": "new"}), Some("old"), "new").await;
    check("edit", json!({"path": "d/f", "old": "b", "new": "bb"}), Some("abc"), "abbc").await;
}

#[tokio::test]
async fn a_temporary_file_left_by_a_crash_is_replaced() {
    let world = World::new();
    let args = json!({"path": "f", "content": "new"});
    let name = format!(".relive-{}.tmp", &Hash::of(b"key:1").to_string()[..16]);
    world.put(&name, "half of i");
    world.works("write", args).await;
    assert_eq!((world.get("f").as_str(), world.names()), ("new", vec!["f".to_owned()]));
}

#[tokio::test]
async fn a_change_of_an_unreadable_file_is_in_doubt() {
    let world = World::new();
    let check = |path: &str| Recovery::Check { path: path.into(), before: None, after: Some(Hash::of(b"")) };
    let look = async |recovery| find("write").look(world.context.clone(), recovery, "key:1".to_owned()).await;
    assert_eq!(look(check("/etc/passwd")).await, Finding::Lost);
    world.link("../secret", "out");
    assert_eq!(look(check(world.cwd.join("out").to_str().unwrap())).await, Finding::Lost);
    assert_eq!(look(check(world.cwd.to_str().unwrap())).await, Finding::Lost);
    assert_eq!(look(Recovery::Rerun).await, Finding::Lost);
    assert_eq!(look(check(world.cwd.join("nothing/there").to_str().unwrap())).await, Finding::File(None));
}

#[tokio::test]
async fn a_file_created_or_removed_in_the_meantime_is_not_touched() {
    let world = World::new();
    let write = json!({"path": "f", "content": "mine"});
    let recovery = world.prepare("write", write.clone()).await.unwrap();
    world.put("f", "theirs");
    assert!(!world.run("write", write, recovery).await.ok);
    assert_eq!(world.get("f"), "theirs");

    let edit = json!({"path": "f", "old": "their", "new": "our"});
    let recovery = world.prepare("edit", edit.clone()).await.unwrap();
    world.put("f", "theirs, changed");
    assert!(!world.run("edit", edit, recovery).await.ok);
    assert_eq!(world.get("f"), "theirs, changed");
}

/// Two agents saw the same file: one edit is applied, and the other is refused.
#[tokio::test]
async fn of_two_concurrent_edits_none_is_lost() {
    let world = World::new();
    for round in 0..50 {
        world.put("f", "a b");
        let runs = [("a", "A"), ("b", "B")].map(|(old, new)| {
            let args = json!({"path": "f", "old": old, "new": new});
            let (tool, context) = (find("edit"), world.context.clone());
            async move {
                let recovery = tool.prepare(context.clone(), args.to_string()).await.unwrap();
                (tool, context, args, recovery, format!("{new}:{round}"))
            }
        });
        // Both have looked before either acts.
        let prepared = futures_util::future::join_all(runs).await;
        let ran = prepared.into_iter().map(|(tool, context, args, recovery, key)| {
            tokio::spawn(tool.run(context, args.to_string(), recovery, key))
        });
        let results = futures_util::future::join_all(ran).await;
        let ok: Vec<bool> = results.into_iter().map(|result| result.unwrap().ok).collect();
        let expect = match world.get("f").as_str() {
            "A b" => [true, false],
            "a B" => [false, true],
            _ => [false, false],
        };
        assert_eq!(ok, expect, "{:?}", world.get("f"));
    }
}
