//! What people do with many processes: see what they do, rename, remove, run on another model, and count what they cost.

use relive_api::{GcRequest, ListQuery, RenameRequest, ResumeRequest, UsageQuery, UsageRow};
use relive_core::ErrorCode;
use serde_json::json;

use crate::world::{Daemon, World};

/// Asks until there is an answer.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "waited too long");
    }
}

fn rename(daemon: &Daemon, id: impl ToString, name: &str) -> relive_runtime::Result<relive_api::Affected> {
    daemon.block(daemon.runtime.rename(&id.to_string(), RenameRequest { name: name.to_owned() }, None))
}

#[test]
fn doing_shows_the_current_activity_of_an_agent() {
    let world = World::new();
    let daemon = world.start();
    let asking = daemon.run_hanging(&world);
    let doing = |uuid| daemon.info(uuid).doing;
    assert_eq!(doing(asking.uuid).as_deref(), Some("asking the model 0s"));
    let model = world.script("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]");
    let sleeping = daemon.run(world.request(&model));
    daemon.until_records(&world, sleeping.uuid, "call_started", 1);
    let told = until(|| doing(sleeping.uuid).filter(|told| told.starts_with("sleep")));
    assert!(told.starts_with("sleep 1h (") && told.ends_with("s)"), "{told}");
    let page = daemon.block(daemon.runtime.page_with_doing(ListQuery::default())).unwrap();
    let told: Vec<&str> = page.processes.iter().filter_map(|process| process.doing.as_deref()).collect();
    assert!(
        matches!(told[..], [first, second] if first.starts_with("asking the model ") && second.starts_with("sleep 1h (")),
        "{told:?}"
    );
    // A disk that is stuck makes nobody wait who only wants to see what runs.
    let held = daemon.hold_disk();
    let page = daemon.block(daemon.runtime.page_with_doing(ListQuery::default())).unwrap();
    assert!(page.processes.iter().all(|process| process.doing.is_some()));
    drop(held);
    let suspended = daemon.run_suspended(&world);
    assert_eq!(doing(suspended.uuid), None);
    daemon.signal(asking.uuid, "SIGKILL", None);
    daemon.wait(asking.uuid);
    assert_eq!(doing(asking.uuid), None);
}

#[test]
fn a_process_is_renamed_for_good_whether_it_lives_or_has_ended() {
    let world = World::new();
    let daemon = world.start();
    let living = daemon.run_hanging(&world);
    let suspended = daemon.run_suspended(&world);
    let ended = daemon.run(world.request(&world.script("turns: [{text: done}]")));
    daemon.wait(ended.uuid);
    let end = daemon.info(ended.uuid);
    for (process, name) in [(living, "first"), (suspended, "second"), (ended, "third")] {
        let affected = rename(&daemon, process.uuid, name).unwrap();
        assert_eq!(affected.pids, [process.pid], "{name}");
        assert_eq!(daemon.info(name).uuid, process.uuid);
        let records = world.of_kind(process.uuid, "renamed");
        assert_eq!((&records[0]["name"], &records[0]["skip"]), (&json!(name), &json!(true)));
    }
    let after = daemon.info("third");
    assert_eq!((after.display.as_str(), &after.exit, after.dead_at), ("dead", &end.exit, end.dead_at));
    rename(&daemon, "first", "fourth").unwrap();
    let gone = daemon.block(daemon.runtime.process("first")).unwrap_err();
    assert_eq!(gone.code(), ErrorCode::NotFound);
    let taken = rename(&daemon, "third", "second").unwrap_err();
    assert_eq!(taken.to_string(), "the name `second` is taken by another process");
    assert_eq!(rename(&daemon, "third", "dead").unwrap_err().code(), ErrorCode::Invalid);
    drop(daemon);
    let daemon = world.start();
    for (name, process) in [("fourth", living), ("second", suspended), ("third", ended)] {
        let found = until(|| daemon.block(daemon.runtime.process(name)).ok());
        assert_eq!(found.uuid, process.uuid, "{name}");
    }
    let resumed =
        daemon.resume("third", ResumeRequest { input: Some("more".into()), ..ResumeRequest::default() }, None);
    assert_eq!(resumed.uuid, ended.uuid);
}

#[test]
fn a_name_from_before_a_rename_does_not_find_an_earlier_incarnation() {
    let world = World::new();
    let daemon = world.start();
    let request = world.request(&world.script("turns: [{text: done}]"));
    let process = daemon.run(relive_api::RunRequest { name: Some("before".into()), ..request });
    daemon.wait(process.uuid);
    let more = ResumeRequest { input: Some("more".into()), ..ResumeRequest::default() };
    let resumed = daemon.resume("before", more, None);
    daemon.wait(process.uuid);
    rename(&daemon, process.uuid, "after").unwrap();
    let error = daemon.block(daemon.runtime.process("before")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert_eq!(error.to_string(), format!("no process has the name `before` any more: PID {} had it", resumed.pid));
    assert_eq!(daemon.info("after").pid, resumed.pid);
    // The PID of the earlier incarnation still finds its end.
    assert_eq!(daemon.info(process.pid).successor_pid, Some(resumed.pid));
}

#[test]
fn a_rename_that_is_repeated_is_one() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let ask = || RenameRequest { name: "fixer".to_owned() };
    for _ in 0..2 {
        let id = process.uuid.to_string();
        daemon.block(daemon.runtime.rename(&id, ask(), Some("r1".to_owned()))).unwrap();
    }
    assert_eq!(world.of_kind(process.uuid, "renamed").len(), 1);
}

#[test]
fn a_dead_process_whose_name_is_taken_is_not_resumed_before_it_has_another() {
    let world = World::new();
    let daemon = world.start();
    let named = || relive_api::RunRequest { name: Some("fixer".into()), ..world.hanging() };
    let first = daemon.run(named());
    daemon.signal(first.uuid, "SIGKILL", None);
    daemon.wait(first.uuid);
    daemon.run(named());
    let id = first.uuid.to_string();
    let refused = daemon.block(daemon.runtime.resume(&id, ResumeRequest::default(), None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    assert!(refused.to_string().contains("is taken by another process"), "{refused}");
    rename(&daemon, first.uuid, "other").unwrap();
    daemon.resume(first.uuid, ResumeRequest::default(), None);
    assert_eq!(daemon.info("other").uuid, first.uuid);
}

#[test]
fn rm_removes_ended_processes_and_refuses_living_ones() {
    let world = World::new();
    let daemon = world.start();
    let living = daemon.run_hanging(&world);
    let suspended = daemon.run_suspended(&world);
    let ended = daemon.run(world.request(&world.script("turns: [{text: done}]")));
    daemon.wait(ended.uuid);
    let remove = |id: String| daemon.block(daemon.runtime.remove(&id));
    for process in [living, suspended] {
        let refused = remove(process.uuid.to_string()).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Conflict);
        assert!(refused.hint().unwrap().contains(&format!("relive kill {}", process.pid)), "{refused:?}");
    }
    let removed = remove(ended.pid.to_string()).unwrap();
    assert!(removed.uuid == ended.uuid && removed.freed_bytes > 0);
    let gone = daemon.block(daemon.runtime.process(&ended.uuid.to_string())).unwrap_err();
    assert!(gone.to_string().contains("garbage collected"), "{gone}");
    assert!(remove(ended.uuid.to_string()).is_err());
    assert!(daemon.listed(living.uuid).is_some());
}

#[test]
fn only_what_ended_long_enough_ago_is_collected_when_that_is_asked_for() {
    let world = World::new();
    let daemon = world.start();
    let ended = daemon.run(world.request(&world.script("turns: [{text: done}]")));
    daemon.wait(ended.uuid);
    daemon.until("the end is written", || daemon.runtime.is_over(ended.uuid).then_some(()));
    let gc = |older_than_ms| {
        daemon
            .block(daemon.runtime.gc(GcRequest { older_than_ms: Some(older_than_ms), ..GcRequest::default() }))
            .unwrap()
    };
    assert!(gc(3_600_000).removed.is_empty());
    let removed = until(|| Some(gc(0)).filter(|answer| !answer.removed.is_empty()));
    assert_eq!((removed.removed, removed.candidates[0].reason.as_str()), (vec![ended.uuid], "asked"));
}

#[test]
fn a_suspended_agent_a_dead_one_and_a_fork_continue_on_another_model() {
    let world = World::new();
    let daemon = world.start();
    let other = world.script("turns: [{text: from the other}]");
    let on_other = || ResumeRequest { model: Some(other.clone()), ..ResumeRequest::default() };
    let suspended = daemon.run_suspended(&world);
    assert_eq!(daemon.resume(suspended.uuid, on_other(), None).model.as_deref(), Some(other.as_str()));
    assert_eq!(daemon.wait(suspended.uuid).exit_code, 0);
    let killed = daemon.run_hanging(&world);
    daemon.signal(killed.uuid, "SIGKILL", None);
    daemon.wait(killed.uuid);
    let fork = world.hanging().uuid;
    let forked = daemon.resume(killed.uuid, ResumeRequest { fork: Some(fork), ..on_other() }, None);
    assert_eq!((forked.uuid, forked.model.as_deref()), (fork, Some(other.as_str())));
    assert_eq!(daemon.wait(fork).exit_code, 0);
    daemon.resume(killed.uuid, on_other(), None);
    assert_eq!(daemon.wait(killed.uuid).exit_code, 0);
    for uuid in [suspended.uuid, fork, killed.uuid] {
        let asked = world.of_kind(uuid, "model_started");
        assert_eq!(asked.last().unwrap()["model"], other.as_str());
        assert_eq!(daemon.info(uuid).model.as_deref(), Some(other.as_str()), "{uuid}");
    }
    let running = daemon.run_hanging(&world);
    let refuse = |request: ResumeRequest, code| {
        let id = running.uuid.to_string();
        let refused = daemon.block(daemon.runtime.resume(&id, request, None)).unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    };
    refuse(on_other(), ErrorCode::Conflict);
    // Its model cannot be changed, whatever the other one is.
    refuse(ResumeRequest { model: Some("nobody/x".into()), ..on_other() }, ErrorCode::Conflict);
    refuse(ResumeRequest { model: Some("script//no/such".into()), ..on_other() }, ErrorCode::Conflict);
}

fn usage(daemon: &Daemon, by: &str) -> Vec<UsageRow> {
    let query = UsageQuery { by: Some(by.to_owned()), since: None };
    until(|| daemon.block(daemon.runtime.usage(query.clone())).ok()).rows
}

#[test]
fn usage_is_grouped_by_model_day_project_and_process_and_counts_removed_ones() {
    let world = World::with(|config| config.gc.max_entries = 0);
    let daemon = world.start();
    let small = world.script("turns: [{text: one, usage: {input: 10, output: 1}}]");
    let large = world.script("turns: [{text: two, usage: {input: 100, output: 5}}]");
    let mut processes = Vec::new();
    for model in [&small, &small, &large] {
        let created = daemon.run(world.request(model));
        daemon.wait(created.uuid);
        processes.push(created);
    }
    let hangs =
        "turns: [{text: three, calls: [{name: list, args: {}}], usage: {input: 1000, output: 7}}, {hang: true}]";
    let running = daemon.run(world.request(&world.script(hangs)));
    daemon.until_records(&world, running.uuid, "model_started", 2);
    let check = |daemon: &Daemon| {
        let total = usage(daemon, "");
        assert_eq!((total.len(), total[0].tokens_in, total[0].tokens_out, total[0].processes), (1, 1120, 14, 4));
        let models = usage(daemon, "model");
        let of = |model: &str| models.iter().find(|row| row.model.as_deref() == Some(model)).unwrap().clone();
        assert_eq!((of(&small).tokens_in, of(&small).processes), (20, 2));
        assert_eq!((of(&large).tokens_out, of(&large).processes, of(&large).uuid), (5, 1, None));
        let days = usage(daemon, "day,project");
        assert_eq!(days.iter().map(|row| row.tokens_in).sum::<u64>(), 1120);
        assert!(days.iter().all(|row| row.cwd.as_deref() == Some(&world.work().display().to_string())));
        assert_eq!(usage(daemon, "process").len(), 4);
    };
    check(&daemon);
    daemon.block(daemon.runtime.remove(&processes[0].uuid.to_string())).unwrap();
    check(&daemon);
    // A question that a stop cuts off may have been billed, and is counted.
    daemon.signal(running.uuid, "SIGKILL", None);
    daemon.wait(running.uuid);
    check(&daemon);
    daemon.block(daemon.runtime.close());
    drop(daemon);
    std::fs::remove_dir_all(world.data().join("index")).unwrap();
    let daemon = world.start();
    check(&daemon);
    let tomorrow = UsageQuery { since: Some("2999-01-01".into()), ..UsageQuery::default() };
    assert!(daemon.block(daemon.runtime.usage(tomorrow)).unwrap().rows.is_empty());
}
