//! The pool of CLI agents: places, the queue, and programs that crash.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use relive_fake_model::Turn;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli_agents::{Agents, bash};
use crate::world::{Begun, World, begun, kill, wait_for, wait_until};

/// An agent that speaks the language of claude. It notes its launches and what it hears, and a message says what it does.
const PROGRAM: &str = r#"echo "$1 $2" >> launches
session=$2
begin() {
  printf '{"type":"system","subtype":"init","session_id":"%s","model":"m","tools":[],"uuid":"u"}\n' "$session"
}
say() {
  printf '{"type":"assistant","message":{"id":"1","role":"assistant","content":[{"type":"text","text":"%s"}]},"session_id":"%s","uuid":"u"}\n' "$1" "$session"
}
[ ! -e greets ] || { begin; while [ ! -e greeted ]; do sleep 0.02; done; }
while read -r line; do
  echo "$2 $line" >> heard
  case "$line" in *leave*) exit 0 ;; esac
  [ -e greets ] || begin
  case "$line" in
    *"wait for go"*) while [ ! -e go ]; do sleep 0.02; done ;;
    *"crash early"*) [ -e crashed ] || { : > crashed; kill -9 $$; } ;;
    *"crash once"*) [ -e crashed ] || { : > crashed; say begun; kill -9 $$; } ;;
    *"crash always"*|*Continue.*) [ ! -e crashes ] || kill -9 $$ ;;
  esac
  say done
  printf '{"type":"result","subtype":"success","is_error":false,"session_id":"%s","usage":{"input_tokens":3,"output_tokens":1}}\n' "$2"
done
"#;

fn scripted(yaml: &str) -> World {
    let world = World::with_config(yaml);
    let agents = world.root().join("config/relive/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(world.root().join("program"), PROGRAM).unwrap();
    let file = format!(
        "command: [sh, {}]\ndialect: claude\nstart: [begin, '{{session}}']\nresume: [again, '{{session}}']\n\
         fork: [fork, '{{session}}']\n",
        world.root().join("program").display()
    );
    fs::write(agents.join("mine.yaml"), file).unwrap();
    world
}

#[track_caller]
fn run(world: &World, task: &str) -> Begun {
    begun(&world.relive(&["run", "-d", "--json", "--agent", "mine", task]).ok().json())
}

fn lines(world: &World, file: &str, process: &Begun) -> usize {
    let text = fs::read_to_string(world.work().join(file)).unwrap_or_default();
    text.lines().filter(|line| line.contains(&process.uuid)).count()
}

/// What the agent said, in order.
fn said(world: &World, process: &Begun) -> Vec<String> {
    let ended = world.records(&process.uuid, "model_ended");
    ended.iter().filter_map(|record| record["text"].as_str().map(str::to_owned)).collect()
}

#[track_caller]
fn await_lifecycle(world: &World, process: &Begun, lifecycle: &str) -> Value {
    wait_for(&format!("{} is {lifecycle}", process.uuid), || {
        Some(world.info(&process.uuid)).filter(|info| info["agent"]["lifecycle"] == lifecycle)
    })
}

#[track_caller]
fn await_queued(world: &World, process: &Begun, place: usize) {
    wait_until(&format!("{} has place {place}", process.uuid), || {
        let info = world.info(&process.uuid);
        info["agent"]["queued"]["place"] == json!(place) && info["display"] == "loading"
    });
}

#[test]
fn case_45_a_full_pool_queues_and_the_next_message_continues_what_was_evicted() {
    let test = "case_45";
    let command = "while [ ! -e go ]; do sleep 0.05; done";
    let turns = [bash(command), Turn::text("one"), Turn::text("two"), Turn::text("three"), Turn::text("four")];
    let Some(agents) = Agents::with_config(test, "claude", "pool: {max_running: 1}\n", turns) else { return };
    let world = &agents.world;
    let first = agents.run("claude", &["-y"]);
    wait_until("its tool runs", || world.info(&first.uuid)["agent"]["activity"] == "running_tool");
    let host_pid = world.info(&first.uuid)["session"]["host_pid"].clone();
    let second = agents.run("claude", &["--name", "second"]);
    await_queued(world, &second, 1);
    let long = format!("the second message {} its end", "x".repeat(100_000));
    world.relive(&["send", "second", &long]).ok();
    world.kill_daemon();
    await_queued(world, &second, 1);
    let pool = world.relive(&["pool", "--json"]).ok().json();
    assert_eq!((&pool["running"], &pool["queued"], &pool["limits"]["max_running"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!((&pool["agents"][0]["state"], &pool["agents"][1]["state"]), (&json!("working"), &json!("queued")));
    assert_eq!(world.info(&first.uuid)["session"]["host_pid"], host_pid, "the program was not disturbed");
    let ps = world.relive(&["ps"]).ok().stdout;
    assert!(ps.contains("queued, 1 of 1"), "{ps}");
    fs::write(world.work().join("go"), "").unwrap();
    // It has nothing to do any more, and makes room.
    let ended = world.await_field(&first.uuid, "state", "dead");
    assert_eq!((&ended["why"], &ended["exit"]["reason"]), (&json!("idle"), &json!("idle")));
    agents.assert_nothing_left(&host_pid);
    wait_until("the queued messages are heard, whole", || agents.last_question().contains(&long));
    assert!(agents.last_question().contains("the task"));
    let launches = world.records(&second.uuid, "cli").iter().filter(|record| !record["launched"].is_null()).count();
    assert_eq!(launches, 1, "nothing is started twice");
    await_lifecycle(world, &second, "idle");
    // The next message continues the same conversation, when the other one has made room.
    world.relive(&["send", &first.uuid, "the next task"]).ok();
    wait_until("it hears it", || agents.last_question().contains("the next task"));
    assert!(agents.last_question().contains(command), "{}", agents.last_question());
    let ended = world.await_field(&second.uuid, "state", "dead");
    assert_eq!(ended["why"], "idle");
}

#[test]
fn the_time_in_the_queue_counts_neither_as_elapsed_nor_for_the_time_limit() {
    let world = scripted("pool: {max_running: 1}\n");
    let first = run(&world, "wait for go");
    await_lifecycle(&world, &first, "working");
    let args = ["run", "-d", "--json", "--agent", "mine", "--timeout", "3s", "the task"];
    let second = begun(&world.relive(&args).ok().json());
    await_queued(&world, &second, 1);
    let elapsed = || world.info(&second.uuid)["elapsed_ms"].as_u64().unwrap();
    wait_until("its time stands still", || elapsed() == elapsed());
    let (before, asked) = (elapsed(), Instant::now());
    assert!(before < 2_000, "{before}");
    wait_until("it has waited for longer than it may run", || asked.elapsed() > Duration::from_secs(4));
    await_queued(&world, &second, 1);
    assert_eq!(elapsed(), before);
    // A pause that ends does not start the time either, and the next daemon knows the same.
    world.relive(&["pause", &second.uuid]).ok();
    world.relive(&["resume", &second.uuid]).ok();
    world.kill_daemon();
    await_queued(&world, &second, 1);
    assert_eq!(elapsed(), before);
    fs::write(world.work().join("go"), "").unwrap();
    wait_until("it has its turn", || lines(&world, "heard", &second) == 1);
    let ended = world.await_field(&second.uuid, "state", "dead");
    assert_eq!((&ended["why"], &ended["exit"]["reason"]), (&json!("timeout"), &json!("timed out")), "{ended}");
    assert!(ended["elapsed_ms"].as_u64().unwrap() >= 3_000, "its time counts when it runs: {ended}");
}

#[test]
fn each_start_of_a_program_is_listed_with_its_end() {
    let world = scripted("");
    let process = run(&world, "crash once");
    wait_until("it has answered", || lines(&world, "launches", &process) == 2);
    await_lifecycle(&world, &process, "idle");
    let listed = world.relive(&["logs", "--spawns", "--json", &process.uuid]).ok().stdout;
    let spawns: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = spawns.iter().map(|spawn| (&spawn["how"], &spawn["status"])).collect();
    assert_eq!(shown, [(&json!("new"), &json!("crashed")), (&json!("resume"), &Value::Null)], "{listed}");
    assert_eq!(spawns[1]["cwd"], world.work().to_str().unwrap());
    assert!(spawns[1]["env_names"].as_array().unwrap().contains(&json!("HOME")), "{listed}");
    assert!(spawns[1]["argv"].as_array().unwrap().contains(&json!(process.uuid)), "{listed}");
    let text = world.relive(&["logs", "--spawns", &process.uuid]).ok().stdout;
    assert!(text.contains(" resume: sh ") && text.contains("variables: "), "{text}");
    let program = world.exec(&[], &["true"]);
    world.relive(&["logs", "--spawns", &program.uuid]).fails(2, &["is not a CLI agent", "relive info"]);
}

#[test]
fn the_longest_idle_agent_makes_room_and_the_queue_keeps_its_order() {
    let world = scripted("pool: {max_running: 2}\n");
    let first = run(&world, "a");
    await_lifecycle(&world, &first, "idle");
    let second = run(&world, "b");
    await_lifecycle(&world, &second, "idle");
    let third = run(&world, "wait for go");
    let ended = world.await_field(&first.uuid, "state", "dead");
    assert_eq!(ended["why"], "idle");
    let inbox = world.relive(&["inbox", "--json"]).ok().json();
    assert!(!inbox.to_string().contains(&first.uuid), "its work is done: {inbox}");
    await_lifecycle(&world, &third, "working");
    assert_eq!(world.info(&second.uuid)["state"], "running");
    let fourth = run(&world, "wait for go");
    world.await_field(&second.uuid, "state", "dead");
    await_lifecycle(&world, &fourth, "working");
    // All work. Whoever comes now waits, in that order, also under another daemon.
    let queued = [run(&world, "c"), run(&world, "d"), run(&world, "e")];
    world.kill_daemon();
    for (place, process) in (1..).zip(&queued) {
        await_queued(&world, process, place);
    }
    let (waits, runs) = (world.info(&queued[0].uuid), world.info(&third.uuid));
    let fields = |info: &Value| info["agent"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&waits), fields(&runs));
    assert_eq!((&waits["agent"]["terminal"], &waits["agent"]["subagents"]), (&json!(false), &json!([])), "{waits}");
    // One that is paused lets the others go before it; one that is killed never starts.
    world.relive(&["pause", &queued[0].uuid]).ok();
    world.await_display(&queued[0].uuid, "suspended");
    await_queued(&world, &queued[1], 1);
    world.relive(&["kill", &queued[2].uuid]).ok();
    let killed = world.await_field(&queued[2].uuid, "state", "dead");
    assert_eq!((&killed["why"], &killed["status"]["kind"]), (&json!("user"), &json!("killed")));
    fs::write(world.work().join("go"), "").unwrap();
    await_lifecycle(&world, &queued[1], "idle");
    assert_eq!(lines(&world, "launches", &queued[0]), 0);
    world.relive(&["resume", &queued[0].uuid]).ok();
    wait_until("it has its turn", || lines(&world, "heard", &queued[0]) == 1);
    for process in [&third, &fourth, &queued[0], &queued[1]] {
        assert_eq!(lines(&world, "launches", process), 1);
    }
    assert_eq!(lines(&world, "launches", &queued[2]), 0);
}

#[test]
fn an_agent_that_is_continued_without_a_message_is_idle_and_makes_room() {
    let world = scripted("pool: {max_running: 1, idle_timeout: 1h}\n");
    let first = run(&world, "a");
    await_lifecycle(&world, &first, "idle");
    let fork = begun(&world.relive(&["resume", "--fork", "--json", &first.uuid]).ok().json());
    world.await_field(&first.uuid, "state", "dead");
    // Its program says nothing before it hears something.
    let is_idle = |process: &Begun| {
        let info = await_lifecycle(&world, process, "idle");
        assert!(info["agent"]["idle_kill_at"].is_string() && info["display"] == "running", "{info}");
        assert_eq!(lines(&world, "heard", process), usize::from(*process.uuid == first.uuid));
    };
    is_idle(&fork);
    // It is known to the next daemon, too, with the same time of its end.
    let ends_at = world.info(&fork.uuid)["agent"]["idle_kill_at"].clone();
    world.kill_daemon();
    is_idle(&fork);
    assert_eq!(world.info(&fork.uuid)["agent"]["idle_kill_at"], ends_at);
    world.relive(&["resume", &first.uuid]).ok();
    let ended = world.await_field(&fork.uuid, "state", "dead");
    assert_eq!(ended["why"], "idle");
    is_idle(&first);
    world.relive(&["send", &first.uuid, "b"]).ok();
    wait_until("it hears it", || lines(&world, "heard", &first) == 2);
}

#[test]
fn agents_wait_while_the_others_use_too_much_memory() {
    let world = scripted("pool: {max_running: 0, max_memory_mb: 1}\n");
    // One alone may use more than the limit, or it could never run.
    let first = run(&world, "wait for go");
    await_lifecycle(&world, &first, "working");
    let second = run(&world, "b");
    await_queued(&world, &second, 1);
    let pool = world.relive(&["pool"]).ok();
    assert!(pool.stderr.contains("1 running, ") && pool.stderr.contains(" of 1 MiB, 1 queued"), "{}", pool.stderr);
    fs::write(world.work().join("go"), "").unwrap();
    world.await_field(&first.uuid, "state", "dead");
    wait_until("there is memory", || lines(&world, "heard", &second) == 1);
}

#[test]
fn a_program_that_crashes_in_its_turn_is_started_again_in_the_same_process() {
    let world = scripted("");
    let process = run(&world, "crash once");
    let info = wait_for("it is idle", || {
        let info = world.info(&process.uuid);
        (lines(&world, "heard", &process) == 2 && info["agent"]["lifecycle"] == "idle").then_some(info)
    });
    assert_eq!((&info["pid"], &info["model"]), (&json!(process.pid), &json!("anthropic/m")));
    let launches = fs::read_to_string(world.work().join("launches")).unwrap();
    assert_eq!(launches, format!("begin {0}\nagain {0}\n", process.uuid));
    assert!(fs::read_to_string(world.work().join("heard")).unwrap().contains("Continue."));
    // The next crash leaves no work: it ends.
    kill(u32::try_from(info["session"]["host_pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
    let ended = world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&ended["status"]["kind"], &ended["why"]), (&json!("killed"), &Value::Null));
    world.relive(&["resume", &process.uuid, "--input", "again"]).ok();
    wait_until("it continues", || lines(&world, "heard", &process) == 3);
    assert_eq!(lines(&world, "launches", &process), 3);
}

#[test]
fn a_crash_restarts_at_most_three_times_and_a_stop_never_does() {
    let world = scripted("");
    fs::write(world.work().join("crashes"), "").unwrap();
    let process = run(&world, "crash always");
    let ended = world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&ended["status"]["kind"], lines(&world, "launches", &process)), (&json!("killed"), 4));
    let told = world.events(&process.uuid).iter().any(|event| event.to_string().contains("crashed too often"));
    assert!(told, "{:?}", world.events(&process.uuid));
    // The count is that of the journal, not of the daemon or the run.
    world.kill_daemon();
    world.relive(&["resume", &process.uuid]).ok();
    wait_until("it has crashed again", || {
        lines(&world, "launches", &process) == 5 && world.info(&process.uuid)["state"] == "dead"
    });
    let stopped = run(&world, "wait for go");
    await_lifecycle(&world, &stopped, "working");
    world.relive(&["kill", "-9", &stopped.uuid]).ok();
    let ended = world.await_field(&stopped.uuid, "state", "dead");
    assert_eq!((&ended["why"], lines(&world, "launches", &stopped)), (&json!("user"), 1));
}

#[test]
fn a_crash_while_there_is_no_daemon_is_repaired_by_the_next_one() {
    let world = scripted("");
    let process = run(&world, "wait for go");
    let info = await_lifecycle(&world, &process, "working");
    world.kill_daemon();
    let host_pid = info["session"]["host_pid"].as_u64().unwrap();
    kill(u32::try_from(host_pid).unwrap(), Signal::KILL);
    wait_until("it is gone", || !Path::new(&format!("/proc/{host_pid}")).exists());
    fs::write(world.work().join("go"), "").unwrap();
    wait_until("another program has continued", || {
        let info = world.info(&process.uuid);
        info["agent"]["lifecycle"] == "idle" && lines(&world, "heard", &process) == 2
    });
    assert_eq!(lines(&world, "launches", &process), 2);
}

#[test]
fn a_message_that_a_crashed_program_had_not_begun_to_answer_is_told_to_the_next_one() {
    let world = scripted("");
    let process = run(&world, "crash early");
    wait_until("it has answered", || said(&world, &process) == ["done"]);
    assert_eq!(lines(&world, "launches", &process), 2);
    let heard = fs::read_to_string(world.work().join("heard")).unwrap();
    assert_eq!(heard.matches("crash early").count(), 2, "{heard}");
    assert!(!heard.contains("Continue."), "{heard}");
    let told = world.events(&process.uuid).iter().any(|event| event.to_string().contains("had not begun to answer"));
    assert!(told, "{:?}", world.events(&process.uuid));
    // It is heard now.
    world.relive(&["kill", &process.uuid]).ok();
    world.await_field(&process.uuid, "state", "dead");
    world.relive(&["resume", &process.uuid, "--input", "again"]).ok();
    wait_until("it has answered again", || said(&world, &process) == ["done", "done"]);
    assert_eq!(lines(&world, "heard", &process), 3);
}

#[test]
fn a_message_that_was_not_answered_when_the_agent_was_killed_is_told_to_its_next_run() {
    let world = scripted("");
    let process = run(&world, "wait for go");
    wait_until("it has the message", || lines(&world, "heard", &process) == 1);
    await_lifecycle(&world, &process, "working");
    for kill_daemon in [false, true] {
        if kill_daemon {
            world.kill_daemon();
        }
        world.relive(&["kill", &process.uuid]).ok();
        world.await_field(&process.uuid, "state", "dead");
        world.relive(&["resume", &process.uuid]).ok();
        await_lifecycle(&world, &process, "working");
    }
    fs::write(world.work().join("go"), "").unwrap();
    await_lifecycle(&world, &process, "idle");
    let heard = fs::read_to_string(world.work().join("heard")).unwrap();
    assert_eq!((heard.matches("wait for go").count(), heard.contains("Continue.")), (3, false), "{heard}");
}

#[test]
fn an_agent_that_leaves_without_an_answer_to_its_last_message_fails_and_keeps_it() {
    let world = scripted("");
    let process = run(&world, "wait for go");
    wait_until("it has the message", || lines(&world, "heard", &process) == 1);
    await_lifecycle(&world, &process, "working");
    world.relive(&["send", &process.uuid, "leave"]).ok();
    wait_until("it is written", || {
        world.records(&process.uuid, "cli").iter().filter(|record| record["sent"].is_number()).count() == 2
    });
    fs::write(world.work().join("go"), "").unwrap();
    let ended = world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&ended["status"]["kind"], &ended["exit_code"]), (&json!("faulted"), &json!(1)), "{ended}");
    assert!(ended["status"]["fault"].as_str().unwrap().contains("before it began to answer"), "{ended}");
    assert_eq!(said(&world, &process), ["done"]);
    world.relive(&["resume", &process.uuid]).ok();
    world.await_field(&process.uuid, "state", "dead");
    let heard = fs::read_to_string(world.work().join("heard")).unwrap();
    assert_eq!((heard.matches("wait for go").count(), heard.matches("leave").count()), (1, 2), "{heard}");
}

#[test]
fn a_program_that_greets_before_its_first_message_is_idle_and_hears_each_message_once() {
    let world = scripted("");
    fs::write(world.work().join("greets"), "").unwrap();
    let process = run(&world, "a");
    wait_until("its greeting is read", || !world.info(&process.uuid)["agent"]["session_id"].is_null());
    fs::write(world.work().join("greeted"), "").unwrap();
    wait_until("it has answered", || said(&world, &process) == ["done"]);
    await_lifecycle(&world, &process, "idle");
    world.relive(&["kill", &process.uuid]).ok();
    world.await_field(&process.uuid, "state", "dead");
    // It has nothing to do, and the next daemon knows that as well.
    world.relive(&["resume", &process.uuid]).ok();
    for _ in 0..2 {
        let info = await_lifecycle(&world, &process, "idle");
        assert!(info["agent"]["idle_kill_at"].is_string(), "{info}");
        world.kill_daemon();
    }
    world.relive(&["send", &process.uuid, "b"]).ok();
    wait_until("it has answered again", || said(&world, &process) == ["done", "done"]);
    await_lifecycle(&world, &process, "idle");
    assert_eq!(lines(&world, "heard", &process), 2);
}

#[test]
fn the_countdown_of_an_idle_agent_begins_anew_when_it_is_resumed() {
    let world = scripted("pool: {idle_timeout: 3s}\n");
    let process = run(&world, "a");
    let info = await_lifecycle(&world, &process, "idle");
    world.relive(&["pause", &process.uuid]).ok();
    let paused = world.await_display(&process.uuid, "suspended");
    assert_eq!(paused["agent"]["idle_kill_at"], Value::Null, "{paused}");
    let at = |info: &Value| info["agent"]["idle_kill_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    wait_until("it would have been ended", || jiff::Timestamp::now() > at(&info));
    let resumed = jiff::Timestamp::now();
    world.relive(&["resume", &process.uuid]).ok();
    let after = await_lifecycle(&world, &process, "idle");
    assert!(at(&after) >= resumed + Duration::from_secs(3), "{after}");
    // The next daemon counts from the same time.
    world.kill_daemon();
    let again = await_lifecycle(&world, &process, "idle");
    assert_eq!(at(&again), at(&after));
    let ended = world.await_field(&process.uuid, "state", "dead");
    assert_eq!(ended["why"], "idle");
}
