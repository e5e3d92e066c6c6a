//! Questions of agents, and ends that a person has to be told of.

use std::sync::Arc;

use relive_api::{AckRequest, ItemKind, Resolution, ResolveRequest};
use relive_core::{ErrorCode, Uuid};
use relive_runtime::{Access, Caller};

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
fn an_end_that_whoever_started_it_watches_is_no_item_however_early_it_comes() {
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
