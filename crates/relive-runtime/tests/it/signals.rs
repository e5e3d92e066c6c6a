//! Signal masks and handlers: what is kept, when it lands, and what a restart leaves of it.

use std::sync::Arc;

use futures_util::future::join;
use relive_api::{Resolution, RewindRequest};
use relive_core::{ErrorCode, Pid, ProcessStatus, Signal, Uuid, Why};
use relive_runtime::{Access, Caller};

use crate::world::{Daemon, PAUSE_NOW, World, mask, resume, signal};

/// Returns the signals that a process was sent while it blocked them, as `SIGTERM*` where the request was `request`.
fn kept(world: &World, uuid: Uuid) -> Vec<String> {
    let pending = world.of_kind(uuid, "signalled").into_iter().filter(|record| record["pending"] == true);
    pending.map(|record| record["signal"].as_str().unwrap().to_owned()).collect()
}

fn running(world: &World, blocked: &[&str], handled: &[&str]) -> (Daemon, Uuid) {
    let daemon = world.start();
    let process = daemon.run_hanging(world);
    daemon.set_mask(process.uuid, mask(blocked, handled), None);
    (daemon, process.uuid)
}

#[test]
fn a_blocked_term_is_pending_once_and_lands_on_unblock_with_its_cause() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &["TERM"], &[]);
    assert_eq!(daemon.signal(uuid, "TERM", None).affected, 1);
    assert_eq!(daemon.signal(uuid, "TERM", None).affected, 0, "it is pending already");
    assert_eq!((daemon.pending(uuid), kept(&world, uuid)), (vec!["SIGTERM".to_owned()], vec!["SIGTERM".to_owned()]));
    assert_eq!(daemon.display(uuid), "running");
    let before = world.records(uuid).len();
    daemon.set_mask(uuid, mask(&[], &[]), None);
    let ended = daemon.wait(uuid);
    assert_eq!(ended.status, Some(ProcessStatus::Killed { signal: Signal::Term.into() }));
    assert_eq!((ended.why, daemon.info(uuid).killed_by), (Some(Why::User), Some(Pid::RUNTIME)));
    assert_eq!(world.kinds(uuid, before)[..2], ["signalled", "signal_mask"], "what lands is recorded before the mask");
}

#[test]
fn a_pending_signal_survives_a_restart_and_lands_with_the_cause_it_was_sent_for() {
    let world = World::new();
    let daemon = world.start();
    let (parent, children) = crate::trees::family(&world, &daemon, 1);
    let child = children[0];
    daemon.set_mask(child, mask(&["TERM"], &[]), None);
    let subtree = relive_api::SignalRequest { subtree: true, ..signal("TERM") };
    daemon.try_signal(parent.uuid, subtree, None).unwrap();
    drop(daemon);
    let daemon = world.start();
    daemon.until_display(child, "running");
    assert_eq!(daemon.pending(child), ["SIGTERM"]);
    daemon.set_mask(child, mask(&[], &[]), None);
    let ended = daemon.wait(child);
    assert_eq!(
        (ended.status, ended.why),
        (Some(ProcessStatus::Killed { signal: Signal::Term.into() }), Some(Why::User))
    );
    assert_eq!(daemon.info(child).killed_from, Some(parent.pid), "the tree that was signalled then");
}

#[test]
fn a_pending_signal_lands_on_a_suspended_process_of_an_earlier_daemon() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.set_mask(process.uuid, mask(&["TERM", "INT"], &[]), None);
    daemon.signal(process.uuid, "INT", None);
    daemon.signal(process.uuid, "TERM", None);
    drop(daemon);
    let daemon = world.start();
    assert_eq!(daemon.pending(process.uuid), ["SIGTERM", "SIGINT"], "in the order in which they land");
    assert_eq!(daemon.set_mask(process.uuid, mask(&["TERM"], &[]), None).pending, Vec::<String>::new());
    let ended = daemon.wait(process.uuid);
    assert_eq!(ended.status, Some(ProcessStatus::Killed { signal: Signal::Int.into() }));
    assert_eq!(world.of_kind(process.uuid, "model_started").len(), 1);
}

#[test]
fn a_pending_pause_and_a_resume_cancel_each_other_also_for_the_next_daemon() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &["PAUSE", "RESUME"], &[]);
    assert_eq!(daemon.pause(uuid, PAUSE_NOW, None).affected, 1);
    assert_eq!((daemon.pending(uuid), daemon.display(uuid)), (vec!["SIGPAUSE".to_owned()], "running".to_owned()));
    assert_eq!(daemon.signal(uuid, "RESUME", None).affected, 1);
    assert_eq!(daemon.pending(uuid), Vec::<String>::new());
    drop(daemon);
    let daemon = world.start();
    daemon.until_display(uuid, "running");
    assert_eq!(daemon.pending(uuid), Vec::<String>::new());
    daemon.set_mask(uuid, mask(&[], &[]), None);
    assert_eq!(daemon.display(uuid), "running");
}

#[test]
fn a_resume_that_nothing_blocks_takes_a_pending_pause_away_for_good() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &["PAUSE"], &[]);
    daemon.pause(uuid, PAUSE_NOW, None);
    assert_eq!(daemon.signal(uuid, "RESUME", None).affected, 1);
    drop(daemon);
    let daemon = world.start();
    daemon.until_display(uuid, "running");
    assert_eq!(daemon.pending(uuid), Vec::<String>::new());
}

#[test]
fn a_pending_pause_lands_on_unblock_and_suspends_the_process() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &["PAUSE"], &[]);
    daemon.pause(uuid, PAUSE_NOW, None);
    daemon.set_mask(uuid, mask(&[], &[]), None);
    daemon.until_display(uuid, "suspended");
    assert_eq!(world.of_kind(uuid, "paused").len(), 1);
    drop(daemon);
    assert_eq!(world.start().display(uuid), "suspended");
}

#[test]
fn a_pending_pause_survives_the_answer_to_a_question_and_a_restart() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_asking(&world, "file");
    daemon.set_mask(process.uuid, mask(&["PAUSE"], &[]), None);
    // While it waits for a person a PAUSE changes nothing but this.
    assert_eq!(daemon.signal(process.uuid, "PAUSE", None).affected, 1);
    daemon.answer(process.uuid, Resolution::Allow, None);
    assert_eq!(daemon.pending(process.uuid), ["SIGPAUSE"]);
    drop(daemon);
    let daemon = world.start();
    assert_eq!(daemon.pending(process.uuid), ["SIGPAUSE"], "what was acknowledged is not forgotten");
    daemon.set_mask(process.uuid, mask(&[], &[]), None);
    daemon.until("a pause", || daemon.listed(process.uuid).filter(|shown| shown.paused));
}

#[test]
fn a_blocked_resume_is_kept_and_ends_the_pause_on_unblock() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.set_mask(process.uuid, mask(&["RESUME"], &[]), None);
    assert_eq!(daemon.signal(process.uuid, "RESUME", None).affected, 1);
    assert_eq!(daemon.display(process.uuid), "suspended");
    drop(daemon);
    let daemon = world.start();
    assert_eq!(
        (daemon.display(process.uuid), daemon.pending(process.uuid)),
        ("suspended".to_owned(), vec!["SIGRESUME".to_owned()])
    );
    daemon.set_mask(process.uuid, mask(&[], &[]), None);
    daemon.until_records(&world, process.uuid, "model_started", 2);
    assert_eq!(daemon.display(process.uuid), "running");
}

#[test]
fn a_handled_int_becomes_a_message_and_ends_nothing() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &[], &["INT"]);
    let before = world.records(uuid).len();
    assert_eq!(daemon.signal(uuid, "INT", Some("request-1")).affected, 1);
    let records = world.records(uuid).split_off(before);
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["kind"], "input");
    assert!(records[0]["text"].as_str().unwrap().starts_with("You received SIGINT"), "{records:?}");
    assert_eq!((daemon.display(uuid), daemon.listed(uuid).unwrap().ending), ("running".to_owned(), None));
}

#[test]
fn a_handled_int_that_is_sent_again_is_heard_once() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &[], &["INT"]);
    for _ in 0..2 {
        assert_eq!(daemon.signal(uuid, "INT", Some("request-1")).affected, 1);
    }
    drop(daemon);
    let daemon = world.start();
    assert_eq!(daemon.signal(uuid, "INT", Some("request-1")).affected, 1);
    let heard = world.of_kind(uuid, "input").into_iter().filter(|input| input["id"] != "intent").count();
    assert_eq!(heard, 1);
}

#[test]
fn a_handled_term_is_told_to_the_process_which_has_its_grace() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &[], &["TERM"]);
    let before = world.records(uuid).len();
    daemon.signal(uuid, "TERM", None);
    let shown = daemon.listed(uuid).unwrap();
    assert_eq!((shown.display.as_str(), shown.ending), ("running", Some(Signal::Term)));
    assert_eq!(world.kinds(uuid, before), ["signalled", "input"]);
}

#[test]
fn kill_can_be_neither_blocked_nor_handled_and_ignores_every_mask() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &["TERM", "INT", "PAUSE", "RESUME"], &["TERM", "INT", "PAUSE", "RESUME"]);
    for wrong in [mask(&["KILL"], &[]), mask(&[], &["KILL"])] {
        let refused = daemon.block(daemon.runtime.set_signal_mask(&uuid.to_string(), wrong, None)).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Invalid);
    }
    for name in ["TERM", "INT", "PAUSE"] {
        assert_eq!(daemon.signal(uuid, name, None).affected, 1);
    }
    assert_eq!(daemon.display(uuid), "running");
    daemon.signal(uuid, "KILL", None);
    assert_eq!(daemon.wait(uuid).status, Some(ProcessStatus::Killed { signal: Signal::Kill.into() }));
}

#[test]
fn the_next_incarnation_blocks_and_handles_nothing() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &["TERM"], &["INT"]);
    daemon.signal(uuid, "TERM", None);
    daemon.signal(uuid, "KILL", None);
    daemon.wait(uuid);
    daemon.resume(uuid, resume(), None);
    let state = daemon.block(daemon.runtime.signal_mask(&uuid.to_string())).unwrap();
    assert_eq!((state.blocked.len(), state.handled.len(), state.pending.len()), (0, 0, 0));
}

#[test]
fn a_mask_of_a_process_that_is_being_recovered_loses_no_pending_signal() {
    let world = World::new();
    let (daemon, uuid) = running(&world, &["PAUSE"], &[]);
    daemon.pause(uuid, PAUSE_NOW, None);
    drop(daemon);
    let daemon = world.start();
    daemon.set_mask(uuid, mask(&[], &[]), None);
    drop(daemon);
    let daemon = world.start();
    daemon.until_display(uuid, "suspended");
}

/// A rewind pauses what runs, and resumes it if it is refused.
#[test]
fn a_pause_that_is_asked_for_during_a_rewind_outlasts_its_refusal() {
    let world = World::new();
    let daemon = world.start();
    let person = Access::new(Arc::clone(&daemon.runtime), Caller::Person);
    for _ in 0..8 {
        let uuid = daemon.run_hanging(&world).uuid;
        let id = uuid.to_string();
        // Its files of that step are not known.
        let rewind = RewindRequest { to_step: 0, undo: false, files_only: false, force: false, dry_run: false };
        let pause = daemon.runtime.pause(&id, PAUSE_NOW, None);
        let (refused, paused) = daemon.block(join(person.rewind(&id, rewind, None), pause));
        assert_eq!(refused.unwrap_err().code(), ErrorCode::Conflict);
        paused.unwrap();
        daemon.until_display(uuid, "suspended");
        daemon.signal(uuid, "KILL", None);
    }
}
