//! Commands that say what they did, what they did not do, and hints that can be typed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use crate::world::{World, short, wait_until};

#[test]
fn run_says_that_the_agent_keeps_running_when_nobody_reads_its_output() {
    let world = World::new();
    let model = world.script("turns: [{text: more, delay: 20ms, calls: [{name: list, args: {}}], repeat: 5000}]");
    let mut command = world.command(&["run", "--model", &model, "--name", "talker", "talk"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    drop(said);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141), "{stderr}");
    assert!(stderr.contains("nobody reads the output any more, PID 1 keeps running: relive attach 1"), "{stderr}");
    assert_eq!(world.info("talker")["display"], "running");
}

#[test]
fn a_name_leads_to_an_earlier_process_when_the_later_one_was_removed() {
    let world = World::new();
    for _ in 0..2 {
        let process = world.run_with("turns: [{text: done}]", &["--name", "same"]);
        world.relive(&["wait", &process.uuid]).ok();
    }
    world.relive(&["rm", "-y", "2"]).ok();
    assert_eq!(world.info("same")["pid"], 1);
    world.relive(&["wait", "same"]).ok();
    world.relive(&["rm", "-y", "same"]).ok();
    world.relive(&["info", "same"]).fails(4, &["`same` was removed"]);
}

#[test]
fn a_name_of_several_ended_processes_is_ambiguous_for_rm_and_rename() {
    let world = World::new();
    for _ in 0..2 {
        let process = world.run_with("turns: [{text: done}]", &["--name", "same"]);
        world.relive(&["wait", &process.uuid]).ok();
    }
    wait_until("both are listed", || world.relive(&["ps", "-aq"]).stdout.lines().count() == 2);
    let hint = "hint: relive ps -a --name same";
    for args in [&["rm", "-y", "same"][..], &["rm", "same"], &["rename", "same", "other"]] {
        world.relive(args).fails(2, &["`same` is ambiguous", "PID 1  ", "PID 2  ", hint]);
    }
    assert_eq!(world.relive(&["ps", "-aq", "--name", "same"]).ok().stdout.lines().count(), 2);
}

#[test]
fn rm_of_all_leaves_a_process_that_lives_again() {
    let world = World::new();
    let process = world.run_hanging(&["--name", "again"]);
    for _ in 0..2 {
        world.relive(&["kill", "-9", &process.uuid]).ok();
        world.relive(&["wait", &process.uuid]);
        world.relive(&["resume", &process.uuid]).ok();
    }
    let listed = || world.relive(&["ps", "-aq"]).stdout;
    assert_eq!(listed(), "3\n", "one row for a process");
    let told = world.relive(&["rm", "-y", "--all"]).ok();
    assert!(told.stderr.contains("nothing to remove"), "{told:?}");
    world.relive(&["rm", "-y", "ag*"]).fails(4, &["no ended process matches `ag*`"]);
    world.relive(&["rm", "1"]).fails(3, &["PID 1 continued as PID 3, which has not ended"]);
    world.relive(&["rm", "-y", "1"]).fails(3, &["PID 1 continued as PID 3, which has not ended"]);
    world.relive(&["kill", "-9", "3"]).ok();
    world.relive(&["wait", "3"]);
    for (args, hint) in [(&["rm", "1"][..], "hint: relive rm 3"), (&["rm", "-y", "1"], "hint: relive rm -y 3")] {
        let says = "PID 1 is an earlier run of PID 3 (interrupted); nothing was removed";
        world.relive(args).fails(3, &[says, hint]);
    }
    wait_until("its end is listed", || listed() == "3\n");
    let told = world.relive(&["rm", "-y", "ag*"]).ok();
    assert!(told.stderr.contains("removed PID 3 "), "{told:?}");
    assert_eq!(listed(), "");
}

#[test]
fn rm_of_the_failed_leaves_a_process_that_failed_first_and_was_completed_later() {
    let world = World::new();
    let turn = "{calls: [{name: list, args: {path: .}}]}";
    let script = format!("turns: [{turn}, {turn}, {turn}, {{text: done}}]");
    let process = world.run_with(&script, &["--name", "limited", "--max-steps", "2"]);
    world.relive(&["wait", &process.uuid]).exits(1);
    wait_until("its end is listed", || world.relive(&["ps", "--failed", "-q"]).stdout == "1\n");
    world.relive(&["resume", "limited", "--max-steps", "50"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    for restarted in [false, true] {
        wait_until("its end is listed", || world.relive(&["ps", "-aq", "--name", "limited"]).stdout == "2\n");
        assert_eq!(world.relive(&["ps", "--failed", "-q"]).ok().stdout, "", "restarted: {restarted}");
        world
            .relive(&["rm", "-y", "1"])
            .fails(3, &["PID 1 is an earlier run of PID 2 (completed)", "hint: relive rm -y 2"]);
        assert_eq!(world.info("1")["exit"]["reason"], "max steps exceeded", "an old PID is still an id");
        if !restarted {
            world.relive(&["daemon", "restart"]).ok();
        }
    }
    world.relive(&["rm", "-y", "2"]).ok();
}

#[test]
fn a_pid_that_ended_says_under_which_pid_its_process_runs_now() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]);
    world.relive(&["resume", &process.uuid]).ok();
    world.await_display(&process.uuid, "running");
    let resumed = "PID 1 has ended and was resumed as PID 2";
    let no_signal = format!("{resumed}, which got no signal");
    world.relive(&["kill", "1"]).fails(3, &[&no_signal, "hint: relive kill 2"]);
    world.relive(&["kill", "-9", "1"]).fails(3, &[&no_signal, "hint: relive kill -9 2"]);
    let not_paused = format!("{resumed}, which was not paused");
    world.relive(&["pause", "1"]).fails(3, &[&not_paused, "hint: relive pause 2"]);
    world.relive(&["kill", "-0", "1"]).fails(3, &[resumed, "hint: relive kill -0 2"]);
    world.relive(&["attach", "1"]).fails(3, &[resumed, "hint: relive attach 2"]);
    assert_eq!(world.info("2")["display"], "running");
}

#[test]
fn an_earlier_pid_removes_nothing_over_http_either() {
    let world = World::new();
    let process = world.run_with("turns: [{text: one}, {text: two}]", &[]);
    world.relive(&["wait", &process.uuid]).ok();
    world.relive(&["resume", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    let (status, answer) = world.http("POST", "/v1/processes/1/remove", "", "");
    assert_eq!(status, 409, "{answer}");
    assert!(answer.contains("PID 1 is an earlier run of PID 2; nothing was removed"), "{answer}");
    assert_eq!(world.info("2")["exit"]["reason"], "completed");
    let (status, answer) = world.http("POST", "/v1/processes/2/remove", "", "");
    assert_eq!(status, 200, "{answer}");
    world.relive(&["info", &process.uuid]).fails(4, &["was removed (by `relive rm`, or garbage collected)"]);
}

#[test]
fn a_shown_id_can_be_shortened_as_in_other_tools() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let shown = short(&process.uuid);
    let is_part = |len: &usize| shown[..*len].bytes().any(|digit| digit.is_ascii_alphabetic());
    let part = &shown[..(4..=shown.len()).find(is_part).unwrap()];
    assert_eq!(world.info(part)["uuid"], process.uuid.as_str(), "{part} of {shown}");
    world.relive(&["kill", part]).ok();
    world.relive(&["wait", part]);
    world.await_retired(&process.uuid);
    world.relive(&["daemon", "restart"]).ok();
    assert_eq!(world.info(part)["uuid"], process.uuid.as_str(), "{part} of {shown}, which has ended");
}

#[test]
fn a_wait_without_a_terminal_says_what_the_process_waits_for() {
    let world = World::new();
    world.run_with("turns: [{calls: [{name: shell, args: {command: ls}}]}]", &["--name", "asks"]);
    world.await_display("asks", "approval");
    world.run_hanging(&["--name", "later"]);
    let said = |name: &str| std::fs::read_to_string(world.root().join(name)).unwrap_or_default();
    let waiting = ["asks", "later"].map(|name| {
        let stderr = std::fs::File::create(world.root().join(name)).unwrap();
        world.command(&["wait", name]).stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
    });
    let asks = "PID 1 waits for your approval: relive resolve asks\n";
    wait_until("it says that an approval is needed", || said("asks") == asks);
    // This one is suspended only after the wait has begun.
    world.relive(&["pause", "--now", "later"]).ok();
    let paused = "PID 2 is suspended (paused): relive resume later\n";
    wait_until("it says that it is paused", || said("later") == paused);
    world.relive(&["kill", "-9", "-y", "asks", "later"]).ok();
    for mut wait in waiting {
        wait.wait().unwrap();
    }
}

#[test]
fn a_signal_that_an_agent_does_not_take_has_the_command_that_does_it() {
    let world = World::new();
    world.run_hanging(&[]);
    for (signal, hint) in [("STOP", "hint: relive pause 1"), ("CONT", "hint: relive resume 1")] {
        world.relive(&["kill", "-s", signal, "1"]).fails(2, &["does not accept", hint]);
    }
    let refused = world.relive(&["kill", "-s", "HUP", "1"]).fails(2, &["does not accept SIGHUP"]);
    assert!(!refused.stderr.contains("hint"), "{refused:?}");
}

#[test]
fn a_pattern_that_matches_only_others_says_so() {
    let world = World::new();
    let process = world.run_with("turns: [{text: done}]", &["--name", "task-1"]);
    world.relive(&["wait", &process.uuid]).ok();
    wait_until("it is listed", || world.relive(&["ps", "-aq"]).stdout == "1\n");
    let hint = "hint: relive ps -a --name 'task*'";
    world.relive(&["resume", "task*"]).fails(4, &["no suspended process matches `task*`, but another one does", hint]);
    world.relive(&["kill", "-y", "task*"]).fails(4, &["no process that has not ended matches", hint]);
    world.relive(&["kill", "-y", "other*"]).fails(4, &["no process matches `other*`"]);
    world.relive(&["resume", "--fork", "task*"]).fails(2, &["--fork takes one process", hint]);
}

#[test]
fn rm_of_a_process_that_runs_is_refused_before_anybody_is_asked() {
    let world = World::new();
    world.run_hanging(&["--name", "busy"]);
    let refused = world.relive(&["rm", "busy"]).fails(3, &["has not ended"]);
    assert!(!refused.stderr.contains("this would remove"), "{refused:?}");
}

#[test]
fn a_message_to_an_ended_agent_is_offered_as_the_message_to_resume_it_with() {
    let world = World::new();
    let process = world.run_with("turns: [{text: done}]", &["--name", "done"]);
    world.relive(&["wait", &process.uuid]).ok();
    world.relive(&["send", "done", "now the docs"]).fails(3, &["hint: relive resume done --input 'now the docs'"]);
}

#[test]
fn logs_show_new_limits_and_nothing_internal() {
    let world = World::new();
    let process =
        world.run_with("turns: [{text: a, calls: [{name: list, args: {}}]}, {text: b}]", &["--max-steps", "1"]);
    world.relive(&["wait", &process.uuid]).exits(1);
    world.relive(&["resume", &process.uuid, "--max-steps", "7"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    let logs = world.relive(&["logs", &process.uuid]).ok().stdout;
    assert!(logs.lines().any(|line| line.ends_with("new limits: max_steps 7")), "{logs}");
}

#[test]
fn a_pause_that_has_not_stopped_a_process_yet_is_not_called_done() {
    let world = World::new();
    let process = world.run("turns: [{text: hi, hang: true}]");
    world.await_records(&process, "model_started", 1);
    world.relive(&["pause", "1"]).ok();
    let told = world.relive(&["pause", "1"]).ok();
    assert!(told.stderr.contains("PID 1 is still pausing") && told.stderr.contains("relive pause --now 1"), "{told:?}");
    let told = world.relive(&["pause", "--json", "1"]).ok().json();
    assert_eq!((&told["affected"], &told["pausing"]), (&0.into(), &serde_json::json!([1])), "{told}");
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    let told = world.relive(&["pause", "1"]).ok();
    assert!(told.stderr.contains("PID 1 is already paused: nothing changed"), "{told:?}");
}

#[test]
fn a_model_for_a_program_is_refused_for_what_it_is() {
    let world = World::new();
    world.exec(&[], &["sleep", "1000"]);
    let says = ["PID 1 is a program: --model is only for agents", "hint: relive resume 1"];
    world.relive(&["resume", "1", "--model", "script/demo"]).fails(2, &says);
    world.relive(&["pause", "1"]).ok();
    world.await_display("1", "suspended");
    world.relive(&["resume", "1", "--model", "script/demo"]).fails(2, &says);
    world.relive(&["resume", "1"]).ok();
}
