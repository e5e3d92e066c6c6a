//! The model calls of CLI agents through the gateway: the real programs, against a server that plays their provider.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use relive_fake_model::{Failure, Turn};
use serde_json::{Value, json};

use crate::cli_agents::{Agents, bash, escalated};
use crate::daemon::Mount;
use crate::shell::session;
use crate::world::{Begun, World, copy_program, kill, wait_for, wait_until};

/// A turn with a command.
type Tool = fn(&str) -> Turn;

/// Both agents, and their tool for commands.
const AGENTS: [(&str, Tool); 2] = [("claude", bash), ("codex", escalated)];

/// The calls of a process that are recorded.
fn calls(world: &World, process: &Begun) -> Vec<Value> {
    let records = world.records(&process.uuid, "cli");
    records.into_iter().map(|record| record["call"].clone()).filter(|call| !call.is_null()).collect()
}

/// Returns the OS pid of the gateway of a world.
fn gateway_pid(world: &World) -> Option<u32> {
    gateway_pids(world).first().copied()
}

fn gateway_pids(world: &World) -> Vec<u32> {
    let data = world.data();
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.next() == Some(b"relive-gateway") && words.next() == Some(data.as_os_str().as_encoded_bytes())
    };
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(is_one).collect()
}

#[track_caller]
fn assert_tokens(agents: &Agents, info: &Value) {
    let (input, output) = agents.server.handed_out();
    assert_eq!((&info["tokens_in"], &info["tokens_out"]), (&json!(input), &json!(output)), "{info}");
}

#[test]
fn calls_go_through_the_gateway_with_a_token_and_are_counted_exactly() {
    for (agent, tool) in AGENTS {
        let test = format!("calls_go_through_the_gateway({agent})");
        let turns =
            [tool("env > env; cat /proc/$PPID/environ > ppid || true"), Turn::text("It is done.").usage(300, 7, 50)];
        let Some(agents) = Agents::new(&test, agent, turns) else { continue };
        let process = agents.run(agent, &["-y"]);
        let info = agents.await_idle(&process, 1);
        assert_eq!(info["agent"]["usage"], "counted", "{info}");
        assert_tokens(&agents, &info);
        wait_until("all calls are in the file", || {
            info["agent"]["gateway"]["calls"] == json!(calls(&agents.world, &process).len())
        });
        let recorded = calls(&agents.world, &process);
        assert!(
            recorded.iter().all(|call| call["status"] == 200 && call["usage"]["estimated"].is_null()),
            "{recorded:?}"
        );
        // The key is with the provider, and neither with the agent nor in a file.
        let keys: Vec<_> = agents.server.requests().into_iter().filter_map(|request| request.key).collect();
        assert!(!keys.is_empty() && keys.iter().all(|key| key == "planted"), "{keys:?}");
        let env = fs::read_to_string(agents.world.work().join("env")).unwrap();
        let of_cli = fs::read(agents.world.work().join("ppid")).unwrap();
        assert!(!env.contains("planted") && !String::from_utf8_lossy(&of_cli).contains("planted"), "{env}");
        let log = agents.world.data().join("steps").join(&process.uuid).join("gateway.jsonl");
        assert!(!fs::read_to_string(log).unwrap().contains("planted"));
        agents.world.relive(&["kill", &process.uuid]).ok();
        agents.world.await_field(&process.uuid, "state", "dead");
        agents.assert_nothing_left(&info["session"]["host_pid"]);
    }
}

#[test]
fn settings_of_claude_do_not_lead_its_calls_past_the_gateway() {
    let test = "settings_of_claude";
    let settings = |world: &World, file: &str, env: Value| {
        let path = world.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, json!({ "env": env }).to_string()).unwrap();
    };
    for of_user in [true, false] {
        let turns = [Turn::text("Hello.").usage(300, 7, 50)];
        let Some(agents) = Agents::new(test, "claude", turns) else { return };
        let url = agents.server.base_url();
        if of_user {
            settings(&agents.world, "home/.claude/settings.json", json!({"ANTHROPIC_BASE_URL": url}));
        } else {
            let work = agents.world.work();
            let work = work.strip_prefix(agents.world.root()).unwrap().to_str().unwrap();
            settings(&agents.world, &format!("{work}/.claude/settings.json"), json!({"ANTHROPIC_BASE_URL": url}));
            let elsewhere = json!({
                "CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_BASE_URL": url,
                "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "NO_PROXY": "",
            });
            settings(&agents.world, &format!("{work}/.claude/settings.local.json"), elsewhere);
        }
        let process = agents.run("claude", &[]);
        let info = agents.await_idle(&process, 1);
        assert_eq!((agents.said(&process).concat().as_str(), &info["agent"]["usage"]), ("Hello.", &json!("counted")));
        assert_tokens(&agents, &info);
        assert_ne!(info["agent"]["gateway"]["calls"], 0, "{info}");
    }
}

#[test]
fn a_key_in_the_settings_of_a_repository_is_named_as_what_keeps_claude_from_its_model() {
    let test = "a_key_in_the_settings";
    let Some(agents) = Agents::new(test, "claude", [Turn::text("never")]) else { return };
    fs::create_dir_all(agents.world.work().join(".claude")).unwrap();
    let settings = json!({"env": {"ANTHROPIC_API_KEY": "of-the-repository"}});
    fs::write(agents.world.work().join(".claude/settings.json"), settings.to_string()).unwrap();
    let process = agents.run("claude", &[]);
    let told = "uses a key from its settings instead of the token";
    wait_until("its turn has failed", || agents.turns(&process) == 1);
    let logs = agents.world.relive(&["logs", &process.uuid]).ok().stdout;
    assert!(logs.contains(told) && logs.contains(".claude/settings.json"), "{logs}");
    assert!(agents.server.requests().is_empty());
}

#[test]
fn without_the_gateway_usage_is_the_agents_own_claim() {
    let test = "without_the_gateway";
    let Some(agents) = Agents::new(test, "claude", [Turn::text("Hello.")]) else { return };
    let process = agents.run("claude", &["--no-gateway"]);
    let info = agents.await_idle(&process, 1);
    assert_eq!((&info["agent"]["usage"], &info["agent"]["gateway"]), (&json!("claimed"), &Value::Null));
    assert!(calls(&agents.world, &process).is_empty() && gateway_pid(&agents.world).is_none());
    let refused = ["run", "-d", "--agent", "claude", "--no-gateway", "--max-tokens", "5", "x"];
    agents.world.relive(&refused).fails(2, &["can only be limited in time", "--no-gateway was given", "--timeout"]);
}

#[test]
fn a_budget_refuses_the_next_call_and_ends_the_agent() {
    for (agent, tool) in AGENTS {
        let test = format!("a_budget_refuses({agent})");
        let turns = [tool("echo made > made").usage(900, 100, 0), Turn::text("never")];
        let Some(agents) = Agents::new(&test, agent, turns) else { continue };
        let process = agents.run(agent, &["-y", "--max-tokens", "1000"]);
        let ended = agents.world.await_field(&process.uuid, "state", "dead");
        assert_eq!((&ended["why"], &ended["exit"]["reason"]), (&json!("budget"), &json!("budget_exceeded")), "{ended}");
        assert_eq!((&ended["exit_code"], &ended["status"]["kind"]), (&json!(2), &json!("killed")));
        assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
        assert_tokens(&agents, &ended);
        let asked = agents.server.requests().iter().filter(|request| request.body["tools"].is_array()).count();
        assert_eq!(asked, 1, "the second call was refused before it was made");
        assert!(calls(&agents.world, &process).iter().any(|call| call["refused"].is_string()));
        agents.assert_nothing_left(&ended["session"]["host_pid"]);
        // With more, the conversation continues.
        agents.world.relive(&["resume", &process.uuid, "--max-tokens", "100000"]).ok();
        wait_until("it has answered", || !agents.said(&process).is_empty());
    }
}

#[test]
fn an_agent_that_waits_for_more_budget_is_suspended_and_makes_the_call_when_it_has_it() {
    for (agent, tool) in AGENTS {
        let test = format!("an_agent_that_waits_for_more({agent})");
        let turns = [tool("echo made > made").usage(900, 100, 0), Turn::text("It is done.")];
        let Some(agents) = Agents::new(&test, agent, turns) else { continue };
        let process = agents.run(agent, &["-y", "--max-tokens", "1000", "--on-budget", "suspend"]);
        let info = agents.world.await_display(&process.uuid, "suspended");
        assert_eq!((&info["suspend_reason"], &info["session"]["frozen"]), (&json!("budget_exceeded"), &json!(true)));
        let asked = || agents.server.requests().iter().filter(|request| request.body["tools"].is_array()).count();
        assert_eq!(asked(), 1);
        let raised = ["resume", &process.uuid, "--timeout", "1h", "--max-tokens", "100000"];
        let works = format!("relive resume {} --max-tokens 100000", process.uuid);
        agents.world.relive(&raised).fails(2, &["--timeout", "--on-budget suspend", agent, &works]);
        agents.world.kill_daemon();
        wait_until("it is frozen", || agents.world.info(&process.uuid)["session"]["frozen"] == true);
        agents.world.relive(&["resume", &process.uuid, "--max-tokens", "100000"]).ok();
        let after = agents.await_idle(&process, 1);
        assert_eq!(after["session"]["host_pid"], info["session"]["host_pid"], "it is the same program");
        assert_eq!((agents.said(&process).concat().as_str(), asked()), ("It is done.", 2));
        assert!(calls(&agents.world, &process).iter().all(|call| call["refused"].is_null()));
        assert_tokens(&agents, &after);
    }
}

#[test]
fn a_limit_in_dollars_is_kept_call_by_call() {
    let test = "a_limit_in_dollars";
    let turns = [bash("true").usage(400_000, 100, 0), bash("true").usage(400_000, 100, 0), Turn::text("never")];
    let config = "prices:\n  anthropic/priced: {input: 1, output: 1}\n";
    let Some(agents) = Agents::with_config(test, "claude", config, turns) else { return };
    let run = |model: &str| {
        agents.world.relive(&[
            "run",
            "-n",
            "--agent",
            "claude",
            "-y",
            "--max-cost",
            "0.30",
            "--model",
            model,
            "the task",
        ])
    };
    run("unpriced").fails(2, &["the price of anthropic/unpriced is not known", "prices:"]);
    // Which model it asks may be known only when it does.
    let ran = agents.world.relive(&["run", "-n", "--agent", "claude", "-y", "--max-cost", "0.30", "the task"]).exits(1);
    assert!(ran.stderr.contains("the price of anthropic/") && ran.stderr.contains("set it under `prices:`"), "{ran:?}");
    let listed = agents.world.relive(&["ps", "-a"]).ok().stdout;
    assert!(listed.contains("the price of anthropic/"), "{listed}");
    let process = agents.world.relive(&["ps", "-a", "--json"]).ok().json()["processes"][0].clone();
    assert_eq!((&process["status"]["kind"], &process["exit_code"]), (&json!("faulted"), &json!(1)), "{process}");
    // No limit was reached: it continues as soon as there is a price.
    assert_eq!((&process["hint"], &process["reached_limit"]), (&Value::Null, &Value::Null), "{process}");
    let priced = format!("{config}  {}: {{input: 1, output: 1}}\n", process["model"].as_str().unwrap());
    fs::write(agents.world.root().join("config/relive/config.yaml"), priced).unwrap();
    agents.world.relive(&["resume", process["uuid"].as_str().unwrap()]).ok();
    wait_until("it has spent its dollars", || {
        agents.world.info(process["uuid"].as_str().unwrap())["exit"]["reason"] == "budget_exceeded"
    });
    agents.world.relive(&["rm", "-y", process["uuid"].as_str().unwrap()]).ok();
    let ran = run("priced");
    assert_eq!(ran.code, 2, "{ran:?}");
    let listed = agents.world.relive(&["ps", "-a", "--json"]).ok().json();
    let process = &listed["processes"][0];
    assert_eq!(process["exit"]["reason"], "budget_exceeded", "{process}");
    assert!(process["cost_usd"].as_f64().unwrap() >= 0.40, "{process}");
}

#[test]
fn a_pause_lets_the_tool_finish_and_holds_the_next_call() {
    for (agent, tool) in AGENTS {
        let test = format!("a_pause_lets_the_tool_finish({agent})");
        let command = "echo begun > begun; while [ ! -e go ]; do sleep 0.05; done; echo over > over";
        let Some(agents) = Agents::new(&test, agent, [tool(command), Turn::text("one")]) else { continue };
        let process = agents.run(agent, &["-y"]);
        wait_until("the tool runs", || agents.world.work().join("begun").exists());
        agents.world.await_records(&process, "model_ended", 1);
        agents.world.relive(&["pause", &process.uuid]).ok();
        let info = agents.world.info(&process.uuid);
        assert_eq!((&info["display"], &info["session"]["frozen"]), (&json!("pausing"), &json!(false)), "{info}");
        let before = agents.server.requests().len();
        fs::write(agents.world.work().join("go"), "").unwrap();
        let info = agents.world.await_display(&process.uuid, "suspended");
        assert_eq!(fs::read_to_string(agents.world.work().join("over")).unwrap(), "over\n");
        assert_eq!(
            (&info["session"]["frozen"], &info["agent"]["gateway"]["held"]),
            (&json!(true), &json!(1)),
            "{info}"
        );
        // Neither a killed daemon nor time lets it go on.
        agents.world.kill_daemon();
        wait_until("it is frozen", || agents.world.info(&process.uuid)["session"]["frozen"] == true);
        assert_eq!(agents.server.requests().len(), before);
        agents.world.relive(&["resume", &process.uuid]).ok();
        let info = agents.await_idle(&process, 1);
        assert_eq!(agents.said(&process), ["one"]);
        assert_tokens(&agents, &info);
    }
}

#[test]
fn a_killed_daemon_does_not_disturb_an_answer() {
    for (agent, _) in AGENTS {
        let test = format!("a_killed_daemon_does_not_disturb_an_answer({agent})");
        let Some(agents) = Agents::new(&test, agent, [Turn::text("one").then(" two").then(" three").waits_after(4)])
        else {
            continue;
        };
        let process = agents.run(agent, &[]);
        wait_until("the model answers", || {
            agents.world.info(&process.uuid)["agent"]["gateway"]["in_flight"] == 1 && agents.server.under_way() > 0
        });
        agents.world.kill_daemon();
        // There is no daemon while the answer goes on.
        agents.server.let_go();
        wait_until("the answer is over", || agents.server.under_way() == 0);
        // A daemon that finds the turn over may record only then which message it answered, as a turn that has ended too.
        let info = wait_for("the turn is over", || {
            let info = agents.world.info(&process.uuid);
            (agents.turns(&process) >= 1 && info["agent"]["lifecycle"] == "idle").then_some(info)
        });
        assert_eq!(agents.said(&process), ["one two three"]);
        assert_tokens(&agents, &info);
        assert!(calls(&agents.world, &process).iter().all(|call| call["cut"].is_null()));
    }
}

#[test]
fn a_gateway_that_is_killed_in_an_answer_is_replaced_and_the_agent_asks_again() {
    for (agent, _) in AGENTS {
        let test = format!("a_gateway_that_is_killed({agent})");
        let turn = Turn::text("one").then(" two").after(Failure::Stall(4));
        let Some(agents) = Agents::new(&test, agent, [turn]) else { continue };
        let process = agents.run(agent, &[]);
        wait_until("the model answers", || {
            agents.world.info(&process.uuid)["agent"]["gateway"]["in_flight"] == 1 && agents.server.under_way() > 0
        });
        let before = gateway_pid(&agents.world).unwrap();
        kill(before, rustix::process::Signal::KILL);
        let info = agents.await_idle(&process, 1);
        assert_ne!(gateway_pid(&agents.world), Some(before));
        assert_eq!(agents.said(&process), ["one two"]);
        let recorded = calls(&agents.world, &process);
        let cut: Vec<_> = recorded.iter().filter(|call| call["cut"] == "gateway").collect();
        assert!(cut.len() == 1 && cut[0]["usage"]["estimated"] == true, "{recorded:?}");
        // What was handed out is counted, and what was cut is estimated on top.
        let (input, output) = agents.server.handed_out();
        let estimated = cut[0]["usage"]["tokens_in"].as_u64().unwrap();
        assert_eq!(info["tokens_in"], json!(input + estimated), "{info}");
        assert!(info["tokens_out"].as_u64().unwrap() >= output);
    }
}

/// Returns how many connections wait to be accepted at a port of the loopback.
fn waiting_at(port: u64) -> Option<u64> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let at = format!("0100007F:{port:04X}");
    let listens =
        |line: &&str| line.split_whitespace().nth(1) == Some(&at) && line.split_whitespace().nth(3) == Some("0A");
    let queues = table.lines().find(listens)?.split_whitespace().nth(4)?.to_owned();
    u64::from_str_radix(queues.split_once(':')?.1, 16).ok()
}

#[test]
fn calls_wait_while_there_is_neither_a_gateway_nor_a_daemon() {
    for (agent, tool) in AGENTS {
        let test = format!("calls_wait_while_there_is({agent})");
        let turns = [tool("while [ ! -e go ]; do sleep 0.05; done"), Turn::text("one")];
        let Some(agents) = Agents::new(&test, agent, turns) else { continue };
        let process = agents.run(agent, &["-y"]);
        let info = wait_for("its tool runs", || {
            Some(agents.world.info(&process.uuid)).filter(|info| {
                info["agent"]["activity"] == "running_tool" && info["agent"]["gateway"]["in_flight"] == 0
            })
        });
        let launched = agents.world.records(&process.uuid, "cli").into_iter();
        let port = launched.filter_map(|record| record["launched"]["gateway"]["port"].as_u64()).next_back().unwrap();
        agents.world.kill_daemon();
        kill(gateway_pid(&agents.world).unwrap(), rustix::process::Signal::KILL);
        wait_until("the gateway is gone", || gateway_pid(&agents.world).is_none());
        fs::write(agents.world.work().join("go"), "").unwrap();
        wait_until("its call waits", || waiting_at(port).is_some_and(|waiting| waiting > 0));
        let after = agents.await_idle(&process, 1);
        assert_eq!(after["session"]["host_pid"], info["session"]["host_pid"], "it is the same program");
        assert_eq!(agents.said(&process).concat(), "one");
        assert!(calls(&agents.world, &process).iter().all(|call| call["cut"].is_null()));
        assert_tokens(&agents, &after);
    }
}

#[test]
fn another_build_takes_over_from_a_gateway_that_ends_its_answers() {
    for (agent, _) in AGENTS {
        let test = format!("another_build_takes_over({agent})");
        let turns = [Turn::text("one").then(" two").then(" three").waits_after(4), Turn::text("four")];
        let Some(agents) = Agents::new(&test, agent, turns) else { continue };
        let process = agents.run(agent, &[]);
        wait_until("the model answers", || {
            agents.world.info(&process.uuid)["agent"]["gateway"]["in_flight"] == 1 && agents.server.under_way() > 0
        });
        let before = gateway_pid(&agents.world).unwrap();
        agents.world.kill_daemon();
        // The same program in another file is another build.
        let build = agents.world.root().join("relive-new");
        copy_program(Path::new(env!("CARGO_BIN_EXE_relive")), &build);
        let command = agents.world.command(&["ps"]);
        let mut upgraded = std::process::Command::new(&build);
        upgraded.args(command.get_args()).current_dir(agents.world.work()).env_clear();
        upgraded.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert!(upgraded.status().unwrap().success());
        let is_taken_over = || gateway_pids(&agents.world).iter().any(|pid| *pid != before);
        wait_until("another gateway serves", is_taken_over);
        // The answer that the one before passes on is shown as one of the agent.
        wait_until("its answer is known", || agents.world.info(&process.uuid)["agent"]["gateway"]["in_flight"] == 1);
        assert_eq!(agents.server.under_way(), 1);
        agents.server.let_go();
        agents.await_idle(&process, 1);
        agents.world.relive(&["send", &process.uuid, "and on"]).ok();
        let info = agents.await_idle(&process, 2);
        assert_eq!(agents.said(&process), ["one two three", "four"]);
        let recorded = calls(&agents.world, &process);
        let is_whole = |call: &Value| call["cut"].is_null() && call["usage"]["estimated"].is_null();
        assert!(recorded.iter().all(is_whole), "{recorded:?}");
        assert_eq!(json!(recorded.len()), info["agent"]["gateway"]["calls"]);
        assert_tokens(&agents, &info);
        agents.world.relive(&["kill", &process.uuid]).ok();
        wait_until("the one before has ended", || !gateway_pids(&agents.world).contains(&before));
    }
}

#[test]
fn errors_and_cuts_are_tried_again_by_the_agent_and_counted() {
    for (agent, _) in AGENTS {
        let test = format!("errors_and_cuts({agent})");
        let turn = Turn::text("one").then(" two").after(Failure::Status(500, None)).after(Failure::Cut(3));
        let Some(agents) = Agents::new(&test, agent, [turn]) else { continue };
        let process = agents.run(agent, &[]);
        let info = agents.await_idle(&process, 1);
        assert_eq!(agents.said(&process), ["one two"]);
        let recorded = calls(&agents.world, &process);
        assert!(recorded.iter().any(|call| call["status"] == 500 && call["usage"]["tokens_in"] == 0), "{recorded:?}");
        let cut: u64 = recorded.iter().filter(|call| call["cut"] == "upstream").map(tokens_in).sum();
        assert!(cut > 0, "{recorded:?}");
        let (input, _) = agents.server.handed_out();
        assert_eq!(info["tokens_in"], json!(input + cut));
        // What was estimated is marked wherever it is shown.
        assert_eq!(info["estimated"], true, "{info}");
        let shown = |args: &[&str]| agents.world.relive(args).ok().stdout;
        assert!(shown(&["info", &process.uuid]).contains("partly estimated"));
        assert!(shown(&["ps"]).contains(" ~") && shown(&["usage"]).contains(" ~"));
        agents.world.relive(&["kill", &process.uuid]).ok();
        agents.world.await_field(&process.uuid, "state", "dead");
        assert_eq!(agents.world.info(&process.uuid)["estimated"], true);
    }
}

fn tokens_in(call: &Value) -> u64 {
    call["usage"]["tokens_in"].as_u64().unwrap()
}

#[test]
fn a_quota_that_resets_late_suspends_the_agent_until_then() {
    for (agent, _) in AGENTS {
        let test = format!("a_quota_that_resets_late({agent})");
        let limited = || Failure::Status(429, Some("3600".into()));
        let turn = Turn::text("one").after(limited()).after(limited());
        let Some(agents) = Agents::new(&test, agent, [turn]) else { continue };
        let process = agents.run(agent, &[]);
        let info = await_quota(&agents, &process);
        assert_eq!(second(&info["resume_at"]), second(&info["agent"]["gateway"]["limited_until"]), "{info}");
        let listed = agents.world.relive(&["ps"]).ok().stdout;
        assert!(listed.contains("quota until "), "{listed}");
        let inbox = agents.world.relive(&["inbox", "--json"]).ok().json();
        let item = &inbox["items"][0];
        assert_eq!((&item["kind"], &item["resume_at"]), (&json!("quota"), &info["resume_at"]), "{inbox}");
        // It is a pause like any other: it outlives the daemon.
        agents.world.kill_daemon();
        let again = await_quota(&agents, &process);
        assert_eq!(again["resume_at"], info["resume_at"]);
        assert_eq!(agents.server.requests().len(), 1, "nothing was asked meanwhile");
        // A person may try whether it is still so. It is, and the provider is not asked again and again.
        agents.world.relive(&["resume", &process.uuid]).ok();
        wait_until("it was tried", || agents.world.records(&process.uuid, "paused").len() == 2);
        let tried = await_quota(&agents, &process);
        let at = |info: &Value| info["resume_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(at(&tried) > at(&info), "the provider named another time: {tried}");
        assert_eq!(agents.server.requests().len(), 2);
        agents.world.relive(&["resume", &process.uuid]).ok();
        let after = agents.await_idle(&process, 1);
        assert_eq!(after["session"]["host_pid"], info["session"]["host_pid"], "it is the same program");
        assert_eq!((agents.said(&process), agents.server.requests().len()), (vec!["one".to_owned()], 3));
        assert_tokens(&agents, &after);
        agents.world.relive(&["kill", &process.uuid]).ok();
        agents.world.await_field(&process.uuid, "state", "dead");
        agents.assert_nothing_left(&info["session"]["host_pid"]);
    }
}

/// Its last calls are recorded by the next daemon, which finds nothing that could wait.
#[test]
fn an_agent_that_ended_without_a_daemon_is_not_suspended_for_its_quota() {
    for (agent, tool) in AGENTS {
        let test = format!("an_agent_that_ended_without_a_daemon({agent})");
        let command = "echo begun > begun; while [ ! -e go ]; do sleep 0.05; done";
        let turn = Turn::text("one").after(Failure::Status(429, Some("3600".into())));
        let Some(agents) = Agents::new(&test, agent, [tool(command), turn]) else { continue };
        let process = agents.run(agent, &["-y"]);
        wait_until("the tool runs", || agents.world.work().join("begun").exists());
        agents.world.await_records(&process, "model_ended", 1);
        let program = agents.world.info(&process.uuid)["session"]["host_pid"].as_u64().unwrap();
        agents.world.kill_daemon();
        fs::write(agents.world.work().join("go"), "").unwrap();
        let log = agents.world.data().join("steps").join(&process.uuid).join("gateway.jsonl");
        wait_until("its call was refused", || {
            fs::read_to_string(&log).unwrap_or_default().contains("\"resets_at\":\"")
        });
        kill(u32::try_from(program).unwrap(), rustix::process::Signal::KILL);
        let session = session(&agents.world, &process);
        wait_until("its end is on the disk", || session.join("exit").exists());
        agents.world.relive(&["daemon", "start"]).ok();
        wait_until("the call is recorded", || {
            calls(&agents.world, &process).iter().any(|call| call["resets_at"].is_string())
        });
        let paused = agents.world.records(&process.uuid, "paused");
        assert!(paused.is_empty(), "{paused:?}");
        drop(agents.world.relive(&["kill", "-9", &process.uuid]));
    }
}

/// Returns a time without the part of its second, which the gateway does not tell.
fn second(time: &Value) -> &str {
    &time.as_str().unwrap()[.."2026-11-17T12:00:00".len()]
}

/// Waits until an agent stands still, because its provider takes no calls.
#[track_caller]
fn await_quota(agents: &Agents, process: &Begun) -> Value {
    wait_for("it waits for the quota", || {
        let info = agents.world.info(&process.uuid);
        let is_waiting = info["display"] == "suspended" && info["suspend_reason"] == "quota";
        (is_waiting && info["session"]["frozen"] == true).then_some(info)
    })
}

#[test]
fn an_agent_that_waits_for_a_quota_continues_by_itself() {
    let test = "an_agent_that_waits_for_a_quota_continues";
    let turn = Turn::text("one").after(Failure::Status(429, Some("10".into())));
    let Some(agents) = Agents::new(test, "claude", [turn]) else { return };
    let agents = Agents { world: agents.world.with_env("RELIVE_FAULTS", "far-is-near"), ..agents };
    let process = agents.run("claude", &[]);
    wait_until("it waits", || !agents.world.records(&process.uuid, "paused").is_empty());
    // The next daemon resumes it.
    agents.world.kill_daemon();
    let info = agents.await_idle(&process, 1);
    let (paused, resumed) =
        (agents.world.records(&process.uuid, "paused"), agents.world.records(&process.uuid, "resumed"));
    assert_eq!((&paused[0]["reason"], &resumed[0]["by"]), (&json!("quota"), &json!("timer")), "{paused:?} {resumed:?}");
    assert_eq!((agents.said(&process), agents.server.requests().len()), (vec!["one".to_owned()], 2));
    assert_tokens(&agents, &info);
}

#[test]
fn a_gateway_ends_with_the_last_agent_and_the_daemon() {
    let test = "a_gateway_ends";
    let Some(agents) = Agents::new(test, "claude", [Turn::text("one")]) else { return };
    let ran = agents.world.relive(&["run", "-n", "--agent", "claude", "the task"]).ok();
    assert_eq!(ran.stdout, "one\n");
    let pid = gateway_pid(&agents.world).unwrap();
    agents.world.relive(&["daemon", "stop"]).ok();
    wait_until("the gateway is gone", || !Path::new(&format!("/proc/{pid}")).exists());
}

/// Ends a thread, also if the test has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_full_disk_delays_a_turn_and_nothing_of_it_is_lost() {
    for (agent, tool) in AGENTS {
        let test = format!("a_full_disk_delays_a_turn({agent})");
        let last = Turn::text("It is ").then("done.").usage(400, 9, 0).waits_after(3);
        let turns = [tool("touch made").usage(300, 7, 0), last];
        let Some(agents) = Agents::with_config(&test, agent, "limits: {floor_mb: 1}", turns) else { continue };
        let Some(_disk) = Mount::new(&agents.world, "24m") else { return };
        let process = agents.run(agent, &["-y"]);
        wait_until("the last answer has begun", || {
            agents.world.work().join("made").exists() && agents.server.under_way() == 1
        });
        let filler = agents.world.data().join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        let is_over = AtomicBool::new(false);
        let over = &is_over;
        std::thread::scope(|scope| {
            // It closes its file at its end: an open one needs its space, also after it was removed.
            scope.spawn(move || {
                // Whatever is freed is used up at once.
                while !over.load(Ordering::Relaxed) {
                    if file.write_all(&[b'x'; 512]).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
            let _guard = Over(over);
            wait_until("the disk is full", || rustix::fs::statvfs(agents.world.data()).unwrap().f_bavail == 0);
            agents.server.let_go();
            wait_until("the provider has sent it all", || agents.server.under_way() == 0);
        });
        fs::remove_file(&filler).unwrap();
        wait_until("the turn is over", || {
            // It continues by itself, unless something that had to be recorded did not fit.
            if agents.world.info(&process.uuid)["suspend_reason"] == "disk_full" {
                agents.world.relive(&["resume", &process.uuid]).ok();
            }
            agents.turns(&process) == 1
        });
        let info = agents.await_idle(&process, 1);
        assert_eq!(agents.said(&process).last().unwrap(), "It is done.");
        assert_tokens(&agents, &info);
        let ended = agents.world.records(&process.uuid, "call_ended");
        assert!(ended.len() == 1 && ended[0]["ok"] == true, "{ended:?}");
        agents.world.relive(&["kill", &process.uuid]).ok();
        agents.world.await_field(&process.uuid, "state", "dead");
        agents.assert_nothing_left(&info["session"]["host_pid"]);
    }
}
