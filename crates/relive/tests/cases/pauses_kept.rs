//! Pauses of processes that wait for a person: they wait on, and are paused once they have their answer.

use serde_json::{Value, json};

use crate::world::{Begun, World, wait_until};

const WRITES: &str = "turns: [{calls: [{name: write, args: {path: made, content: x}}]}, {text: done}]";
const ASKS: &str = "turns: [{calls: [{name: ask, args: {question: which?}}]}, \
                    {calls: [{name: write, args: {path: made, content: x}}]}, {text: done}]";

fn assert_paused_before_the_call(world: &World, uuid: &str) {
    let info = world.await_display(uuid, "suspended");
    assert_eq!((&info["suspend_reason"], &info["pause_kept"]), (&json!("user"), &Value::Null), "{info}");
    assert!(!world.work().join("made").exists(), "it ran although it is paused");
}

#[test]
fn a_process_that_waits_for_an_approval_is_paused_after_it_also_if_the_daemon_is_killed() {
    for is_killed in [false, true] {
        let world = World::new();
        let crash = || {
            if is_killed {
                world.kill_daemon();
            }
        };
        let asks = world.run_with(WRITES, &["--ask", "write", "--name", "asks"]);
        world.await_display(&asks.uuid, "approval");
        let paused = world.relive(&["pause", "asks"]).ok().stderr;
        assert_eq!(paused, "PID 1 waits for your answer and pauses after the answer\n");
        crash();
        assert_eq!(world.info("asks")["pause_kept"], true);
        assert_eq!(world.info("asks")["display"], "approval", "it waits as before");
        assert!(world.relive(&["ps"]).ok().stdout.contains("needs your approval, then paused"));
        let again = world.relive(&["pause", "--json", "asks"]).ok().json();
        assert_eq!((&again["affected"], &again["kept"][0]["reason"]), (&json!(0), &json!("approval")), "{again}");
        let allowed = world.relive(&["resolve", "asks", "--allow"]).ok().stderr;
        let pid = world.info("asks")["pid"].as_u64().unwrap();
        let says = format!("PID {pid} stays paused: the call is allowed (to let it run: relive resume {pid})\n");
        assert_eq!(allowed, says);
        assert_paused_before_the_call(&world, &asks.uuid);
        crash();
        assert_paused_before_the_call(&world, &asks.uuid);
        world.relive(&["resolve", "asks", "--deny"]).fails(3, &["was allowed"]);
        world.relive(&["resume", "asks"]).ok();
        world.relive(&["wait", "asks"]).ok();
        assert!(world.work().join("made").exists(), "what was allowed is done once it is resumed");
    }
}

fn tree(world: &World) -> (Begun, Begun) {
    let model = world.script(ASKS);
    let file = format!("nodes: {{asks: {{intent: x, model: '{model}'}}}}\n");
    let run = world.up(&file);
    let node = world.await_node(&run, "asks", "running")["uuid"].as_str().unwrap().to_owned();
    wait_until("its process is there", || world.relive(&["info", "--json", &node]).code == 0);
    world.await_display(&node, "question");
    (run, Begun { pid: 0, uuid: node })
}

#[test]
fn case_12_a_paused_tree_does_not_run_on_when_a_question_below_is_answered() {
    let world = World::new();
    let (run, node) = tree(&world);
    let paused = world.relive(&["pause", "--subtree", &run.uuid]).ok().stderr;
    assert!(paused.contains("(undo: relive resume"), "{paused}");
    assert!(paused.contains("waits for your answer and pauses after the answer\n"), "{paused}");
    world.kill_daemon();
    world.relive(&["resolve", &node.uuid, "--answer", "this one"]).ok();
    assert_paused_before_the_call(&world, &node.uuid);
    assert_eq!(world.await_display(&run.uuid, "suspended")["suspend_reason"], "user");
    world.kill_daemon();
    assert_paused_before_the_call(&world, &node.uuid);
    world.relive(&["resume", "--subtree", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert!(world.work().join("made").exists());
}

#[test]
fn a_resume_of_the_tree_takes_back_the_pause_of_one_that_waits_for_an_answer() {
    let world = World::new();
    let (run, node) = tree(&world);
    world.relive(&["pause", "--subtree", &run.uuid]).ok();
    let resumed = world.relive(&["resume", "--subtree", &run.uuid]).ok().stderr;
    assert!(resumed.contains("waits for your answer and runs after the answer\n"), "{resumed}");
    let info = world.info(&node.uuid);
    assert_eq!((&info["display"], &info["pause_kept"]), (&json!("question"), &Value::Null));
    // The process alone likewise; without a pause there is nothing to resume.
    world.relive(&["pause", &node.uuid]).ok();
    let resumed = world.relive(&["resume", &node.uuid]).ok().stderr;
    assert!(resumed.contains("had not paused yet: its pause is cancelled\n"), "{resumed}");
    world.relive(&["resume", &node.uuid]).fails(3, &["waits for your answer"]);
    world.relive(&["resolve", &node.uuid, "--answer", "this one"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert!(world.work().join("made").exists());
}

#[test]
fn all_and_a_pattern_pause_what_waits_for_an_answer() {
    for whom in ["--all", "ask*"] {
        let world = World::new();
        let asks = world.run_with(WRITES, &["--ask", "write", "--name", "asks"]);
        world.await_display(&asks.uuid, "approval");
        let paused = world.relive(&["pause", whom]).ok().stderr;
        assert_eq!(paused, "PID 1 waits for your answer and pauses after the answer\n");
        // There is nothing left to pause.
        let again = world.relive(&["pause", "--all"]).ok().stderr;
        assert_eq!(again, "no process is running\n");
        world.relive(&["resolve", "asks", "--allow"]).ok();
        assert_paused_before_the_call(&world, &asks.uuid);
    }
}

#[test]
fn the_end_of_one_that_waits_for_an_answer_leaves_those_above_it_paused() {
    for signal in ["TERM", "KILL"] {
        let world = World::new();
        let (run, node) = tree(&world);
        world.relive(&["pause", "--subtree", &run.uuid]).ok();
        world.await_display(&run.uuid, "suspended");
        let killed = world.relive(&["kill", "--json", "-s", signal, &node.uuid]).ok().json();
        assert_eq!(killed["affected"], 1, "{killed}");
        world.relive(&["wait", &node.uuid]);
        let info = world.info(&run.uuid);
        assert_eq!((&info["display"], &info["suspend_reason"]), (&json!("suspended"), &json!("user")), "{signal}");
    }
}
