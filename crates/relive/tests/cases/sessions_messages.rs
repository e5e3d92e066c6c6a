//! Messages to programs: each is read once, whatever becomes of the daemon.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::world::{World, http, wait_until};

/// Prints each line that it reads.
const READS: &str = "while read -r line; do echo \"got $line\"; done";

#[test]
fn a_program_in_the_background_reads_what_is_sent_to_it() {
    for world in World::of_each_kind() {
        let reads = world.exec(&["-i"], &["sh", "-c", READS]);
        world.relive(&["send", &reads.uuid, "one"]).ok();
        world.relive(&["send", &reads.uuid, "two\nthree\n"]).ok();
        world.await_output(&reads, "got one\ngot two\ngot three\n");
        let typed = world.exec(&["-t"], &["sh", "-c", READS]);
        world.relive(&["send", &typed.uuid, "four"]).ok();
        world.await_output(&typed, "got four");
        for program in [&reads, &typed] {
            world.relive(&["kill", "-s", "KILL", &program.uuid]).ok();
        }
    }
}

#[test]
fn no_message_to_a_program_is_lost_or_doubled_when_the_daemon_is_killed() {
    const ROUNDS: usize = 12;
    let world = World::new();
    let begin = "while [ ! -e begin ]; do sleep 0.01; done; exec sh -c \"$0\"";
    let slow = world.exec(&["-i"], &["sh", "-c", begin, READS]);
    let quick = world.exec(&["-i"], &["sh", "-c", READS]);
    let mut expect = String::new();
    for round in 0..ROUNDS {
        // Larger than one write, and in the end larger than what a pipe takes.
        let text = format!("{round} {}", "x".repeat(40_000));
        for program in [&slow, &quick] {
            world.relive(&["send", &program.uuid, &text]).ok();
        }
        world.kill_daemon();
        expect += &format!("got {text}\n");
    }
    fs::write(world.work().join("begin"), "").unwrap();
    for program in [&slow, &quick] {
        let printed = || world.relive(&["logs", &program.uuid]).ok().stdout;
        wait_until("it has read the last message", || printed().contains(&format!("got {} ", ROUNDS - 1)));
        world.relive(&["send", &program.uuid, "end"]).ok();
        wait_until("it has read the end", || printed().ends_with("got end\n"));
        assert!(printed() == format!("{expect}got end\n"), "each message once, in order");
        world.relive(&["kill", "-s", "KILL", &program.uuid]).ok();
    }
}

#[test]
fn a_message_is_read_once_if_the_daemon_is_killed_while_it_is_sent() {
    const ROUNDS: u64 = 40;
    let world = World::new();
    let reads = world.exec(&["-i"], &["sh", "-c", READS]);
    world.await_stage(&reads, "running");
    let (socket, path) = (world.socket(), format!("/v1/processes/{}/input", reads.uuid));
    for round in 0..ROUNDS {
        let body = format!(r#"{{"id":"{round}","text":"message {round}"}}"#);
        let send = |socket: PathBuf, path: String| {
            move || http(&socket, "POST", &path, "content-type: application/json\r\n", &body).0
        };
        world.relive(&["daemon", "start"]).ok();
        let sent = std::thread::spawn(send.clone()(socket.clone(), path.clone()));
        // At another moment in each round, from before it is heard to after it is answered.
        std::thread::sleep(Duration::from_millis(round * 7 % 41));
        world.kill_daemon();
        if sent.join().ok() != Some(200) {
            // Nobody knows whether it was heard: it is sent again.
            world.relive(&["daemon", "start"]).ok();
            assert_eq!(send(socket.clone(), path.clone())(), 200);
        }
    }
    world.relive(&["send", &reads.uuid, "end"]).ok();
    world.await_output(&reads, "got end\n");
    let expect: String = (0..ROUNDS).map(|round| format!("got message {round}\n")).collect();
    assert_eq!(world.relive(&["logs", &reads.uuid]).ok().stdout, format!("{expect}got end\n"));
    world.relive(&["kill", "-9", &reads.uuid]).ok();
}

#[test]
fn a_program_without_an_open_input_refuses_messages() {
    let world = World::new();
    let silent = world.exec(&[], &["sleep", "1000"]);
    let hint = "relive exec -d -i -- sleep 1000";
    world.relive(&["send", &silent.uuid, "hello"]).fails(2, &["accepts no messages", hint]);
    world.relive(&["resume", &silent.uuid, "--input", "hello"]).fails(2, &["accepts no messages", hint]);
    world.relive(&["kill", "-s", "KILL", &silent.uuid]).ok();
    world.ends(&silent, 137);
    world.relive(&["resume", &silent.uuid, "--input", "hello"]).fails(2, &["accepts no messages", hint]);
    world.relive(&["resume", "--fork", &silent.uuid, "--input", "hello"]).fails(2, &["accepts no messages", hint]);

    let deaf = world.exec(&["-i"], &["sh", "-c", "exec <&-; echo deaf; exec sleep 1000"]);
    world.await_output(&deaf, "deaf");
    world.relive(&["send", &deaf.uuid, "hello"]).fails(3, &["has closed its input"]);
    world.relive(&["kill", "-s", "KILL", &deaf.uuid]).ok();
}

#[test]
fn a_message_that_a_program_does_not_read_to_its_end_is_told() {
    let world = World::new();
    let closes = "while [ ! -e go ]; do sleep 0.01; done; exec <&-; exec sleep 1000";
    let deaf = world.exec(&["-i"], &["sh", "-c", closes]);
    // More than its pipe takes.
    world.relive(&["send", &deaf.uuid, &"x".repeat(100_000)]).ok();
    assert!(world.events(&deaf.uuid).iter().all(|event| event["kind"] != "message_unread"));
    fs::write(world.work().join("go"), "").unwrap();
    wait_until("it is told", || world.events(&deaf.uuid).iter().any(|event| event["kind"] == "message_unread"));
    world.relive(&["kill", "-9", &deaf.uuid]).ok();
}

#[test]
fn messages_are_for_the_run_they_were_sent_to() {
    let world = World::new();
    let reads = world.exec(&["-i"], &["sh", "-c", "read -r line; echo \"got $line\""]);
    world.relive(&["send", &reads.uuid, "one"]).ok();
    world.ends(&reads, 0);
    world.relive(&["resume", &reads.uuid, "--input", "two"]).ok();
    world.ends(&reads, 0);
    assert_eq!(world.relive(&["logs", &reads.uuid]).ok().stdout, "got two\n");
    let fork = world.relive(&["resume", "--json", "--fork", &reads.uuid]).ok().json();
    let fork = super::world::begun(&fork);
    world.relive(&["send", &fork.uuid, "three"]).ok();
    world.ends(&fork, 0);
    assert_eq!(world.relive(&["logs", &fork.uuid]).ok().stdout, "got three\n");
}

#[test]
fn a_program_reads_the_end_of_its_input_after_all_messages_and_once() {
    let world = World::new();
    let begin = "while [ ! -e begin ]; do sleep 0.01; done; cat; echo end";
    let waits = world.exec(&["-i"], &["sh", "-c", begin]);
    world.relive(&["send", &waits.uuid, "one"]).ok();
    let sent = world.relive(&["send", &waits.uuid, "two", "--eof"]).ok().stderr;
    assert_eq!(sent, format!("sent to {}, and closed its input\n", waits.uuid));
    world.kill_daemon();
    fs::write(world.work().join("begin"), "").unwrap();
    world.ends(&waits, 0);
    assert_eq!(world.relive(&["logs", &waits.uuid]).ok().stdout, "one\ntwo\nend\n");
    world.relive(&["send", &waits.uuid, "--eof"]).fails(3, &["has ended"]);

    // The second `cat` has an input of its own: an end that is typed twice would end it.
    let typed = world.exec(&["-t"], &["sh", "-c", "cat; echo first; cat; echo second"]);
    world.relive(&["send", &typed.uuid, "--eof"]).ok();
    world.await_output(&typed, "first");
    world.kill_daemon();
    world.relive(&["send", &typed.uuid, "still here"]).ok();
    world.await_output(&typed, "still here");
    assert!(!world.relive(&["logs", &typed.uuid]).ok().stdout.contains("second"));
    world.relive(&["send", &typed.uuid, "--eof"]).ok();
    world.ends(&typed, 0);

    let agent = world.run_hanging(&[]);
    world.relive(&["send", &agent.uuid, "--eof"]).fails(2, &["is not a program"]);
    world.end(&agent);
}
