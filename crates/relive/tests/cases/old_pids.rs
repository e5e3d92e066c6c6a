//! The PIDs a process had under earlier daemons stand for it, unless they have an end of their own.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{Begun, Output, World, finish, wait_until};

const ASKS: &str = "turns: [{calls: [{name: write, args: {path: file, content: x}}]}, {hang: true}]";
const PRINTS: &str = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over";

/// A process, and the PID it has now.
struct Continued {
    process: Begun,
    pid: u64,
}

impl Continued {
    fn old(&self) -> String {
        self.process.pid.to_string()
    }

    fn note(&self) -> String {
        format!("PID {} continues as {}", self.process.pid, self.pid)
    }
}

/// Kills the daemon with -9, starts the next one, and finds the processes again.
#[track_caller]
fn restart(world: &World, processes: Vec<Begun>) -> Vec<Continued> {
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    let again = |process: Begun| {
        let pid = world.info(&process.uuid)["pid"].as_u64().unwrap();
        assert_ne!(pid, process.pid);
        Continued { process, pid }
    };
    processes.into_iter().map(again).collect()
}

/// That the command told under which PID the process continues.
#[track_caller]
fn assert_told(output: &Output, of: &Continued) {
    assert!(output.stderr.contains(&of.note()), "no `{}` in {output:?}", of.note());
}

#[track_caller]
fn assert_noted(answer: &Value, of: &Continued) {
    assert_eq!(answer["note"], of.note(), "{answer}");
}

#[test]
fn case_63_an_old_pid_stands_for_its_process_and_the_command_says_so() {
    let world = World::new();
    let mut processes: Vec<Begun> = (0..3).map(|_| world.run_hanging(&[])).collect();
    let asking = world.run_with(ASKS, &["--ask", "write"]);
    world.await_display(&asking.uuid, "approval");
    processes.push(asking);
    let continued = restart(&world, processes);
    let [killed, paused, told, asking] = &continued[..] else { panic!("four processes") };
    let relive = |of: &Continued, args: &[&str]| {
        let output = world.relive(args);
        assert_told(&output, of);
        output
    };
    relive(killed, &["kill", &killed.old()]).ok();
    world.await_display(&killed.process.uuid, "dead");
    relive(paused, &["pause", "--now", &paused.old()]).ok();
    world.await_display(&paused.process.uuid, "suspended");
    relive(paused, &["resume", &paused.old()]).ok();
    world.await_display(&paused.process.uuid, "running");
    relive(told, &["send", &told.old(), "listen"]).ok();
    assert_eq!(world.records(&told.process.uuid, "input").last().unwrap()["text"], "listen");
    relive(asking, &["resolve", &asking.old(), "--deny"]).ok();
    assert_eq!(world.records(&asking.process.uuid, "approval").last().unwrap()["decision"], "denied");

    relive(told, &["wait", "--timeout", "50ms", &told.old()]).exits(124);
    let shown = relive(told, &["info", &told.old()]).ok().stdout;
    assert!(shown.contains("running"), "{shown}");
    for command in ["logs", "steps", "strace", "lineage"] {
        relive(told, &[command, &told.old()]).ok();
    }
}

#[test]
fn case_63_an_old_pid_of_a_program_can_be_attached_to_and_waited_for() {
    let world = World::new();
    let program = world.exec(&[], &["sh", "-c", PRINTS]);
    world.await_output(&program, "begun");
    let program = restart(&world, vec![program]).remove(0);
    let mut attached = world.command(&["attach", &program.old()]);
    // An input that stays open.
    attached.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut attached = attached.spawn().unwrap();
    let mut shown = [0; 5];
    attached.stdout.as_mut().unwrap().read_exact(&mut shown).unwrap();
    assert_eq!(&shown, b"begun");
    let waiting = world.start(&["wait", &program.old()]);
    fs::write(world.work().join("go"), "").unwrap();
    let attached = finish(attached).ok();
    assert_told(&attached, &program);
    assert!(attached.stdout.contains("over"), "{attached:?}");
    let waited = finish(waiting).ok();
    assert_told(&waited, &program);
    let ended = world.relive(&["wait", "--json", &program.old()]).ok().json();
    assert_eq!((&ended["pid"], &ended["status"]["kind"]), (&json!(program.pid), &json!("exited")));
}

#[test]
fn case_63_in_json_the_note_says_so() {
    let world = World::new();
    let mut processes = vec![world.run_hanging(&[])];
    let asking = world.run_with(ASKS, &["--ask", "write"]);
    world.await_display(&asking.uuid, "approval");
    processes.push(asking);
    let continued = restart(&world, processes);
    let [hanging, asking] = &continued[..] else { panic!("two processes") };
    let relive = |of: &Continued, args: &[&str]| {
        let mut args = args.to_vec();
        let old = of.old();
        args.extend(["--json", &old]);
        let answer = world.relive(&args).ok().json();
        assert_noted(&answer, of);
        answer
    };
    let info = relive(hanging, &["info"]);
    assert_eq!((&info["pid"], &info["display"]), (&json!(hanging.pid), &json!("running")));
    assert_eq!((&info["why"], &info["status"]), (&Value::Null, &Value::Null));
    let paused = relive(hanging, &["pause", "--now"]);
    assert_eq!((&paused["affected"], &paused["pids"]), (&json!(1), &json!([hanging.pid])));
    world.await_display(&hanging.process.uuid, "suspended");
    assert_eq!(relive(hanging, &["resume"])["pid"], hanging.pid);
    assert_eq!(relive(asking, &["resolve", "--deny"])["pids"], json!([asking.pid]));
    let (status, answer) = world.http(
        "POST",
        &format!("/v1/processes/{}/input", hanging.process.pid),
        "",
        &json!({"id": "one", "text": "listen"}).to_string(),
    );
    assert_eq!(status, 200, "{answer}");
    assert_noted(&serde_json::from_str(&answer).unwrap(), hanging);
    let killed = relive(hanging, &["kill"]);
    assert_eq!((&killed["affected"], &killed["pids"]), (&json!(1), &json!([hanging.pid])));
    let waited = world.relive(&["wait", "--json", &hanging.old()]).exits(1).json();
    assert_noted(&waited, hanging);
    assert_eq!((&waited["pid"], &waited["why"]), (&json!(hanging.pid), &json!("user")));
}

#[test]
fn case_63_a_suspended_process_is_not_killed_by_a_stop() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    let mut pids = vec![process.pid];
    // The second time the old PID is one that no journal has.
    for _ in 0..2 {
        world.relive(&["daemon", "stop"]).ok();
        let now = world.info(&process.uuid)["pid"].as_u64().unwrap();
        for pid in &pids {
            let info = world.info(pid);
            assert_eq!((&info["display"], &info["suspend_reason"]), (&json!("suspended"), &json!("user")), "PID {pid}");
            assert_eq!((&info["status"], &info["why"]), (&Value::Null, &Value::Null), "PID {pid}");
            assert_eq!(info["note"], format!("PID {pid} continues as {now}"));
        }
        pids.push(now);
    }
    let listed = world.relive(&["ps", "-a", "--json"]).ok().json();
    let lost = listed["processes"].as_array().unwrap().iter().filter(|process| process["why"] == "host_lost").count();
    assert_eq!(lost, 0, "{listed}");
    world.relive(&["resume", &process.uuid]).ok();
    let now = world.await_display(&process.uuid, "running")["pid"].as_u64().unwrap();
    for pid in pids.iter().filter(|pid| **pid != now) {
        assert_eq!(world.info(pid)["note"], format!("PID {pid} continues as {now}"));
    }
}

#[test]
fn case_63_a_pid_that_ended_answers_for_its_own_end() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.end(&process);
    let second = world.relive(&["resume", "--json", &process.uuid]).ok().json()["pid"].as_u64().unwrap();
    world.await_records(&process, "model_started", 2);
    for restarted in [false, true] {
        let info = world.info(process.pid);
        assert_eq!((&info["pid"], &info["state"]), (&json!(process.pid), &json!("dead")), "{restarted}");
        assert_eq!(info["status"], json!({"kind": "killed", "signal": "SIGTERM"}));
        assert!(info["why"] == "user" && info["successor_pid"].is_u64(), "{info}");
        assert_eq!(info.get("note"), None);
        let waited = world.relive(&["wait", "--json", "1"]).exits(1).json();
        assert_eq!((&waited["pid"], &waited["why"]), (&json!(1), &json!("user")));
        world.relive(&["kill", "1"]).fails(3, &["PID 1 has ended and was resumed as PID", "hint: relive kill "]);
        assert_eq!(world.relive(&["pause", "--json", "1"]).exits(3).json()["error"]["code"], "CONFLICT");
        world.relive(&["send", "1", "listen"]).fails(3, &["has ended"]);
        assert_eq!(world.info(&process.uuid)["display"], "running");
        if !restarted {
            world.kill_daemon();
            world.relive(&["ps"]).ok();
            wait_until("it continues", || world.records(&process.uuid, "opened").len() == 3);
        }
    }
    let continued = world.info(&process.uuid)["pid"].as_u64().unwrap();
    assert_eq!(world.info(second)["note"], format!("PID {second} continues as {continued}"));
}

#[test]
fn a_name_that_a_resumed_process_has_no_more_names_nothing() {
    let world = World::new();
    let process = world.run_hanging(&["--name", "before"]);
    world.end(&process);
    world.relive(&["resume", "before"]).ok();
    let now = world.await_display("before", "running")["pid"].as_u64().unwrap();
    world.relive(&["rename", "before", "after"]).ok();
    let told = format!("no process has the name `before` any more: PID {now} had it");
    world.relive(&["kill", "before"]).fails(4, &[&told, &format!("hint: relive info {now}")]);
    assert_eq!(world.info("after")["display"], "running");
    let limits = ["resume", &process.pid.to_string(), "--max-steps", "50"];
    let told = world.relive(&limits).ok().stderr;
    assert!(told.contains(&format!("PID {now} is already running: it has new limits (max steps 50)")), "{told}");
}
