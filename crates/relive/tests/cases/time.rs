//! What counts as time: of a process, of its limit, and of a silence.
//!
//! These cases are about time that passes, so here a test lets some pass. What it expects follows from what it measured,
//! and not from how fast the machine is.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::sessions_support::is_alive;
use super::world::{Begun, World, wait_until};

/// A pulse is written each second; on a busy machine one may be late.
const PULSE_MS: u64 = 2_000;

fn let_pass(time: Duration) {
    let begun = Instant::now();
    wait_until("time passes", || begun.elapsed() >= time);
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

fn elapsed(world: &World, process: &Begun) -> u64 {
    world.info(&process.uuid)["elapsed_ms"].as_u64().unwrap()
}

/// What is known of a process that runs, and when that was.
struct Known {
    elapsed: u64,
    at: Instant,
}

impl Known {
    fn now(world: &World, process: &Begun) -> Self {
        // First, so that the time since then is never too short.
        let at = Instant::now();
        Self { elapsed: elapsed(world, process), at }
    }

    /// The most it can have run by now, if it ran all the time.
    fn at_most(&self) -> u64 {
        self.elapsed + millis(self.at.elapsed()) + 1
    }
}

/// Kills the daemon, and returns the most that a process can have run by then, and the least that must be known of it.
fn kill_daemon(world: &World, known: &Known) -> (u64, u64) {
    world.kill_daemon();
    (known.at_most(), known.elapsed.saturating_sub(PULSE_MS))
}

/// Starts the next daemon, and checks that the time without one does not count.
#[track_caller]
fn check_after_restart(world: &World, process: &Begun, (most, least): (u64, u64)) {
    let begun = Instant::now();
    let now = elapsed(world, process);
    let most = most + millis(begun.elapsed()) + 1;
    assert!((least..=most).contains(&now), "{now} is not between {least} and {most}");
}

#[test]
fn case_14_elapsed_time_is_right_after_a_pause_a_resume_and_a_kill_of_the_daemon() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let running = Known::now(&world, &process);
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    let stood = elapsed(&world, &process);
    assert!(stood <= running.at_most());
    let_pass(Duration::from_secs(3));
    assert_eq!(elapsed(&world, &process), stood);
    let resumed = Instant::now();
    world.relive(&["resume", "1"]).ok();
    world.await_records(&process, "model_started", 2);
    // Longer than a pulse may be late.
    let_pass(Duration::from_millis(2 * PULSE_MS));
    let known = Known::now(&world, &process);
    assert!(known.elapsed <= stood + millis(resumed.elapsed()) + 1, "the pause does not count");

    let bounds = kill_daemon(&world, &known);
    let_pass(Duration::from_secs(3));
    check_after_restart(&world, &process, bounds);
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
    let ended = elapsed(&world, &process);
    world.await_retired(&process.uuid);
    world.kill_daemon();
    assert_eq!(elapsed(&world, &process), ended, "also on the disk");
}

#[test]
fn case_64_neither_elapsed_time_nor_a_timeout_counts_the_time_without_a_daemon() {
    let world = World::new();
    let limit = Duration::from_secs(8);
    let process = world.run_hanging(&["--timeout", "8s"]);
    let known = Known::now(&world, &process);
    let bounds = kill_daemon(&world, &known);
    let_pass(limit);
    check_after_restart(&world, &process, bounds);
    let info = world.info(&process.uuid);
    assert_eq!((&info["display"], &info["why"]), (&json!("running"), &Value::Null), "it is saved, and not killed");
    world.await_records(&process, "model_started", 2);
    let ended = world.relive(&["wait", "--json", &process.uuid]).exits(1).json();
    assert_eq!((&ended["why"], &ended["exit"]["reason"]), (&json!("timeout"), &json!("timed out")));
    assert!(elapsed(&world, &process) >= millis(limit), "it had all its time");
}

#[test]
fn case_64_a_pause_uses_up_no_timeout() {
    let world = World::new();
    let process = world.run_hanging(&["--timeout", "4s"]);
    world.relive(&["pause", "--now", "1"]).ok();
    let paused = world.await_display("1", "suspended");
    let_pass(Duration::from_secs(4));
    let resumed = Instant::now();
    world.relive(&["resume", "1"]).ok();
    let ended = world.relive(&["wait", "--json", "1"]).exits(1).json();
    assert_eq!(ended["why"], "timeout");
    let left = 4_000 - paused["elapsed_ms"].as_u64().unwrap();
    assert!(millis(resumed.elapsed()) >= left, "what was left at the pause was left at the resume");
    assert!(elapsed(&world, &process) >= 4_000);
}

#[test]
fn case_64_a_program_runs_on_without_a_daemon_and_that_counts() {
    let world = World::new();
    let forever = world.exec(&[], &["sleep", "1000"]);
    let limited = world.exec(&["--timeout", "6s"], &["sleep", "1000"]);
    let ends = world.exec(&[], &["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]);
    world.await_stage(&forever, "running");
    world.await_stage(&limited, "running");
    let pid = world.await_stage(&ends, "running")["host_pid"].as_u64().unwrap();
    let (known, of_ended) = (Known::now(&world, &forever), Known::now(&world, &ends));
    world.kill_daemon();
    fs::write(world.work().join("go"), "").unwrap();
    wait_until("it has ended", || !is_alive(pid));
    let most = of_ended.at_most();
    let_pass(Duration::from_secs(6));

    let least = known.elapsed + 6_000;
    let begun = Instant::now();
    let now = elapsed(&world, &forever);
    assert!((least..=known.at_most()).contains(&now), "{now}, and it ran for {least} at least");
    world.ends(&ends, 0);
    let (now, most) = (elapsed(&world, &ends), most + millis(begun.elapsed()));
    assert!((of_ended.elapsed..=most).contains(&now), "{now}, and it had ended at {most}");
    let ended = world.relive(&["wait", "--json", &limited.uuid]).exits(143).json();
    assert_eq!(ended["why"], "timeout", "its time was up while there was no daemon");
}

#[test]
fn case_64_the_time_of_a_frozen_program_stands_still() {
    let world = World::new();
    let process = world.exec(&["--timeout", "1h"], &["sleep", "1000"]);
    world.await_stage(&process, "running");
    world.relive(&["pause", "1"]).ok();
    world.await_display("1", "suspended");
    let stood = elapsed(&world, &process);
    let_pass(Duration::from_secs(1));
    assert_eq!(elapsed(&world, &process), stood);
    world.kill_daemon();
    let_pass(Duration::from_secs(1));
    assert_eq!(elapsed(&world, &process), stood, "frozen through a kill of the daemon");
    let resumed = Instant::now();
    world.relive(&["resume", &process.uuid]).ok();
    let_pass(Duration::from_millis(300));
    let now = elapsed(&world, &process);
    let most = stood + millis(resumed.elapsed()) + 1;
    assert!((stood + 300..=most).contains(&now), "{now}, and it stood at {stood}");
}

fn with_stall_policy(policy: &str) -> World {
    World::with_config(&format!("heartbeat: {{stalled_after_seconds: 1, policy: {policy}}}\ntools: {{shell: allow}}\n"))
}

#[test]
fn case_65_a_silent_model_is_paused_with_its_own_reason_and_its_hint_works() {
    let world = with_stall_policy("pause");
    let process = world.run_hanging(&[]);
    let info = world.await_display(&process.uuid, "suspended");
    assert_eq!((&info["suspend_reason"], &info["why"]), (&json!("stalled"), &Value::Null));
    assert_eq!(world.records(&process.uuid, "paused")[0]["reason"], "stalled");
    let shown = world.relive(&["info", "1"]).ok().stdout;
    assert!(shown.contains("stalled") && shown.contains("relive resume 1"), "{shown}");
    world.kill_daemon();
    let info = world.info(&process.uuid);
    assert_eq!((&info["display"], &info["suspend_reason"]), (&json!("suspended"), &json!("stalled")));
    let hint = info["hint"].as_str().unwrap();
    let typed: Vec<&str> = hint.split(' ').skip(1).collect();
    world.relive(&typed).ok();
    world.await_records(&process, "model_started", 2);
}

#[test]
fn case_65_a_silent_model_is_killed_with_its_own_why() {
    let world = with_stall_policy("kill");
    world.run_hanging(&[]);
    let ended = world.relive(&["wait", "--json", "1"]).exits(1).json();
    assert_eq!((&ended["why"], &ended["exit"]["reason"]), (&json!("stalled"), &json!("stalled")));
}

#[test]
fn case_65_a_model_that_streams_and_a_tool_that_runs_are_never_stalled() {
    let world = with_stall_policy("kill");
    let call =
        |name: &str, args: &str| format!("turns: [{{calls: [{{name: {name}, args: {{{args}}}}}]}}, {{text: done}}]");
    let prints = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done";
    let sleeps = world.script(&call("sleep", "duration: 3s"));
    let child = json!({"name": "spawn_agent", "args": {"intent": "x", "name": "child", "model": sleeps}});
    let wait = json!({"name": "wait_agent", "args": {"uuid": "{{child}}"}});
    let all = [
        "turns: [{text: [a, b, c, d, e, f, g, h], chunk_delay: 400ms}]".to_owned(),
        call("shell", &format!("command: '{prints}'")),
        call("shell", "command: sleep 3"),
        call("sleep", "duration: 3s"),
        json!({"turns": [{"calls": [child]}, {"calls": [wait]}, {"text": "done"}]}).to_string(),
    ];
    let processes: Vec<Begun> = all.iter().map(|script| world.run(script)).collect();
    for process in &processes {
        let ended = world.relive(&["wait", "--json", &process.uuid]).ok().json();
        assert_eq!(ended["why"], Value::Null);
        assert!(world.events(&process.uuid).iter().all(|event| event["kind"] != "stalled"));
    }
}

#[test]
fn time_at_the_gate_of_a_program_counts_neither_as_elapsed_nor_for_its_timeout() {
    let world = World::new();
    let gated = world.exec(&["--gate", "--timeout", "2s"], &["sleep", "1000"]);
    world.await_display(&gated.uuid, "ready");
    let_pass(Duration::from_secs(3));
    assert_eq!(elapsed(&world, &gated), 0);
    world.kill_daemon();
    let_pass(Duration::from_secs(1));
    assert_eq!((elapsed(&world, &gated), &world.info(&gated.uuid)["display"]), (0, &json!("ready")), "after a restart");

    let proceeded = Instant::now();
    world.relive(&["proceed", &gated.uuid]).ok();
    world.await_display(&gated.uuid, "running");
    let ran = elapsed(&world, &gated);
    let most = millis(proceeded.elapsed()) + 1;
    assert!(ran <= most, "{ran}, and it has run for {most} at most");
    let ended = world.await_field(&gated.uuid, "state", "dead");
    assert!(proceeded.elapsed() >= Duration::from_secs(2), "{:?}", proceeded.elapsed());
    assert_eq!(ended["why"], "timeout");
    let ran = ended["elapsed_ms"].as_u64().unwrap();
    assert!((2_000..=millis(proceeded.elapsed()) + 1).contains(&ran), "{ran}");
}
