//! PIDs of earlier daemons and of earlier incarnations: which process they stand for.

use relive_api::ResumeRequest;
use relive_core::{ErrorCode, ProcessStatus, Signal};

use crate::world::{PAUSE_NOW, World, message, new_uuid, resume};

#[test]
fn every_verb_with_the_pid_of_an_earlier_daemon_reaches_the_process_and_says_so() {
    let world = World::new();
    let process = world.start().run_hanging(&world);
    let daemon = world.start();
    daemon.until_records(&world, process.uuid, "model_started", 2);
    let (old, now) = (process.pid, daemon.pid(process.uuid));
    let note = Some(format!("PID {old} continues as {now}"));
    let info = daemon.info(old);
    assert_eq!((info.pid, info.display.as_str(), &info.note), (now, "running", &note));
    let paused = daemon.pause(old, PAUSE_NOW, None);
    assert_eq!((paused.pids, &paused.note), (vec![now], &note));
    daemon.until_display(process.uuid, "suspended");
    assert!(daemon.send(old, message("m", "hello")));
    let resumed = daemon.resume(old, resume(), None);
    assert_eq!((resumed.pid, &resumed.note), (now, &note));
    let killed = daemon.signal(old, "KILL", None);
    assert_eq!((killed.pids, &killed.note), (vec![now], &note));
    assert_eq!(daemon.wait(old).status, Some(ProcessStatus::Killed { signal: Signal::Kill.into() }));
    assert_eq!(daemon.wait(old).pid, now);
}

#[test]
fn a_pid_that_stood_for_a_suspended_process_under_one_daemon_only_stands_for_it_still() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    let daemon = world.start();
    let second = daemon.pid(process.uuid);
    drop(daemon);
    let daemon = world.start();
    let third = daemon.pid(process.uuid);
    for old in [process.pid, second] {
        let info = daemon.info(old);
        assert_eq!((info.pid, info.display.as_str(), info.status), (third, "suspended", None));
        assert_eq!(info.note, Some(format!("PID {old} continues as {third}")));
    }
    daemon.signal(second, "KILL", None);
    assert_eq!(daemon.display(process.uuid), "dead");
}

#[test]
fn a_pid_that_a_repeated_fork_was_answered_with_stands_for_the_suspended_fork_under_later_daemons() {
    let world = World::new();
    let daemon = world.start();
    let source = daemon.run_suspended(&world);
    let request = ResumeRequest { fork: Some(new_uuid()), ..resume() };
    let fork = daemon.resume(source.uuid, request.clone(), None);
    daemon.until_records(&world, fork.uuid, "model_started", 2);
    daemon.pause(fork.uuid, PAUSE_NOW, None);
    daemon.until_display(fork.uuid, "suspended");
    drop(daemon);
    let daemon = world.start();
    let again = daemon.resume(source.uuid, request.clone(), None);
    assert_eq!((again.uuid, again.pid), (fork.uuid, daemon.pid(fork.uuid)));
    drop(daemon);
    let daemon = world.start();
    let now = daemon.pid(fork.uuid);
    for old in [fork.pid, again.pid] {
        let info = daemon.info(old);
        assert_eq!((info.uuid, info.pid), (fork.uuid, now));
        assert_eq!(info.note, Some(format!("PID {old} continues as {now}")));
    }
    assert_eq!(daemon.resume(source.uuid, request, None).pid, now);
}

#[test]
fn a_pid_that_ended_answers_for_its_own_end_while_the_process_lives_on() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.signal(process.uuid, "TERM", None);
    let next = daemon.resume(process.uuid, resume(), None).pid;
    daemon.until_records(&world, process.uuid, "model_started", 2);
    let check = |daemon: &crate::world::Daemon| {
        let old = daemon.info(process.pid);
        assert_eq!((old.pid, old.display.as_str()), (process.pid, "dead"));
        assert_eq!(old.status, Some(ProcessStatus::Killed { signal: Signal::Term.into() }));
        assert!(!old.resumable);
        assert_eq!(old.successor_pid, Some(next));
        assert_eq!(daemon.wait(process.pid).pid, process.pid);
        assert_eq!(daemon.info(process.uuid).display, "running");
    };
    check(&daemon);
    drop(daemon);
    let daemon = world.start();
    daemon.until_display(process.uuid, "running");
    check(&daemon);
}

#[test]
fn no_verb_with_a_pid_that_ended_touches_the_next_incarnation() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.signal(process.uuid, "TERM", None);
    daemon.resume(process.uuid, resume(), None);
    daemon.until_records(&world, process.uuid, "model_started", 2);
    let check = |daemon: &crate::world::Daemon| {
        let before = world.records(process.uuid).len();
        let old = process.pid.to_string();
        let now = daemon.pid(process.uuid);
        let killed = daemon.try_signal(process.pid, crate::requests::signal("KILL"), None).unwrap_err();
        assert_eq!((killed.code(), killed.hint()), (ErrorCode::Conflict, Some(format!("relive kill -9 {now}"))));
        let paused = daemon.block(daemon.runtime.pause(&old, PAUSE_NOW, None)).unwrap_err();
        assert_eq!((paused.code(), paused.hint()), (ErrorCode::Conflict, Some(format!("relive pause {now}"))));
        let sent = daemon.block(daemon.runtime.send(&old, message("m", "hello"))).unwrap_err();
        assert_eq!(sent.code(), ErrorCode::Conflict);
        let masked = daemon.block(daemon.runtime.set_signal_mask(&old, crate::world::mask(&["INT"], &[]), None));
        assert_eq!(masked.unwrap_err().code(), ErrorCode::Conflict);
        let answered = crate::world::answer(relive_api::Resolution::Allow);
        let answered = daemon.block(daemon.runtime.answer(&old, answered, None)).unwrap_err();
        assert_eq!(answered.code(), ErrorCode::Conflict);
        assert_eq!(daemon.display(process.uuid), "running");
        assert_eq!(world.records(process.uuid).len(), before);
    };
    check(&daemon);
    drop(daemon);
    let daemon = world.start();
    daemon.until_records(&world, process.uuid, "model_started", 3);
    check(&daemon);
}

#[test]
fn the_pid_of_an_interrupted_incarnation_answers_for_the_end_that_came_later() {
    let world = World::new();
    let process = world.start().run_hanging(&world);
    let daemon = world.start();
    daemon.until_records(&world, process.uuid, "model_started", 2);
    let second = daemon.pid(process.uuid);
    daemon.signal(process.uuid, "INT", None);
    daemon.wait(process.uuid);
    drop(daemon);
    let daemon = world.start();
    let info = daemon.info(process.pid);
    assert_eq!((info.pid, info.status), (second, Some(ProcessStatus::Killed { signal: Signal::Int.into() })));
    assert_eq!(info.note, Some(format!("PID {} continues as {second}", process.pid)));
    assert_eq!(daemon.signal(process.pid, "KILL", None).affected, 0);
}

#[test]
fn pids_are_never_given_out_twice() {
    let world = World::new();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let daemon = world.start();
        let process = daemon.run_suspended(&world);
        assert!(seen.insert(process.pid));
        let all = daemon.block(daemon.runtime.processes(true)).unwrap().processes;
        seen.extend(all.into_iter().map(|process| process.pid));
    }
}
