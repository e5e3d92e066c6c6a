//! A client that hangs up after the first poll of its request: the verb is carried out all the same, once and whole.

use relive_api::Resolution;
use relive_core::{ProcessStatus, Signal};

use crate::world::{PAUSE_NOW, World, answer, mask, message, new_uuid, resume, signal};

fn request() -> Option<String> {
    Some("request-1".to_owned())
}

#[test]
fn a_run_whose_client_hangs_up_creates_a_process_that_runs() {
    let world = World::new();
    let daemon = world.start();
    let request = world.hanging();
    daemon.hang_up(daemon.runtime.run(request.clone()));
    daemon.until_display(request.uuid, "running");
    assert_eq!(daemon.run(request.clone()).pid, daemon.pid(request.uuid), "asking again gets the same process");
    assert_eq!(world.of_kind(request.uuid, "spawned").len(), 1);
}

#[test]
fn a_run_whose_client_hangs_up_can_be_killed_and_stays_dead() {
    let world = World::new();
    let request = world.hanging();
    {
        let daemon = world.start();
        daemon.hang_up(daemon.runtime.run(request.clone()));
        daemon.catch("it is created", || daemon.listed(request.uuid).filter(|it| it.display == "loading"));
        assert_eq!(daemon.signal(request.uuid, "KILL", None).affected, 1);
    }
    let daemon = world.start();
    daemon.until_display(request.uuid, "dead");
    assert_eq!(world.of_kind(request.uuid, "model_started").len(), 0, "no step runs after an acknowledged KILL");
}

#[test]
fn a_resume_whose_client_hangs_up_resumes_a_suspended_process() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.hang_up(daemon.runtime.resume(&process.uuid.to_string(), resume(), request()));
    daemon.until_display(process.uuid, "running");
    daemon.until_records(&world, process.uuid, "model_started", 2);
    assert_eq!(world.of_kind(process.uuid, "resumed").len(), 1);
}

#[test]
fn a_resume_whose_client_hangs_up_resumes_a_process_of_an_earlier_daemon() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    let daemon = world.start();
    let pid = daemon.pid(process.uuid);
    daemon.hang_up(daemon.runtime.resume(&pid.to_string(), resume(), request()));
    daemon.until_display(process.uuid, "running");
    // Nothing stands in the way of the next verbs.
    daemon.pause(process.uuid, PAUSE_NOW, None);
    daemon.until_display(process.uuid, "suspended");
    assert!(daemon.send(process.uuid, message("m", "hello")));
    assert_eq!(daemon.pid(process.uuid), pid);
}

#[test]
fn a_resume_whose_client_hangs_up_starts_a_dead_process_again() {
    let world = World::new();
    let daemon = world.start();
    let model = world.script("turns: [{text: done}, {hang: true}]");
    let process = daemon.run(world.request(&model));
    daemon.wait(process.uuid);
    daemon.hang_up(daemon.runtime.resume(&process.uuid.to_string(), resume(), request()));
    daemon.until_display(process.uuid, "running");
    assert_eq!(world.of_kind(process.uuid, "opened").len(), 2);
    assert_ne!(daemon.pid(process.uuid), process.pid);
}

#[test]
fn a_fork_whose_client_hangs_up_creates_the_fork() {
    let world = World::new();
    let daemon = world.start();
    let source = daemon.run_suspended(&world);
    let (fork, mut asked) = (new_uuid(), resume());
    asked.fork = Some(fork);
    daemon.hang_up(daemon.runtime.resume(&source.uuid.to_string(), asked.clone(), request()));
    daemon.until_display(fork, "running");
    let again = daemon.resume(source.uuid, asked, None);
    assert_eq!((again.pid, again.origin_uuid), (daemon.pid(fork), Some(source.uuid)));
    assert_eq!(daemon.display(source.uuid), "suspended", "the source is left as it was");
}

#[test]
fn a_message_whose_sender_hangs_up_is_heard_once() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.hang_up(daemon.runtime.send(&process.uuid.to_string(), message("m", "hello")));
    daemon.until_records(&world, process.uuid, "input", 2);
    assert!(!daemon.send(process.uuid, message("m", "hello")), "it was heard before");
    assert_eq!(world.of_kind(process.uuid, "input").len(), 2);
}

#[test]
fn a_message_to_a_process_of_an_earlier_daemon_does_not_block_it_when_its_sender_hangs_up() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    let daemon = world.start();
    daemon.hang_up(daemon.runtime.send(&process.uuid.to_string(), message("m", "hello")));
    assert!(daemon.resume(process.uuid, resume(), None).changed);
    daemon.until_records(&world, process.uuid, "model_started", 2);
    assert_eq!(world.of_kind(process.uuid, "input").last().unwrap()["text"], "hello");
}

#[test]
fn an_answer_whose_client_hangs_up_binds_and_a_later_one_is_told_so() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_asking(&world, "file");
    let id = process.uuid.to_string();
    daemon.hang_up(daemon.runtime.answer(&id, answer(Resolution::Deny), request()));
    let error = daemon.block(daemon.runtime.answer(&id, answer(Resolution::Allow), None)).unwrap_err().to_string();
    assert!(error.contains("has its answer already: the call of write was denied (at 20"), "{error}");
    daemon.until_records(&world, process.uuid, "model_started", 2);
    assert!(!world.work().join("file").exists(), "a call that was denied is not made");
    assert_eq!(world.of_kind(process.uuid, "call_started").len(), 0);
}

#[test]
fn a_kill_whose_client_hangs_up_ends_the_process() {
    let world = World::new();
    let daemon = world.start();
    let processes = [daemon.run_hanging(&world), daemon.run_suspended(&world)];
    for process in processes {
        daemon.hang_up(daemon.runtime.signal(&process.uuid.to_string(), signal("KILL"), request()));
        let ended = daemon.wait(process.uuid);
        assert_eq!(ended.status, Some(ProcessStatus::Killed { signal: Signal::Kill.into() }));
        assert_eq!(daemon.signal(process.uuid, "KILL", Some("request-1")).affected, 1, "it was this request");
        assert_eq!(daemon.signal(process.uuid, "KILL", Some("request-2")).affected, 0, "and not that one");
    }
}

#[test]
fn a_pause_whose_client_hangs_up_suspends_the_process() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    daemon.hang_up(daemon.runtime.pause(&process.uuid.to_string(), PAUSE_NOW, request()));
    daemon.until_display(process.uuid, "suspended");
    assert_eq!(daemon.pause(process.uuid, PAUSE_NOW, Some("request-1")).affected, 1);
    assert_eq!(world.of_kind(process.uuid, "paused").len(), 1);
}

#[test]
fn a_signal_mask_whose_client_hangs_up_holds() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    daemon.hang_up(daemon.runtime.set_signal_mask(&process.uuid.to_string(), mask(&["TERM"], &["INT"]), request()));
    daemon.until_records(&world, process.uuid, "signal_mask", 1);
    // The same again waits for its turn, and changes nothing.
    let held = daemon.set_mask(process.uuid, mask(&["TERM"], &["INT"]), Some("request-1"));
    assert_eq!(world.of_kind(process.uuid, "signal_mask").len(), 1);
    assert_eq!((held.blocked, held.handled), (vec!["SIGTERM".to_owned()], vec!["SIGINT".to_owned()]));
}

#[test]
fn verbs_of_clients_that_all_hang_up_are_carried_out_in_the_order_in_which_they_came() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    let before = world.records(process.uuid).len();
    let id = process.uuid.to_string();
    daemon.hang_up(daemon.runtime.send(&id, message("first", "one")));
    daemon.hang_up(daemon.runtime.signal(&id, signal("RESUME"), None));
    daemon.hang_up(daemon.runtime.send(&id, message("second", "two")));
    daemon.hang_up(daemon.runtime.signal(&id, signal("KILL"), None));
    daemon.until_display(process.uuid, "dead");
    let told = world.kinds(process.uuid, before);
    let verbs: Vec<&str> = told.iter().map(String::as_str).filter(|kind| *kind != "model_started").collect();
    assert_eq!(verbs, ["input", "resumed", "input", "signalled", "ended"]);
}
