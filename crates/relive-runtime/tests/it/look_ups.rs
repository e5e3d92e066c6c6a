//! Look-ups of processes that have ended: by an index that reads no history, and may be lost at any time.

use std::fs;

use relive_api::{Created, GcRequest, ListQuery};
use relive_core::ErrorCode;
use relive_journal::Disk;

use crate::world::{Daemon, World};

/// Runs agents that end at once, named `worker-0` and so on.
fn run_ended(world: &World, daemon: &Daemon, count: usize) -> Vec<Created> {
    let model = world.script("turns: [{text: done}]");
    let run = |number| {
        let created = daemon.run(relive_api::RunRequest { name: Some(name(number)), ..world.request(&model) });
        daemon.wait(created.uuid);
        created
    };
    (0..count).map(run).collect()
}

fn name(number: usize) -> String {
    format!("worker-{number}")
}

#[track_caller]
fn until_complete(daemon: &Daemon) {
    daemon.until("the index is complete", || daemon.runtime.is_index_complete().then_some(()));
}

/// Looks a process up until it is found. Until then nobody may say that it does not exist.
#[track_caller]
fn find(daemon: &Daemon, id: &str) -> relive_api::Process {
    loop {
        match daemon.block(daemon.runtime.process(id)) {
            Ok(process) => return process,
            Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{id}: {error}"),
        }
    }
}

#[track_caller]
fn check_refused(daemon: &Daemon, id: &str, code: ErrorCode) {
    let refused = daemon.block(daemon.runtime.process(id)).unwrap_err();
    assert_eq!(refused.code(), code, "{id}: {refused}");
}

/// Returns the files of the index.
fn index(world: &World) -> std::path::PathBuf {
    world.data().join("index")
}

/// 80 look-ups of an unknown name beside 20,000 histories once slowed an agent from 10 ms to 21 s.
#[test]
fn a_look_up_of_what_does_not_exist_reads_no_history_and_no_tombstones() {
    let world = World::with(|config| config.gc.max_entries = 20);
    let daemon = world.start();
    let processes = run_ended(&world, &daemon, 21);
    daemon.block(daemon.runtime.gc(GcRequest::default())).unwrap();
    drop(daemon);
    let disk = Disk::new();
    let daemon = world.start_on(disk.clone()).unwrap();
    until_complete(&daemon);
    // So that reading it would fail.
    fs::rename(world.data().join("tombstones.jsonl"), world.data().join("aside")).unwrap();
    fs::create_dir(world.data().join("tombstones.jsonl")).unwrap();
    let before = disk.counts();
    for number in 0..80 {
        check_refused(&daemon, &format!("nobody-{number}"), ErrorCode::NotFound);
    }
    let last = processes.last().unwrap();
    let unused = (last.pid.0 + 1).to_string();
    for unknown in ["ffffffff", "ffffffff-0000-7000-8000-000000000000", &unused, "4294967295"] {
        check_refused(&daemon, unknown, ErrorCode::NotFound);
    }
    check_refused(&daemon, &processes[0].uuid.to_string(), ErrorCode::NotFound);
    check_refused(&daemon, &processes[0].pid.to_string(), ErrorCode::NotFound);
    assert_eq!(disk.counts().since(before).reads, 0, "histories were read");
    for id in [last.uuid.to_string(), last.pid.to_string(), name(20), last.uuid.to_string()[..30].to_owned()] {
        assert_eq!(daemon.info(&id).uuid, last.uuid, "{id}");
    }
    let page = daemon.block(daemon.runtime.page(ListQuery { all: true, ..ListQuery::default() })).unwrap();
    assert_eq!(page.processes.len(), 20);
    daemon.run(world.hanging());
    assert_eq!(disk.counts().since(before).reads, 0, "what is found is not read either");
}

#[test]
fn a_start_reads_what_lives_and_not_what_has_ended() {
    let world = World::new();
    let daemon = world.start();
    run_ended(&world, &daemon, 20);
    let living = daemon.run_suspended(&world);
    until_complete(&daemon);
    daemon.block(daemon.runtime.close());
    drop(daemon);
    for how in ["closed", "killed"] {
        let disk = Disk::new();
        let daemon = world.start_on(disk.clone()).unwrap();
        if how == "closed" {
            until_complete(&daemon);
        }
        assert_eq!(find(&daemon, "worker-7").display, "dead");
        until_complete(&daemon);
        assert!(disk.counts().reads <= 2, "{how}: {} histories were read", disk.counts().reads);
        assert_eq!(daemon.display(living.uuid), "suspended");
    }
}

#[test]
fn an_index_that_is_lost_while_nobody_runs_is_rebuilt() {
    type Damage = fn(&std::path::Path);
    let damages: [(&str, Damage); 4] = [
        ("deleted", |index| fs::remove_dir_all(index).unwrap()),
        ("rubbish", |index| fs::write(index.join("index.db"), "rubbish".repeat(9_999)).unwrap()),
        ("a file", |index| {
            fs::remove_dir_all(index).unwrap();
            fs::write(index, "file").unwrap();
        }),
        ("cut short", |index| {
            let file = fs::OpenOptions::new().write(true).open(index.join("index.db")).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let world = World::with(|config| config.gc.max_entries = 2);
        let daemon = world.start();
        let processes = run_ended(&world, &daemon, 3);
        daemon.block(daemon.runtime.gc(GcRequest::default())).unwrap();
        until_complete(&daemon);
        daemon.block(daemon.runtime.close());
        drop(daemon);
        world.let_go();
        damage(&index(&world));
        let daemon = world.start();
        assert_eq!(find(&daemon, "worker-2").uuid, processes[2].uuid, "{what}");
        assert_eq!(find(&daemon, &processes[1].pid.to_string()).uuid, processes[1].uuid, "{what}");
        until_complete(&daemon);
        check_refused(&daemon, "nobody", ErrorCode::NotFound);
        let collected = daemon.block(daemon.runtime.process(&processes[0].pid.to_string())).unwrap_err();
        assert!(collected.to_string().contains("garbage collected"), "{what}: {collected}");
    }
}

#[test]
fn an_index_that_is_removed_while_the_daemon_runs_is_rebuilt_on_the_disk() {
    let world = World::new();
    let daemon = world.start();
    let processes = run_ended(&world, &daemon, 3);
    drop(daemon);
    let daemon = world.start();
    until_complete(&daemon);
    fs::remove_dir_all(index(&world)).unwrap();
    assert_eq!(find(&daemon, "worker-1").uuid, processes[1].uuid);
    until_complete(&daemon);
    check_refused(&daemon, "nobody", ErrorCode::NotFound);
    assert!(index(&world).join("index.db").exists());
    let later = run_ended(&world, &daemon, 1);
    assert_eq!(find(&daemon, "worker-0").uuid, later[0].uuid, "the last of its name");
}

#[test]
fn an_index_that_is_damaged_while_the_daemon_runs_is_rebuilt() {
    let world = World::new();
    let daemon = world.start();
    let processes = run_ended(&world, &daemon, 40);
    drop(daemon);
    let daemon = world.start();
    until_complete(&daemon);
    for file in fs::read_dir(index(&world)).unwrap() {
        let path = file.unwrap().path();
        let length = usize::try_from(path.metadata().unwrap().len()).unwrap();
        fs::write(&path, vec![0xa5; length]).unwrap();
    }
    let page = ListQuery { all: true, name: Some("worker-*".into()), ..ListQuery::default() };
    loop {
        match daemon.block(daemon.runtime.page(page.clone())) {
            Ok(page) if page.processes.len() == 40 => break,
            Ok(page) => panic!("{} of 40 were listed", page.processes.len()),
            Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable, "{error}"),
        }
    }
    assert_eq!(find(&daemon, "worker-39").uuid, processes[39].uuid);
}

#[test]
fn a_full_disk_moves_the_index_into_memory_and_fails_no_verb() {
    let world = World::new();
    let daemon = world.start();
    run_ended(&world, &daemon, 3);
    until_complete(&daemon);
    daemon.block(daemon.runtime.limit_index_pages(1)).unwrap();
    let model = world.script("turns: [{text: done}]");
    let mut last = None;
    for number in 0..40 {
        let request = relive_api::RunRequest {
            name: Some(format!("late-{number}")),
            intent: "x".repeat(4_000),
            ..world.request(&model)
        };
        let created = daemon.run(request);
        daemon.wait(created.uuid);
        last = Some(created);
    }
    until_complete(&daemon);
    let status = daemon.block(daemon.runtime.status(&about())).unwrap();
    let told = status.warnings.iter().filter(|warning| warning.contains("from memory")).count();
    assert_eq!(told, 1, "{:?}", status.warnings);
    assert!(!index(&world).exists(), "what it has missed must not be taken for what never was");
    drop(daemon);
    let daemon = world.start();
    assert_eq!(find(&daemon, "late-39").uuid, last.unwrap().uuid);
    assert_eq!(find(&daemon, "worker-1").display, "dead");
}

fn about() -> relive_runtime::About {
    relive_runtime::About { data: "/".into(), socket: "/".into(), started_at: relive_core::Timestamp::UNIX_EPOCH }
}

#[test]
fn until_the_index_is_complete_an_unknown_name_is_unavailable_and_nothing_else_waits() {
    let world = World::new();
    let daemon = world.start();
    let processes = run_ended(&world, &daemon, 2);
    drop(daemon);
    world.let_go();
    fs::remove_dir_all(index(&world)).unwrap();
    // Nobody can say what was collected, and nothing more can be set aside.
    fs::create_dir(world.data().join("tombstones.jsonl")).unwrap();
    for number in 1..=100 {
        fs::create_dir(world.data().join(format!("tombstones.jsonl.aside-{number}"))).unwrap();
    }
    let daemon = world.start();
    for id in ["nobody", "worker-1", "4711abcd"] {
        check_refused(&daemon, id, ErrorCode::Unavailable);
    }
    let listed = daemon.block(daemon.runtime.page(ListQuery { all: true, ..ListQuery::default() })).unwrap_err();
    assert_eq!(listed.code(), ErrorCode::Unavailable);
    assert_eq!(daemon.info(processes[0].uuid).display, "dead", "by UUID no index is needed");
    let resumed = daemon.resume(processes[0].uuid, crate::world::resume(), None);
    assert_eq!(daemon.info(resumed.pid).uuid, processes[0].uuid, "nor for one that is in the table");
    fs::remove_dir(world.data().join("tombstones.jsonl")).unwrap();
    assert_eq!(find(&daemon, "worker-1").uuid, processes[1].uuid);
    check_refused(&daemon, "nobody", ErrorCode::NotFound);
}

#[test]
fn a_directory_in_place_of_the_tombstones_is_reported_and_hides_no_process() {
    let world = World::new();
    let daemon = world.start();
    let processes = run_ended(&world, &daemon, 2);
    drop(daemon);
    world.let_go();
    fs::remove_dir_all(index(&world)).unwrap();
    let path = world.data().join("tombstones.jsonl");
    fs::create_dir(&path).unwrap();
    let daemon = world.start();
    until_complete(&daemon);
    assert_eq!(find(&daemon, "worker-1").uuid, processes[1].uuid);
    daemon.run_hanging(&world);
    let aside = world.data().join("tombstones.jsonl.aside-1");
    let told = format!("{} cannot be used (is a directory) and is now {}", path.display(), aside.display());
    let warnings = daemon.block(daemon.runtime.status(&about())).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.starts_with(&told)), "{warnings:?}");
}

#[test]
fn processes_created_by_a_daemon_without_this_index_are_found() {
    let world = World::new();
    let daemon = world.start();
    run_ended(&world, &daemon, 1);
    until_complete(&daemon);
    daemon.block(daemon.runtime.close());
    drop(daemon);
    world.let_go();
    // A daemon without an index.
    let aside = world.data().join("aside");
    fs::rename(index(&world), &aside).unwrap();
    let daemon = world.start();
    let model = world.script("turns: [{text: done}]");
    let later = daemon.run(relive_api::RunRequest { name: Some("later".into()), ..world.request(&model) });
    daemon.wait(later.uuid);
    drop(daemon);
    world.let_go();
    fs::remove_dir_all(index(&world)).unwrap();
    fs::rename(&aside, index(&world)).unwrap();
    assert_eq!(find(&world.start(), "later").uuid, later.uuid);
}

#[test]
fn a_history_that_somebody_removed_or_changed_is_noticed_when_it_is_shown() {
    let world = World::new();
    let daemon = world.start();
    let processes = run_ended(&world, &daemon, 3);
    until_complete(&daemon);
    daemon.block(daemon.runtime.close());
    drop(daemon);
    let disk = Disk::new();
    let daemon = world.start_on(disk.clone()).unwrap();
    until_complete(&daemon);
    fs::remove_dir_all(world.data().join("steps").join(processes[0].uuid.to_string())).unwrap();
    let page = ListQuery { all: true, ..ListQuery::default() };
    let listed = daemon.block(daemon.runtime.page(page)).unwrap().processes;
    assert_eq!(listed.iter().map(|it| it.uuid).collect::<Vec<_>>(), [processes[1].uuid, processes[2].uuid]);
    until_complete(&daemon);
    check_refused(&daemon, "worker-0", ErrorCode::NotFound);
    drop(daemon);
    // By a daemon without an index.
    world.append(processes[1].uuid, relive_journal::record::OpenedBy::Resume, Vec::new());
    let daemon = world.start();
    assert_eq!(daemon.info(processes[1].uuid).display, "running", "its journal says that it has not ended");
}

#[test]
fn a_verb_on_a_process_whose_files_are_gone_says_so() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    daemon.signal(process.uuid, "KILL", None);
    daemon.wait(process.uuid);
    daemon.until_at_rest(process.uuid);
    std::fs::remove_dir_all(world.data().join("steps").join(process.uuid.to_string())).unwrap();
    let refused = daemon.try_signal(process.uuid, crate::world::signal("KILL"), Some("again")).unwrap_err();
    assert_eq!(refused.code(), relive_core::ErrorCode::NotFound, "{refused}");
}

/// The first digits of a UUID are a clock: processes that were begun together share them.
#[test]
fn a_process_is_found_by_what_is_shown_of_its_uuid_whether_it_lives_or_not() {
    let world = World::new();
    let daemon = world.start();
    let ended = run_ended(&world, &daemon, 1)[0];
    let living = daemon.run(world.hanging());
    let check = |daemon: &Daemon| {
        for created in [ended, living] {
            let shown = find(daemon, &created.uuid.to_string()).short;
            assert!(created.uuid.to_string().ends_with(&shown) && shown.len() >= 8, "{shown}");
            assert_eq!(find(daemon, &shown).uuid, created.uuid);
            assert_eq!(find(daemon, &shown.to_uppercase()).uuid, created.uuid);
        }
    };
    check(&daemon);
    daemon.block(daemon.runtime.close());
    drop(daemon);
    let daemon = world.start();
    until_complete(&daemon);
    check(&daemon);
}

#[test]
fn a_part_of_several_uuids_is_refused_with_all_it_could_be() {
    let world = World::new();
    let daemon = world.start();
    let uuid = |first: &str, end: &str| format!("{first}-0000-7000-8000-0000{end}").parse().unwrap();
    let model = world.script("turns: [{text: done}]");
    let dead = daemon.run(relive_api::RunRequest { uuid: uuid("0198f3c1", "abcd1e77"), ..world.request(&model) });
    daemon.wait(dead.uuid);
    let living = daemon.run(relive_api::RunRequest { uuid: uuid("0198f3c2", "dcba1e77"), ..world.hanging() });
    let check = |daemon: &Daemon| {
        until_complete(daemon);
        for part in ["1e77", "0198f3c"] {
            let refused = daemon.block(daemon.runtime.process(part)).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Invalid, "{part}");
            assert!(["abcd1e77", "dcba1e77"].iter().all(|id| refused.to_string().contains(id)), "{refused}");
        }
        assert_eq!(daemon.info("abcd1e77").uuid, dead.uuid);
        assert_eq!(daemon.info("0198f3c2").uuid, living.uuid);
        check_refused(daemon, "ffff", ErrorCode::NotFound);
    };
    check(&daemon);
    daemon.block(daemon.runtime.close());
    drop(daemon);
    check(&world.start());
}

#[test]
fn a_name_belongs_to_one_living_process() {
    let world = World::new();
    let daemon = world.start();
    let named = |name: &str| relive_api::RunRequest { name: Some(name.into()), ..world.hanging() };
    let first = daemon.run(named("fixer"));
    let request = named("fixer");
    let refused = daemon.block(daemon.runtime.run(request)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    assert_eq!(refused.to_string(), "the name `fixer` is taken by another process");
    daemon.signal(first.uuid, "SIGKILL", None);
    daemon.wait(first.uuid);
    let second = daemon.run(named("fixer"));
    assert_eq!(daemon.info("fixer").uuid, second.uuid);
    for name in ["42", "dead", "0c9d1e77", "-f", ""] {
        let refused = daemon.block(daemon.runtime.run(named(name))).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Invalid, "{name}: {refused}");
    }
}

/// Lists keep the beginning of an intent, so that their size does not depend on what people type.
#[test]
fn one_process_has_its_whole_intent_and_a_list_says_that_it_is_cut() {
    let world = World::new();
    let daemon = world.start();
    let model = world.script("turns: [{text: done}]");
    // A short one, one that just fits, two in the line, and one that is in a file of its own.
    let intents = [10, 200, 201, 60_000, 100_000].map(|length| "x".repeat(length));
    let run = |intent: &String, model: &str| {
        daemon.run(relive_api::RunRequest { intent: intent.clone(), ..world.request(model) }).uuid
    };
    let ended = intents.each_ref().map(|intent| run(intent, &model));
    for uuid in ended {
        daemon.wait(uuid);
    }
    let hanging = world.hanging().model.unwrap();
    let living = intents.each_ref().map(|intent| run(intent, &hanging));
    let check = |daemon: &Daemon| {
        let query = ListQuery { all: true, ..ListQuery::default() };
        let list = daemon.block(daemon.runtime.page(query)).unwrap().processes;
        for uuids in [ended, living] {
            for (intent, uuid) in intents.iter().zip(uuids) {
                let process = find(daemon, &uuid.to_string());
                let is_whole = intent.len() <= 64 * 1024;
                assert_eq!(process.intent_cut, !is_whole, "{}", intent.len());
                assert_eq!(process.intent.len(), if is_whole { intent.len() } else { 200 });
                let listed = list.iter().find(|listed| listed.uuid == uuid).unwrap();
                assert_eq!((listed.intent.len(), listed.intent_cut), (intent.len().min(200), intent.len() > 200));
            }
        }
    };
    until_complete(&daemon);
    check(&daemon);
    drop(daemon);
    let daemon = world.start();
    until_complete(&daemon);
    check(&daemon);
}
