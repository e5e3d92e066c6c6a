//! The habits that people bring along from other tools.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use crate::screen::Screen;
use crate::world::{World, finish, kill, wait_until};

const TALKS: &str = "turns: [{text: one, calls: [{name: list, args: {path: .}}]}, {text: two, calls: [{name: list, \
                     args: {path: .}}]}, {text: three}]";

#[test]
fn the_text_of_each_step_is_a_line_of_its_own_in_a_file_too() {
    let world = World::new();
    let script = world.script(TALKS);
    let ran = world.relive(&["run", "--model", &script, "talk"]).ok();
    assert_eq!(ran.stdout, "one\ntwo\nthree\n");
    // Both in one pipe, as in `relive run ... 2>&1 | cat`.
    let command = format!("{} run --model {script} talk 2>&1 | cat", env!("CARGO_BIN_EXE_relive"));
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &command]).current_dir(world.work()).env_clear().stdin(Stdio::null());
    shell.envs(world.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let shown = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    let (first, shown) = shown.split_once('\n').unwrap();
    assert!(first.starts_with("PID 2 "), "{first}");
    assert!(shown.starts_with("one\n-> list {\"path\":\".\"}\n<- list ok"), "{shown}");
    assert!(shown.contains("\nthree\nPID 2 completed: 3 steps, "), "{shown}");
}

#[test]
fn sigterm_ends_run_and_says_that_the_agent_keeps_running() {
    let world = World::new();
    let run = world.start(&["run", "--name", "one", "--model", &world.hanging(), "wait"]);
    wait_until("it runs", || world.relive(&["info", "one"]).code == 0);
    kill(run.id(), Signal::TERM);
    finish(run).fails(143, &["detached, PID 1 keeps running: relive attach 1\n"]);
    assert_eq!(world.info("one")["display"], "running");
}

#[test]
fn attach_without_input_shows_the_latest_and_leaves() {
    let world = World::new();
    let program = world.exec(&["--name", "job"], &["sh", "-c", "echo up; exec sleep 1000"]);
    world.await_output(&program, "up");
    let shown = world.relive(&["attach", "job"]).ok();
    assert_eq!(shown.stdout, "up\n");
    assert!(shown.stderr.ends_with("PID 1 keeps running: relive logs -f 1\n"), "{shown:?}");
    let agent = world.run_with("turns: [{text: one, calls: [{name: list, args: {path: .}}]}, {hang: true}]", &[]);
    world.await_text(&agent, "one");
    let shown = world.relive(&["attach", &agent.uuid]).ok();
    assert!(shown.stderr.ends_with("detached, PID 2 keeps running: relive attach 2\n"), "{shown:?}");
    assert_eq!(world.info("job")["display"], "running");
}

#[test]
fn kill_0_tells_whether_a_process_has_ended() {
    let world = World::new();
    let program = world.exec(&["--name", "job"], &["sleep", "1000"]);
    let lives = world.relive(&["kill", "-0", "job"]).ok();
    assert_eq!((lives.stdout.as_str(), lives.stderr.as_str()), ("", ""));
    world.relive(&["kill", "-9", "job"]).ok();
    world.ends(&program, 137);
    world.relive(&["kill", "-0", "job"]).fails(3, &["PID 1 has ended"]);
    world.relive(&["kill", "-s", "0", "nobody-here"]).fails(4, &["no process `nobody-here`"]);
}

#[test]
fn columns_are_named_as_they_are_shown_and_why_says_who_ended_it() {
    let world = World::new();
    let program = world.exec(&["--name", "job"], &["sleep", "1000"]);
    world.await_display(&program.uuid, "running");
    world.relive(&["kill", "job"]).ok();
    world.ends(&program, 143);
    let agent = world.run_hanging(&[]);
    world.relive(&["pause", "--now", &agent.uuid]).ok();
    world.await_display(&agent.uuid, "suspended");
    let shown = world.relive(&["ps", "-a", "--columns", "PID,Why"]).ok().stdout;
    assert_eq!(shown, "PID  WHY\n  1  you (SIGTERM)\n  2  paused\n");
}

#[test]
fn since_takes_a_time_of_day() {
    let world = World::new();
    world.run("turns: [{text: done}]");
    world.relive(&["wait", "1"]).ok();
    // The last time that a clock showed it was at most a day ago.
    for time in ["00:00", "23:59:59"] {
        world.relive(&["logs", "1", "--since", time]).ok();
        world.relive(&["ps", "--since", time]).ok();
        world.relive(&["usage", "--since", time]).ok();
    }
    world.relive(&["ps", "--since", "25:00"]).fails(2, &["use a time such as 10m, 2h, 22:00"]);
    assert_eq!(world.relive(&["ps", "--since", "1h", "--columns", "pid"]).ok().stdout, "PID\n  1\n");
}

#[test]
fn hints_keep_what_was_typed() {
    let world = World::new();
    world.run_hanging(&["--name", "one"]);
    world.run_hanging(&["--name", "two"]);
    let hint = "hint: relive kill -s KILL -y 'o*'\n";
    world.relive(&["kill", "-9", "o*"]).fails(2, &["SIGKILL to 1 process\n", hint]);
    world.relive(&["kill", "-9", "-y", "o*"]).ok();
    world.relive(&["wait", "one"]).exits(1);
    world.relive(&["resume", "one", "two", "--name", "x"]).fails(2, &["hint: relive resume one two\n"]);
    let named = world.relive(&["resume", "one", "--name", "a b"]);
    named.fails(2, &["hint: relive rename one 'a b'\n"]);
    world.relive(&["rm", "one"]).fails(2, &["no terminal to ask on", "hint: relive rm -y one\n"]);
    let refused = "hint: relive kill 2; relive wait 2; relive rm -y 2\n";
    world.relive(&["rm", "-y", "two"]).fails(3, &[refused]);
    world.relive(&["exec", "-t", "--", "echo", "a b"]).fails(2, &["hint: relive exec -- echo 'a b'\n"]);
}

#[test]
fn a_limit_that_ended_a_process_is_named_by_retry_too() {
    let world = World::new();
    let works = "turns: [{calls: [{name: list, args: {path: .}}], repeat: 9}]";
    world.run_with(works, &["--max-steps", "2", "--name", "one"]);
    world.relive(&["wait", "one"]).exits(1);
    world.relive(&["retry", "one"]).fails(3, &["has reached --max-steps", "hint: relive retry one --max-steps 4\n"]);
    world.relive(&["retry", "one", "--max-steps", "4", "--name", "again"]).ok();
    world.relive(&["wait", "again"]).exits(1);
    assert_eq!(world.info("again")["step"], json!(4));
}

#[test]
fn a_missing_program_is_reported_as_not_found() {
    let world = World::new();
    world.relive(&["exec", "--", "no-such-command"]).fails(127, &["error: no-such-command: command not found\n"]);
    world.relive(&["exec", "--", "./no-such-file"]).fails(127, &["error: ./no-such-file: no such file"]);
}

#[test]
fn a_missing_program_is_reported_as_not_found_in_the_background_too() {
    let world = World::new();
    let said = world.relive(&["exec", "-d", "--", "no-such-command"]);
    let said = said.fails(127, &["error: no-such-command: command not found\n"]);
    assert_eq!(said.stdout, "", "a PID would be taken for that of a program that runs");
    world.relive(&["exec", "-d", "--", "/etc/passwd"]).fails(126, &["error: /etc/passwd: permission denied\n"]);
    let said = world.relive(&["exec", "-d", "--json", "--", "no-such-command"]).exits(127).json();
    assert_eq!(said["error"]["message"], "no-such-command: command not found");
    let uuid = said["uuid"].as_str().unwrap();
    world.relive(&["wait", uuid]).exits(127);
    // At its gate it has not been looked for yet.
    let gated = world.exec(&["--gate"], &["no-such-command"]);
    world.relive(&["abort", &gated.uuid]).ok();
    world.ends(&gated, 125);
}

#[test]
fn exec_of_the_name_of_a_process_hints_at_enter() {
    let world = World::new();
    let web = world.exec(&["--name", "web"], &["sleep", "1000"]);
    world.await_stage(&web, "running");
    let said = world.relive(&["exec", "web", "ls", "a b"]);
    said.fails(127, &["error: web: command not found\n", "hint: relive enter web -- ls 'a b'\n"]);
    let said = world.relive(&["exec", "nobody", "ls"]).exits(127);
    assert!(!said.stderr.contains("hint"), "{said:?}");
}

#[test]
fn a_list_fits_a_narrow_terminal() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_list_fits_a_narrow_terminal") else { return };
    world.run_hanging(&["--name", "a-process-with-a-long-name"]);
    screen.resize(40, 24);
    for command in ["relive ps", "relive ps -a --tree", "relive list-resumable", "relive usage", "relive steps 1"] {
        screen.command(command);
        let shown = screen.await_code(0);
        // A line that is wrapped has no gap at the edge: each row is one line.
        let rows = shown.lines().skip_while(|line| !line.contains("code $?")).skip(3);
        let rows: Vec<&str> = rows.take_while(|line| !line.starts_with("code ")).collect();
        assert!(rows.len() <= 2, "{command}: {shown}");
    }
}

#[test]
fn a_list_that_is_watched_shows_no_keys_and_ends_with_q() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_list_that_is_watched_shows_no_keys_and_ends_with_q") else { return };
    world.run_hanging(&["--name", "one"]);
    screen.command("relive ps --watch");
    screen.await_text("q quits");
    screen.keys(&["x", "y", "z"]);
    world.run_hanging(&["--name", "two"]);
    let shown = screen.await_text("  two ");
    assert!(!shown.contains("xyz") && shown.contains("\nq quits"), "{shown}");
    screen.keys(&["q"]);
    screen.await_code(0);
    screen.command("relive ps --watch");
    screen.await_text("q quits");
    screen.keys(&["C-c"]);
    screen.await_code(130);
}

#[test]
fn commands_report_on_stderr_and_print_only_pids_on_stdout() {
    let world = World::new();
    world.run_hanging(&["--name", "one"]);
    let check = |args: &[&str], stdout: &str, said: &str| {
        let told = world.relive(args).ok();
        assert_eq!(told.stdout, stdout, "{args:?}");
        assert!(told.stderr.contains(said), "{args:?}: {told:?}");
    };
    check(&["pause", "--now", "one"], "", "(undo: relive resume one)\n");
    world.await_display("one", "suspended");
    check(&["resume", "one"], "1\n", "resuming ");
    check(&["rename", "one", "two"], "", "PID 1 renamed to two\n");
    check(&["rename", "two", "two"], "", "two: nothing changed\n");
    assert_eq!(world.relive(&["rename", "--json", "two", "two"]).ok().json()["affected"], 0);
    check(&["send", "two", "hello"], "", "sent to two\n");
    check(&["kill", "two"], "", "PID 1 got SIGTERM");
    world.relive(&["wait", "two"]).exits(1);
    check(&["retry", "two"], "2\n", "forking ");
    check(&["kill", "-9", "2"], "", "PID 2 got SIGKILL");
    world.relive(&["wait", "2"]).exits(1);
    check(&["resume", "2"], "3\n", "resuming ");
    check(&["resume", "--fork", "--name", "copy", "2"], "4\n", "forking ");
    check(&["rm", "-y", "two"], "", "removed PID 1 ");
    let gated = world.exec(&["--gate", "--name", "gated"], &["true"]);
    check(&["proceed", "gated"], "", "started\n");
    world.ends(&gated, 0);
    // A person reads the PID in the sentence.
    world.relive(&["pause", "--now", "copy"]).ok();
    world.await_display("copy", "suspended");
    let shown = world.on_terminal("resume copy").ok().stdout;
    assert!(shown.contains("PID 4 running"), "{shown}");
    assert!(!shown.lines().any(|line| line.trim() == "4"), "{shown}");
}
