//! `gc`.

use std::fs;

use serde_json::json;

use crate::world::{World, finish};

fn histories(world: &World) -> usize {
    world.histories()
}

/// So many processes that have ended, in any order.
fn dead(world: &World, count: usize) -> Vec<String> {
    let model = world.script("turns: [{text: done}]");
    world.relive(&["daemon", "start"]).ok();
    let uuids: Vec<String> = (0..count).map(uuid_at).collect();
    uuids.iter().for_each(|uuid| spawn(world, uuid, &model));
    uuids.iter().for_each(|uuid| world.await_retired(uuid));
    uuids
}

/// So many processes that have ended one after the other: the last one is the newest.
fn dead_in_order(world: &World, count: usize) -> Vec<String> {
    let model = world.script("turns: [{text: done}]");
    world.relive(&["daemon", "start"]).ok();
    let uuids: Vec<String> = (0..count).map(uuid_at).collect();
    for uuid in &uuids {
        spawn(world, uuid, &model);
        world.await_retired(uuid);
    }
    uuids
}

fn uuid_at(place: usize) -> String {
    format!("01900000-0000-7000-8000-{place:012x}")
}

fn spawn(world: &World, uuid: &str, model: &str) {
    let body = world.run_request(uuid, model, "x");
    assert_eq!(crate::world::http(&world.socket(), "POST", "/v1/processes", "", &body).0, 200);
}

#[test]
fn case_29_gc_asks_before_it_removes_more_than_a_hundred() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1}");
    let running = world.run_hanging(&[]);
    let paused = world.run_hanging(&[]);
    world.relive(&["pause", "--now", &paused.uuid]).ok();
    world.await_display(&paused.uuid, "suspended");
    let uuids = dead(&world, 102);
    assert_eq!(histories(&world), 104);

    let dry = world.relive(&["gc", "--dry-run", "--json"]).ok().json();
    let candidates = dry["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 101);
    assert!(
        candidates.iter().all(|found| found["uuid"] != running.uuid.as_str() && found["uuid"] != paused.uuid.as_str())
    );
    assert_eq!(candidates[0]["reason"], "max_entries");
    world.relive(&["gc", "--dry-run"]).ok();
    assert_eq!(histories(&world), 104, "a dry run removes nothing");

    world.relive(&["gc"]).fails(2, &["101", "hint: relive gc -y"]);
    assert_eq!(histories(&world), 104, "no terminal, no flag: refused");
    let asked = world.on_terminal("gc").ok().stdout;
    assert!(asked.contains("Remove 101 processes") && asked.contains("[y/N]"), "{asked}");
    assert!(asked.contains("nothing was removed"), "{asked}");
    assert_eq!(histories(&world), 104, "the end of input is a no");

    // One that was resumed a moment ago is none any more, so a hundred are left, which go unasked.
    world.relive(&["resume", &uuids[0]]).ok();
    world.relive(&["wait", &uuids[0]]).ok();
    world.await_retired(&uuids[0]);
    let first = world.relive(&["gc", "--dry-run", "--json"]).ok().json()["candidates"][0]["uuid"].clone();
    assert_ne!(first, uuids[0].as_str(), "it ended last now");
    let next = world.run_hanging(&[]);
    fs::remove_dir_all(world.directory(&uuids[101])).unwrap();
    assert!(world.relive(&["gc"]).ok().stderr.starts_with("removed 100 processes"));
    assert_eq!(histories(&world), 4);
    for alive in [&running, &next] {
        assert_eq!(world.info(&alive.uuid)["display"], "running");
    }
    assert_eq!(world.info(&paused.uuid)["display"], "suspended");
    world.relive(&["resume", &paused.uuid]).ok();
    assert_eq!(world.relive(&["gc", "--json"]).ok().json(), json!({"removed": 0, "freed_bytes": 0, "uuids": []}));
}

#[test]
fn case_29_a_process_that_is_resumed_during_gc_is_not_removed() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1}");
    let uuids = dead(&world, 12);
    let collectors: Vec<_> = (0..2).map(|_| world.start(&["gc", "--json"])).collect();
    let resumed: Vec<_> = uuids.iter().map(|uuid| (uuid, world.relive(&["resume", uuid]))).collect();
    let collected: usize =
        collectors.into_iter().map(|collector| finish(collector).ok().json()["uuids"].as_array().unwrap().len()).sum();
    let gone = resumed.iter().filter(|(_, told)| told.code != 0).count();
    assert!(gone <= collected && collected < uuids.len(), "{gone} {collected}");
    for (uuid, told) in resumed {
        if told.code == 0 {
            world.relive(&["wait", uuid]).ok();
        } else {
            assert!(told.code == 4 && told.stderr.contains("garbage collected"), "{told:?}");
        }
    }
}

#[test]
fn case_29_corrupt_metadata_is_passed_over_with_a_warning() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1}");
    let uuids = dead_in_order(&world, 3);
    let odd = "01900000-0000-7000-8000-0000000000ff";
    fs::create_dir_all(world.directory(odd)).unwrap();
    fs::write(world.directory(odd).join("proc-info.json"), "{\"state\":\"dead\"").unwrap();
    // A snapshot can be made anew where there is a journal.
    fs::write(world.directory(&uuids[0]).join("proc-info.json"), "rubbish").unwrap();
    fs::remove_file(world.directory(&uuids[1]).join("proc-info.json")).unwrap();
    let collected = world.relive(&["gc", "--json"]).ok();
    assert_eq!(collected.json()["removed"], 2);
    assert!(collected.stderr.contains("warning: ") && collected.stderr.contains(odd), "{collected:?}");
    assert!(world.directory(odd).exists());
    world.kill_daemon();
    assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, "3\n");
    world.relive(&["gc", "--force"]).ok();
    assert!(world.directory(odd).exists());
}

#[test]
fn case_29_more_than_one_request_takes_are_collected_by_several() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1}");
    dead(&world, 206);
    let told = world.relive(&["gc", "--force"]).ok();
    assert!(told.stderr.contains("\nremoved 205 processes, "), "{told:?}");
    assert!(told.stderr.contains("removed 200 of 205 processes"), "{told:?}");
    assert_eq!(histories(&world), 1);
}

#[test]
fn gc_reports_the_processes_it_cannot_remove() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1}");
    let uuids = dead(&world, 3);
    let tmp = world.data().join("tmp");
    fs::remove_dir_all(&tmp).unwrap();
    fs::write(&tmp, "").unwrap();
    let refused = world.relive(&["gc", "--force"]).fails(125, &["cannot remove 2 processes"]);
    assert!(uuids.iter().any(|uuid| refused.stderr.contains(&format!("{uuid}: Not a directory"))), "{refused:?}");
    assert_eq!(histories(&world), 3);
    fs::remove_file(&tmp).unwrap();
    fs::create_dir(&tmp).unwrap();
    let removed = world.relive(&["gc", "--force"]).ok().stderr;
    assert!(removed.contains("removed 2 processes"), "{removed}");
}
