//! `exec` in the foreground: as if the program itself had been typed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use super::world::{World, finish, kill, short, wait_for};

#[test]
fn input_output_and_exit_code_are_the_program_s_own() {
    let world = World::new();
    let both = "printf 'out\\0\\n'; printf 'err\\n' >&2; exit 7";
    let shown = world.relive(&["exec", "--", "sh", "-c", both]).exits(7);
    assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), ("out\0\n", "err\n"));

    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut child = world.command(&["exec", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, given) = (child.stdin.take().unwrap(), bytes.clone());
    let writer = std::thread::spawn(move || stdin.write_all(&given).unwrap());
    let mut got = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());

    world.relive(&["exec", "--", "sh", "-c", "kill -9 $$"]).exits(137);
    world.relive(&["exec", "--timeout", "100ms", "--", "sleep", "1000"]).fails(143, &["timed out"]);
}

#[test]
fn more_output_than_a_log_keeps_gets_through_a_slow_pipe_byte_for_byte() {
    // A log keeps 64 MB.
    const LINES: usize = 160 * 1024 * 1024 / 64;
    let world = World::new();
    let line = "0123456789".repeat(7)[..63].to_owned();
    let count = LINES.to_string();
    let mut child = world.start(&["exec", "--", "sh", "-c", "yes \"$0\" | head -n \"$1\"", &line, &count]);
    let mut stdout = child.stdout.take().unwrap();
    // The reader does not begin before the program could have printed more than its log keeps.
    let shim_waits = || {
        let process = world.relive(&["ps", "--json"]).ok().json()["processes"][0]["uuid"].as_str().map(str::to_owned);
        let session = world.info(&process?)["session"]["folder"].as_str()?.to_owned();
        let log = fs::metadata(std::path::Path::new(&session).join("log")).ok()?.len();
        (log >= 1024 * 1024).then_some(())
    };
    wait_for("it has printed more than anybody reads", shim_waits);
    let (mut buffer, mut total) = (vec![0; 1 << 20], 0_usize);
    let expected = format!("{line}\n").repeat(buffer.len() / 64 + 1).into_bytes();
    loop {
        let count = stdout.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        let from = total % 64;
        assert!(buffer[..count] == expected[from..from + count], "something is missing at {total}");
        total += count;
    }
    assert_eq!(total, LINES * 64);
    finish(child).ok();
}

#[test]
fn lines_on_both_outputs_keep_their_order_where_both_lead_to_the_same_place() {
    let world = World::new();
    let both = "i=0; while [ $i -lt 10000 ]; do echo $i; echo $((i+1)) >&2; i=$((i+2)); done";
    let path = world.work().join("both");
    let file = fs::File::options().append(true).create(true).open(&path).unwrap();
    let mut child = world.command(&["exec", "--", "sh", "-c", both]);
    child.stdout(file.try_clone().unwrap()).stderr(file);
    assert!(child.status().unwrap().success());
    let lines: Vec<u32> = fs::read_to_string(&path).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert!(lines.iter().copied().eq(0..10_000), "{} lines, from {:?}", lines.len(), &lines[..4]);
}

/// Types a program whose output is read up to its first line, and then closed. Returns its exit code and its stderr.
fn read_one_line(world: &World, argv: &[&str]) -> (Option<i32>, String) {
    let mut child = world.start(&[&["exec", "--"], argv].concat());
    let mut line = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut line).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code(), stderr)
}

#[test]
fn a_closed_pipe_fails_the_next_write_of_whoever_writes() {
    let world = World::new();
    let (code, _) = read_one_line(&world, &["yes"]);
    assert_eq!(code, Some(141), "it does not ignore SIGPIPE");
    let (code, _) = read_one_line(&world, &["sh", "-c", "trap '' PIPE; while echo y; do :; done; exit 3"]);
    assert_eq!(code, Some(3), "it ignores SIGPIPE and gets an error");
    let (code, stderr) = read_one_line(&world, &["sh", "-c", "yes; echo \"yes: $?\" >&2; exit 4"]);
    assert_eq!((code, stderr.trim()), (Some(4), "yes: 141"), "only the writer is affected, and stderr is still read");
}

#[test]
fn a_pipe_that_is_closed_before_the_first_write_fails_that_write() {
    let world = World::new();
    let script = "echo up >&2; read go; echo y; echo \"echo: $?\" >&2; sleep 1000";
    let mut child = world.command(&["exec", "--", "sh", "-c", script]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    drop(child.stdout.take());
    let program = world.info("1")["session"]["host_pid"].as_u64().unwrap();
    // The other end of its pipe is the shim's.
    let pipe = fs::read_link(format!("/proc/{program}/fd/1")).unwrap();
    let shim = fs::read_to_string(format!("/proc/{program}/status")).unwrap();
    let shim = shim.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned();
    wait_for("nobody reads its output", || {
        let open = fs::read_dir(format!("/proc/{shim}/fd")).ok()?;
        let mut links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        (!links.any(|link| link == pipe)).then_some(())
    });
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn a_reader_of_attach_that_leaves_does_not_affect_the_program() {
    let world = World::new();
    world.relive(&["exec", "-d", "--name", "talks", "--", "sh", "-c", "while echo y; do sleep 0.01; done"]).ok();
    let mut attached = world.command(&["attach", "talks"]);
    let mut attached = attached.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let open = attached.stdin.take();
    attached.stdout.take().unwrap().read_exact(&mut [0; 2]).unwrap();
    assert!(attached.wait().unwrap().success());
    drop(open);
    assert_eq!(world.info("talks")["display"], "running");
    world.relive(&["kill", "-9", "talks"]).ok();
}

#[test]
fn signals_that_would_end_the_command_reach_the_program() {
    let world = World::new();
    for (signal, name, code) in [(Signal::QUIT, "QUIT", 131), (Signal::USR1, "USR1", 138), (Signal::ALARM, "ALRM", 142)]
    {
        let script = format!("echo up; trap 'exit 9' {name}; echo trapped; while :; do sleep 0.01; done");
        let mut child = world.start(&["exec", "--", "sh", "-c", &script]);
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 11]).unwrap();
        kill(child.id(), signal);
        finish(child).exits(9);
        let mut child = world.start(&["exec", "--", "sh", "-c", "echo up; exec sleep 1000"]);
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        kill(child.id(), signal);
        finish(child).exits(code);
    }
    let left = world.relive(&["ps", "--json"]).ok().json()["processes"].clone();
    assert_eq!(left, json!([]));
}

#[test]
fn more_arguments_than_a_record_has_room_for_are_refused_before_anything_is_recorded() {
    let world = World::new();
    let many = |count: usize| -> Vec<String> {
        let command = ["exec", "--", "true"].map(str::to_owned).into_iter();
        command.chain(std::iter::repeat_n("x".repeat(100_000), count)).collect()
    };
    let ran = |args: &[String]| world.relive(&args.iter().map(String::as_str).collect::<Vec<_>>());
    ran(&many(9)).ok();
    for count in [11, 19] {
        ran(&many(count)).fails(2, &["at most 921600 can be recorded"]);
    }
    assert_eq!(world.relive(&["ps", "-a", "--json"]).ok().json()["processes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_loop_that_reads_lines_keeps_its_input_with_n() {
    let world = World::new();
    let relive = world.command(&[]).get_program().to_str().unwrap().to_owned();
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        "printf '1\\n2\\n3\\n' | while read x; do \"$0\" exec -n -- sh -c 'cat; echo $0' $x; done",
        &relive,
    ]);
    command.envs(world.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.current_dir(world.work()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1\n2\n3\n");
}

#[test]
fn a_program_that_takes_no_input_is_not_waited_for() {
    let world = World::new();
    let mut child = world.command(&["exec", "true"]).stdin(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    assert!(child.wait().unwrap().success());
    drop(open);
}

#[test]
fn ctrl_c_asks_the_program_to_stop_and_again_kills_it() {
    let world = World::new();
    // It handles SIGINT, and the command has its answer, from the moment that it shows something.
    let looping = |trap: &str, name: &str| {
        let script = format!("trap {trap} INT; echo up; while :; do sleep 0.01; done");
        let mut child = world.start(&["exec", "--name", name, "--", "sh", "-c", &script]);
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        child
    };
    let child = looping("'exit 5'", "asked");
    kill(child.id(), Signal::INT);
    finish(child).fails(5, &["SIGINT"]);

    let child = looping("''", "numb");
    let deaf = world.named("numb");
    kill(child.id(), Signal::INT);
    kill(child.id(), Signal::INT);
    wait_for("both have been heard of, or the one they became", || {
        kill(child.id(), Signal::INT);
        (world.info(&deaf.uuid)["state"] == "dead").then_some(())
    });
    world.ends(&deaf, 137);
    drop(child);
}

#[test]
fn a_program_keeps_running_when_its_watcher_hangs_up() {
    let world = World::new();
    // It watches from the moment that it shows something.
    let watched = |name: &str| {
        let mut child = world.start(&["exec", "--name", name, "--", "sh", "-c", "echo up; exec sleep 1000"]);
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        child
    };
    let child = watched("alone");
    let alone = world.named("alone");
    kill(child.id(), Signal::HUP);
    finish(child).exits(129);
    assert_eq!(world.info(&alone.uuid)["display"], "running");
    world.relive(&["attach", &alone.uuid, "--json"]).exits(2);

    let child = watched("told");
    kill(child.id(), Signal::TERM);
    finish(child).exits(143);
}

#[test]
fn a_reader_that_goes_away_ends_the_program_as_a_pipe_would() {
    let world = World::new();
    let mut child = world.start(&["exec", "--name", "chatty", "yes"]);
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"y\n");
    finish(child).exits(128 + 13);
    let chatty = world.named("chatty");
    assert_eq!(world.info(&chatty.uuid)["session"]["result"], json!({"signaled": 13}));
}

#[test]
fn the_environment_is_that_of_the_one_who_typed_and_what_was_added() {
    let world = World::new();
    world.relive(&["ps"]).ok();
    fs::write(world.work().join("more.env"), "# comment\nFROM_FILE=two words\nOVER=file\n").unwrap();
    let mut command = world.command(&["exec", "--env-file", "more.env", "--env", "OVER=flag", "--", "env"]);
    let output = command.env("TYPED_IN", "this shell").output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for line in ["TYPED_IN=this shell", "FROM_FILE=two words", "OVER=flag"] {
        assert!(shown.lines().any(|shown| shown == line), "no {line} in {shown}");
    }
}

#[test]
fn impossible_exec_options_are_refused_with_a_hint() {
    let world = World::new();
    world.relive(&["exec", "-t", "true"]).fails(2, &["-t needs a terminal", "hint: relive exec true\n"]);
    let error = world.relive(&["exec", "--json", "true"]).exits(2).json();
    assert_eq!(error["error"]["code"], "INVALID");
    world.relive(&["exec", "--init=false", "true"]).fails(2, &["--ns pid --init=false"]);
    world.relive(&["exec", "--memory", "64", "true"]).fails(2, &["64M"]);
    world.relive(&["exec"]).fails(2, &["COMMAND"]);
    let ended = world.exec(&[], &["true"]);
    world.ends(&ended, 0);
    world.relive(&["attach", &ended.uuid]).fails(3, &["has ended", "relive logs"]);
}

#[test]
fn a_program_shows_in_ps_without_what_only_agents_have() {
    let world = World::new();
    let sleeper = world.exec(&[], &["sleep", "1000"]);
    world.await_stage(&sleeper, "running");
    let table = world.relive(&["ps"]).ok().stdout;
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(&row[..9], &[&sleeper.pid.to_string(), "running", "-", "sleep", "1000", "exec", "-", "-", "-"]);
}

#[test]
fn a_program_is_frozen_by_pause_and_started_again_by_resume_once_it_is_dead() {
    let world = World::new();
    let counting = "echo begun >> runs; while :; do echo x >> count; sleep 0.01; done";
    let counter = world.exec(&["--name", "counter"], &["sh", "-c", counting]);
    let count = || fs::read(world.work().join("count")).unwrap_or_default().len();
    wait_for("it counts", || (count() > 0).then_some(()));
    world.relive(&["pause", "counter"]).ok();
    world.await_display("counter", "suspended");
    assert_eq!(world.info("counter")["session"]["frozen"], true);
    let before = count();
    // Two looks of another process take longer than it needs to count once more.
    world.relive(&["info", "counter"]).ok();
    world.relive(&["info", "counter"]).ok();
    assert_eq!(count(), before);
    let told = world.relive(&["resume", "counter"]).ok().stderr;
    assert!(told.ends_with("resumed\n"), "{told}");
    wait_for("it counts again", || (count() > before).then_some(()));
    world.relive(&["kill", "-s", "KILL", "counter"]).ok();
    world.ends(&counter, 137);

    let told = world.relive(&["resume", &counter.uuid]).ok().stderr;
    let first = format!("starting {} again: programs have no journal to resume from\n", short(&counter.uuid));
    assert!(told.starts_with(&first), "{told}");
    wait_for("it runs again", || {
        (fs::read_to_string(world.work().join("runs")).unwrap() == "begun\nbegun\n").then_some(())
    });
}
