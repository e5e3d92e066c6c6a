//! Sleeping, and child agents.

use std::time::Duration;

use relive_agent::tool::ChildEnd;
use relive_journal::recovery::{Lookup, Recovery, Settlement};
use relive_types::Uuid;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{FakeHost, World, find};

#[tokio::test(start_paused = true)]
async fn sleep_lasts_until_its_deadline_and_after_a_crash_what_is_left() {
    let world = World::new();
    let began = Instant::now();
    assert_eq!(world.works("sleep", json!({"duration": "2500ms"})).await, "slept");
    assert_eq!(began.elapsed(), Duration::from_millis(2500));
    world.works("sleep", json!({"duration": 0.5})).await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));

    let args = json!({"duration": "10s"});
    let recovery = world.prepare("sleep", args.clone()).await.unwrap();
    let until = FakeHost::BEGAN + Duration::from_secs(13);
    assert_eq!(recovery, Recovery::Lookup { what: Lookup::Until(until) });
    tokio::time::advance(Duration::from_secs(4)).await;
    let finding = find("sleep").look(world.context.clone(), recovery.clone(), "key:1".to_owned()).await;
    assert_eq!(recovery.settle(finding), Settlement::Run);
    let again = Instant::now();
    assert!(world.run("sleep", args.clone(), recovery.clone()).await.ok);
    assert_eq!(again.elapsed(), Duration::from_secs(6));
    tokio::time::advance(Duration::from_secs(100)).await;
    let late = Instant::now();
    assert!(world.run("sleep", args, recovery).await.ok);
    assert_eq!(late.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn one_child_is_spawned_whenever_the_crash_happens() {
    let world = World::new();
    let args = json!({"intent": "count", "name": "kid", "model": "script/demo"});
    let recovery = world.prepare("spawn_agent", args.clone()).await.unwrap();
    let uuid = Uuid::from_u128(1);
    assert_eq!(recovery, Recovery::Lookup { what: Lookup::Child(uuid) });
    let settle = async || {
        recovery.settle(find("spawn_agent").look(world.context.clone(), recovery.clone(), "key:1".to_owned()).await)
    };
    assert_eq!(settle().await, Settlement::Run);
    let ran = world.run("spawn_agent", args.clone(), recovery.clone()).await;
    assert_eq!(ran.text, format!(r#"{{"uuid":"{uuid}"}}"#));
    assert_eq!(settle().await, Settlement::Done);
    assert_eq!(find("spawn_agent").found_done(args.to_string(), recovery.clone()), ran);
    let spawned = world.host.spawned.lock().unwrap().clone();
    assert_eq!((spawned.len(), spawned[0].parent, spawned[0].intent.as_str()), (1, world.context.uuid, "count"));
    world.refused("spawn_agent", json!({"intent": "x", "model": "no/such"}), "unknown model no/such").await;
}

#[tokio::test(start_paused = true)]
async fn wait_answers_how_the_child_ended() {
    let world = World::new();
    let uuid = Uuid::from_u128(7);
    world.refused("wait_agent", json!({"uuid": uuid, "timeout": "5s"}), "timed out after 5s").await;
    world.refused("wait_agent", json!({"uuid": world.context.uuid}), "your own").await;
    let end = ChildEnd { code: 0, reason: "completed".to_owned(), last_text: Some("ten".to_owned()) };
    world.host.ends.lock().unwrap().insert(uuid, end);
    let answer: Value = serde_json::from_str(&world.works("wait_agent", json!({"uuid": uuid})).await).unwrap();
    assert_eq!(answer, json!({"uuid": uuid, "code": 0, "reason": "completed", "text": "ten"}));
}

#[cfg(feature = "faults")]
#[tokio::test]
async fn append_outside_leaves_a_line_for_each_effect() {
    let world = World::new();
    let path = world.outside.join("effects");
    let args = json!({"path": path, "text": "one"});
    assert_eq!(world.prepare("append_outside", args.clone()).await, Ok(Recovery::Doubt));
    world.works("append_outside", args.clone()).await;
    world.works("append_outside", args).await;
    let line = format!("{} key:1 one\n", world.context.uuid);
    assert_eq!(std::fs::read_to_string(path).unwrap(), line.repeat(2));
    world.refused("append_outside", json!({"path": "effects", "text": ""}), "must be absolute").await;
}
