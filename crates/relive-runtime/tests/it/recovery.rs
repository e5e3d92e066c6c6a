//! The next daemon: it completes what was acknowledged, and runs, waits or ends as each journal says.

use std::fs;

use relive_api::{ListQuery, Resolution};
use relive_config::Recovery;
use relive_core::{Cause, Pid, ProcessStatus, Signal, SuspendReason, Why};
use relive_journal::CRASH_LOOP_MAX;
use relive_journal::record::{Body, OpenedBy, Paused, Resumed, ResumedBy};

use crate::world::{PAUSE, PAUSE_NOW, World, message, resume};

#[test]
fn a_process_that_was_signalled_ends_with_the_recorded_cause_before_any_step() {
    for (name, signal) in [("TERM", Signal::Term), ("INT", Signal::Int), ("KILL", Signal::Kill)] {
        let world = World::new();
        let daemon = world.start();
        let process = daemon.run_hanging(&world);
        daemon.signal(process.uuid, name, None);
        drop(daemon);
        assert_eq!(world.kinds(process.uuid, 0).last().unwrap(), "signalled", "it is acknowledged and not ended");
        let daemon = world.start();
        let ended = daemon.wait(process.uuid);
        assert_eq!(ended.status, Some(ProcessStatus::Killed { signal: signal.into() }));
        assert_eq!((ended.why, daemon.info(process.uuid).killed_by), (Some(Why::User), Some(Pid::RUNTIME)));
        assert_eq!(world.of_kind(process.uuid, "model_started").len(), 1);
    }
}

#[test]
fn a_signal_that_was_recorded_for_another_reason_keeps_it() {
    let world = World::new();
    let process = world.start().run_hanging(&world);
    let cause = Cause { why: Why::Parent, by: Pid(7), root: Some(Pid(5)) };
    let signalled = relive_journal::record::Signalled {
        end: None,
        signal: Signal::Term,
        cause,
        pending: false,
        req: Some("SIGTERM:r".to_owned()),
    };
    world.append(process.uuid, OpenedBy::Resume, vec![Body::Signalled(signalled)]);
    let daemon = world.start();
    daemon.wait(process.uuid);
    let info = daemon.info(process.uuid);
    assert_eq!((info.why, info.killed_by, info.killed_from), (Some(Why::Parent), Some(Pid(7)), Some(Pid(5))));
    assert_eq!(daemon.signal(process.uuid, "TERM", Some("r")).affected, 1, "the request is known");
}

#[test]
fn a_process_that_was_paused_in_the_middle_of_a_step_is_suspended_and_runs_no_step() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    daemon.pause(process.uuid, PAUSE, None);
    assert_eq!(daemon.display(process.uuid), "pausing");
    drop(daemon);
    let daemon = world.start();
    assert_eq!(daemon.display(process.uuid), "suspended");
    let info = daemon.info(process.uuid);
    assert_eq!((info.suspend_reason, info.step), (Some(SuspendReason::User), 0));
    assert!(!daemon.runtime.has_owner(process.uuid));
    assert_eq!(world.of_kind(process.uuid, "model_started").len(), 1);
    assert!(daemon.resume(process.uuid, resume(), None).changed);
    daemon.until_records(&world, process.uuid, "model_started", 2);
}

#[test]
fn a_process_that_was_running_continues_under_a_new_pid() {
    let world = World::new();
    let process = world.start().run_hanging(&world);
    let daemon = world.start();
    daemon.until_records(&world, process.uuid, "model_started", 2);
    let now = daemon.listed(process.uuid).unwrap();
    assert_eq!((now.display.as_str(), now.generation.0), ("running", 2));
    assert!(now.pid > process.pid);
    let opened = world.of_kind(process.uuid, "opened");
    assert_eq!((&opened[0]["by"], &opened[1]["by"]), (&"spawn".into(), &"recovery".into()));
}

#[test]
fn a_process_whose_run_was_acknowledged_runs_however_soon_the_daemon_died() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run(world.hanging());
    assert_eq!(daemon.display(process.uuid), "loading");
    drop(daemon);
    let daemon = world.start();
    daemon.until_records(&world, process.uuid, "model_started", 1);
}

#[test]
fn a_stopped_daemon_suspends_its_agents_and_the_next_one_resumes_them() {
    let world = World::new();
    let daemon = world.start();
    let model = world.script("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]");
    let process = daemon.run(world.request(&model));
    let paused = daemon.run_suspended(&world);
    daemon.until_records(&world, process.uuid, "call_started", 1);
    daemon.until_at_rest(paused.uuid);
    assert_eq!(daemon.block(async { daemon.runtime.begin_stop() }).pausing, 1);
    daemon.block(daemon.runtime.all_stopped());
    assert_eq!(daemon.listed(process.uuid).unwrap().suspend_reason, Some(SuspendReason::DaemonStop));
    let refused = daemon.block(daemon.runtime.run(world.hanging())).unwrap_err();
    assert_eq!(refused.code(), relive_core::ErrorCode::Unavailable);
    drop(daemon);
    let before = world.records(process.uuid).len();
    let daemon = world.start();
    daemon.until_display(process.uuid, "running");
    assert_eq!(world.kinds(process.uuid, before), ["opened", "resumed"]);
    assert_eq!(world.of_kind(process.uuid, "resumed")[0]["by"], "daemon_start");
    assert_eq!(daemon.display(paused.uuid), "suspended", "a pause of the user's outlives the daemon");
}

/// The end of a process is recorded, and the daemon is gone before it tells the index, which it has closed.
#[test]
fn a_process_that_ends_as_the_daemon_stops_is_listed_by_the_next_one() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    daemon.block(daemon.runtime.close());
    daemon.signal(process.uuid, "KILL", None);
    daemon.catch("an end", || world.of_kind(process.uuid, "ended").pop());
    drop(daemon);
    let daemon = world.start();
    let list = |failed| {
        let query = ListQuery { all: true, failed, ..ListQuery::default() };
        let list = daemon.block(daemon.runtime.page(query)).ok()?;
        Some(list.processes.into_iter().map(|process| (process.uuid, process.display)).collect::<Vec<_>>())
    };
    let dead = vec![(process.uuid, "dead".to_owned())];
    assert_eq!((list(false), list(true)), (Some(dead.clone()), Some(dead)));
}

#[test]
fn a_process_that_was_recovered_too_often_without_a_record_is_left_suspended() {
    let world = World::new();
    let process = world.start().run_hanging(&world);
    for _ in 0..CRASH_LOOP_MAX {
        world.append(process.uuid, OpenedBy::Recovery, Vec::new());
    }
    let daemon = world.start();
    let info = daemon.listed(process.uuid).unwrap();
    assert_eq!((info.display.as_str(), info.suspend_reason), ("suspended", Some(SuspendReason::CrashLoop)));
    assert!(world.open_files(process.uuid).is_empty());
    drop(daemon);
    let daemon = world.start();
    assert_eq!(daemon.listed(process.uuid).unwrap().suspend_reason, Some(SuspendReason::CrashLoop));
    assert!(daemon.resume(process.uuid, resume(), None).changed);
    daemon.until_records(&world, process.uuid, "model_started", 2);
}

#[test]
fn with_manual_recovery_an_interrupted_process_is_dead_until_somebody_resumes_it() {
    let mut world = World::new();
    let daemon = world.start();
    let (running, suspended) = (daemon.run_hanging(&world), daemon.run_suspended(&world));
    drop(daemon);
    world.configure(|config| config.recovery = Recovery::Manual);
    let daemon = world.start();
    assert_eq!((daemon.display(running.uuid).as_str(), daemon.display(suspended.uuid).as_str()), ("dead", "suspended"));
    let info = daemon.info(running.uuid);
    assert_eq!((info.why, info.resumable), (Some(Why::HostLost), true));
    assert_eq!(world.of_kind(running.uuid, "model_started").len(), 1);
    assert!(daemon.resume(running.uuid, resume(), None).changed);
    daemon.until_records(&world, running.uuid, "model_started", 2);
}

#[test]
fn a_question_waits_for_its_answer_in_the_next_daemon_and_the_call_is_made_once() {
    let world = World::new();
    let process = world.start().run_asking(&world, "file");
    let daemon = world.start();
    let info = daemon.info(process.uuid);
    assert_eq!((info.display.as_str(), info.approval.unwrap().tool.as_str()), ("approval", "write"));
    daemon.answer(process.uuid, Resolution::Allow, None);
    drop(daemon);
    assert_eq!(world.kinds(process.uuid, 0).last().unwrap(), "resumed", "the answer is all that was recorded");
    let daemon = world.start();
    daemon.until_records(&world, process.uuid, "model_started", 2);
    assert_eq!(fs::read_to_string(world.work().join("file")).unwrap(), "text");
    assert_eq!(world.of_kind(process.uuid, "call_started").len(), 1);
}

#[test]
fn a_message_that_was_acknowledged_is_heard_by_the_next_daemon_once() {
    let world = World::new();
    let model = world.script("turns: [{hang: true}]");
    let daemon = world.start();
    let process = daemon.run(world.request(&model));
    daemon.until_records(&world, process.uuid, "model_started", 1);
    assert!(daemon.send(process.uuid, message("m", "hello")));
    drop(daemon);
    let daemon = world.start();
    assert!(!daemon.send(process.uuid, message("m", "hello")));
    assert_eq!(world.of_kind(process.uuid, "input").len(), 2);
}

#[test]
fn a_resume_that_was_acknowledged_holds_in_the_next_daemon() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    assert!(daemon.resume(process.uuid, resume(), None).changed);
    drop(daemon);
    assert_eq!(world.kinds(process.uuid, 0).last().unwrap(), "resumed");
    let daemon = world.start();
    daemon.until_display(process.uuid, "running");
}

#[test]
fn a_resume_of_a_process_of_an_earlier_daemon_is_one_write_and_holds() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    let daemon = world.start();
    let before = world.records(process.uuid).len();
    let mut asked = resume();
    (asked.input, asked.limits.max_steps) = (Some("go".to_owned()), Some(7));
    daemon.resume(process.uuid, asked, Some("request-1"));
    drop(daemon);
    let records = world.records(process.uuid).split_off(before);
    let kinds: Vec<_> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[..4], ["opened", "resumed", "limits", "input"]);
    assert!(records[..4].iter().all(|record| record["at"] == records[0]["at"]), "one write");
    let daemon = world.start();
    assert_eq!(daemon.listed(process.uuid).unwrap().max_steps, Some(7));
    daemon.until_display(process.uuid, "running");
}

#[test]
fn a_damaged_journal_is_listed_and_keeps_no_other_process_from_running() {
    let world = World::new();
    let daemon = world.start();
    let (damaged, whole) = (daemon.run_hanging(&world), daemon.run_hanging(&world));
    drop(daemon);
    let path = world.data().join("steps").join(damaged.uuid.to_string()).join("steps.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let broken = text.replacen("\"kind\":\"input\"", "\"kind\":\"inpot\"", 1);
    fs::write(&path, broken).unwrap();
    let daemon = world.start();
    daemon.until_records(&world, whole.uuid, "model_started", 2);
    let info = daemon.listed(damaged.uuid).unwrap();
    assert_eq!((info.display.as_str(), info.suspend_reason), ("suspended", Some(SuspendReason::IoError)));
    let refused = daemon.try_signal(damaged.uuid, crate::world::signal("KILL"), None).unwrap_err();
    assert_eq!(refused.code(), relive_core::ErrorCode::Conflict);
}

#[test]
fn a_torn_end_is_cut_and_the_process_continues() {
    let world = World::new();
    let process = world.start().run_hanging(&world);
    let path = world.data().join("steps").join(process.uuid.to_string()).join("steps.jsonl");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"v\":1,\"seq\":");
    fs::write(&path, text).unwrap();
    let daemon = world.start();
    daemon.until_records(&world, process.uuid, "model_started", 2);
    assert_eq!(world.of_kind(process.uuid, "repair").len(), 1);
    daemon.pause(process.uuid, PAUSE_NOW, None);
    daemon.until_display(process.uuid, "suspended");
}

/// The journals of all that run are opened at the same time: each has to be synced, and nobody waits for one that is slow.
#[test]
fn a_journal_that_is_busy_does_not_hold_up_those_after_it() {
    let world = World::new();
    let daemon = world.start();
    let processes = [(); 3].map(|()| daemon.run_hanging(&world));
    drop(daemon);
    let steps = |uuid: relive_core::Uuid| world.data().join("steps").join(uuid.to_string()).join("steps.jsonl");
    let paths = processes.map(|process| steps(process.uuid));
    let opened = |path: &std::path::Path| fs::read_to_string(path).unwrap().matches("\"kind\":\"opened\"").count();
    // A start is patient with a busy journal for two seconds. A busy machine may need longer for the others, but not always.
    let daemon = (0..10).find_map(|_| {
        world.let_go();
        let busy = fs::File::open(&paths[0]).unwrap();
        rustix::fs::flock(&busy, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let (paths, before) = (paths.clone(), paths.each_ref().map(|path| opened(path)));
        let watcher = std::thread::spawn(move || {
            let (begun, others) = (std::time::Instant::now(), [before[1] + 1, before[2] + 1]);
            while [opened(&paths[1]), opened(&paths[2])] != others && begun.elapsed().as_millis() < 1_500 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let seen = paths.each_ref().map(|path| opened(path));
            drop(busy);
            seen == [before[0], others[0], others[1]]
        });
        let daemon = world.start();
        watcher.join().unwrap().then_some(daemon)
    });
    let daemon = daemon.expect("the others were opened while the first was busy");
    let pids = processes.map(|process| {
        daemon.until_display(process.uuid, "running");
        daemon.pid(process.uuid)
    });
    assert!(pids.is_sorted(), "each has the next PID: {pids:?}");
}

/// A signal to the parent's subtree could not reach it.
#[test]
fn a_child_is_not_opened_before_its_parent_is_recovered() {
    let world = World::new();
    let daemon = world.start();
    fs::write(world.work().join("hang.yaml"), "turns:\n  - hang: true\n").unwrap();
    let turn = "turns:\n  - calls: [{name: spawn_agent, args: {intent: wait, model: script/hang.yaml}}]\n";
    let parent = daemon.run(world.request(&world.script(&format!("{turn}  - hang: true\n")))).uuid;
    daemon.until_records(&world, parent, "model_started", 2);
    let all = daemon.block(daemon.runtime.processes(false)).unwrap().processes;
    let child = all.into_iter().find(|process| process.parent_uuid == Some(parent)).unwrap().uuid;
    daemon.until_records(&world, child, "model_started", 1);
    drop(daemon);
    world.let_go();
    let busy = fs::File::open(world.data().join("steps").join(parent.to_string()).join("steps.jsonl")).unwrap();
    rustix::fs::flock(&busy, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let daemon = world.start();
    assert_eq!(world.of_kind(child, "opened").len(), 1);
    drop(busy);
    daemon.until_display(child, "running");
    assert_eq!(daemon.info(child).ppid, daemon.pid(parent));
    assert_eq!(world.of_kind(child, "opened").len(), 2);
}

/// By a timer for that moment, which is there only while somebody waits for it.
#[test]
fn a_process_that_is_suspended_until_a_moment_is_resumed_then() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    world.let_go();
    let asked_at = relive_core::Timestamp::now();
    let at = asked_at + std::time::Duration::from_millis(300);
    let resume_at = Some(at);
    let quota = Paused { reason: SuspendReason::Quota, asked_at, resume_at, cause: None, req: None };
    let resumed = Resumed { by: ResumedBy::User, cause: None, req: None };
    world.append(process.uuid, OpenedBy::Resume, vec![Body::Resumed(resumed), Body::Paused(quota)]);
    let daemon = world.start();
    daemon.until_display(process.uuid, "running");
    let resumed = world.of_kind(process.uuid, "resumed").pop().unwrap();
    assert_eq!(resumed["by"], "timer");
    let resumed_at: relive_core::Timestamp = serde_json::from_value(resumed["at"].clone()).unwrap();
    assert!(resumed_at >= at, "{resumed_at} is before {at}");
}
