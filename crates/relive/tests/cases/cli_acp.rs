//! Agents that speak the Agent Client Protocol, as processes: a small one of our own.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use relive_fake_model::{FakeModel, Turn};
use serde_json::{Value, json};

use crate::cli_agents::Agents;
use crate::inbox::until;
use crate::screen::Screen;
use crate::world::{Begun, World, begun, kill, wait_after, wait_for, wait_until, write_program};

/// A user with an ACP agent, which offers some of what it could do with conversations.
struct Acp {
    world: World,
    state: PathBuf,
}

impl Acp {
    fn offering(offers: &str) -> Self {
        let world = World::new();
        let state = world.root().join("conversations");
        let agents = world.root().join("config/relive/agents");
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(&agents).unwrap();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/acp_agent.py");
        let file = format!(
            "command: [python3, {program}]\ndialect: acp\nenv: {{OFFERS: '{offers}', STATE: '{}'}}\n",
            state.display()
        );
        fs::write(agents.join("mine.yaml"), file).unwrap();
        Self { world, state }
    }

    fn add_to_file(&self, lines: &str) {
        let path = self.world.root().join("config/relive/agents/mine.yaml");
        let file = fs::read_to_string(&path).unwrap();
        fs::write(path, file + lines).unwrap();
    }

    #[track_caller]
    fn run(&self, flags: &[&str], task: &str) -> Begun {
        let mut args = vec!["run", "-d", "--json", "--agent", "mine"];
        args.extend(flags);
        args.push(task);
        begun(&self.world.relive(&args).ok().json())
    }

    /// Waits until turns have ended, in any way, and the agent waits for the next one.
    #[track_caller]
    fn await_idle(&self, process: &Begun, turns: usize) -> Value {
        let is_over = |record: &Value| record["turn"]["state"].as_str().is_some_and(|state| state != "open");
        wait_for(&format!("{turns} turns of {} are over", process.uuid), || {
            let ended = self.world.records(&process.uuid, "cli").iter().filter(|record| is_over(record)).count();
            let info = self.world.info(&process.uuid);
            (ended == turns && info["agent"]["lifecycle"] == "idle").then_some(info)
        })
    }

    fn said(&self, process: &Begun) -> Vec<String> {
        let ended = self.world.records(&process.uuid, "model_ended");
        ended.iter().filter_map(|record| record["text"].as_str().map(str::to_owned)).collect()
    }

    fn chosen(&self) -> String {
        fs::read_to_string(self.state.join("chosen")).unwrap_or_default()
    }

    /// The methods that the agent was called by, in order.
    fn heard(&self) -> Vec<String> {
        let heard = fs::read_to_string(self.state.join("heard")).unwrap();
        let methods = heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["method"].clone());
        methods.filter_map(|method| method.as_str().map(str::to_owned)).collect()
    }

    #[track_caller]
    fn assert_nothing_left(&self, info: &Value) {
        let path = format!("/proc/{}", info["session"]["host_pid"]);
        wait_until("the agent's program is gone", || !PathBuf::from(&path).exists());
    }
}

#[test]
fn an_acp_agent_asks_for_permission_and_gets_the_answer_that_it_offers() {
    let acp = Acp::offering("");
    let process = acp.run(&[], "say I will.\nrun echo made > made\nsay It is done.");
    let info = acp.world.await_display(&process.uuid, "approval");
    assert_eq!((&info["approval"]["tool"], &info["agent"]["dialect"]), (&json!("sh"), &json!("acp")));
    assert_eq!(info["approval"]["args"]["command"], "echo made > made");
    assert!(!acp.world.work().join("made").exists());
    // It survives the daemon.
    acp.world.kill_daemon();
    let after = acp.world.await_display(&process.uuid, "approval");
    assert_eq!(after["session"]["host_pid"], info["session"]["host_pid"], "the program was not disturbed");
    acp.world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    let info = acp.await_idle(&process, 1);
    assert_eq!(fs::read_to_string(acp.world.work().join("made")).unwrap(), "made\n");
    assert_eq!(acp.said(&process), ["I will.", "It is done."]);
    acp.world.relive(&["send", &process.uuid, "run echo again > again\nsay No?"]).ok();
    acp.world.await_display(&process.uuid, "approval");
    acp.world.relive(&["resolve", &process.uuid, "--deny"]).ok();
    acp.await_idle(&process, 2);
    assert!(!acp.world.work().join("again").exists());
    assert_eq!(acp.said(&process).last().unwrap(), "No?");
    assert_eq!(acp.chosen(), "yes-once\nno-once\n");
    // Its spending is not known.
    assert_eq!((&info["agent"]["usage"], &info["agent"]["gateway"]), (&json!("claimed"), &Value::Null));
    acp.world.relive(&["kill", &process.uuid]).ok();
    let ended = acp.world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&ended["status"]["kind"], &ended["why"]), (&json!("killed"), &json!("user")));
    acp.assert_nothing_left(&info);
}

#[test]
fn a_paused_acp_agent_that_asks_is_frozen_and_its_question_can_be_answered() {
    let acp = Acp::offering("");
    let process = acp.run(&[], "run echo made > made\nsay It is done.");
    acp.world.await_display(&process.uuid, "approval");
    let frozen = |expect: bool| {
        wait_until(&format!("frozen: {expect}"), || acp.world.info(&process.uuid)["session"]["frozen"] == expect);
    };
    acp.world.relive(&["pause", &process.uuid]).ok();
    frozen(true);
    let info = acp.world.info(&process.uuid);
    assert_eq!((&info["display"], &info["pause_kept"]), (&json!("approval"), &json!(true)));
    // A resume takes the pause back, and only that.
    acp.world.relive(&["resume", &process.uuid]).ok();
    frozen(false);
    assert_eq!(acp.world.info(&process.uuid)["display"], "approval");
    acp.world.relive(&["pause", &process.uuid]).ok();
    frozen(true);
    acp.world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    let info = acp.world.await_display(&process.uuid, "suspended");
    assert_eq!((&info["suspend_reason"], &info["session"]["frozen"]), (&json!("user"), &json!(true)));
    assert!(!acp.world.work().join("made").exists());
    acp.world.relive(&["resume", &process.uuid]).ok();
    acp.await_idle(&process, 1);
    assert_eq!(fs::read_to_string(acp.world.work().join("made")).unwrap(), "made\n");
}

#[test]
fn an_acp_agent_that_offers_no_way_to_allow_is_told_no_and_one_that_asks_for_more_is_refused() {
    let acp = Acp::offering("narrow");
    let process = acp.run(&["-y"], "run touch made\nask\nsay Over.");
    acp.await_idle(&process, 1);
    assert_eq!(acp.chosen(), "no-once\n");
    assert!(!acp.world.work().join("made").exists());
    assert_eq!(acp.said(&process).concat(), "refused: -32601Over.");
}

#[test]
fn an_answer_that_an_acp_agent_does_not_offer_is_refused() {
    let acp = Acp::offering("always");
    let process = acp.run(&[], "run touch made\nsay Over.");
    acp.world.await_display(&process.uuid, "approval");
    let refused = acp.world.relive(&["resolve", &process.uuid, "--allow"]).exits(3);
    assert!(refused.stderr.contains("offers to allow this always, and not once"), "{}", refused.stderr);
    assert_eq!((acp.chosen().as_str(), acp.world.info(&process.uuid)["display"].as_str()), ("", Some("approval")));
    acp.world.relive(&["resolve", &process.uuid, "--allow", "--always"]).ok();
    acp.await_idle(&process, 1);
    assert_eq!(acp.chosen(), "yes-always\n");
    assert!(acp.world.work().join("made").exists());
    // With -y, all that it offers is allowed.
    let all = acp.run(&["-y"], "run touch again\nsay Over.");
    acp.await_idle(&all, 1);
    assert_eq!(acp.chosen(), "yes-always\nyes-always\n");
    let acp = Acp::offering("narrow");
    let process = acp.run(&[], "run touch made\nsay Over.");
    acp.world.await_display(&process.uuid, "approval");
    let refused = acp.world.relive(&["resolve", &process.uuid, "--allow"]).exits(3);
    assert!(refused.stderr.contains("offers no way to allow this"), "{}", refused.stderr);
    acp.world.relive(&["resolve", &process.uuid, "--deny"]).ok();
    acp.await_idle(&process, 1);
    assert_eq!(acp.chosen(), "no-once\n");
}

#[test]
fn a_request_for_permission_ends_with_the_program_that_asked() {
    let acp = Acp::offering("load");
    for task in ["run touch made\nsay Over.", "form {\"where\": {\"type\": \"string\"}}\nsay Over."] {
        let process = acp.run(&[], task);
        let display = if task.starts_with("run") { "approval" } else { "question" };
        let info = acp.world.await_display(&process.uuid, display);
        kill(u32::try_from(info["session"]["host_pid"].as_u64().unwrap()).unwrap(), rustix::process::Signal::KILL);
        // The next program is told to continue, and has nothing to ask.
        let info = wait_for("the next program waits for a message", || {
            let info = acp.world.info(&process.uuid);
            let is_idle = info["agent"]["lifecycle"] == "idle" && info["display"] == "running";
            (is_idle && info["agent"]["session_id"].is_string()).then_some(info)
        });
        assert_eq!((&info["approval"], &info["question"]), (&Value::Null, &Value::Null));
        let inbox = acp.world.relive(&["inbox", "--json"]).ok().json();
        assert!(!inbox.to_string().contains(&process.uuid), "{inbox}");
        acp.world.relive(&["send", &process.uuid, "say Again."]).ok();
        wait_until("it works again", || acp.said(&process).last().is_some_and(|said| said == "Again."));
    }
}

#[test]
fn a_file_without_a_program_or_with_an_unknown_placeholder_is_refused() {
    let acp = Acp::offering("");
    let path = acp.world.root().join("config/relive/agents/mine.yaml");
    for (file, said) in [
        ("command: []\ndialect: claude\n", "a CLI agent needs its `command`"),
        ("command: ['']\ndialect: claude\n", "`command` names no program"),
        ("command: [\"a\\0b\"]\ndialect: claude\n", "`command` lists a text with a NUL character"),
        ("command: [x]\ndialect: claude\nstart: ['{nope}']\n", "`start` has no `{nope}`: use {session}"),
    ] {
        fs::write(&path, file).unwrap();
        let refused = acp.world.relive(&["run", "-d", "--agent", "mine", "x"]);
        assert!(refused.code != 0 && refused.stderr.contains(said), "{refused:?}");
    }
}

#[test]
fn an_acp_agent_that_uses_the_id_of_a_request_again_is_answered_each_time() {
    let acp = Acp::offering("");
    let process = acp.run(&[], "ask\nask\nsay Over.");
    acp.await_idle(&process, 1);
    assert_eq!(acp.said(&process).concat(), "refused: -32601refused: -32601Over.");
    // A daemon that reads its output again refuses nothing a second time, and still refuses what is new.
    acp.world.kill_daemon();
    acp.world.relive(&["send", &process.uuid, "ask\nsay Again."]).ok();
    acp.await_idle(&process, 2);
    assert_eq!(acp.said(&process).last().unwrap(), "refused: -32601Again.");
    let refused = acp.world.records(&process.uuid, "cli");
    assert_eq!(refused.iter().filter(|record| !record["unsupported"].is_null()).count(), 3);
}

#[test]
fn an_answer_that_was_refused_is_not_typed_again() {
    let acp = Acp::offering("");
    let Some(screen) = Screen::open(&acp.world, "an_answer_that_was_refused_is_not_typed_again") else { return };
    let place = r#"{"place": {"type": "string", "enum": ["here", "there"], "description": "the place"}}"#;
    let process = acp.run(&["--name", "deployer"], &format!("form {place}"));
    acp.world.await_display(&process.uuid, "question");
    screen.command("relive next");
    // A key that comes right after the item was shown is ignored.
    let asked = || screen.text().matches("your answer, then Enter (Esc: none): ").count();
    let reply = |count: usize| until("it asks for the text", || screen.keys(&["r"]), || asked() == count);
    screen.await_text("[r] reply");
    reply(1);
    // A key that was pressed again came late.
    screen.keys(&["C-u"]);
    screen.line("elsewhere");
    screen.await_text("it can only be answered with");
    reply(2);
    wait_until("it is there", || screen.text().matches("(Esc: none): elsewhere").count() == 2);
    screen.keys(&["C-u"]);
    screen.line("there");
    screen.await_code(0);
    acp.await_idle(&process, 1);
    assert_eq!(acp.said(&process).concat(), r#"{"action": "accept", "content": {"place": "there"}}"#);
}

#[test]
fn a_form_of_an_acp_agent_is_a_question_and_one_of_several_fields_is_declined_by_name() {
    let acp = Acp::offering("");
    let place = r#"{"place": {"type": "string", "enum": ["here", "there"], "description": "the place"}}"#;
    let process = acp.run(&["--name", "deployer"], &format!("form {place}"));
    let info = acp.world.await_display(&process.uuid, "question");
    let question = &info["question"];
    assert_eq!(question["text"], "Deploy where?\nplace: the place");
    assert_eq!(question["choices"], json!(["here", "there", "(decline)"]));
    // An answer that is none of these would be lost.
    let expected = "it can only be answered with: here, there, (decline)";
    acp.world.relive(&["resolve", "deployer", "--answer", "elsewhere"]).fails(2, &[expected]);
    acp.world.kill_daemon();
    let after = acp.world.await_display(&process.uuid, "question");
    assert_eq!(after["question"], *question);
    acp.world.relive(&["resolve", "deployer", "--answer", "2"]).ok();
    // Acknowledged means durable.
    acp.world.kill_daemon();
    acp.await_idle(&process, 1);
    assert_eq!(acp.said(&process).concat(), r#"{"action": "accept", "content": {"place": "there"}}"#);
    acp.world.relive(&["send", "deployer", &format!("form {place}")]).ok();
    acp.world.await_display(&process.uuid, "question");
    acp.world.relive(&["resolve", "deployer", "--answer", "(decline)"]).ok();
    acp.await_idle(&process, 2);
    assert_eq!(acp.said(&process).last().unwrap(), r#"{"action": "decline"}"#);
    let two = r#"{"a": {"type": "string"}, "b": {"type": "string"}}"#;
    acp.world.relive(&["send", "deployer", &format!("form {two}")]).ok();
    acp.await_idle(&process, 3);
    assert_eq!(acp.said(&process).last().unwrap(), r#"{"action": "decline"}"#);
    let told = acp.world.relive(&["strace", &process.uuid]).ok();
    assert!(told.stdout.contains("a form was declined, because it has 2 fields: Deploy where?"), "{}", told.stdout);
}

#[test]
fn a_turn_of_an_acp_agent_is_interrupted_and_the_agent_stays() {
    let acp = Acp::offering("");
    let process = acp.run(&[], "wait\nsay never");
    acp.world.relive(&["signals", &process.uuid, "--handle", "INT"]).ok();
    wait_until("it works", || acp.world.info(&process.uuid)["agent"]["activity"] == "responding");
    let before = acp.world.info(&process.uuid);
    acp.world.relive(&["kill", "-s", "INT", &process.uuid]).ok();
    let info = acp.await_idle(&process, 1);
    assert_eq!(info["session"]["host_pid"], before["session"]["host_pid"]);
    let turns = acp.world.records(&process.uuid, "cli");
    assert!(turns.iter().any(|record| record["turn"]["state"] == "interrupted"), "{turns:?}");
    acp.world.relive(&["send", &process.uuid, "say Next."]).ok();
    acp.await_idle(&process, 2);
    assert_eq!(acp.said(&process).last().unwrap(), "Next.");
}

#[test]
fn a_killed_daemon_does_not_disturb_an_acp_agent_and_no_turn_is_told_or_recorded_twice() {
    let acp = Acp::offering("load");
    let process = acp.run(&["-y"], "say One.");
    acp.await_idle(&process, 1);
    let command = "touch begun; while [ ! -e go ]; do sleep 0.05; done";
    acp.world.relive(&["send", &process.uuid, &format!("run {command}\nsay Two.")]).ok();
    wait_until("the tool runs", || acp.world.work().join("begun").exists());
    acp.world.kill_daemon();
    wait_until("it is adopted", || acp.world.info(&process.uuid)["agent"]["activity"] == "running_tool");
    // While it works, a message waits.
    acp.world.relive(&["send", &process.uuid, "say Three."]).ok();
    acp.world.kill_daemon();
    fs::write(acp.world.work().join("go"), "").unwrap();
    acp.await_idle(&process, 3);
    assert_eq!(acp.said(&process), ["One.", "Two.", "Three."]);
    // Between turns, too.
    acp.world.kill_daemon();
    acp.world.relive(&["send", &process.uuid, "say Four."]).ok();
    acp.await_idle(&process, 4);
    assert_eq!(acp.said(&process), ["One.", "Two.", "Three.", "Four."]);
    let asked: Vec<String> = acp.heard().into_iter().filter(|method| method == "session/prompt").collect();
    assert_eq!(asked.len(), 4);
}

#[test]
fn an_acp_agent_whose_first_output_is_no_longer_in_its_log_is_heard_by_the_next_daemon() {
    let acp = Acp::offering("load");
    let process = acp.run(&["-y"], "say One.\nflood 72");
    acp.await_idle(&process, 1);
    acp.world.kill_daemon();
    acp.world.relive(&["send", &process.uuid, "say Two."]).ok();
    acp.await_idle(&process, 2);
    // In the middle of a turn, too.
    let command = "touch begun; while [ ! -e go ]; do sleep 0.05; done";
    acp.world.relive(&["send", &process.uuid, &format!("run {command}\nsay Three.")]).ok();
    wait_until("the tool runs", || acp.world.work().join("begun").exists());
    acp.world.kill_daemon();
    wait_until("it is adopted", || acp.world.info(&process.uuid)["agent"]["activity"] == "running_tool");
    fs::write(acp.world.work().join("go"), "").unwrap();
    acp.await_idle(&process, 3);
    assert_eq!(acp.said(&process), ["One.", "Two.", "Three."]);
}

#[test]
fn an_acp_agent_that_was_killed_loads_its_conversation_and_is_forked_where_it_offers_that() {
    let acp = Acp::offering("load fork");
    let process = acp.run(&[], "say One.");
    let info = acp.await_idle(&process, 1);
    kill(u32::try_from(info["session"]["host_pid"].as_u64().unwrap()).unwrap(), rustix::process::Signal::KILL);
    acp.world.await_field(&process.uuid, "state", "dead");
    acp.world.relive(&["resume", &process.uuid, "--input", "say Two."]).ok();
    let resumed = acp.await_idle(&process, 2);
    assert_eq!(resumed["agent"]["session_id"], info["agent"]["session_id"]);
    // What the agent repeats of the conversation is no news, also for a daemon that reads it again.
    acp.world.kill_daemon();
    acp.await_idle(&process, 2);
    assert_eq!(acp.said(&process), ["One.", "Two."]);
    let forked = acp.world.relive(&["resume", "--json", "--fork", &process.uuid, "--input", "say Three.\nrecall"]);
    let fork = begun(&forked.ok().json());
    let fork_info = acp.await_idle(&fork, 3);
    assert_ne!(fork_info["agent"]["session_id"], info["agent"]["session_id"]);
    assert_eq!(acp.said(&fork).last().unwrap(), "Three.users: 3");
    let begun: Vec<String> = acp.heard().into_iter().filter(|method| method != "session/prompt").collect();
    let expect = ["initialize", "session/new", "initialize", "session/load", "initialize", "session/fork"];
    assert_eq!(begun, expect);
}

#[test]
fn what_an_acp_agent_cannot_do_is_said_by_name() {
    let acp = Acp::offering("");
    let process = acp.run(&[], "say One.");
    let info = acp.await_idle(&process, 1);
    let cannot = "a conversation of `mine` cannot be forked: the agent does not offer session/fork";
    acp.world.relive(&["resume", "--fork", &process.uuid]).fails(2, &[cannot]);
    // It crashes in a turn, and there is no way to continue.
    acp.world.relive(&["send", &process.uuid, "die"]).ok();
    let ended = acp.world.await_field(&process.uuid, "state", "dead");
    assert_eq!(ended["status"]["kind"], "faulted", "{ended}");
    assert!(ended["restarts"].is_null() || ended["restarts"] == 0, "{ended}");
    acp.assert_nothing_left(&info);
    acp.world.relive(&["resume", &process.uuid, "--input", "say Two."]);
    wait_until("it ends because it cannot be continued", || {
        let reason = acp.world.info(&process.uuid)["exit"]["reason"].clone();
        reason.as_str().is_some_and(|reason| reason.contains("cannot be continued"))
    });
    let refused = acp.world.relive(&["run", "-d", "--agent", "mine", "--max-tokens", "5", "x"]);
    refused.fails(2, &["can only be limited in time", "--timeout"]);
    let refused = acp.world.relive(&["run", "-d", "--agent", "mine", "--model", "big", "x"]);
    refused.fails(2, &["--model cannot be used with the CLI agent `mine`"]);
    acp.add_to_file("model: openai/small\n");
    let refused = acp.world.relive(&["run", "-d", "--agent", "mine", "x"]);
    refused.fails(2, &["`model:` in agents/mine.yaml cannot be used with the CLI agent `mine`"]);
    let refused = acp.world.relive(&["run", "-d", "--agent", "mine", "--model", "big", "x"]);
    refused.fails(2, &["--model cannot be used with the CLI agent `mine`"]);
}

#[test]
fn an_acp_agent_that_was_updated_is_asked_again_what_it_can_do() {
    let acp = Acp::offering("");
    let process = acp.run(&[], "say One.");
    acp.await_idle(&process, 1);
    acp.world.relive(&["kill", &process.uuid]).ok();
    acp.world.await_field(&process.uuid, "state", "dead");
    fs::write(acp.state.join("OFFERS"), "load fork").unwrap();
    let forked = acp.world.relive(&["resume", "--json", "--fork", &process.uuid, "--input", "say Fork."]);
    acp.await_idle(&begun(&forked.ok().json()), 2);
    acp.world.relive(&["resume", &process.uuid, "--input", "say Two."]).ok();
    acp.await_idle(&process, 2);
    assert_eq!(acp.said(&process), ["One.", "Two."]);
}

#[test]
fn an_acp_agent_without_a_conversation_to_be_had_fails_with_its_own_words() {
    for (offers, said) in [("login", "Authentication required"), ("next", "speaks version 2")] {
        let acp = Acp::offering(offers);
        let process = acp.run(&[], "say One.");
        let ended = acp.world.await_field(&process.uuid, "state", "dead");
        assert_eq!(ended["status"]["kind"], "faulted", "{ended}");
        assert!(ended["exit"]["reason"].as_str().unwrap().contains(said), "{ended}");
    }
}

#[test]
fn an_acp_agent_that_dies_in_a_turn_is_started_again_with_its_conversation() {
    let acp = Acp::offering("resume");
    let process = acp.run(&[], "die");
    // It is told to continue, and has nothing to say to that.
    acp.await_idle(&process, 2);
    assert_eq!(acp.heard().iter().filter(|method| *method == "session/resume").count(), 1, "{:?}", acp.heard());
    acp.world.relive(&["send", &process.uuid, "say Here."]).ok();
    acp.await_idle(&process, 3);
    assert_eq!(acp.said(&process).last().unwrap(), "Here.");
}

#[test]
fn a_command_in_place_of_a_name_is_an_acp_agent_for_a_person_and_no_one_else() {
    let acp = Acp::offering("");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/acp_agent.py");
    let environment = [("STATE", acp.state.to_str().unwrap())];
    let agent = format!("acp:python3 {program}");
    let ran = acp.world.relive_with(&environment, &["run", "-n", "--agent", &agent, "say Hello."]).ok();
    assert_eq!(ran.stdout, "Hello.\n");
    // A program that has no right to run anything else.
    let inside = format!("{} run -d --agent '{agent}' 'say no' 2> refused; true", env!("CARGO_BIN_EXE_relive"));
    acp.world.relive(&["exec", "--", "sh", "-c", &inside]).ok();
    let refused = fs::read_to_string(acp.world.work().join("refused")).unwrap();
    assert!(refused.contains("only a person can name an agent by its command"), "{refused}");
    acp.world.relive(&["run", "-d", "--agent", "two words", "x"]).fails(2, &["acp:COMMAND"]);
}

/// An agent of this name, which is the small one, and asks a provider that is set by its environment.
fn counted(name: &'static str, base: &'static str, key: &'static str, path: &str) {
    let server = FakeModel::start_for_agents([Turn::text("one").usage(300, 7, 0), Turn::text("two").usage(20, 3, 0)]);
    let world = World::new();
    let (state, bin) = (world.root().join("conversations"), world.root().join("bin"));
    fs::create_dir_all(&state).unwrap();
    fs::create_dir_all(&bin).unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/acp_agent.py");
    write_program(&bin.join(name), &format!("#!/bin/sh\nexec python3 {program}\n"));
    let found = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let world = world
        .with_env("PATH", found)
        .with_env(base, format!("{}{path}", server.base_url()))
        .with_env(key, "planted")
        .with_env("STATE", state.to_str().unwrap());
    let acp = Acp { world, state };
    let args = ["run", "-d", "--json", "--agent", name, "--max-tokens", "310", "call big\nsay Once."];
    let process = begun(&acp.world.relive(&args).ok().json());
    let info = acp.await_idle(&process, 1);
    assert_eq!(acp.said(&process), ["calledOnce."]);
    assert_eq!((&info["tokens_in"], &info["tokens_out"]), (&json!(300), &json!(7)), "{info}");
    assert_eq!((&info["agent"]["usage"], &info["agent"]["gateway"]["calls"]), (&json!("counted"), &json!(1)));
    // The key stays in the gateway.
    assert_eq!(server.requests()[0].key.as_deref(), Some("planted"));
    // What is left is less than an answer: it is enough for one more call at most.
    acp.world.relive(&["send", &process.uuid, "call big\nsay Twice.\ncall big"]).ok();
    let ended = acp.world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&ended["why"], &ended["exit_code"]), (&json!("budget"), &json!(2)), "{ended}");
    assert!(server.requests().len() <= 2, "{:?}", server.requests());
    acp.assert_nothing_left(&info);
}

#[test]
fn the_calls_of_a_qwen_are_counted_and_limited_by_the_gateway() {
    counted("qwen", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1");
}

#[test]
fn the_calls_of_a_gemini_are_counted_and_limited_by_the_gateway() {
    counted("gemini", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", "");
}

/// The real programs, where `scripts/install-agents all` has installed them: a permission that outlives the daemon.
fn real(name: &str, tool: &str) -> Option<(Agents, Begun)> {
    let call = |command: &str| Turn::calls(tool, json!({"command": command, "description": "a command"}));
    let turns = [call("echo made > made"), Turn::text("It is done."), call("rm made"), Turn::text("It is not.")];
    let test = format!("real({name})");
    let agents = Agents::new(&test, name, turns)?.with_acp_settings();
    let process = agents.run(name, &[]);
    agents.world.await_display(&process.uuid, "approval");
    agents.world.kill_daemon();
    agents.world.await_display(&process.uuid, "approval");
    agents.world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    let info = agents.await_idle(&process, 1);
    assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
    let counted = if name == "opencode" { "claimed" } else { "counted" };
    assert_eq!(info["agent"]["usage"], counted, "{info}");
    Some((agents, process))
}

/// How long a gemini waits at most before it continues a conversation: for the end of the minute in which its last program may
/// have named it, which it does within 30 seconds.
const GEMINI_CONTINUES_WITHIN: Duration = Duration::from_secs(90);

/// Waits until a process has recorded this many starts of its program.
pub(crate) fn await_launches(agents: &Agents, process: &Begun, count: usize) {
    wait_after(GEMINI_CONTINUES_WITHIN, "its next program starts", || {
        let records = agents.world.records(&process.uuid, "cli");
        (records.iter().filter(|record| record["launched"].is_object()).count() == count).then_some(())
    });
}

/// The same program is killed, and its conversation continues in another one.
fn real_continues(name: &str, tool: &str) {
    let Some((agents, process)) = real(name, tool) else { return };
    agents.world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
    agents.world.await_field(&process.uuid, "state", "dead");
    agents.world.relive(&["resume", &process.uuid, "--input", "the second task"]).ok();
    await_launches(&agents, &process, 2);
    agents.world.await_display(&process.uuid, "approval");
    agents.world.relive(&["resolve", &process.uuid, "--deny"]).ok();
    wait_until("the turn is over", || agents.world.info(&process.uuid)["agent"]["lifecycle"] == "idle");
    assert!(agents.world.work().join("made").exists());
    assert!(agents.last_question().contains("the second task"));
    agents.world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
    let ended = agents.world.await_field(&process.uuid, "state", "dead");
    agents.assert_nothing_left(&ended["session"]["host_pid"]);
}

#[test]
fn real_acp_agents_ask_and_continue_opencode() {
    real_continues("opencode", "bash");
}

#[test]
fn real_acp_agents_ask_and_continue_qwen() {
    real_continues("qwen", "run_shell_command");
}

#[test]
fn real_acp_agents_ask_and_continue_gemini() {
    real_continues("gemini", "run_shell_command");
}

#[test]
fn a_program_that_ends_without_an_answer_has_failed_and_its_message_is_kept() {
    let acp = Acp::offering("");
    let agents = acp.world.root().join("config/relive/agents");
    let errors = "command: [sh, -c, 'echo Error: not logged in >&2; exit 0']\ndialect: acp\n";
    fs::write(agents.join("errors.yaml"), errors).unwrap();
    fs::write(agents.join("words.yaml"), "command: [echo, hello]\ndialect: claude\n").unwrap();
    let check = |agent: &str, said: &str| {
        let ran = acp.world.relive(&["run", "--agent", agent, "do the work"]).exits(1);
        assert!(ran.stderr.contains(said), "{agent}: {}", ran.stderr);
    };
    check("acp:/bin/true", "the agent ended before it began to answer");
    check("errors", "the agent ended before it began to answer: Error: not logged in");
    check("words", "the agent ended before it began to answer");
    // A later program of the process gets the message.
    let process = begun(&acp.world.relive(&["run", "-d", "--json", "--agent", "errors", "say I am back."]).ok().json());
    acp.world.await_field(&process.uuid, "state", "dead");
    let listed = acp.world.relive(&["logs", &process.uuid]).ok().stdout;
    assert!(listed.contains("> say I am back."), "{listed}");
}

#[test]
fn a_program_that_ends_in_its_turn_without_a_word_gets_its_message_again() {
    let acp = Acp::offering("load");
    let process = acp.run(&[], "leave");
    let ended = acp.world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&ended["exit_code"], &ended["status"]["kind"]), (&json!(1), &json!("faulted")), "{ended}");
    assert!(ended.to_string().contains("the agent ended in the middle of its turn"), "{ended}");
    // Each of the three programs after the first one was told it.
    assert_eq!(acp.heard().iter().filter(|method| *method == "session/prompt").count(), 4);
}

#[test]
fn a_crash_with_an_open_request_continues_by_itself_and_not_by_a_person() {
    let acp = Acp::offering("load");
    let process = acp.run(&[], "run echo made > made");
    let info = acp.world.await_display(&process.uuid, "approval");
    kill(u32::try_from(info["session"]["host_pid"].as_u64().unwrap()).unwrap(), rustix::process::Signal::KILL);
    wait_until("it is started again", || acp.world.records(&process.uuid, "resumed").len() == 1);
    assert_eq!(acp.world.records(&process.uuid, "resumed")[0]["by"], "withdrawn");
    let logs = acp.world.relive(&["logs", &process.uuid]).ok().stdout;
    assert!(logs.contains("-- resumed because its request was closed") && !logs.contains("by you"), "{logs}");
}
