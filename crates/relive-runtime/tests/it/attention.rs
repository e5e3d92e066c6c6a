//! Questions of agents, and ends that a person has to be told of.

use std::sync::Arc;

use relive_api::{AckRequest, Change, ItemKind, Resolution, ResolveRequest};
use relive_core::{ErrorCode, Uuid};
use relive_runtime::{Access, Caller, FeedReader, FeedReady};

use crate::world::{Daemon, World};

const ASKS: &str = "turns: [{calls: [{name: ask, args: {question: which}}]}, {text: '{{result}}'}]";
const ENDS: &str = "turns: [{text: done}]";

fn kind_of(daemon: &Daemon, uuid: Uuid) -> Option<ItemKind> {
    let inbox = daemon.block(daemon.runtime.inbox()).unwrap();
    inbox.items.into_iter().find(|item| item.uuid == uuid).map(|item| item.kind)
}

/// Waits until a process is in the inbox.
fn await_item(daemon: &Daemon, uuid: Uuid) -> ItemKind {
    for _ in 0..12_000 {
        if let Some(kind) = kind_of(daemon, uuid) {
            return kind;
        }
        daemon.block(async { tokio::time::sleep(std::time::Duration::from_millis(5)).await });
    }
    panic!("{uuid} is not in the inbox");
}

#[test]
fn a_watched_process_that_ends_early_is_not_an_item() {
    let world = World::new();
    let daemon = world.start();
    let person = Access::new(Arc::clone(&daemon.runtime), Caller::Person);
    let alone = daemon.run(world.request(&world.script(ENDS)));
    let watched = daemon.block(person.run_attended(world.request(&world.script(ENDS)))).unwrap();
    daemon.until_records(&world, alone.uuid, "ended", 1);
    daemon.until_records(&world, watched.uuid, "ended", 1);
    assert_eq!(await_item(&daemon, alone.uuid), ItemKind::Finished);
    assert_eq!(kind_of(&daemon, watched.uuid), None);
    let unseen = |uuid| world.of_kind(uuid, "ended")[0]["unseen"].clone();
    assert_eq!((unseen(alone.uuid), unseen(watched.uuid)), (true.into(), serde_json::Value::Null));
}

#[test]
fn an_answer_and_an_acknowledgement_that_are_repeated_count_once() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run(world.request(&world.script(ASKS)));
    daemon.until_display(process.uuid, "question");
    let id = process.uuid.to_string();
    let answer = || daemon.runtime.answer(&id, ResolveRequest::answer("left".into(), None), Some("same".into()));
    daemon.block(answer()).unwrap();
    daemon.block(answer()).unwrap();
    daemon.until_records(&world, process.uuid, "ended", 1);
    daemon.block(answer()).unwrap();
    assert_eq!(world.of_kind(process.uuid, "question").len(), 2, "asked and answered");
    await_item(&daemon, process.uuid);
    let ack = || daemon.block(daemon.runtime.ack(&id, AckRequest::default(), Some("ack".into()))).unwrap();
    assert!(ack().changed && !ack().changed);
    assert_eq!(world.of_kind(process.uuid, "acked").len(), 1);
    assert_eq!(kind_of(&daemon, process.uuid), None);
}

#[test]
fn an_answer_for_another_kind_of_question_changes_nothing() {
    let world = World::new();
    let daemon = world.start();
    let asks = daemon.run(world.request(&world.script(ASKS)));
    daemon.until_display(asks.uuid, "question");
    let approval = daemon.run_asking(&world, "file");
    let refused = |uuid: Uuid, request: ResolveRequest| {
        let before = world.records(uuid).len();
        let error = daemon.block(daemon.runtime.answer(&uuid.to_string(), request, None)).unwrap_err();
        assert_eq!(world.records(uuid).len(), before);
        error.code()
    };
    for outcome in [Resolution::Allow, Resolution::Deny, Resolution::Done, Resolution::NotDone, Resolution::Retry] {
        assert_eq!(refused(asks.uuid, ResolveRequest::new(outcome)), ErrorCode::Conflict);
    }
    assert_eq!(refused(approval.uuid, ResolveRequest::answer("x".into(), None)), ErrorCode::Conflict);
    assert_eq!(refused(asks.uuid, ResolveRequest::new(Resolution::Answer)), ErrorCode::Invalid);
    let long = "x".repeat(relive_api::ANSWER_MAX + 1);
    assert_eq!(refused(asks.uuid, ResolveRequest::answer(long, None)), ErrorCode::Invalid);
    let always = ResolveRequest { always: true, ..ResolveRequest::answer("x".into(), None) };
    assert_eq!(refused(asks.uuid, always), ErrorCode::Invalid);
}

#[test]
fn a_process_cannot_keep_the_end_of_another_out_of_the_inbox() {
    let world = World::new();
    let daemon = world.start();
    let victim = daemon.run(world.request(&world.script(ASKS)));
    daemon.until_display(victim.uuid, "question");
    let inside = daemon.run(world.request(&world.script(ASKS)));
    daemon.until_display(inside.uuid, "question");
    let inside = Access::new(Arc::clone(&daemon.runtime), Caller::Process(inside.uuid));
    let request = relive_api::RunRequest { uuid: victim.uuid, ..world.request(&world.script(ENDS)) };
    daemon.block(inside.run_attended(request)).unwrap_err();
    let answer = ResolveRequest::answer("left".into(), None);
    daemon.block(daemon.runtime.answer(&victim.uuid.to_string(), answer, None)).unwrap();
    assert_eq!(await_item(&daemon, victim.uuid), ItemKind::Finished);
}

/// Reads a feed until its reader knows everything; all that it was told, and whether that is all.
fn read_all(daemon: &Daemon, feed: &mut FeedReader) -> (Vec<Change>, Vec<usize>, FeedReady, String) {
    let (mut changes, mut parts) = (Vec::new(), Vec::new());
    loop {
        let part = daemon.block(feed.next());
        parts.push(part.changes.len());
        changes.extend(part.changes);
        if let Some(ready) = part.ready {
            return (changes, parts, ready, part.id.unwrap());
        }
    }
}

#[test]
fn a_reader_far_behind_is_ready_when_it_was_told_everything() {
    let world = World::new();
    let daemon = world.start();
    let person = Access::new(Arc::clone(&daemon.runtime), Caller::Person);
    let (.., id) = read_all(&daemon, &mut person.feed(None).unwrap());
    let model = world.script(ENDS);
    let ended: Vec<Uuid> = (0..300).map(|_| daemon.run(world.request(&model)).uuid).collect();
    ended.iter().for_each(|uuid| drop(daemon.wait(uuid)));
    let (changes, parts, ..) = read_all(&daemon, &mut person.feed(Some(&id)).unwrap());
    let told: std::collections::BTreeSet<Uuid> = changes.iter().map(|change| change.uuid).collect();
    assert!(ended.iter().all(|uuid| told.contains(uuid)), "{} of 300 in parts of {parts:?}", told.len());
    assert!(parts.len() > 1, "one part is not enough for them");
}

#[test]
fn an_ended_process_that_the_index_does_not_know_just_now_is_not_told_as_gone() {
    let world = World::new();
    let daemon = world.start();
    let person = Access::new(Arc::clone(&daemon.runtime), Caller::Person);
    let (.., id) = read_all(&daemon, &mut person.feed(None).unwrap());
    let ended = daemon.run(world.request(&world.script(ENDS)));
    await_item(&daemon, ended.uuid);
    // From here on the index answers nothing.
    daemon.block(daemon.runtime.close());
    let (changes, ..) = read_all(&daemon, &mut person.feed(Some(&id)).unwrap());
    let change = changes.iter().find(|change| change.uuid == ended.uuid).unwrap();
    assert!(change.process.is_some(), "it is not gone");
    assert_eq!(change.item.as_ref().map(|item| item.kind), Some(ItemKind::Finished));
}

#[test]
fn a_feed_says_that_ends_may_be_missing_and_tells_of_them_when_the_index_is_complete() {
    let world = World::new();
    let daemon = world.start();
    let ended = daemon.run(world.request(&world.script(ENDS)));
    await_item(&daemon, ended.uuid);
    drop(daemon);
    world.let_go();
    std::fs::remove_dir_all(world.data().join("index")).unwrap();
    // Nobody can say what was collected, and nothing more can be set aside: the index stays incomplete.
    std::fs::create_dir(world.data().join("tombstones.jsonl")).unwrap();
    for number in 1..=100 {
        std::fs::create_dir(world.data().join(format!("tombstones.jsonl.aside-{number}"))).unwrap();
    }
    let daemon = world.start();
    let person = Access::new(Arc::clone(&daemon.runtime), Caller::Person);
    let mut feed = person.feed(None).unwrap();
    let (_, _, ready, _) = read_all(&daemon, &mut feed);
    assert!(ready.incomplete);
    std::fs::remove_dir(world.data().join("tombstones.jsonl")).unwrap();
    let told = daemon.block(async {
        loop {
            feed.changed().await;
            let part = feed.next().await;
            if let Some(ready) = part.ready {
                assert!(!ready.incomplete);
                return part.changes;
            }
        }
    });
    assert!(told.iter().any(|change| change.uuid == ended.uuid && change.item.is_some()), "{told:?}");
}
