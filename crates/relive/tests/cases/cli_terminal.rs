//! CLI agents with their own full-screen interface: a terminal of their own, and their calls through the gateway.

use std::fs;
use std::time::{Duration, Instant};

use relive_fake_model::{FakeModel, Turn};
use serde_json::{Value, json};

use super::cli_agents::{Agents, bash};
use super::sessions_support::Person;
use super::world::{Begun, World, begun, wait_for, wait_until};

/// Asks its model each line that is typed, and prints the answer.
const TUI: &str = r#"
import json, os, sys, urllib.request
messages = []
print("ready " + " ".join(sys.argv[1:]), flush=True)
for line in sys.stdin:
    tool = {"name": "none", "description": "none", "input_schema": {"type": "object"}}
    messages.append({"role": "user", "content": line})
    body = {"model": "fake", "max_tokens": 9, "stream": True, "tools": [tool], "messages": messages}
    headers = {"authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"], "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
    text = ""
    for event in urllib.request.urlopen(request):
        if event.startswith(b"data: "):
            text += json.loads(event[6:]).get("delta", {}).get("text", "")
    messages.append({"role": "assistant", "content": text})
    print("answered " + text, flush=True)
"#;

/// A user whose agent `tui` has a small interface.
fn with_tui(turns: impl IntoIterator<Item = Turn>) -> Agents {
    let server = FakeModel::start_for_agents(turns);
    let world = World::new().with_env("ANTHROPIC_BASE_URL", server.base_url()).with_env("ANTHROPIC_API_KEY", "planted");
    let script = world.root().join("tui.py");
    fs::write(&script, TUI).unwrap();
    let script = script.display();
    let definition = format!(
        "dialect: claude\ncommand: [claude]\nterminal: [python3, {script}]\nstart: [--session-id, \"{{session}}\"]\n\
         resume: [--resume, \"{{session}}\"]\n"
    );
    let agents = world.root().join("config/relive/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("tui.yaml"), definition).unwrap();
    Agents { world, server }
}

fn start(agents: &Agents, agent: &str) -> Begun {
    begun(&agents.world.relive(&["run", "-d", "-t", "--json", "--agent", agent]).ok().json())
}

#[track_caller]
fn await_agent(agents: &Agents, process: &Begun, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    wait_for(what, || {
        let info = agents.world.info(&process.uuid);
        is(&info["agent"]).then_some(info)
    })
}

#[test]
fn an_agent_in_its_own_terminal_shows_its_model_calls_and_is_counted() {
    let agents = with_tui([Turn::text("one"), Turn::text("two")]);
    let process = start(&agents, "tui");
    let idle = |agent: &Value| agent["lifecycle"] == "idle" && agent["gateway"]["in_flight"] == 0;
    let info = await_agent(&agents, &process, "it is idle", idle);
    assert_eq!((&info["agent"]["terminal"], &info["agent"]["idle_kill_at"]), (&json!(true), &Value::Null));
    assert_eq!((&info["body"], &info["display"]), (&json!("cli"), &json!("running")));
    assert_eq!(info["doing"], "in its terminal, no model call");
    // Messages are typed in its terminal.
    agents.world.relive(&["send", &process.uuid, "hello"]).fails(2, &["a terminal of its own", "relive attach"]);
    let mut person = Person::sits_down(agents.world.command(&["attach", &process.uuid]), 24, 80);
    person.sees("ready --session-id");
    person.types([0x1d]);
    assert_eq!(person.waits(), 0);
    let person = Person::sits_down(agents.world.command(&["attach", &process.uuid]), 24, 80);
    person.sees("ready");
    person.types("hello\r");
    person.sees("answered one");
    let counted = |agent: &Value| agent["gateway"]["calls"] == 1 && agent["lifecycle"] == "idle";
    let info = await_agent(&agents, &process, "the call is counted", counted);
    let (input, output) = agents.server.handed_out();
    assert_eq!((&info["tokens_in"], &info["tokens_out"]), (&json!(input), &json!(output)), "{info}");
    // The daemon is no part of it.
    agents.world.kill_daemon();
    person.types("again\r");
    person.sees("answered two");
    let counted = |agent: &Value| agent["gateway"]["calls"] == 2;
    let info = await_agent(&agents, &process, "both calls are counted", counted);
    let (input, output) = agents.server.handed_out();
    assert_eq!((&info["tokens_in"], &info["tokens_out"]), (&json!(input), &json!(output)), "{info}");
    agents.world.relive(&["kill", &process.uuid]).ok();
    agents.world.await_field(&process.uuid, "state", "dead");
    agents.assert_nothing_left(&info["session"]["host_pid"]);
    // The next run continues the conversation, by its name.
    agents.world.relive(&["resume", &process.uuid]).ok();
    wait_until("it continues", || {
        let launched: Vec<Value> = agents.world.records(&process.uuid, "cli");
        let argv = launched.iter().filter_map(|record| record["launched"]["argv"].as_array()).next_back().cloned();
        argv.is_some_and(|argv| argv.ends_with(&[json!("--resume"), json!(process.uuid)]))
    });
    agents.world.relive(&["kill", &process.uuid]).ok();
}

#[test]
fn an_agent_in_its_terminal_is_shown_without_a_gateway() {
    let agents = with_tui([]);
    let file = agents.world.root().join("config/relive/agents/plain.yaml");
    fs::write(file, "dialect: claude\ncommand: [claude]\nterminal: [cat]\n").unwrap();
    let process =
        begun(&agents.world.relive(&["run", "-d", "-t", "--json", "--no-gateway", "--agent", "plain"]).ok().json());
    let info = await_agent(&agents, &process, "it is idle", |agent| agent["lifecycle"] == "idle");
    let agent = &info["agent"];
    assert_eq!((&agent["terminal"], &agent["gateway"]), (&json!(true), &Value::Null), "{info}");
    assert_eq!(agent["session_id"], Value::Null, "its program was told no name: {info}");
    assert_eq!(info["doing"], "in its terminal");
    agents.world.relive(&["kill", &process.uuid]).ok();
    let info = agents.world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&info["agent"]["terminal"], &info["agent"]["subagents"]), (&json!(true), &json!([])), "{info}");
}

#[test]
fn an_open_call_of_an_agent_in_its_terminal_is_shown() {
    let agents = with_tui([Turn::text("one").then(" two").waits_after(1)]);
    let process = start(&agents, "tui");
    let person = Person::sits_down(agents.world.command(&["attach", &process.uuid]), 24, 80);
    person.sees("ready");
    person.types("hello\r");
    let asks = |agent: &Value| agent["lifecycle"] == "working" && agent["gateway"]["in_flight"] == 1;
    let info = await_agent(&agents, &process, "the call is shown", asks);
    assert!(info["doing"].as_str().unwrap().starts_with("asks its model "), "{info}");
    agents.server.let_go();
    person.sees("answered one two");
    agents.world.relive(&["kill", &process.uuid]).ok();
    agents.world.await_field(&process.uuid, "state", "dead");
}

#[test]
fn what_a_terminal_cannot_do_is_refused_by_name() {
    let agents = with_tui([]);
    let refused = |args: &[&str], words: &[&str]| agents.world.relive(args).fails(2, words);
    refused(&["run", "-d", "-t", "--agent", "codex"], &["does not know the full-screen interface", "`codex`"]);
    refused(&["run", "-t", "--agent", "tui"], &["needs a terminal on stdin", "relive run -d -t --agent tui"]);
    refused(&["run", "-d", "-t", "--agent", "tui", "a task"], &["--tty", "INTENT"]);
    refused(&["run", "-d", "-t"], &["--agent"]);
    let file = agents.world.root().join("config/relive/agents/native.yaml");
    fs::write(file, "terminal: [claude]\n").unwrap();
    refused(&["run", "-d", "-t", "--agent", "native"], &["native.yaml", "`terminal`", "`command`"]);
    refused(&["run", "-d", "--agent", "native", "a task"], &["native.yaml", "`terminal`", "`command`"]);
    let limits = ["--timeout", "1m", "--on-budget", "suspend"];
    refused(
        &[&["run", "-d", "-t", "--agent", "tui"][..], &limits].concat(),
        &["--on-budget suspend", "time limit", "`tui`"],
    );
    assert_eq!(agents.world.relive(&["ps", "-aq"]).ok().stdout, "");
}

/// The real claude, whose user has answered its first questions.
fn with_claude(test: &str, turns: impl IntoIterator<Item = Turn>) -> Option<Agents> {
    let agents = Agents::new(test, "claude", turns)?;
    let work = agents.world.work();
    let projects = json!({ work.to_str().unwrap(): {"hasTrustDialogAccepted": true} });
    let settings = json!({"hasCompletedOnboarding": true, "projects": projects});
    fs::write(agents.world.root().join("home/.claude.json"), settings.to_string()).unwrap();
    Some(agents)
}

#[test]
fn the_interface_of_claude_says_that_it_asks_for_permission_and_that_it_is_idle() {
    let test = "the_interface_of_claude_says";
    let turns = [bash("echo made > made"), Turn::text("Pineapple")];
    let Some(agents) = with_claude(test, turns) else { return };
    let settings = agents.world.root().join("home/.claude/settings.json");
    fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let own = r#"{"permissions": {"ask": ["Bash"]}}"#;
    fs::write(&settings, own).unwrap();
    let person = Person::sits_down(agents.world.command(&["run", "-t", "--agent", "claude", "--name", "me"]), 30, 100);
    person.sees("❯");
    person.types("hello");
    person.sees("hello");
    person.types("\r");
    let asks = |info: &Value| info["agent"]["waiting"] == "approval" && info["agent"]["activity"] == "running_tool";
    let info = wait_for("it asks", || Some(agents.world.info("me")).filter(asks));
    assert_eq!(info["doing"], "asks for permission in its terminal: Bash", "{info}");
    assert_eq!(fs::read_to_string(&settings).unwrap(), own, "the settings of the user are not touched");
    let items =
        || agents.world.relive(&["inbox", "--json"]).ok().json()["items"].as_array().cloned().unwrap_or_default();
    let item = items().pop().unwrap();
    assert_eq!((&item["kind"], &item["text"]), (&json!("approval"), &json!("waits in its own dialog: Bash")), "{item}");
    let command = item["answers"][0]["command"].as_str().unwrap();
    assert!(command.starts_with("relive attach "), "{item}");
    // The gateway keeps what it reported.
    agents.world.kill_daemon();
    let info = wait_for("the next daemon knows it", || Some(agents.world.info("me")).filter(asks));
    assert_eq!(items().pop().map(|same| same["id"].clone()), Some(item["id"].clone()));
    let made = agents.world.work().join("made");
    assert!(!made.exists());
    // Its words may be drawn one by one.
    person.sees("proceed?");
    // The dialog ignores a key in its first moments. Later ones are empty messages, which are not sent.
    let mut pressed: Option<Instant> = None;
    wait_for("the call is allowed", || {
        if !made.exists() && pressed.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
            person.types("\r");
            pressed = Some(Instant::now());
        }
        made.exists().then_some(())
    });
    wait_until("the item is withdrawn", || items().is_empty());
    person.sees("Pineapple");
    let is_idle = |info: &Value| info["agent"]["lifecycle"] == "idle" && info["agent"]["waiting"].is_null();
    let after = wait_for("it is idle", || Some(agents.world.info("me")).filter(is_idle));
    assert_eq!(after["doing"], "idle, in its terminal", "{after}");
    assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
    let sent: Vec<String> = agents.server.requests().iter().map(|request| request.path.clone()).collect();
    assert!(!sent.iter().any(|path| path.contains("hooks")), "nothing of it goes to the provider: {sent:?}");
    agents.world.relive(&["kill", "me"]).ok();
    agents.world.await_field(info["uuid"].as_str().unwrap(), "state", "dead");
}

#[test]
fn the_interface_of_claude_runs_as_a_process_behind_the_gateway() {
    let test = "the_interface_of_claude";
    let Some(agents) = with_claude(test, [Turn::text("Pineapple").usage(300, 7, 0)]) else { return };
    let mut person =
        Person::sits_down(agents.world.command(&["run", "-t", "--agent", "claude", "--name", "me"]), 30, 100);
    person.sees("❯");
    person.types("hello");
    person.sees("hello");
    person.types("\r");
    person.sees("Pineapple");
    let info = wait_for("its calls are counted", || {
        let info = agents.world.info("me");
        let (input, _) = agents.server.handed_out();
        let is_over = info["agent"]["lifecycle"] == "idle" && agents.server.under_way() == 0;
        (is_over && info["tokens_in"] == json!(input) && input >= 300).then_some(info)
    });
    assert_eq!(info["agent"]["usage"], "counted", "{info}");
    person.types([0x1d]);
    assert_eq!(person.waits(), 0);
    person.sees("keeps running: relive attach ");
    agents.world.relive(&["kill", "me"]).ok();
    let ended = agents.world.await_field(info["uuid"].as_str().unwrap(), "state", "dead");
    assert_eq!(ended["why"], "user");
    agents.assert_nothing_left(&info["session"]["host_pid"]);
}
