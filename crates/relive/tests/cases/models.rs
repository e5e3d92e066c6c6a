//! Agents on real wire formats: a server that refuses what the providers refuse.

use std::fs;

use relive_fake_model::{Failure, FakeModel, Turn};
use serde_json::{Value, json};

use crate::world::{Begun, World, contents, wait_until};

/// Found nowhere but in the environment and on the wire.
const KEY: &str = "sk-planted-0123456789";

const CLAUDE: &str = "anthropic/claude-sonnet-4-5";

/// A user who can reach the server as every provider.
fn world(server: &FakeModel) -> World {
    World::new()
        .with_env("ANTHROPIC_BASE_URL", server.base_url())
        .with_env("ANTHROPIC_API_KEY", KEY)
        .with_env("OPENAI_BASE_URL", server.openai_base_url())
        .with_env("OPENAI_API_KEY", KEY)
        .with_env("GOOGLE_GEMINI_BASE_URL", server.base_url())
        .with_env("GEMINI_API_KEY", KEY)
        .with_env("OLLAMA_HOST", server.base_url())
        .with_env("DEEPSEEK_BASE_URL", server.base_url())
        .with_env("DEEPSEEK_API_KEY", KEY)
}

fn write(path: &str) -> Value {
    json!({"path": path, "content": format!("{path} was written")})
}

#[track_caller]
fn assert_accepted(server: &FakeModel) {
    let refused: Vec<_> = server.requests().into_iter().filter(|request| request.refused.is_some()).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// The text of the last event of a kind.
fn last_event(world: &World, process: &Begun, kind: &str) -> Option<String> {
    let events = world.events(&process.uuid);
    let last = events.iter().rev().find(|event| event["kind"] == kind)?;
    last["text"].as_str().map(str::to_owned)
}

/// Killed twice: while nothing of an answer has come, and in the middle of one.
fn killed_in_mid_run(model: &str) {
    let server = FakeModel::start([
        Turn::text("Both at once.")
            .thinking("Two files.")
            .and_calls("write", write("a"))
            .and_calls("write", write("b")),
        Turn::calls("read", json!({"path": "a"})).thinking("Is it there?").after(Failure::Silence),
        Turn::text("I have ").then("looked ").then("at ").then("it.").after(Failure::Stall(5)),
    ]);
    let world = world(&server);
    let process = world.run_model(model, &[]);
    wait_until("the second question was asked", || server.requests().len() == 2);
    world.kill_daemon();
    world.info(&process.uuid);
    wait_until("a part of the last answer was said", || {
        last_event(&world, &process, "text").as_deref() != Some("Both at once.")
    });
    world.kill_daemon();
    world.relive(&["wait", &process.uuid]).ok();
    assert_accepted(&server);
    for (path, text) in [("a", "a was written"), ("b", "b was written")] {
        assert_eq!(fs::read_to_string(world.work().join(path)).unwrap(), text);
    }
    assert_eq!(world.records(&process.uuid, "call_started").len(), 3, "nothing was done twice");
    let last = server.requests().pop().unwrap();
    let asked = last.body.to_string();
    assert_eq!(asked.matches("do it").count(), 1, "{asked}");
    let answer = world.records(&process.uuid, "model_ended").pop().unwrap();
    assert_eq!(answer["text"], "I have looked at it.");
}

#[test]
fn a_claude_killed_in_mid_run_continues_and_its_conversation_is_accepted() {
    killed_in_mid_run(CLAUDE);
}

#[test]
fn a_gpt_killed_in_mid_run_continues_and_its_conversation_is_accepted() {
    killed_in_mid_run("openai/gpt-5");
    killed_in_mid_run("openai-responses/gpt-5");
}

#[test]
fn other_models_killed_in_mid_run_continue_and_their_conversation_is_accepted() {
    killed_in_mid_run("gemini/gemini-2.5-flash");
    killed_in_mid_run("ollama/qwen3");
    killed_in_mid_run("deepseek/deepseek-reasoner");
}

#[test]
fn case_05_a_kill_while_a_real_stream_comes_keeps_what_was_said() {
    let server = FakeModel::start([Turn::text("Once ").then("upon ").then("a time").after(Failure::Stall(5))]);
    let world = world(&server);
    let process = world.run_model(CLAUDE, &[]);
    world.await_text(&process, "upon ");
    wait_until("the call is under way", || server.under_way() == 1);
    world.relive(&["kill", &process.uuid]).ok();
    let end = world.relive(&["wait", "--json", &process.uuid]).exits(1).json();
    assert_eq!(end["exit"]["reason"], "interrupted");
    wait_until("the call was cancelled", || server.under_way() == 0);
    let partial = world.records(&process.uuid, "partial").pop().unwrap();
    assert_eq!(partial["text"], "Once upon ");
    assert_eq!(partial["usage"]["estimated"], true);
    assert!(world.records(&process.uuid, "model_ended").is_empty());
}

#[test]
fn temporary_model_failures_are_retried_and_shown() {
    let turn = Turn::text("one ").then("two ").then("three");
    let server = FakeModel::start([turn
        .after(Failure::Status(529, None))
        .after(Failure::Status(429, Some("1".to_owned())))
        .after(Failure::Cut(4))]);
    let world = world(&server);
    let process = world.run_model(CLAUDE, &[]);
    world.relive(&["wait", &process.uuid]).ok();
    let retries: Vec<Value> =
        world.events(&process.uuid).into_iter().filter(|event| event["kind"] == "model_retry").collect();
    let texts: Vec<&str> = retries.iter().map(|event| event["text"].as_str().unwrap()).collect();
    assert_eq!(
        texts,
        [
            "anthropic answered 529: fake 529",
            "anthropic answered 429: fake 429",
            "anthropic broke off in the middle of its answer"
        ]
    );
    assert!(retries[1]["after_ms"].as_u64().unwrap() >= 1000, "{retries:?}");
    let partials = world.records(&process.uuid, "partial");
    assert_eq!(partials.len(), 3);
    assert_eq!((&partials[1]["usage"]["tokens_in"], &partials[1]["usage"]["cost_usd"]), (&json!(0), &json!(0.0)));
    assert_eq!((&partials[2]["text"], &partials[2]["usage"]["estimated"]), (&json!("one "), &json!(true)));
    let answer = world.records(&process.uuid, "model_ended").pop().unwrap();
    assert_eq!(answer["text"], "one two three");
    assert!(world.info(&process.uuid)["cost_usd"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_pause_and_a_kill_are_obeyed_while_it_waits_to_ask_again() {
    let limited = || Turn::text("late").after(Failure::Status(429, Some("100".to_owned())));
    let server = FakeModel::start([limited()]);
    let world = world(&server);
    let process = world.run_model(CLAUDE, &[]);
    wait_until("it waits", || last_event(&world, &process, "model_retry").is_some());
    world.relive(&["pause", &process.uuid]).ok();
    world.await_display(&process.uuid, "suspended");
    world.relive(&["resume", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    let other = World::new().with_env("ANTHROPIC_API_KEY", KEY);
    let server = FakeModel::start([limited()]);
    let other = other.with_env("ANTHROPIC_BASE_URL", server.base_url());
    let process = other.run_model(CLAUDE, &[]);
    wait_until("it waits", || last_event(&other, &process, "model_retry").is_some());
    other.relive(&["kill", &process.uuid]).ok();
    other.relive(&["wait", &process.uuid]).exits(1);
}

#[test]
fn a_far_reset_suspends_until_then_also_over_a_crash() {
    let server = FakeModel::start([Turn::text("late").after(Failure::Status(429, Some("7200".to_owned())))]);
    let world = world(&server);
    let process = world.run_model(CLAUDE, &[]);
    let info = world.await_display(&process.uuid, "suspended");
    assert_eq!(info["suspend_reason"], "quota");
    let resume_at = info["resume_at"].as_str().unwrap().to_owned();
    let paused = world.records(&process.uuid, "paused").pop().unwrap();
    let moment = |field: &str| paused[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let wait = moment("resume_at").duration_since(moment("asked_at")).as_secs();
    assert!((7190..=7210).contains(&wait), "{paused}");
    assert_eq!(paused["resume_at"], resume_at.as_str());
    world.kill_daemon();
    let info = world.await_field(&process.uuid, "suspend_reason", "quota");
    assert_eq!(info["resume_at"], resume_at.as_str());
    assert_eq!(server.requests().len(), 1);
    world.relive(&["resume", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(world.records(&process.uuid, "resumed")[0]["by"], "user");
}

#[cfg(feature = "faults")]
#[test]
fn a_process_suspended_for_quota_resumes_at_its_time_also_in_the_next_daemon() {
    let limited = |seconds: &str| Failure::Status(429, Some(seconds.to_owned()));
    let server = FakeModel::start([Turn::text("at last").after(limited("2")).after(limited("4"))]);
    let world = world(&server).with_env("RELIVE_FAULTS", "far-is-near");
    let process = world.run_model(CLAUDE, &[]);
    wait_until("it was woken and suspended again", || world.records(&process.uuid, "paused").len() == 2);
    world.await_field(&process.uuid, "suspend_reason", "quota");
    world.kill_daemon();
    world.relive(&["wait", &process.uuid]).ok();
    let resumed = world.records(&process.uuid, "resumed");
    let by: Vec<&str> = resumed.iter().map(|record| record["by"].as_str().unwrap()).collect();
    assert_eq!(by, ["timer", "timer"]);
    for (paused, resumed) in world.records(&process.uuid, "paused").iter().zip(&resumed) {
        // Without the `Z`, which sorts after the fraction of a second that one of them may lack.
        let [until, at] =
            [&paused["resume_at"], &resumed["at"]].map(|time| time.as_str().unwrap().trim_end_matches('Z'));
        assert!(at >= until, "{paused} {resumed}");
    }
}

#[test]
fn a_refused_key_suspends_and_is_found_nowhere() {
    let server = FakeModel::start([Turn::text("hello").after(Failure::Status(401, None))]);
    let world = world(&server);
    let process = world.run_model(CLAUDE, &[]);
    world.await_field(&process.uuid, "suspend_reason", "needs_credentials");
    assert_eq!(
        last_event(&world, &process, "model_error").as_deref(),
        Some("anthropic refused the key (401): fake 401")
    );
    world.relive(&["resume", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    for (path, bytes) in contents(&world.data()) {
        let found = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert!(!found, "the key is in {}", path.display());
    }
}

#[test]
fn a_model_that_cannot_be_had_is_refused_with_the_way_out() {
    let world = World::new();
    let run = |model: &str| world.relive(&["run", "-d", "--model", model, "do it"]);
    run("antropic/claude").fails(2, &["no model `antropic/claude`", "did you mean anthropic/claude?", "deepseek"]);
    run("nobody").fails(2, &["no model `nobody`", "PROVIDER/MODEL"]);
    run(CLAUDE).fails(2, &["anthropic needs a key", "ANTHROPIC_API_KEY"]);
    assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, "");
}

#[test]
fn the_cost_of_a_model_comes_from_the_configuration_or_is_unknown() {
    let server = FakeModel::start([Turn::text("hi").usage(1_000_000, 0, 0)]);
    let world = world(&server);
    let cost = |model: &str| {
        let process = world.run_model(model, &[]);
        world.relive(&["wait", &process.uuid]).ok();
        world.info(&process.uuid)["cost_usd"].clone()
    };
    assert_eq!(cost("ollama/qwen3"), Value::Null);
    world.relive(&["daemon", "stop"]).ok();
    world.configure("prices:\n  ollama/qwen3: {input: 0.25, output: 1}\n");
    assert_eq!(cost("ollama/qwen3"), json!(0.25));
    assert_eq!(cost("openai/unheard-of"), Value::Null);
}
