//! Processes that a start cannot recover: they are listed, nobody is told that they have ended, and they come back.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use relive_api::{ListQuery, Process, Resolution};
use relive_core::{ErrorCode, ProcessStatus, Signal, SuspendReason, Uuid};
use relive_journal::Disk;
use relive_journal::faults::{Faults, Full, Injection};
use relive_runtime::{Error, Result};

use crate::world::{Daemon, World, answer, mask, message, new_uuid, resume, signal};

/// Starts a daemon on a disk that has no room for anything.
fn start_full(world: &World) -> (Daemon, Arc<Faults>) {
    let faults = world.faults(Injection::None);
    faults.fill_up(Full::Always);
    let daemon = world.start_on(Disk::with_faults(Arc::clone(&faults))).unwrap();
    (daemon, faults)
}

fn journal(world: &World, uuid: Uuid) -> PathBuf {
    world.data().join("steps").join(uuid.to_string()).join("steps.jsonl")
}

/// Asks for everything that changes a process, or waits for its end.
fn change(daemon: &Daemon, id: &str) -> Vec<Result<(), Error>> {
    let runtime = &daemon.runtime;
    vec![
        daemon.block(runtime.signal(id, signal("KILL"), None)).map(drop),
        daemon.block(runtime.pause(id, crate::world::PAUSE, None)).map(drop),
        daemon.block(runtime.resume(id, resume(), None)).map(drop),
        daemon.block(runtime.send(id, message("m", "hello"))).map(drop),
        daemon.block(runtime.wait(id, None)).map(drop),
        daemon.block(runtime.signal_by_name(id, signal("HUP"), None)).map(drop),
        daemon.block(runtime.answer(id, answer(Resolution::Allow), None)).map(drop),
        daemon.block(runtime.set_signal_mask(id, mask(&["INT"], &[]), None)).map(drop),
        daemon.block(runtime.signal_mask(id)).map(drop),
        daemon.block(runtime.proceed(id, relive_api::GateRequest::default())).map(drop),
        daemon.block(runtime.abort(id, relive_api::GateRequest::default())).map(drop),
    ]
}

fn listed_with_dead(daemon: &Daemon, uuid: Uuid) -> Option<Process> {
    let list = daemon.block(daemon.runtime.processes(true)).unwrap();
    list.processes.into_iter().find(|process| process.uuid == uuid)
}

#[test]
fn a_process_that_a_full_disk_keeps_from_being_recovered_is_suspended_and_refuses_every_change() {
    let world = World::new();
    let process = world.start().run_hanging(&world);
    let before = world.records(process.uuid).len();
    let (daemon, faults) = start_full(&world);
    let shown = daemon.listed(process.uuid).unwrap();
    assert_eq!((&*shown.display, shown.suspend_reason), ("suspended", Some(SuspendReason::DiskFull)));
    assert!(shown.hint.is_some() && shown.note.is_some() && shown.intent == "do it", "{shown:?}");
    let uuid = process.uuid.to_string();
    for id in [&*uuid, &process.pid.to_string(), &shown.pid.to_string()] {
        assert_eq!(daemon.info(id).display, "suspended", "{id}");
        for refused in change(&daemon, id) {
            let error = refused.unwrap_err();
            assert_eq!((error.code(), error.hint().is_some()), (ErrorCode::Exhausted, true), "{id}: {error}");
        }
    }
    assert_eq!(world.records(process.uuid).len(), before);
    faults.make_room();
    assert_eq!(daemon.signal(process.uuid, "KILL", None).affected, 1, "a verb recovers it");
    let ended = daemon.wait(process.uuid);
    assert_eq!(ended.status, Some(ProcessStatus::Killed { signal: Signal::Kill.into() }));
}

#[test]
fn a_process_that_could_not_be_recovered_runs_again_by_itself_when_there_is_room() {
    let world = World::new();
    let process = world.start().run_hanging(&world);
    let (daemon, faults) = start_full(&world);
    assert_eq!(daemon.display(process.uuid), "suspended");
    faults.make_room();
    daemon.until_display(process.uuid, "running");
    assert_eq!(world.of_kind(process.uuid, "opened").len(), 2);
}

#[test]
fn a_kill_that_was_acknowledged_holds_though_a_full_disk_delays_it() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    daemon.signal(process.uuid, "KILL", None);
    drop(daemon);
    let (daemon, faults) = start_full(&world);
    let refused = daemon.block(daemon.runtime.resume(&process.uuid.to_string(), resume(), None));
    assert!(refused.is_err(), "{refused:?}");
    faults.make_room();
    let ended = daemon.wait(process.uuid);
    assert_eq!(ended.status, Some(ProcessStatus::Killed { signal: Signal::Kill.into() }));
    assert_eq!(world.of_kind(process.uuid, "model_started").len(), 1, "it runs no step more");
}

#[test]
fn a_process_whose_journal_cannot_be_read_is_listed_as_damaged_with_its_file_and_comes_back() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    world.let_go();
    let (path, aside) = (journal(&world, process.uuid), world.work().join("aside"));
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    let daemon = world.start();
    let shown = daemon.listed(process.uuid).unwrap();
    assert_eq!((&*shown.display, shown.suspend_reason), ("damaged", Some(SuspendReason::IoError)));
    assert!(shown.note.as_ref().unwrap().contains(path.to_str().unwrap()), "{shown:?}");
    let id = process.uuid.to_string();
    let fork = relive_api::ResumeRequest { fork: Some(new_uuid()), ..resume() };
    let mut refused = change(&daemon, &id);
    refused.push(daemon.block(daemon.runtime.resume(&id, fork, None)).map(drop));
    refused.push(daemon.block(daemon.runtime.lineage(&id)).map(drop));
    for refused in refused {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    fs::remove_dir(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    assert_eq!(daemon.signal(process.uuid, "KILL", None).affected, 1);
    daemon.wait(process.uuid);
}

#[test]
fn a_process_of_which_only_the_uuid_is_known_has_no_pid_to_be_meant_by() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    world.let_go();
    let path = journal(&world, process.uuid);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::remove_file(path.with_file_name("proc-info.json")).unwrap();
    let daemon = world.start();
    assert_eq!(daemon.listed(process.uuid).unwrap().display, "damaged");
    let refused = daemon.block(daemon.runtime.signal("0", signal("KILL"), None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NotFound, "{refused}");
}

#[test]
fn damaged_processes_are_found_behind_any_number_of_dead_ones() {
    let world = World::new();
    let daemon = world.start();
    let model = world.script("turns: [{text: done}]");
    let dead: Vec<Uuid> = (0..6).map(|_| daemon.run(world.request(&model)).uuid).collect();
    dead.iter().for_each(|uuid| drop(daemon.wait(uuid)));
    daemon.until("indexed", || daemon.runtime.is_index_complete().then_some(()));
    daemon.block(daemon.runtime.close());
    drop(daemon);
    world.let_go();
    let last = dead[5];
    fs::write(journal(&world, last), "rubbish\n").unwrap();
    fs::remove_file(journal(&world, last).with_file_name("proc-info.json")).unwrap();
    let daemon = world.start();
    let query = ListQuery { all: true, state: Some("damaged".to_owned()), limit: Some(2), ..ListQuery::default() };
    let page = daemon.block(daemon.runtime.page(query)).unwrap();
    let found: Vec<Uuid> = page.processes.iter().map(|process| process.uuid).collect();
    assert_eq!((found, page.next), (vec![last], None));
}

#[test]
fn a_dead_process_whose_journal_cannot_be_read_stays_in_the_list() {
    for index in ["kept", "deleted"] {
        let world = World::new();
        let daemon = world.start();
        let process = daemon.run_hanging(&world);
        daemon.signal(process.uuid, "KILL", None);
        daemon.wait(process.uuid);
        daemon.until("indexed", || daemon.runtime.is_index_complete().then_some(()));
        drop(daemon);
        world.let_go();
        let path = journal(&world, process.uuid);
        fs::write(&path, "rubbish\n").unwrap();
        let info = path.with_file_name("proc-info.json");
        fs::remove_file(info).unwrap();
        if index == "deleted" {
            fs::remove_dir_all(world.data().join("index")).unwrap();
        }
        let daemon = world.start();
        let shown =
            listed_with_dead(&daemon, process.uuid).unwrap_or_else(|| panic!("index {index}: it is not listed"));
        assert_eq!(shown.display, "damaged", "index {index}");
        assert!(shown.note.as_ref().unwrap().contains(path.to_str().unwrap()), "{shown:?}");
        let error = daemon.block(daemon.runtime.process(&process.uuid.to_string())).unwrap_err();
        assert!(error.code() == ErrorCode::Conflict && error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_process_whose_marker_is_gone_is_found_by_whoever_asks_for_it() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    world.let_go();
    fs::remove_file(world.data().join("live").join(process.uuid.to_string())).unwrap();
    let daemon = world.start();
    assert_eq!(daemon.info(process.uuid).display, "suspended");
    daemon.resume(process.uuid, resume(), None);
    daemon.until_display(process.uuid, "running");
    drop(daemon);
    assert_eq!(world.start().display(process.uuid), "running", "its marker is there again");
}

#[test]
fn a_journal_that_does_not_say_what_the_process_is_is_damaged_and_named() {
    for text in ["", "rubbish\n"] {
        let world = World::new();
        let process = world.start().run_suspended(&world);
        world.let_go();
        let path = journal(&world, process.uuid);
        fs::write(&path, text).unwrap();
        let daemon = world.start();
        let shown = daemon.listed(process.uuid).unwrap();
        assert_eq!(shown.display, "damaged", "{text:?}");
        assert!(shown.note.unwrap().contains(path.to_str().unwrap()));
        let error = daemon.block(daemon.runtime.wait(&process.uuid.to_string(), None)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Conflict, "no client asks again and again: {error}");
    }
}
