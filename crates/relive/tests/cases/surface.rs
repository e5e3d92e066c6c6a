//! The same fact in the same words, whichever command tells it.

use relive_fake_model::{Failure, FakeModel, Turn};
use rustix::process::Signal;
use serde_json::json;

use super::world::{World, begun, finish, kill, wait_for, wait_until};

#[test]
fn case_07_the_exit_code_of_a_program_ended_by_a_signal_is_the_same_everywhere() {
    let world = World::new();
    let killed = world.exec(&["--name", "killed"], &["sleep", "1000"]);
    world.await_stage(&killed, "running");
    world.relive(&["kill", "-9", "killed"]).ok();
    let end = world.ends(&killed, 137);
    assert_eq!(end["exit_code"], 137);
    let crashed = world.exec(&["--name", "crashed"], &["sh", "-c", "kill -SEGV $$"]);
    world.ends(&crashed, 139);
    let absent = world.relive(&["exec", "-d", "--json", "--name", "absent", "--", "/nowhere/at/all"]);
    let absent = begun(&absent.exits(127).json());
    world.ends(&absent, 127);

    for (process, code, words) in [
        (&killed, 137, "ended by SIGKILL"),
        (&crashed, 139, "ended by SIGSEGV"),
        (&absent, 127, "program not found: /nowhere/at/all"),
    ] {
        let info = world.info(&process.uuid);
        assert_eq!(info["exit_code"], code, "{info}");
        assert_eq!(info["exit"]["code"], 1, "what was there before means the same as before");
        let text = world.relive(&["info", &process.uuid]).ok().stdout;
        assert!(text.contains(&format!("\nEXIT       {code} ({words})\n")), "{text}");
        let logs = world.relive(&["logs", "-t", &process.uuid]).ok();
        assert!(!logs.stdout.contains("interrupted"), "{logs:?}");
    }
    let table = world.relive(&["ps", "-a"]).ok().stdout;
    for detail in ["exit 137, SIGKILL\n", "exit 139, SIGSEGV\n", "exit 127, program not found: /nowhere/at/all\n"] {
        assert!(table.contains(detail), "{detail}: {table}");
    }
    let list = world.relive(&["ps", "-a", "--json"]).ok().json();
    let codes: Vec<_> = list["processes"].as_array().unwrap().iter().map(|process| &process["exit_code"]).collect();
    assert_eq!(codes, [&json!(137), &json!(139), &json!(127)]);
    let told = world.relive(&["wait", "killed", "crashed"]).stdout;
    assert_eq!(told, "PID 1: ended by SIGKILL (137)\nPID 2: ended by SIGSEGV (139)\n");
    assert!(world.relive(&["list-resumable"]).ok().stdout.contains("  exit 137, SIGKILL\n"));
}

#[test]
fn case_07_info_names_the_signal_that_a_user_ended_a_program_with() {
    let world = World::new();
    let program = world.exec(&[], &["sleep", "1000"]);
    world.await_stage(&program, "running");
    world.relive(&["kill", &program.uuid]).ok();
    world.ends(&program, 143);
    let text = world.relive(&["info", &program.uuid]).ok().stdout;
    assert!(text.contains("\nWHY        you (SIGTERM)\n"), "{text}");
    // The journal remembers it.
    world.await_retired(&program.uuid);
    world.kill_daemon();
    assert_eq!(world.info(&program.uuid)["ended_by"], "you (SIGTERM)");
    assert_eq!(world.info(&program.uuid)["exit_code"], 143);
}

#[test]
fn case_08_a_program_with_a_gate_is_never_shown_as_running_before_it_is_opened() {
    let world = World::new();
    let display = |id: &str| {
        let list = world.relive(&["ps", "-a", "--json"]).ok().json();
        let all = list["processes"].as_array().unwrap().clone();
        let of = all.into_iter().rfind(|process| process["name"] == id);
        of.map(|process| process["display"].as_str().unwrap().to_owned()).unwrap()
    };
    let gated = world.exec(&["--gate", "--name", "gated"], &["sleep", "1000"]);
    let mut seen = Vec::new();
    wait_until("it is ready", || {
        seen.push(display("gated"));
        seen.last().is_some_and(|word| word == "ready")
    });
    assert!(seen.iter().all(|word| word == "loading" || word == "ready"), "{seen:?}");

    world.relive(&["abort", "gated"]).ok();
    world.ends(&gated, 125);
    let told = world.relive(&["resume", "gated"]).ok().stderr;
    assert!(!told.contains("running"), "{told}");
    let pid = world.info(&gated.uuid)["pid"].clone();
    assert!(told.ends_with(&format!("PID {pid} started; it waits at its gate; to let it run: relive proceed {pid}\n")));
    world.await_display(&gated.uuid, "ready");
    world.relive(&["proceed", "gated"]).ok();
    world.await_display(&gated.uuid, "running");
}

#[test]
fn case_08_a_program_without_a_gate_is_never_shown_as_ready() {
    let world = World::new();
    for _ in 0..10 {
        let program = world.exec(&[], &["sleep", "1000"]);
        wait_until("it runs", || {
            let info = world.relive(&["info", "--json", &program.uuid]).ok().json();
            assert_ne!(info["display"], "ready");
            info["session"]["stage"] == "running"
        });
    }
}

#[test]
fn case_11_a_blocked_signal_is_said_to_be_pending() {
    let world = World::new();
    let agent = world.run_hanging(&[]);
    world.relive(&["signals", "1", "--block", "TERM,PAUSE"]).ok();
    let pending = "PID 1 blocks the signal: it is pending until it is unblocked (relive signals 1)\n";
    for _ in 0..2 {
        assert_eq!(world.relive(&["kill", "1"]).ok().stderr, pending, "also if it was pending before");
    }
    assert_eq!(world.relive(&["pause", "1"]).ok().stderr, pending);
    let answer = world.relive(&["kill", "--json", "1"]).ok().json();
    assert_eq!(answer["pending"], json!([1]));
    assert_eq!(world.info(&agent.uuid)["display"], "running");
    let got = world.relive(&["kill", "-9", "1"]).ok().stderr;
    assert_eq!(got, "PID 1 got SIGKILL (undo: relive wait 1; relive resume 1)\n");
    world.relive(&["wait", "1"]).exits(1);
    world.relive(&["resume", "1"]).ok();
}

#[test]
fn a_corrected_configuration_clears_its_warning() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    let warnings = || world.relive(&["daemon", "status", "--json"]).ok().json()["daemon"]["warnings"].clone();
    world.configure("gc: {retention_days: soon}\n");
    assert!(warnings().to_string().contains("retention_days"));
    world.configure("gc: {retention_days: 3}\n# right\n");
    assert_eq!(warnings(), json!([]));
    world.configure("gc: {retention_days: 3}\ncheckpoint: {every_steps: 9}\n");
    assert_eq!(warnings().as_array().unwrap().len(), 1);
    // It still differs from what the daemon was started with.
    world.configure("gc: {retention_days: 4}\ncheckpoint: {every_steps: 9}\n");
    assert!(warnings()[0].as_str().unwrap().contains("`checkpoint` has changed; it takes effect after"));
    world.configure("gc: {retention_days: 4}\n# as at the start\n");
    assert_eq!(warnings(), json!([]));
}

#[test]
fn the_model_of_a_running_process_cannot_be_changed_whatever_the_model_is() {
    let world = World::new();
    let agent = world.run_hanging(&[]);
    for model in ["nobody/nothing", "anthropic/claude-sonnet-4-5"] {
        let refused = world.relive(&["resume", "1", "--model", model]);
        refused.fails(3, &["PID 1 is running: pause it before you resume it with", "hint: relive pause 1\n"]);
    }
    world.relive(&["pause", "1", "--now"]).ok();
    world.await_display(&agent.uuid, "suspended");
    world.relive(&["resume", "1", "--model", "nobody/nothing"]).fails(2, &["nobody"]);
}

#[test]
fn run_without_a_terminal_does_not_wait_for_a_person_that_nobody_asks() {
    let world = World::new();
    let model = world.script("turns: [{calls: [{name: list, args: {path: .}}], repeat: 3}, {text: done}]");
    let run = ["run", "-n", "--model", &model, "--max-steps", "2", "--on-budget", "suspend", "do it"];
    let refused = world.relive(&run);
    refused.fails(
        2,
        &["PID 1 is suspended (reached --max-steps 2), and keeps waiting", "hint: relive resume 1 --max-steps 4"],
    );
    assert_eq!(world.info(1)["display"], "suspended");
    // Or it waits for the person.
    let mut waiting = vec!["run", "--wait-approval"];
    waiting.extend(&run[1..]);
    let child = world.start(&waiting);
    let second =
        wait_for("the second", || world.relive(&["info", "--json", "2"]).json()["uuid"].as_str().map(str::to_owned));
    world.await_display(&second, "suspended");
    world.relive(&["resume", "2", "--max-steps", "9"]).ok();
    let done = finish(child).exits(0);
    assert_eq!(done.stdout, "done\n");
}

#[test]
fn run_without_a_terminal_says_that_a_key_was_refused() {
    let server = FakeModel::start([Turn::text("never").after(Failure::Status(401, None))]);
    let world = World::new().with_env("ANTHROPIC_API_KEY", "key-old").with_env("ANTHROPIC_BASE_URL", server.base_url());
    let refused = world.relive(&["run", "-n", "--model", "anthropic/claude-sonnet-4-5", "do it"]);
    let refused = refused.fails(2, &["PID 1 is suspended (needs a key), and keeps waiting", "relive resume 1"]);
    assert!(!refused.stderr.contains("restart the daemon"), "{refused:?}");
}

#[test]
fn ctrl_c_ends_an_agent_whose_daemon_was_stopped() {
    let world = World::new();
    let run = world.start(&["run", "-n", "--name", "left", "--model", &world.hanging(), "do it"]);
    let process = world.named("left");
    world.await_records(&process, "model_started", 1);
    world.relive(&["daemon", "stop"]).ok();
    kill(run.id(), Signal::INT);
    finish(run).fails(130, &["no daemon is running: starting one to send SIGINT to PID 1\n"]);
    assert_eq!(world.info(&process.uuid)["status"], json!({"kind": "killed", "signal": "SIGINT"}));
}

#[test]
fn ctrl_c_leaves_no_child_behind_that_waits_for_an_approval() {
    let world = World::new();
    let write = json!({"name": "write", "args": {"path": "file-1", "content": "x"}});
    let child = world.script(&json!({"turns": [{"calls": [write]}]}).to_string());
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": child}});
    let wait = json!({"name": "wait_agent", "args": {"uuid": "{{child}}"}});
    let parent = world.script(&json!({"turns": [{"calls": [spawn]}, {"calls": [wait]}, {"text": "done"}]}).to_string());
    let run = world.start(&["run", "--wait-approval", "--ask", "write", "--model", &parent, "do it"]);
    let child = world.named("child");
    world.await_display(&child.uuid, "approval");
    kill(run.id(), Signal::INT);
    finish(run).fails(130, &["asking PID 1 to stop (SIGINT)", "also sent to PID 2 below it\n"]);
    world.relive(&["wait", &child.uuid]).exits(1);
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
}

#[test]
fn the_words_of_a_child_come_before_its_question() {
    let world = World::new();
    let write = json!({"name": "write", "args": {"path": "file-1", "content": "x"}});
    let child = world.script(&json!({"turns": [{"text": "I will write it", "calls": [write]}]}).to_string());
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": child}});
    let wait = json!({"name": "wait_agent", "args": {"uuid": "{{child}}"}});
    let parent = world.script(&json!({"turns": [{"calls": [spawn]}, {"calls": [wait]}, {"text": "done"}]}).to_string());
    let run = world.start(&["run", "--wait-approval", "--ask", "write", "--model", &parent, "do it"]);
    let child = world.named("child");
    world.await_display(&child.uuid, "approval");
    world.relive(&["resolve", "child", "--allow"]).ok();
    let shown = finish(run).ok().stderr;
    let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no `{text}` in {shown}"));
    assert!(at("[child] I will write it\n") < at("(child) asks to write file-1:"), "{shown}");
}

#[test]
fn commands_about_a_program_say_what_it_does_not_have() {
    let world = World::new();
    let gated = world.exec(&["--gate", "--name", "gated"], &["sleep", "1000"]);
    world.await_display(&gated.uuid, "ready");
    let told = world.relive(&["kill", "-HUP", "gated"]).ok().stderr;
    assert_eq!(told, "PID 1 does not run yet: SIGHUP waits until it does\n");
    world.relive(&["proceed", "gated"]).ok();
    world.ends(&gated, 129);
    let steps = world.relive(&["steps", "gated"]).ok();
    assert_eq!(steps.stderr, "PID 1 is a program and has no steps: relive logs 1\n");
    let diff = world.relive(&["diff", "gated"]).ok();
    assert_eq!((diff.stdout.as_str(), diff.stderr.contains("its changes are not known")), ("", true), "{diff:?}");
    world
        .relive(&["send", "gated", "hello"])
        .fails(3, &["has ended and receives no messages", "hint: relive resume gated\n"]);
    let absent = world.relive(&["exec", "--", "/nowhere/at/all"]);
    absent.fails(127, &["/nowhere/at/all: no such file, or its interpreter does not exist"]);
}

/// An agent that works in small steps of 10 tokens and half a dollar, and never ends by itself.
const WORKS: &str =
    "turns: [{usage: {input: 5, output: 5, cost_usd: 0.5}, calls: [{name: list, args: {path: .}}], repeat: 90}]";

/// The command of a hint, as it would be typed.
fn hinted(said: &str) -> Vec<String> {
    let hint = said.lines().find_map(|line| line.strip_prefix("hint: relive ")).unwrap();
    hint.split(' ').map(str::to_owned).collect()
}

#[test]
fn the_hint_of_a_run_that_a_limit_ended_resumes_it() {
    let world = World::new();
    let model = world.script(WORKS);
    for limit in [["--max-cost", "3"], ["--max-tokens", "25"], ["--max-steps", "2"]] {
        let run = [&["run", "-n", "--name", limit[0].trim_matches('-'), "--model", &model], &limit[..], &["do it"]];
        let ended = world.relive(&run.concat());
        assert_ne!(ended.code, 0, "{ended:?}");
        let (id, typed) = (run[0][3], hinted(&ended.stderr));
        let steps = world.info(id)["step"].as_u64().unwrap();
        world.relive(&typed.iter().map(String::as_str).collect::<Vec<_>>()).ok();
        world.relive(&["wait", id]);
        assert!(world.info(id)["step"].as_u64().unwrap() > steps, "{typed:?}");
    }
}

#[test]
fn a_resume_that_would_end_at_once_is_refused_with_the_number_that_works() {
    let world = World::new();
    let ended = world.run_with(WORKS, &["--max-steps", "2", "--name", "ended"]);
    world.relive(&["wait", "ended"]).exits(1);
    let says =
        ["PID 1 has used 2 steps, so --max-steps 2 would end it at once", "hint: relive resume ended --max-steps 4"];
    world.relive(&["resume", "ended", "--max-steps", "2"]).fails(3, &says);
    world.relive(&["resume", "ended"]).fails(3, &["PID 1 has reached --max-steps", "--max-steps 4\n"]);
    assert_eq!(world.info(&ended.uuid)["step"], 2);

    let suspended = world.run_with(WORKS, &["--max-steps", "2", "--on-budget", "suspend", "--name", "bs"]);
    world.await_display(&suspended.uuid, "suspended");
    let hint = "hint: relive resume bs --max-steps 4\n";
    world.relive(&["resume", "bs"]).fails(3, &["so it would be suspended again at once", hint]);
    world.relive(&["resume", "bs", "--max-steps", "2"]).fails(3, &["so --max-steps 2 would suspend it", hint]);
    world.relive(&["resume", "--all"]).fails(3, &["so it would be suspended again at once", "--max-steps 4\n"]);
    assert_eq!(world.info(&suspended.uuid)["display"], "suspended");
    let killed = world.relive(&["kill", "bs"]).ok().stderr;
    assert_eq!(killed, "PID 2 got SIGTERM (undo: relive wait bs; relive resume bs --max-steps 4)\n");
    world.relive(&["wait", "bs"]).exits(1);
    world.relive(&["resume", "bs", "--max-steps", "4"]).ok();
    world.await_step(&suspended, 4);
}

#[test]
fn a_pattern_and_all_are_asked_about_also_if_they_reach_one_process() {
    let world = World::new();
    world.run_hanging(&["--name", "only"]);
    world.relive(&["kill", "--all"]).fails(2, &["SIGTERM to 1 process\n", "hint: relive kill -y --all\n"]);
    world.relive(&["kill", "on*"]).fails(2, &["SIGTERM to 1 process\n", "hint: relive kill -y 'on*'\n"]);
    assert_eq!(world.info("only")["display"], "running");
    world.relive(&["kill", "-y", "on*"]).ok();
    world.relive(&["wait", "only"]).exits(1);
}

#[test]
fn a_refused_pause_names_the_reason() {
    let world = World::new();
    world.run_with("turns: [{text: done}]", &["--name", "asks"]);
    world.relive(&["wait", "asks"]).ok();
    world.relive(&["pause", "asks"]).fails(3, &["PID 1 has ended, so it cannot be paused"]);
}

#[test]
fn a_resume_with_an_empty_message_is_refused() {
    let world = World::new();
    world.run("turns: [{text: done}]");
    world.relive(&["wait", "1"]).ok();
    for input in ["", " \n"] {
        world.relive(&["resume", "1", "--input", input]).fails(2, &["the message to `1` is empty"]);
    }
}

#[test]
fn a_data_directory_in_use_is_refused_with_the_socket_of_its_daemon() {
    let world = World::new();
    world.exec(&[], &["true"]);
    world.relive(&["wait", "1"]).ok();
    let elsewhere = world.root().join("elsewhere").display().to_string();
    let at_other_socket = |args: &[&str]| {
        let mut command = world.command(args);
        super::world::output(command.env("RELIVE_SOCKET", &elsewhere).output().unwrap())
    };
    let socket = world.socket().display().to_string();
    let says =
        [format!("is running, but its socket {socket} is not "), format!("hint: export RELIVE_SOCKET={socket}\n")];
    at_other_socket(&["ps", "-a"]).fails(6, &[&says[0], &says[1]]);
    // A socket that a dead program has left there promises no daemon.
    drop(std::os::unix::net::UnixListener::bind(&elsewhere).unwrap());
    let begun = std::time::Instant::now();
    at_other_socket(&["ps", "-a"]).fails(6, &[&says[0], &says[1]]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
    at_other_socket(&["daemon", "serve"]).fails(3, &[&format!("and its socket is {socket}")]);
}

#[test]
fn a_program_at_its_gate_ends_at_once_when_it_is_told_to() {
    let world = World::new();
    let gated = world.exec(&["--gate"], &["touch", "it-ran"]);
    world.await_display(&gated.uuid, "ready");
    let begun = std::time::Instant::now();
    world.relive(&["kill", &gated.uuid]).ok();
    world.ends(&gated, 143);
    // It would be killed after 10 s, as one that does not react.
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(world.info(&gated.uuid)["ended_by"], "you (SIGTERM)");
    assert!(!world.work().join("it-ran").exists());
}

#[test]
fn a_request_over_http_is_refused_as_a_command_is() {
    let world = World::new();
    let ended = world.run_with(WORKS, &["--max-steps", "2"]);
    world.relive(&["wait", "1"]).exits(1);
    let post = |path: &str, body: &str| {
        let path = format!("/v1/processes/{}/{path}", ended.uuid);
        world.http("POST", &path, "content-type: application/json\r\n", body)
    };
    let (status, body) = post("resume", "{}");
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("has reached --max-steps, so it would end at once"), "{body}");
    assert!(body.contains(&format!("relive resume {} --max-steps 4", ended.uuid)), "{body}");
    let (status, body) = post("resume", r#"{"input":" ","limits":{"max_steps":4}}"#);
    assert_eq!(status, 400, "{body}");
    assert_eq!(world.info(&ended.uuid)["step"], 2);
    let (status, body) = post("resume", r#"{"limits":{"max_steps":4}}"#);
    assert_eq!(status, 200, "{body}");
    world.await_step(&ended, 4);
}

#[test]
fn a_message_of_spaces_is_refused_by_an_agent_and_read_by_a_program() {
    let world = World::new();
    let agent = world.run_hanging(&[]);
    for text in ["", "  ", "\n"] {
        world.relive(&["send", &agent.uuid, text]).fails(2, &[" is empty"]);
    }
    let program = world.exec(&["-i"], &["head", "-c", "3"]);
    world.relive(&["send", &program.uuid, "  "]).ok();
    world.ends(&program, 0);
    assert_eq!(world.relive(&["logs", &program.uuid]).ok().stdout, "  \n");
}

#[test]
fn an_end_by_a_limit_has_the_same_words_and_code_everywhere_and_names_the_limit() {
    let world = World::new();
    let model = world.script(WORKS);
    let slow = world.script("turns: [{text: slow, hang: true}]");
    for (name, model, limit, words, code) in [
        ("steps", &model, ["--max-steps", "2"], "max steps exceeded", 1),
        ("tokens", &model, ["--max-tokens", "25"], "budget exceeded", 2),
        ("cost", &model, ["--max-cost", "1"], "budget exceeded", 2),
        ("time", &slow, ["--timeout", "100ms"], "timed out", 1),
    ] {
        let run = [&["run", "-n", "--name", name, "--model", model], &limit[..], &["do it"]].concat();
        let ended = world.relive(&run).exits(code);
        let pid = world.info(name)["pid"].clone();
        assert!(ended.stderr.contains(&format!("PID {pid} ended: {words} (")), "{ended:?}");
        let told = |args: &[&str]| world.relive(args).stdout;
        // Which limit it was, and how to raise it.
        let info = told(&["info", name]);
        assert!(info.contains(&format!("EXIT       {code} ({words}: {}", limit[0])), "{info}");
        assert!(info.contains(&format!("HINT       relive resume {pid} {} ", limit[0])), "{info}");
        let listed = told(&["ps", "-a", "--name", name, "--columns", "detail"]);
        assert!(listed.starts_with(&format!("DETAIL\nexit {code}, {words}: {}", limit[0])), "{listed}");
        let detail = listed.lines().nth(1).unwrap().to_owned();
        let resumable = told(&["list-resumable"]);
        let row = resumable.lines().find(|row| row.contains(name)).unwrap();
        assert!(row.ends_with(&detail), "the same words: {row}");
        assert_eq!(told(&["wait", name, "steps"]).lines().next().unwrap(), format!("PID {pid}: {words} ({code})"));
        assert_eq!(world.relive(&["wait", name]).code, code);
    }
}

#[test]
fn limits_that_do_nothing_are_refused() {
    let world = World::new();
    let job = world.exec(&["--name", "job"], &["sleep", "1000"]);
    world.await_stage(&job, "running");
    let refused = world.relive(&["resume", "job", "--max-steps", "3", "--max-cost", "1", "--timeout", "1h"]);
    let said = "PID 1 is a program: --max-steps and --max-cost limit only agents";
    refused.fails(2, &[said, "hint: relive resume job --timeout 3600s\n"]);
    world.relive(&["resume", "--fork", "job", "--max-tokens", "9"]).fails(2, &["hint: relive resume --fork job\n"]);
    let free = world.script("turns: [{calls: [{name: list, args: {path: .}}], repeat: 90}]");
    let run = world.relive(&["run", "-n", "--model", &free, "--max-cost", "1", "do it"]);
    run.fails(2, &["has a `cost_usd`, so a limit in dollars cannot be enforced", "hint: use --max-tokens"]);
    world.run_hanging(&["--name", "agent"]);
    world.relive(&["resume", "agent", "--max-cost", "1"]).fails(2, &["so a limit in dollars cannot be enforced"]);
}

#[test]
fn new_limits_for_a_running_process_are_not_reported_as_a_resume() {
    let world = World::new();
    let agent = world
        .run_with("turns: [{delay: 50ms, calls: [{name: list, args: {path: .}}], repeat: 5000}]", &["--name", "agent"]);
    world.await_step(&agent, 2);
    let told = world.relive(&["resume", "agent", "--max-steps", "3"]).ok().stderr;
    assert_eq!(told, "PID 1 is already running: it has new limits (max steps 3)\n");
    world.relive(&["wait", "agent"]).exits(1);
    assert_eq!(world.info("agent")["exit"]["reason"], "max steps exceeded");
}

#[test]
fn pausing_twice_and_forking_a_program_report_what_happened() {
    let world = World::new();
    let agent = world.run_hanging(&[]);
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display(&agent.uuid, "suspended");
    assert_eq!(world.relive(&["pause", "1"]).ok().stderr, "PID 1 is already paused: nothing changed\n");
    let job = world.exec(&["--name", "job"], &["sleep", "1000"]);
    let told = world.relive(&["resume", "--fork", "job"]).ok().stderr;
    let copy = super::world::short(world.info("3")["uuid"].as_str().unwrap());
    let origin = super::world::short(&job.uuid);
    let said = format!(
        "starting the program of {origin} again, as {copy}: programs have no steps to fork from\nPID 3 started\n"
    );
    assert_eq!(told, said);
}
