//! The same request twice: the second gets the answer of the first, from this daemon and from the next.

use std::sync::Arc;

use relive_api::{PauseRequest, Resolution, RewindRequest, RunRequest, WorkspaceKind};
use relive_core::ErrorCode;
use relive_runtime::{Access, Caller};

use crate::world::{Daemon, PAUSE, PAUSE_NOW, World, answer, mask, message, new_uuid, resume};

const REQUEST: Option<&str> = Some("request-1");

/// Asks twice in one daemon, and once more in the next. Returns the three answers.
fn thrice<T>(world: &World, daemon: Daemon, ask: impl Fn(&Daemon) -> T) -> [T; 3] {
    let (first, second) = (ask(&daemon), ask(&daemon));
    drop(daemon);
    let daemon = world.start();
    [first, second, ask(&daemon)]
}

#[test]
fn a_run_that_is_asked_for_again_gets_the_current_pid() {
    let world = World::new();
    let request = world.hanging();
    let daemon = world.start();
    let [first, second, third] = thrice(&world, daemon, |daemon| {
        let created = daemon.run(request.clone());
        assert_eq!(created.pid, daemon.pid(request.uuid));
        created
    });
    assert_eq!(first, second);
    assert_ne!(first.pid, third.pid, "it was recovered meanwhile");
    assert_eq!(world.of_kind(request.uuid, "spawned").len(), 1);
}

#[test]
fn a_run_of_a_process_that_has_ended_gets_its_pid_and_starts_nothing() {
    let world = World::new();
    let request = world.request(&world.script("turns: [{text: done}]"));
    let daemon = world.start();
    let [first, second, third] = thrice(&world, daemon, |daemon| {
        let created = daemon.run(request.clone());
        daemon.wait(request.uuid);
        created.pid
    });
    assert_eq!((first, first), (second, third));
    assert_eq!(world.of_kind(request.uuid, "opened").len(), 1);
}

#[test]
fn a_different_run_with_the_same_uuid_is_a_conflict() {
    let world = World::new();
    let request = world.hanging();
    let daemon = world.start();
    daemon.run(request.clone());
    let other = RunRequest { intent: "something else".to_owned(), ..request.clone() };
    let refused = thrice(&world, daemon, |daemon| {
        assert_eq!(daemon.info(request.uuid).intent, "do it");
        daemon.block(daemon.runtime.run(other.clone())).unwrap_err().code()
    });
    assert_eq!(refused, [ErrorCode::Conflict; 3]);
}

#[test]
fn a_fork_that_is_asked_for_again_is_the_same_fork() {
    let world = World::new();
    let daemon = world.start();
    let source = daemon.run_suspended(&world);
    let (fork, mut asked) = (new_uuid(), resume());
    (asked.fork, asked.input) = (Some(fork), Some("go".to_owned()));
    let [first, second, third] = thrice(&world, daemon, |daemon| {
        let forked = daemon.resume(source.uuid, asked.clone(), None);
        assert_eq!(forked.pid, daemon.pid(fork));
        (forked.uuid, forked.origin_uuid, forked.changed, forked.affected)
    });
    assert_eq!((&first, &first), (&second, &third));
    assert_eq!(world.of_kind(fork, "input").iter().filter(|input| input["text"] == "go").count(), 1);
    let daemon = world.start();
    asked.input = Some("something else".to_owned());
    let other = daemon.block(daemon.runtime.resume(&source.uuid.to_string(), asked, None));
    assert_eq!(other.unwrap_err().code(), ErrorCode::Conflict);
}

#[test]
fn a_fork_that_is_asked_for_again_is_there_also_when_its_source_was_collected() {
    let world = World::with(|config| config.gc.max_entries = 1);
    let daemon = world.start();
    let source = daemon.run(world.request(&world.script("turns: [{text: done}, {hang: true}]")));
    daemon.wait(source.uuid);
    let (fork, mut asked) = (new_uuid(), resume());
    (asked.fork, asked.input) = (Some(fork), Some("go".to_owned()));
    let ask = |daemon: &Daemon, id: &str| daemon.block(daemon.runtime.resume(id, asked.clone(), None));
    let first = ask(&daemon, &source.uuid.to_string()).unwrap();
    let later = daemon.run(world.request(&world.script("turns: [{text: done}]")));
    daemon.wait(later.uuid);
    let collected = daemon.block(daemon.runtime.gc(relive_api::GcRequest::default())).unwrap();
    assert_eq!(collected.removed.len(), 1, "the source");
    for id in [source.uuid.to_string(), source.pid.to_string()] {
        let again = ask(&daemon, &id).unwrap();
        assert_eq!((again.pid, again.uuid, again.origin_uuid), (first.pid, fork, first.origin_uuid));
    }
    asked.fork = Some(new_uuid());
    let refused = daemon.block(daemon.runtime.resume(&source.uuid.to_string(), asked, None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NotFound, "another fork needs the source");
}

#[test]
fn a_resume_that_is_asked_for_again_resumes_once() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    let mut asked = resume();
    asked.input = Some("go".to_owned());
    let [first, second, third] = thrice(&world, daemon, |daemon| {
        let resumed = daemon.resume(process.uuid, asked.clone(), REQUEST);
        (resumed.uuid, resumed.changed, resumed.affected)
    });
    assert_eq!((&first, &first), (&second, &third));
    assert_eq!(world.of_kind(process.uuid, "resumed").len(), 1);
    assert_eq!(world.of_kind(process.uuid, "input").len(), 2);
}

#[test]
fn a_resume_that_is_asked_for_again_does_not_end_a_later_pause() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.resume(process.uuid, resume(), REQUEST);
    daemon.until_records(&world, process.uuid, "model_started", 2);
    daemon.pause(process.uuid, PAUSE_NOW, None);
    daemon.until_display(process.uuid, "suspended");
    assert_eq!(daemon.resume(process.uuid, resume(), REQUEST).affected, 1);
    assert_eq!(daemon.display(process.uuid), "suspended");
}

#[test]
fn a_resume_of_a_dead_process_that_is_asked_for_again_starts_it_once() {
    let world = World::new();
    let model = world.script("turns: [{text: done}, {text: done again}]");
    let daemon = world.start();
    let process = daemon.run(world.request(&model));
    daemon.wait(process.uuid);
    let [first, second, third] = thrice(&world, daemon, |daemon| {
        let resumed = daemon.resume(process.uuid, resume(), REQUEST);
        daemon.wait(process.uuid);
        (resumed.pid, resumed.changed, resumed.affected)
    });
    assert_eq!((&first, &first), (&second, &third));
    assert_eq!(world.of_kind(process.uuid, "opened").len(), 2);
}

#[test]
fn a_message_that_is_sent_again_is_known() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    let sent = thrice(&world, daemon, |daemon| daemon.send(process.uuid, message("m", "hello")));
    assert_eq!(sent, [true, false, false]);
    assert_eq!(world.of_kind(process.uuid, "input").len(), 2);
}

#[test]
fn a_message_cannot_pass_for_another_request() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    let id = process.uuid.to_string();
    for reserved in ["intent", "fork", "resume:r", "resolve:r", "signals:r", "SIGKILL:r", "SIGHUP:r"] {
        let refused = daemon.block(daemon.runtime.send(&id, message(reserved, "hello")));
        assert_eq!(refused.unwrap_err().code(), ErrorCode::Invalid, "{reserved}");
    }
    for free in ["intents", "thread:1", "resume", "fork:1", "r"] {
        assert!(daemon.send(process.uuid, message(free, "hello")), "{free}");
    }
    assert!(daemon.resume(process.uuid, resume(), Some("r")).changed);
    daemon.until_records(&world, process.uuid, "model_started", 2);
    daemon.signal(process.uuid, "KILL", Some("r"));
    daemon.until_display(process.uuid, "dead");
}

#[test]
fn a_message_that_is_sent_again_to_a_process_that_has_ended_since_is_known() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    let sent = thrice(&world, daemon, |daemon| {
        let sent = daemon.send(process.uuid, message("m", "hello"));
        daemon.signal(process.uuid, "KILL", None);
        daemon.until_display(process.uuid, "dead");
        sent
    });
    assert_eq!(sent, [true, false, false]);
}

#[test]
fn a_pause_that_is_asked_for_again_is_answered_alike() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let affected = thrice(&world, daemon, |daemon| daemon.pause(process.uuid, PAUSE, REQUEST).affected);
    assert_eq!(affected, [1, 1, 1]);
    assert_eq!(world.of_kind(process.uuid, "paused").len(), 1);
}

#[test]
fn a_pause_that_is_asked_for_again_does_not_pause_what_was_resumed_since() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    daemon.pause(process.uuid, PAUSE_NOW, REQUEST);
    daemon.until_display(process.uuid, "suspended");
    daemon.resume(process.uuid, resume(), None);
    assert_eq!(daemon.pause(process.uuid, PAUSE_NOW, REQUEST).affected, 1);
    assert_eq!(daemon.display(process.uuid), "running");
}

#[test]
fn a_signal_that_is_sent_again_is_answered_alike_also_when_it_has_ended_the_process() {
    for name in ["TERM", "INT", "KILL"] {
        let world = World::new();
        let daemon = world.start();
        let process = daemon.run_hanging(&world);
        let [first, second, third] = thrice(&world, daemon, |daemon| {
            let affected = daemon.signal(process.uuid, name, REQUEST);
            daemon.until_display(process.uuid, "dead");
            affected
        });
        assert_eq!((first.affected, first.pids), (1, vec![process.pid]));
        assert_eq!((second.affected, second.pids), (1, vec![process.pid]));
        assert_eq!((third.affected, third.pids), (1, vec![process.pid]));
    }
}

#[test]
fn a_signal_to_a_suspended_process_that_is_sent_again_is_answered_alike() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    let affected = thrice(&world, daemon, |daemon| daemon.signal(process.uuid, "TERM", REQUEST).affected);
    assert_eq!(affected, [1, 1, 1]);
    assert_eq!(world.of_kind(process.uuid, "ended").len(), 1);
}

#[test]
fn an_answer_that_is_given_again_is_answered_alike() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_asking(&world, "file");
    let affected = thrice(&world, daemon, |daemon| daemon.answer(process.uuid, Resolution::Allow, REQUEST).affected);
    assert_eq!(affected, [1, 1, 1]);
    assert_eq!(world.of_kind(process.uuid, "approval").len(), 2, "the question and one answer");
}

#[test]
fn an_answer_that_is_given_again_to_a_process_that_has_ended_since_is_answered_alike() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_asking(&world, "file");
    let affected = thrice(&world, daemon, |daemon| {
        let affected = daemon.answer(process.uuid, Resolution::Allow, REQUEST).affected;
        daemon.signal(process.uuid, "KILL", None);
        daemon.until_display(process.uuid, "dead");
        affected
    });
    assert_eq!(affected, [1, 1, 1]);
}

#[test]
fn an_answer_of_somebody_else_is_refused_in_every_daemon() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_asking(&world, "file");
    daemon.answer(process.uuid, Resolution::Deny, REQUEST);
    let id = process.uuid.to_string();
    let refused = thrice(&world, daemon, |daemon| {
        daemon.block(daemon.runtime.answer(&id, answer(Resolution::Allow), None)).unwrap_err().code()
    });
    assert_eq!(refused, [ErrorCode::Conflict; 3]);
    assert!(!world.work().join("file").exists());
}

#[test]
fn a_signal_mask_that_is_set_again_is_answered_alike_and_does_not_undo_a_later_one() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let set = |daemon: &Daemon| daemon.set_mask(process.uuid, mask(&["TERM"], &[]), REQUEST).blocked;
    let blocked = thrice(&world, daemon, set);
    assert_eq!(blocked, [["SIGTERM"]; 3]);
    assert_eq!(world.of_kind(process.uuid, "signal_mask").len(), 1);
    let daemon = world.start();
    daemon.set_mask(process.uuid, mask(&[], &[]), Some("request-2"));
    assert_eq!(set(&daemon), Vec::<String>::new());
}

#[test]
fn a_signal_mask_that_lets_a_signal_end_the_process_is_answered() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.set_mask(process.uuid, mask(&["TERM"], &[]), None);
    daemon.signal(process.uuid, "TERM", None);
    let pending = thrice(&world, daemon, |daemon| daemon.set_mask(process.uuid, mask(&[], &[]), REQUEST).pending);
    assert_eq!(pending, [Vec::<String>::new(), Vec::new(), Vec::new()]);
    assert_eq!(world.of_kind(process.uuid, "ended").len(), 1);
}

#[test]
fn the_last_64_requests_are_remembered() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    let name = |number: usize| format!("request-{number}");
    for number in 0..65 {
        let blocked = if number % 2 == 0 { ["INT"] } else { ["TERM"] };
        daemon.set_mask(process.uuid, mask(&blocked, &[]), Some(&name(number)));
    }
    drop(daemon);
    let daemon = world.start();
    let records = world.records(process.uuid).len();
    for number in 1..65 {
        daemon.set_mask(process.uuid, mask(&[], &[]), Some(&name(number)));
    }
    assert_eq!(world.records(process.uuid).len(), records, "64 repeats changed nothing");
    daemon.set_mask(process.uuid, mask(&[], &[]), Some(&name(0)));
    assert_eq!(world.of_kind(process.uuid, "signal_mask").len(), 66, "an older one is decided afresh");
}

#[test]
fn a_subtree_pause_that_is_asked_for_again_is_answered_alike() {
    let world = World::new();
    let daemon = world.start();
    let (parent, _) = crate::trees::family(&world, &daemon, 2);
    let pause = || PauseRequest { subtree: true, now: true };
    let affected = thrice(&world, daemon, |daemon| daemon.pause(parent.uuid, pause(), REQUEST).affected);
    assert_eq!(affected, [3, 3, 3]);
}

#[test]
fn a_run_on_a_copy_that_is_asked_for_twice_at_once_makes_one_copy() {
    let world = World::new();
    let request = RunRequest { workspace: Some(WorkspaceKind::Own), ..world.hanging() };
    let daemon = world.start();
    let ask = || daemon.runtime.run(request.clone());
    let (first, second) = daemon.block(async { tokio::join!(ask(), ask()) });
    assert_eq!(first.unwrap(), second.unwrap());
    let own = world.data().with_file_name("data-workspaces");
    assert!(own.join(request.uuid.to_string()).join("script1.yaml").exists());
    assert_eq!(std::fs::read_dir(own).unwrap().count(), 1, "one copy, and no mark of an unclaimed one");
}

#[test]
fn a_copy_that_belongs_to_a_process_is_never_replaced() {
    let world = World::new();
    let request = RunRequest { workspace: Some(WorkspaceKind::Own), ..world.hanging() };
    let copy = world.data().with_file_name("data-workspaces").join(request.uuid.to_string());
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::write(copy.join("work"), "of a process").unwrap();
    let daemon = world.start();
    let refused = daemon.block(daemon.runtime.run(request.clone())).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict, "{refused}");
    assert_eq!(std::fs::read_to_string(copy.join("work")).unwrap(), "of a process");
}

#[test]
fn a_rewind_that_is_repeated_looks_at_no_more_files_than_the_limits_allow() {
    let mut world = World::new();
    let write = |path: &str| format!("{{calls: [{{name: write, args: {{path: {path}, content: x}}}}]}}");
    let turns = format!("turns: [{}, {}, {{hang: true}}]", write("one"), write("two"));
    let process = RunRequest { yes: true, ..world.request(&world.script(&turns)) };
    let (uuid, id) = (process.uuid, process.uuid.to_string());
    let rewind = |daemon: &Daemon| {
        let person = Access::new(Arc::clone(&daemon.runtime), Caller::Person);
        let request = RewindRequest { to_step: 1, undo: false, files_only: false, force: false, dry_run: false };
        daemon.block(person.rewind(&id, request, REQUEST.map(str::to_owned))).unwrap()
    };
    let daemon = world.start();
    daemon.run(process);
    daemon.until_records(&world, uuid, "model_started", 3);
    let first = rewind(&daemon);
    assert_eq!((first.restored, first.verified, first.paused), (1, true, true));
    let again = rewind(&daemon);
    assert_eq!((again.restored, again.verified, again.paused), (1, true, true));
    drop(daemon);
    std::fs::write(world.work().join("three"), "x").unwrap();
    world.configure(|config| config.workspace.max_files = 1);
    let daemon = world.start();
    let again = rewind(&daemon);
    assert_eq!((again.restored, again.verified, again.paused), (1, false, true), "nobody has looked");
}
