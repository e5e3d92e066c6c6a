//! What is not done without being asked about.

use serde_json::{Value, json};

use crate::fake::Fake;
use crate::support::{Place, process};
use crate::terminal::on_a_terminal;

/// A daemon with so many histories to collect.
fn collector(place: &Place, count: usize) -> Fake {
    place.daemon(move |request, reply| {
        let uuid = |n: usize| format!("0198f3c1-0000-7000-8000-{n:012}");
        let candidate = |n| {
            json!({ "uuid": uuid(n), "dead_at": "2026-01-01T00:00:00Z", "bytes": 1000, "reason": "older than 30 days" })
        };
        let candidates: Vec<Value> = (0..count).map(candidate).collect();
        let too_many = request.body["at_most"].as_u64().is_some_and(|most| count as u64 > most);
        let collected = request.body["dry_run"] == false && !too_many;
        let removed: Vec<String> = if collected { (0..count).map(uuid).collect() } else { Vec::new() };
        let freed = removed.len() * 1000;
        reply.json(&json!({ "collected": collected, "candidates": candidates, "removed": removed,
            "freed_bytes": freed, "warnings": [] }));
    })
}

#[test]
fn case_29_a_hundred_are_removed_without_asking_and_a_hundred_and_one_are_not() {
    let place = Place::new();
    let _daemon = collector(&place, 100);
    assert_eq!(place.relive(&["gc"]).exits(0).stderr, "removed 100 processes, 97.6 KiB freed\n");

    let place = Place::new();
    let daemon = collector(&place, 101);
    place.relive(&["gc"]).exits(2).says("this would remove 101 processes (98.6 KiB)").says("hint: relive gc -y");
    assert_eq!(daemon.asked("gc").len(), 1, "it was one call");
    assert_eq!(place.relive(&["gc", "--force"]).exits(0).stderr, "removed 101 processes, 98.6 KiB freed\n");
    let json = place.relive(&["gc", "--json"]).exits(0).json();
    assert_eq!((&json["removed"], &json["freed_bytes"]), (&json!(101), &json!(101_000)));
    let dry = place.relive(&["gc", "--dry-run", "--json"]).exits(0).json();
    assert_eq!(dry["candidates"].as_array().unwrap().len(), 101);
    assert_eq!(daemon.asked("gc").last().unwrap().body["dry_run"], true);
}

#[test]
fn case_29_on_a_terminal_it_asks_and_no_or_the_end_of_input_is_no() {
    let place = Place::new();
    let daemon = collector(&place, 101);
    let yes = on_a_terminal(place.command(&["gc"]), "[y/N] ", "y\n");
    assert_eq!((yes.code, yes.stdout.as_str()), (Some(0), ""), "{yes:?}");
    assert!(yes.stderr.replace('\r', "").ends_with("removed 101 processes, 98.6 KiB freed\n"), "{yes:?}");
    assert_eq!(daemon.asked("gc").len(), 2);
    for no in ["n\n", "\n", "\u{4}"] {
        let answered = on_a_terminal(place.command(&["gc"]), "[y/N] ", no);
        assert_eq!((answered.code, answered.stdout.as_str()), (Some(0), ""), "{answered:?}");
        let said = answered.stderr.replace('\r', "");
        assert!(said.contains("\nnothing was removed\n"), "on a line of its own: {answered:?}");
    }
    assert_eq!(daemon.asked("gc").len(), 5);
}

#[test]
fn gc_older_than_asks_on_a_terminal() {
    let place = Place::new();
    let daemon = collector(&place, 1);
    let yes = on_a_terminal(place.command(&["gc", "--older-than", "7d"]), "[y/N] ", "y\n");
    assert!(yes.stderr.replace('\r', "").ends_with("removed 1 process, 1000 bytes freed\n"), "{yes:?}");
    let asked = daemon.asked("gc");
    assert_eq!((asked.len(), &asked[0].body["at_most"]), (2, &json!(0)));
    let no = on_a_terminal(place.command(&["gc", "--older-than", "7d"]), "[y/N] ", "n\n");
    assert!(no.stderr.contains("nothing was removed"), "{no:?}");
    assert_eq!(daemon.asked("gc").len(), 3, "nothing was collected");
    // Nobody is asked with -y, nor without a terminal, up to the same number as without an age.
    assert_eq!(
        place.relive(&["gc", "-y", "--older-than", "7d"]).exits(0).stderr,
        "removed 1 process, 1000 bytes freed\n"
    );
    place.relive(&["gc", "--older-than", "7d"]).exits(0);
    assert_eq!(daemon.asked("gc").last().unwrap().body["at_most"], 100);
    let place = Place::new();
    let _daemon = collector(&place, 101);
    place.relive(&["gc", "--older-than", "7d"]).exits(2).says("hint: relive gc -y --older-than 7d\n");
}

/// A daemon with a parent, its child, and another one.
fn family(place: &Place) -> Fake {
    place.daemon(|request, reply| {
        if request.names("/signal") {
            reply.json(&json!({ "affected": 2, "pids": [1, 2] }));
        } else if request.names("processes?all") {
            reply.json(&json!({ "processes": [process(1, 0), process(2, 1), process(3, 0)] }));
        } else {
            let pid = if request.names("processes/3") { 3 } else { 1 };
            reply.json(&process(pid, 0));
        }
    })
}

#[test]
fn killing_a_tree_of_more_than_one_is_asked_about() {
    let place = Place::new();
    let daemon = family(&place);
    let refused = place.relive(&["kill", "--subtree", "1"]).exits(2);
    refused.says("would send SIGTERM to 2 processes").says("hint: relive kill --subtree -y 1");
    assert_eq!(daemon.asked("/signal").len(), 0);
    place.relive(&["kill", "--subtree", "-y", "1"]).exits(0);
    place.relive(&["kill", "--subtree", "3"]).exits(0);
    place.relive(&["kill", "1"]).exits(0);
    assert_eq!(daemon.asked("/signal").len(), 3);
    let no = on_a_terminal(place.command(&["kill", "--subtree", "1"]), "[y/N] ", "n\n");
    assert_eq!(no.code, Some(0));
    assert!(no.stderr.contains("PID 2 running fixer2") && !no.stderr.contains("fixer3"), "{no:?}");
    assert_eq!(daemon.asked("/signal").len(), 3);
}

/// An ended process with this PID and name, and a UUID of its own.
fn dead(pid: u32, name: &str) -> Value {
    let mut dead = process(pid, 0);
    (dead["uuid"], dead["name"]) = (uuid(pid).into(), name.into());
    (dead["dead_at"], dead["display"]) = ("2026-11-15T12:01:00Z".into(), "dead".into());
    dead
}

fn uuid(pid: u32) -> String {
    format!("0198f3c1-0000-7000-8000-{pid:012}")
}

/// A daemon with an ended process `done` (PID 8) and a living one `busy` (PID 9).
fn one_ended(place: &Place) -> Fake {
    place.daemon(|request, reply| {
        if request.names("/remove") {
            reply.json(&json!({ "uuid": uuid(8), "freed_bytes": 10 }));
        } else if request.names("processes?") {
            reply.json(&json!({ "processes": [dead(8, "done")] }));
        } else if request.names("busy") {
            let mut busy = process(9, 0);
            busy["uuid"] = uuid(9).into();
            reply.json(&busy);
        } else {
            reply.json(&dead(8, "done"));
        }
    })
}

#[test]
fn what_is_removed_is_the_process_that_was_shown() {
    let place = Place::new();
    let daemon = one_ended(&place);
    let yes = on_a_terminal(place.command(&["rm", "done"]), "[y/N] ", "y\n");
    assert_eq!(yes.code, Some(0), "{yes:?}");
    assert!(yes.stderr.contains("  PID 8 00000005 done"), "{yes:?}");
    let removals = daemon.asked("/remove");
    assert!(removals.len() == 1 && removals[0].names(&uuid(8)), "by its UUID, not by its name");
}

#[test]
fn a_process_that_has_not_ended_when_it_is_asked_about_is_not_removed_after_the_answer() {
    let place = Place::new();
    let daemon = one_ended(&place);
    let yes = on_a_terminal(place.command(&["rm", "busy", "done"]), "[y/N] ", "y\n");
    assert_eq!(yes.code, Some(3), "{yes:?}");
    assert!(yes.stderr.contains("PID 9 has not ended") && yes.stderr.contains("removed PID 8"), "{yes:?}");
    let removals = daemon.asked("/remove");
    assert!(removals.len() == 1 && removals[0].names(&uuid(8)), "only the one that was shown");
    place.relive(&["rm", "busy", "done"]).exits(2).says("this would remove 1 process");
    place.relive(&["rm", "busy"]).exits(3).says("has not ended");
    assert_eq!(daemon.asked("/remove").len(), 1, "not without -y and a terminal");
}

#[test]
fn the_tree_that_gets_a_signal_is_the_one_that_was_shown() {
    let place = Place::new();
    let daemon = family(&place);
    let yes = on_a_terminal(place.command(&["kill", "--subtree", "fixer1"]), "[y/N] ", "y\n");
    assert_eq!(yes.code, Some(0), "{yes:?}");
    let signals = daemon.asked("/signal");
    assert!(signals.len() == 1 && signals[0].names("processes/1/signal"), "by its PID, not by its name");
}
