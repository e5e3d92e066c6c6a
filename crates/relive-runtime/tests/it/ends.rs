//! Ends: what is released, in which order, who is told, and what a panic does.

use std::time::Duration;

use relive_core::{Pid, ProcessStatus, Signal, State, Why};

use crate::world::{PAUSE_NOW, World, resume};

#[test]
fn a_new_process_is_shown_as_created_until_its_body_is_ready() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run(world.hanging());
    let shown = daemon.listed(process.uuid).unwrap();
    assert_eq!((shown.state, shown.display.as_str(), shown.started_at), (State::Created, "loading", None));
    daemon.until_display(process.uuid, "running");
    assert_eq!(daemon.listed(process.uuid).unwrap().state, State::Running);
}

#[test]
fn a_process_that_is_being_released_is_shown_as_zombie() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run(world.request(&world.script("turns: [{text: done}]")));
    let zombie = daemon.catch("a zombie", || daemon.listed(process.uuid).filter(|shown| shown.state == State::Zombie));
    assert_eq!((zombie.display.as_str(), zombie.exit.unwrap().reason.as_str()), ("zombie", "completed"));
    assert_eq!(world.of_kind(process.uuid, "ended").len(), 1, "the end is recorded before it is shown");
    daemon.until_display(process.uuid, "dead");
    let dead = daemon.info(process.uuid);
    assert_eq!((dead.state, dead.resumable), (State::Dead, true));
}

#[test]
fn the_seven_steps_of_a_release_follow_the_end_in_their_order() {
    let world = World::new();
    let daemon = world.start();
    let completed = daemon.run(world.request(&world.script("turns: [{text: done}]")));
    let (killed, suspended) = (daemon.run_hanging(&world), daemon.run_suspended(&world));
    for process in [killed, suspended] {
        daemon.signal(process.uuid, "KILL", None);
    }
    for process in [completed, killed, suspended] {
        daemon.wait(process.uuid);
        let steps: Vec<_> = world.events(process.uuid, "release").iter().map(|event| event["phase"].clone()).collect();
        assert_eq!(steps, ["orphans", "cancel", "join", "debug_channel", "context", "dead", "left"]);
        assert_eq!(world.of_kind(process.uuid, "ended").len(), 1);
    }
}

#[test]
fn every_waiter_gets_the_same_answer_when_the_release_is_over() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let id = process.uuid.to_string();
    let answers = daemon.block(async {
        let wait = || {
            tokio::spawn({
                let (runtime, id) = (daemon.runtime.clone(), id.clone());
                async move {
                    let answer = runtime.wait(&id, None).await.unwrap();
                    let listed = runtime.processes(false).await.unwrap().processes.len();
                    (answer, listed)
                }
            })
        };
        let waiters: Vec<_> = (0..8).map(|_| wait()).collect();
        tokio::task::yield_now().await;
        daemon.runtime.signal(&id, crate::world::signal("TERM"), None).await.unwrap();
        let mut answers = Vec::new();
        for waiter in waiters {
            answers.push(waiter.await.unwrap());
        }
        answers
    });
    assert_eq!(answers.len(), 8);
    for (answer, listed) in answers {
        assert_eq!(answer.status, Some(ProcessStatus::Killed { signal: Signal::Term.into() }));
        assert_eq!((answer.pid, answer.why, listed), (process.pid, Some(Why::User), 0));
    }
    assert_eq!(daemon.wait(process.uuid).pid, process.pid, "one who comes later as well");
}

#[test]
fn a_waiter_whose_time_is_up_is_told_so_and_the_process_runs_on() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let answer = daemon.block(daemon.runtime.wait(&process.uuid.to_string(), Some(Duration::ZERO))).unwrap();
    assert!(answer.timed_out);
    assert_eq!((answer.exit_code, answer.status), (124, None));
    assert_eq!(daemon.display(process.uuid), "running");
}

#[test]
fn a_waiter_that_hangs_up_disturbs_nobody() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let id = process.uuid.to_string();
    daemon.hang_up(daemon.runtime.wait(&id, None));
    daemon.signal(process.uuid, "KILL", None);
    assert_eq!(daemon.wait(process.uuid).exit_code, 1);
}

#[test]
fn a_panic_in_a_body_ends_that_process_as_an_unexpected_exit_and_no_other() {
    let world = World::new();
    let daemon = world.start();
    let other = daemon.run_hanging(&world);
    let mut request = world.request(&world.script("turns: [{calls: [{name: panic}]}, {hang: true}]"));
    request.yes = true;
    let process = daemon.run(request);
    let ended = daemon.wait(process.uuid);
    assert_eq!(ended.status, Some(ProcessStatus::Faulted { fault: String::new() }));
    assert_eq!(ended.exit.unwrap().reason, "unexpected exit");
    assert_eq!(world.of_kind(process.uuid, "ended").len(), 1);
    assert_eq!(daemon.display(other.uuid), "running");
    daemon.pause(other.uuid, PAUSE_NOW, None);
    daemon.until_display(other.uuid, "suspended");
    daemon.until_at_rest(process.uuid);
}

#[test]
fn an_end_while_suspended_says_so_and_the_next_run_is_another_incarnation() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.signal(process.uuid, "TERM", None);
    let info = daemon.info(process.uuid);
    assert_eq!(info.exit.unwrap().reason, "context cancelled while paused");
    let resumed = daemon.resume(process.uuid, resume(), None);
    assert!(resumed.pid > process.pid);
    daemon.until_records(&world, process.uuid, "model_started", 2);
    assert_eq!(daemon.listed(process.uuid).unwrap().generation.0, 2);
}

#[test]
fn the_children_of_a_process_that_ends_go_to_pid_0_and_run_on() {
    let world = World::new();
    let daemon = world.start();
    let (parent, children) = crate::trees::family(&world, &daemon, 2);
    assert!(children.iter().all(|child| daemon.listed(*child).unwrap().ppid == parent.pid));
    daemon.signal(parent.uuid, "KILL", None);
    daemon.wait(parent.uuid);
    for child in children {
        let shown = daemon.listed(child).unwrap();
        assert_eq!((shown.ppid, shown.parent_uuid), (Pid::RUNTIME, Some(parent.uuid)));
        assert_eq!(shown.display, "running");
    }
}
