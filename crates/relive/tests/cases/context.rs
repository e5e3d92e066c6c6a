//! What happens to a conversation that grows too long, and what is known of the files it is about.

use std::fs;
use std::process::Command;

use relive_fake_model::{Failure, FakeModel, Turn};
use serde_json::{Value, json};

use crate::world::{Begun, World, begun, wait_until};

/// Long enough that four of them fill the window of the tests.
const LONG: usize = 8000;
const READS: usize = 8;

/// Reads a long file again and again, in a window that holds a few of it.
fn long_reads(summary: &str) -> String {
    format!(
        "context: 12000\nsummary: {summary}\nturns:\n  - text: 'turn {{{{turn}}}}'\n    delay: 20ms\n    repeat: {READS}\n    \
         calls: [{{name: read, args: {{path: long.txt}}}}]\n  - text: 'turn {{{{turn}}}}'\n"
    )
}

fn world() -> World {
    let world = World::new();
    fs::write(
        world.work().join("long.txt"),
        "x".repeat(79).lines().cycle().take(LONG / 80).collect::<Vec<_>>().join("\n"),
    )
    .unwrap();
    world
}

/// It has done its work, each turn once, and was compacted on the way.
#[track_caller]
fn assert_done(world: &World, process: &Begun) {
    world.relive(&["wait", &process.uuid]).ok();
    let said: Vec<Value> =
        world.records(&process.uuid, "model_ended").into_iter().map(|record| record["text"].clone()).collect();
    let expect: Vec<String> = (1..=READS + 1).map(|turn| format!("turn {turn}")).collect();
    assert_eq!(said, expect);
    assert_eq!(world.records(&process.uuid, "call_ended").len(), READS);
    assert!(!world.records(&process.uuid, "compacted").is_empty());
}

/// Waits until a summary is being asked for.
fn await_asked_for_summary(world: &World, process: &Begun) {
    wait_until("a summary is asked for", || {
        world.events(&process.uuid).iter().any(|event| event["kind"] == "model" && event["for"] == "summary")
    });
}

#[test]
fn a_conversation_that_fills_the_window_is_summarized_and_continues() {
    let world = world();
    let process = world.run(&long_reads("{text: 'read so far: {{turn}}', usage: {input: 1000, output: 10}}"));
    assert_done(&world, &process);
    let compacted = world.records(&process.uuid, "compacted");
    let summary = compacted[0]["summary"].as_str().unwrap();
    assert!(summary.contains("do it") && summary.contains("read so far: "), "{summary}");
    let used = |record: &Value| {
        record["usage"]["tokens_in"].as_u64().unwrap() + record["usage"]["tokens_out"].as_u64().unwrap()
    };
    let answers = world.records(&process.uuid, "model_ended");
    let all: u64 = answers.iter().chain(&compacted).map(used).sum();
    let info = world.info(&process.uuid);
    assert_eq!(info["tokens_in"].as_u64().unwrap() + info["tokens_out"].as_u64().unwrap(), all);
    assert!(all > 1010 * compacted.len() as u64);
    let is_told = |event: &Value| event["kind"] == "text" && event["text"].as_str().unwrap().contains("read so far");
    assert!(!world.events(&process.uuid).iter().any(is_told), "a summary is not said to the user");

    world.await_retired(&process.uuid);
    let profile: Value =
        serde_json::from_slice(&fs::read(world.directory(&process.uuid).join("ctx-profile.json")).unwrap()).unwrap();
    assert_eq!(profile["results"]["read"]["items"], READS);
    assert_eq!(profile["compactions"].as_array().unwrap().len(), compacted.len());
    assert_eq!(profile["steps"].as_array().unwrap().len(), READS + 1);
    assert_eq!((&profile["largest"][0]["kind"], &profile["largest"][0]["tool"]), (&json!("result"), &json!("read")));
    for kind in ["system", "tools", "user", "text", "call", "result", "summary"] {
        let weight = &profile["kinds"][kind];
        assert!(
            weight["read_tokens"].as_u64() >= weight["tokens"].as_u64().filter(|tokens| *tokens > 0),
            "{kind}: {weight}"
        );
    }
    for step in profile["steps"].as_array().unwrap() {
        assert!(step["context_tokens"].as_u64().unwrap() < 12_000, "{step}");
    }
}

#[test]
fn a_kill_before_during_and_after_a_summary_changes_nothing_of_what_is_done() {
    let world = world();
    let before = world.run(&long_reads("{text: brief}"));
    world.await_step(&before, 2);
    world.kill_daemon();
    assert_done(&world, &before);

    let during = world.run(&long_reads("{text: brief, delay: 700ms}"));
    await_asked_for_summary(&world, &during);
    assert!(world.records(&during.uuid, "compacted").is_empty());
    world.kill_daemon();
    assert_done(&world, &during);

    let after = world.run(&long_reads("{text: brief}"));
    world.await_records(&after, "compacted", 1);
    world.kill_daemon();
    assert_done(&world, &after);
}

#[test]
fn a_pause_during_a_summary_is_obeyed_after_it() {
    let world = world();
    let process = world.run(&long_reads("{text: brief, delay: 700ms}"));
    await_asked_for_summary(&world, &process);
    world.relive(&["pause", &process.uuid]).ok();
    world.await_display(&process.uuid, "suspended");
    world.relive(&["resume", &process.uuid]).ok();
    assert_done(&world, &process);
}

#[test]
fn an_agent_whose_conversation_cannot_be_shortened_ends_with_the_reason() {
    let world = world();
    let reason = |yaml: &str| {
        let process = world.run(yaml);
        let end = world.relive(&["wait", "--json", &process.uuid]).exits(1).json();
        end["exit"]["reason"].as_str().unwrap().to_owned()
    };
    let small = reason("context: 300\nturns: [{text: hi}]\n");
    assert!(small.contains("does not fit into the 300 tokens") && small.contains("context_window"), "{small}");
    assert_eq!(reason(&long_reads("{fail: no idea}")), "no idea");
    let long = reason(&long_reads("{text: '{{result}}'}").replace("'{{result}}'", &"word ".repeat(10_000)));
    assert!(long.contains("does not fit"), "{long}");
}

/// A user of the server whose window is small.
fn with_server(server: &FakeModel, config: &str) -> World {
    let world = world()
        .with_env("ANTHROPIC_BASE_URL", server.base_url())
        .with_env("ANTHROPIC_API_KEY", "sk-any")
        .with_env("OPENAI_BASE_URL", server.openai_base_url())
        .with_env("OPENAI_API_KEY", "sk-any");
    world.configure(config);
    world
}

fn turns() -> Vec<Turn> {
    let turn = |number: usize| {
        let read = json!({"path": "long.txt"});
        let turn = Turn::text(&format!("turn {number}")).without_usage();
        turn.thinking("Again.").and_calls("read", read.clone()).and_calls("read", json!({"path": "short.txt"}))
    };
    (1..=READS).map(turn).chain([Turn::text(&format!("turn {}", READS + 1))]).collect()
}

#[track_caller]
fn assert_accepted(server: &FakeModel) {
    let refused: Vec<_> = server.requests().into_iter().filter(|request| request.refused.is_some()).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

fn summaries(server: &FakeModel) -> Vec<Value> {
    let requests = server.requests().into_iter().map(|request| request.body);
    requests.filter(|body| body.to_string().contains("You keep the memory of an agent")).collect()
}

/// Run, killed and forked before and after it was summed up.
fn is_accepted(model: &str) {
    let server = FakeModel::start(turns());
    let config = format!("context_window: {{{model}: 12000}}\n").replace("openai-chat/", "openai/");
    let world = with_server(&server, &config);
    let process = world.run_model(model, &[]);
    world.await_records(&process, "compacted", 1);
    world.kill_daemon();
    world.relive(&["wait", &process.uuid]).ok();
    assert_accepted(&server);
    let answers = world.records(&process.uuid, "model_ended");
    assert_eq!(answers.last().unwrap()["text"], format!("turn {}", READS + 1));
    assert_eq!(answers.len(), READS + 1);

    let first = world.records(&process.uuid, "compacted").remove(0);
    let step = first["step"].as_u64().unwrap();
    let (asked, wanted) = (server.requests(), summaries(&server).remove(0));
    let fork = |step: u64| {
        let step = step.to_string();
        let fork =
            begun(&world.relive(&["resume", "--fork", "--from-step", &step, "--json", &process.uuid]).ok().json());
        world.relive(&["wait", &fork.uuid]).ok();
        fork
    };
    let before = fork(step - 1);
    assert_eq!(server.requests()[asked.len()].body, wanted, "it has all that was said, and sums it up in its turn");
    let epoch = |record: &Value| record["epoch"].as_u64().unwrap();
    assert!(world.records(&before.uuid, "compacted").iter().all(|record| epoch(record) > epoch(&first)));
    let so_far = server.requests().len();
    let after = fork(step);
    assert_eq!(world.records(&after.uuid, "compacted")[0], first, "it begins with the summary");
    let its_first = &server.requests()[so_far].body;
    assert!(asked.iter().any(|request| request.body == *its_first), "the original asked the same: {its_first:#}");
    assert_accepted(&server);
}

#[test]
fn a_summarized_claude_is_accepted_killed_and_forked() {
    is_accepted("anthropic/claude-sonnet-4-5");
}

#[test]
fn a_summarized_gpt_is_accepted_killed_and_forked() {
    is_accepted("openai-chat/gpt-4.1");
}

#[test]
fn a_context_that_the_provider_calls_too_long_is_summarized() {
    let mut turns = turns();
    turns[4] = turns[4].clone().after(Failure::ContextFull);
    let server = FakeModel::start(turns);
    let world = with_server(&server, "");
    let process = world.run_model("anthropic/claude-sonnet-4-5", &[]);
    world.relive(&["wait", &process.uuid]).ok();
    assert_accepted(&server);
    assert_eq!(world.records(&process.uuid, "model_ended").len(), READS + 1);
    assert_eq!(world.records(&process.uuid, "compacted")[0]["step"], 5);
}

fn git(world: &World, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]).args(args);
    let output = git.current_dir(world.work()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

const EDITS: &str = "turns:\n  - calls: [{name: list, args: {path: .}}]\n  \
                     - calls: [{name: write, args: {path: a, content: changed}}]\n  - text: done\n";

#[test]
fn a_fork_says_how_the_files_differ_from_those_of_its_step() {
    let world = World::new();
    git(&world, &["init", "-q", "-b", "main"]);
    fs::write(world.work().join("a"), "one").unwrap();
    git(&world, &["add", "a"]);
    git(&world, &["commit", "-qm", "one"]);
    let then = git(&world, &["rev-parse", "HEAD"]);
    let process = world.run(EDITS);
    world.relive(&["wait", &process.uuid]).ok();
    let noted: Vec<Value> =
        world.records(&process.uuid, "model_ended").iter().map(|record| record["git"].clone()).collect();
    // Git is never run, so nobody knows whether the files differ from the commit.
    let note = json!({"head": then});
    assert_eq!(noted, [note.clone(), note.clone(), note]);
    git(&world, &["commit", "-qam", "two"]);
    let now = git(&world, &["rev-parse", "HEAD"]);
    let fork = |step: &str| {
        let told = world
            .relive(&["resume", "--fork", "--workspace", "here", "--from-step", step, "--json", &process.uuid])
            .ok()
            .json();
        // It writes, too.
        world.relive(&["wait", told["uuid"].as_str().unwrap()]).ok();
        told
    };
    let sentence = |step: u32| {
        let (then, now) = (&then[..7], &now[..7]);
        format!("the fork has the conversation, not the files: HEAD was {then} at step {step}, is {now} now")
    };
    assert_eq!(fork("1")["note"], sentence(1));
    assert_eq!(fork("2")["note"], sentence(2));
    let here = ["resume", "--fork", "--workspace", "here", "--from-step", "2", &process.uuid];
    let told = world.relive(&here).ok().stderr;
    assert!(told.contains(&format!("note: {}", sentence(2))), "{told}");
}

#[test]
fn git_head_is_not_recorded_if_turned_off_or_outside_a_repository() {
    for (config, repository) in [("git_notes: false\n", true), ("", false)] {
        let world = World::with_config(config);
        if repository {
            git(&world, &["init", "-q"]);
            git(&world, &["commit", "-q", "--allow-empty", "-m", "one"]);
        }
        let process = world.run(EDITS);
        world.relive(&["wait", &process.uuid]).ok();
        assert!(world.records(&process.uuid, "model_ended").iter().all(|record| record.get("git").is_none()));
        let told = world.relive(&["resume", "--fork", "--from-step", "1", "--json", &process.uuid]).ok().json();
        assert_eq!(told.get("note"), None);
    }
}
