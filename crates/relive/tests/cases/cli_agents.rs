//! The CLI agents of other vendors as processes: the real programs, against a server that plays their model.

use std::fs;
use std::path::{Path, PathBuf};

use relive_fake_model::{Failure, FakeModel, Turn};
use serde_json::{Value, json};

use crate::world::{Begun, World, begun, wait_for, wait_until};

/// A user who has the agents, and whose model is the server.
pub(crate) struct Agents {
    pub(crate) world: World,
    pub(crate) server: FakeModel,
}

/// Returns the directory of the installed agents, or says that the test is skipped.
fn installed(test: &str, agent: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_relive")).parent()?.parent()?;
    let bin = target.join("agents/bin");
    if bin.join(agent).exists() {
        return Some(bin);
    }
    eprintln!("skipped: {test}: {agent} is not installed: scripts/install-agents");
    None
}

impl Agents {
    pub(crate) fn new(test: &str, agent: &str, turns: impl IntoIterator<Item = Turn>) -> Option<Self> {
        Self::with_config(test, agent, "", turns)
    }

    pub(crate) fn with_config(
        test: &str,
        agent: &str,
        yaml: &str,
        turns: impl IntoIterator<Item = Turn>,
    ) -> Option<Self> {
        let bin = installed(test, agent)?;
        let server = FakeModel::start_for_agents(turns);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let world = World::with_config(yaml)
            .with_env("PATH", path)
            .with_env("ANTHROPIC_BASE_URL", server.base_url())
            .with_env("ANTHROPIC_API_KEY", "planted")
            .with_env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .with_env("DISABLE_AUTOUPDATER", "1")
            .with_env("OPENAI_API_KEY", "planted");
        let codex = world.root().join("home/.codex");
        fs::create_dir_all(&codex).unwrap();
        let config = format!(
            "model = \"gpt-5.1-codex\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
             [model_providers.fake]\nname = \"fake\"\nbase_url = \"{}\"\nenv_key = \"OPENAI_API_KEY\"\n\
             wire_api = \"responses\"\nsupports_websockets = false\n[analytics]\nenabled = false\n",
            server.openai_base_url()
        );
        fs::write(codex.join("config.toml"), config).unwrap();
        Some(Self { world, server })
    }

    /// Writes the settings by which gemini, opencode and qwen ask the server.
    pub(crate) fn with_acp_settings(self) -> Self {
        let (home, url) = (self.world.root().join("home"), self.server.openai_base_url());
        let quiet = r#""privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"general":{"enableAutoUpdate":false}"#;
        for (directory, auth) in [(".gemini", "gemini-api-key"), (".qwen", "openai")] {
            fs::create_dir_all(home.join(directory)).unwrap();
            let auth = format!(r#"{{"security":{{"auth":{{"selectedType":"{auth}"}}}},{quiet}}}"#);
            fs::write(home.join(directory).join("settings.json"), auth).unwrap();
        }
        let options = json!({"baseURL": url, "apiKey": "planted"});
        let models = json!({"fake-model": {"name": "fake", "limit": {"context": 200_000, "output": 8000}}});
        let provider =
            json!({"npm": "@ai-sdk/openai-compatible", "name": "fake", "options": options, "models": models});
        let settings = json!({
            "autoupdate": false, "share": "disabled", "model": "fake/fake-model", "small_model": "fake/fake-model",
            "provider": {"fake": provider}, "permission": {"bash": "ask"},
        });
        fs::write(self.world.work().join("opencode.json"), settings.to_string()).unwrap();
        let world = self.world.with_env("OPENAI_BASE_URL", url).with_env("OPENAI_MODEL", "fake-model");
        let world =
            world.with_env("GOOGLE_GEMINI_BASE_URL", self.server.base_url()).with_env("GEMINI_API_KEY", "planted");
        let world = world.with_env("GEMINI_CLI_TRUST_WORKSPACE", "true").with_env("OPENCODE_DISABLE_MODELS_FETCH", "1");
        Self { world, server: self.server }
    }

    #[track_caller]
    pub(crate) fn run(&self, agent: &str, flags: &[&str]) -> Begun {
        let mut args = vec!["run", "-d", "--json", "--agent", agent];
        args.extend(flags);
        args.push("the task");
        begun(&self.world.relive(&args).ok().json())
    }

    /// Waits until the agent has done its turns and waits for the next one.
    #[track_caller]
    pub(crate) fn await_idle(&self, process: &Begun, turns: usize) -> Value {
        wait_for(&format!("{turns} turns of {} are over", process.uuid), || {
            let info = self.world.info(&process.uuid);
            (self.turns(process) == turns && info["agent"]["lifecycle"] == "idle").then_some(info)
        })
    }

    /// Counts the turns that have ended.
    pub(crate) fn turns(&self, process: &Begun) -> usize {
        let is_over = |record: &&Value| matches!(record["turn"]["state"].as_str(), Some("completed" | "failed"));
        self.world.records(&process.uuid, "cli").iter().filter(is_over).count()
    }

    /// What the agent said, in order.
    pub(crate) fn said(&self, process: &Begun) -> Vec<String> {
        let ended = self.world.records(&process.uuid, "model_ended");
        ended.iter().filter_map(|record| record["text"].as_str().map(str::to_owned)).collect()
    }

    /// The last question that the model was asked, with tools.
    pub(crate) fn last_question(&self) -> String {
        let requests = self.server.requests();
        let asked = requests.iter().rev().find(|request| request.body["tools"].is_array());
        asked.map(|request| request.body.to_string()).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn assert_nothing_left(&self, host_pid: &Value) {
        let path = format!("/proc/{host_pid}");
        wait_until("the agent's program is gone", || !Path::new(&path).exists());
    }
}

pub(crate) fn bash(command: &str) -> Turn {
    Turn::calls("Bash", json!({"command": command, "description": "a command"}))
}

/// A command that codex has to ask for.
pub(crate) fn escalated(command: &str) -> Turn {
    let args = json!({"cmd": command, "sandbox_permissions": "require_escalated", "justification": "needed"});
    Turn::calls("exec_command", args)
}

#[test]
fn a_claude_asks_for_permission_works_and_its_tokens_are_those_of_the_provider() {
    let test = "a_claude_asks_for_permission";
    let turns = [bash("echo made > made").then("I will."), Turn::text("It is done.").usage(300, 7, 0)];
    let Some(agents) = Agents::new(test, "claude", turns) else { return };
    let process = agents.run("claude", &[]);
    let info = agents.world.await_display(&process.uuid, "approval");
    assert_eq!((&info["suspend_reason"], &info["approval"]["tool"]), (&json!("approval"), &json!("Bash")));
    assert_eq!(info["approval"]["args"]["command"], "echo made > made");
    assert_eq!((&info["body"], &info["agent"]["dialect"]), (&json!("cli"), &json!("claude")));
    assert!(!agents.world.work().join("made").exists());
    agents.world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    let info = agents.await_idle(&process, 1);
    assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
    assert_eq!(agents.said(&process), ["I will.", "It is done."]);
    let (input, output) = agents.server.handed_out();
    assert_eq!((&info["tokens_in"], &info["tokens_out"]), (&json!(input), &json!(output)));
    assert!(info["agent"]["idle_kill_at"].is_string() && info["doing"].as_str().unwrap().starts_with("idle, ends in"));
    // A second answer is told of the first.
    agents.world.relive(&["resolve", &process.uuid, "--deny"]).fails(3, &["was allowed"]);
    let (host_pid, session) = (info["session"]["host_pid"].clone(), info["agent"]["session_id"].clone());
    assert_eq!(session, json!(process.uuid), "its conversation has the UUID of the process");
    agents.world.relive(&["kill", &process.uuid]).ok();
    let ended = agents.world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&ended["status"]["kind"], &ended["why"]), (&json!("killed"), &json!("user")));
    agents.assert_nothing_left(&host_pid);
    let logs = agents.world.relive(&["logs", &process.uuid]).ok().stdout;
    assert!(logs.starts_with("> the task\nI will.\n  Bash {\"command\":"), "{logs}");
}

#[test]
fn a_denied_request_is_told_to_the_model_with_the_reason_and_survives_a_killed_daemon() {
    let test = "a_denied_request";
    let turns = [bash("echo made > made"), Turn::text("I understand.")];
    let Some(agents) = Agents::new(test, "claude", turns) else { return };
    let process = agents.run("claude", &[]);
    let before = agents.world.await_display(&process.uuid, "approval");
    agents.world.kill_daemon();
    let info = agents.world.await_display(&process.uuid, "approval");
    assert_eq!(info["approval"], before["approval"]);
    assert_eq!(info["session"]["host_pid"], before["session"]["host_pid"], "the program was not disturbed");
    agents.world.relive(&["resolve", &process.uuid, "--deny", "--reason", "not on a Tuesday"]).ok();
    agents.await_idle(&process, 1);
    assert!(!agents.world.work().join("made").exists());
    assert!(agents.last_question().contains("not on a Tuesday"), "{}", agents.last_question());
    // Nothing is recorded twice by the second daemon.
    assert_eq!(agents.said(&process), ["I understand."]);
    assert_eq!(agents.world.records(&process.uuid, "model_ended").len(), 2);
}

#[test]
fn an_agent_that_only_waits_for_its_background_command_says_which() {
    let test = "an_agent_that_only_waits";
    let args = json!({"command": "until [ -e go ]; do sleep 0.05; done", "description": "wait for go", "run_in_background": true});
    let turns = [Turn::calls("Bash", args), Turn::text("It runs."), Turn::text("It is over.")];
    let Some(agents) = Agents::new(test, "claude", turns) else { return };
    let process = agents.run("claude", &["-y"]);
    wait_until("its turn is over", || agents.turns(&process) == 1);
    wait_until("it says what it waits for", || {
        let info = agents.world.info(&process.uuid);
        info["agent"]["activity"] == "running_tool"
            && info["doing"].as_str().is_some_and(|does| does.starts_with("background: wait for go "))
    });
    fs::write(agents.world.work().join("go"), "").unwrap();
    agents.await_idle(&process, 2);
}

#[test]
fn a_message_that_claude_takes_into_its_turn_is_told_once() {
    let test = "a_message_that_claude_takes";
    let turns = [bash("while [ ! -e go ]; do sleep 0.05; done"), Turn::text("one"), Turn::text("two")];
    let Some(agents) = Agents::new(test, "claude", turns) else { return };
    let process = agents.run("claude", &["-y"]);
    wait_until("the tool runs", || agents.world.info(&process.uuid)["agent"]["activity"] == "running_tool");
    agents.world.relive(&["send", &process.uuid, "and this"]).ok();
    let folder = agents.world.info(&process.uuid)["session"]["folder"].as_str().unwrap().to_owned();
    wait_until("claude has it", || {
        let log = fs::read(Path::new(&folder).join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).matches(r#""state":"queued""#).count() == 2
    });
    fs::write(agents.world.work().join("go"), "").unwrap();
    agents.await_idle(&process, 1);
    assert_eq!((agents.said(&process).concat().as_str(), agents.last_question().contains("and this")), ("one", true));
    agents.world.relive(&["kill", &process.uuid]).ok();
    agents.world.await_field(&process.uuid, "state", "dead");
    agents.world.relive(&["resume", &process.uuid, "--input", "the end"]).ok();
    agents.await_idle(&process, 2);
    let asked = agents.last_question();
    assert_eq!((asked.matches("and this").count(), asked.contains("the end")), (1, true), "{asked}");
}

/// A question of claude's own.
fn asks(questions: &Value) -> Turn {
    Turn::calls("AskUserQuestion", json!({ "questions": questions }))
}

fn colour() -> Value {
    let options = json!([{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]);
    json!({"question": "Which colour?", "header": "Colour", "options": options, "multiSelect": false})
}

#[test]
fn a_question_of_claude_is_a_question_of_the_process_and_its_answer_reaches_the_model() {
    let test = "a_question_of_claude";
    let size = json!([{"label": "large", "description": ""}, {"label": "small", "description": ""}]);
    let size = json!({"question": "Which size?", "header": "Size", "options": size, "multiSelect": false});
    let turns = [asks(&json!([colour()])), asks(&json!([colour(), size])), Turn::text("Painted.")];
    let Some(agents) = Agents::new(test, "claude", turns) else { return };
    let process = agents.run("claude", &["--name", "painter"]);
    let info = agents.world.await_display(&process.uuid, "question");
    assert_eq!((&info["suspend_reason"], &info["question"]["choices"]), (&json!("question"), &json!(["red", "blue"])));
    let items = agents.world.relive(&["inbox", "--json"]).ok().json();
    let item = &items["items"][0];
    assert_eq!((&item["kind"], &item["text"]), (&json!("question"), &json!("Which colour? red: warm blue: cold")));
    let proposed: Vec<&str> = item["answers"].as_array().unwrap().iter().filter_map(|by| by["text"].as_str()).collect();
    assert!(proposed.contains(&"red") && proposed.contains(&"blue"), "{item}");
    agents.world.relive(&["resolve", "painter", "--allow"]).fails(3, &["asks a question"]);
    agents.world.relive(&["resolve", "painter", "--answer", "2"]).ok();
    let next = wait_for("it asks for two things", || {
        let question = agents.world.info(&process.uuid)["question"].clone();
        question["text"].as_str().is_some_and(|text| text.contains("Which size?")).then_some(question)
    });
    assert!(agents.last_question().contains(r#"\"Which colour?\"=\"blue\""#), "{}", agents.last_question());
    assert!(next["text"].as_str().unwrap().contains("2. Which size? [large, small]"), "{next}");
    let earlier = info["question"]["id"].to_string();
    let told = agents.world.relive(&["resolve", "painter", "--answer", "red", "--question", &earlier]);
    told.fails(3, &["has its answer already: blue"]);
    agents.world.relive(&["resolve", "painter", "--answer", "green, in my words\nlarge"]).ok();
    agents.await_idle(&process, 1);
    let question = agents.last_question();
    for answer in [r#"\"Which colour?\"=\"green, in my words\""#, r#"\"Which size?\"=\"large\""#] {
        assert!(question.contains(answer), "{question}");
    }
    assert_eq!(agents.said(&process), ["Painted."]);
}

#[test]
fn a_question_of_claude_and_its_answer_survive_a_killed_daemon() {
    let test = "a_question_of_claude_survives";
    let turns = [asks(&json!([colour()])), Turn::text("Painted.")];
    let Some(agents) = Agents::new(test, "claude", turns) else { return };
    // What may be done without asking is not what is answered without asking.
    let process = agents.run("claude", &["-y"]);
    let before = agents.world.await_display(&process.uuid, "question");
    agents.world.kill_daemon();
    let after = agents.world.await_display(&process.uuid, "question");
    assert_eq!(after["question"], before["question"]);
    assert_eq!(after["session"]["host_pid"], before["session"]["host_pid"], "the program was not disturbed");
    agents.world.relive(&["resolve", &process.uuid, "--answer", "red"]).ok();
    // Acknowledged means durable.
    agents.world.kill_daemon();
    agents.await_idle(&process, 1);
    assert!(agents.last_question().contains(r#"\"Which colour?\"=\"red\""#), "{}", agents.last_question());
    assert_eq!(agents.said(&process), ["Painted."]);
    let questions = agents.world.records(&process.uuid, "question");
    assert_eq!(questions.len(), 2, "it is asked once, and answered once: {questions:?}");
}

/// A question of codex's own.
fn codex_asks(questions: &Value) -> Turn {
    Turn::calls("request_user_input", json!({ "questions": questions }))
}

#[test]
fn a_question_of_codex_is_a_question_of_the_process_and_its_answer_reaches_the_model() {
    let test = "a_question_of_codex";
    let option = |label: &str, about: &str| json!({"label": label, "description": about});
    let colour = json!({"id": "colour", "header": "Colour", "question": "Which colour?",
        "options": [option("red", "warm"), option("blue", "cold")]});
    let size = json!({"id": "size", "header": "Size", "question": "Which size?",
        "options": [option("large", "much"), option("small", "little")]});
    let turns = [codex_asks(&json!([colour])), codex_asks(&json!([colour, size])), Turn::text("Painted.")];
    let Some(agents) = Agents::new(test, "codex", turns) else { return };
    let config = agents.world.root().join("home/.codex/config.toml");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(config, format!("{before}[features]\ndefault_mode_request_user_input = true\n")).unwrap();
    let process = agents.run("codex", &["--name", "painter"]);
    let info = agents.world.await_display(&process.uuid, "question");
    assert_eq!((&info["suspend_reason"], &info["question"]["choices"]), (&json!("question"), &json!(["red", "blue"])));
    // The question and its answer survive the daemon, and the program is not disturbed.
    agents.world.kill_daemon();
    let after = agents.world.await_display(&process.uuid, "question");
    assert_eq!(after["question"], info["question"]);
    assert_eq!(after["session"]["host_pid"], info["session"]["host_pid"]);
    agents.world.relive(&["resolve", "painter", "--answer", "2"]).ok();
    agents.world.kill_daemon();
    let next = wait_for("it asks for two things", || {
        let question = agents.world.info(&process.uuid)["question"].clone();
        question["text"].as_str().is_some_and(|text| text.contains("Which size?")).then_some(question)
    });
    assert!(next["text"].as_str().unwrap().contains("2. Which size? [large, small]"), "{next}");
    let answer = |id: &str, text: &str| format!(r#"\"{id}\":{{\"answers\":[\"{text}\"]}}"#);
    assert!(agents.last_question().contains(&answer("colour", "blue")), "{}", agents.last_question());
    agents.world.relive(&["resolve", "painter", "--answer", "green, in my words\nlarge"]).ok();
    agents.await_idle(&process, 1);
    let question = agents.last_question();
    for expect in [answer("colour", "green, in my words"), answer("size", "large")] {
        assert!(question.contains(&expect), "{question}");
    }
    assert_eq!(agents.said(&process), ["Painted."]);
    let questions = agents.world.records(&process.uuid, "question");
    assert_eq!(questions.len(), 4, "each is asked once, and answered once: {questions:?}");
}

#[test]
fn a_codex_asks_for_permission_and_takes_messages_one_after_the_other() {
    let test = "a_codex_asks_for_permission";
    let turns = [escalated("echo made > made"), Turn::text("Done."), Turn::text("Again."), Turn::text("And again.")];
    let Some(agents) = Agents::new(test, "codex", turns) else { return };
    let process = agents.run("codex", &[]);
    let info = agents.world.await_display(&process.uuid, "approval");
    assert_eq!(info["agent"]["dialect"], "codex-app-server");
    // While it waits, messages wait too.
    agents.world.relive(&["send", &process.uuid, "the second task"]).ok();
    agents.world.relive(&["send", &process.uuid, "the third task"]).ok();
    agents.world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    let info = agents.await_idle(&process, 3);
    assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
    assert_eq!(agents.said(&process), ["Done.", "Again.", "And again."]);
    let (input, output) = agents.server.handed_out();
    assert_eq!((&info["tokens_in"], &info["tokens_out"]), (&json!(input), &json!(output)));
    assert!(agents.last_question().contains("the third task"));
}

/// The daemon is killed while a tool of the agent runs.
fn not_disturbed(agent: &str, tool: fn(&str) -> Turn) {
    let test = format!("not_disturbed({agent})");
    let command = "echo begun >> log; while [ ! -e go ]; do sleep 0.05; done; echo over >> log";
    let Some(agents) = Agents::new(&test, agent, [tool(command), Turn::text("It is over.")]) else { return };
    let process = agents.run(agent, &["-y"]);
    let log = agents.world.work().join("log");
    wait_until("the tool runs", || log.exists());
    agents.world.await_records(&process, "model_ended", 1);
    agents.world.kill_daemon();
    let info = wait_for("it is adopted", || {
        Some(agents.world.info(&process.uuid)).filter(|info| info["agent"]["activity"] == "running_tool")
    });
    assert!(info["doing"].as_str().unwrap().contains("echo begun"), "{info}");
    fs::write(agents.world.work().join("go"), "").unwrap();
    agents.await_idle(&process, 1);
    assert_eq!(fs::read_to_string(log).unwrap(), "begun\nover\n");
    assert_eq!(agents.said(&process), ["It is over."]);
    assert_eq!(agents.world.records(&process.uuid, "call_ended").len(), 1);
}

#[test]
fn a_killed_daemon_does_not_disturb_a_claude() {
    not_disturbed("claude", bash);
}

#[test]
fn a_killed_daemon_does_not_disturb_a_codex() {
    not_disturbed("codex", escalated);
}

/// A program that is killed, the conversation that continues, and its fork.
fn continues(agent: &str) {
    let test = format!("continues({agent})");
    let turns = ["one", "two", "three", "four"].map(Turn::text);
    let Some(agents) = Agents::new(&test, agent, turns) else { return };
    let process = agents.run(agent, &[]);
    let info = agents.await_idle(&process, 1);
    let host_pid = info["session"]["host_pid"].as_i64().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(host_pid).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let ended = agents.world.await_field(&process.uuid, "state", "dead");
    assert_eq!(ended["status"]["kind"], "killed");
    agents.world.relive(&["resume", &process.uuid, "--input", "the second task"]).ok();
    let info = agents.await_idle(&process, 2);
    assert!(agents.last_question().contains("the task") && agents.last_question().contains("the second task"));
    assert_eq!(agents.said(&process), ["one", "two"]);
    agents.world.relive(&["resume", "--fork", "--from-step", "1", &process.uuid]).fails(2, &["whole conversation"]);
    let forked = agents.world.relive(&["resume", "--json", "--fork", &process.uuid, "--input", "the fork's task"]);
    let fork = begun(&forked.ok().json());
    let fork_info = agents.await_idle(&fork, 3);
    assert_ne!(fork_info["agent"]["session_id"], info["agent"]["session_id"]);
    let asked = agents.last_question();
    assert!(asked.contains("the second task") && asked.contains("the fork's task"), "{asked}");
    // The original knows nothing of it.
    agents.world.relive(&["send", &process.uuid, "the last task"]).ok();
    agents.await_idle(&process, 3);
    assert!(!agents.last_question().contains("the fork's task"));
}

#[test]
fn a_claude_that_was_killed_continues_its_conversation_and_is_forked() {
    continues("claude");
}

#[test]
fn a_codex_that_was_killed_continues_its_conversation_and_is_forked() {
    continues("codex");
}

#[test]
fn case_44_an_idle_agent_ends_and_the_next_message_resumes_the_same_conversation() {
    let test = "case_44";
    let command = "while [ ! -e go ]; do sleep 0.05; done";
    let turns = [bash(command), Turn::text("one"), Turn::text("two")];
    let config = "pool: {idle_timeout: 1s}\n";
    let Some(agents) = Agents::with_config(test, "claude", config, turns) else { return };
    let process = agents.run("claude", &["-y"]);
    wait_until("the tool runs", || {
        let info = agents.world.info(&process.uuid);
        // However silent, it is not idle, so there is no countdown.
        assert!(info["agent"]["idle_kill_at"].is_null() || info["agent"]["lifecycle"] == "idle", "{info}");
        info["agent"]["activity"] == "running_tool"
    });
    let host_pid = agents.world.info(&process.uuid)["session"]["host_pid"].clone();
    fs::write(agents.world.work().join("go"), "").unwrap();
    let ended = agents.world.await_field(&process.uuid, "state", "dead");
    assert_eq!((&ended["why"], &ended["exit"]["reason"]), (&json!("idle"), &json!("idle")));
    assert_eq!(ended["agent"]["lifecycle"], "killed");
    agents.assert_nothing_left(&host_pid);
    let sent = agents.world.relive(&["send", "--json", &process.uuid, "the second task"]).ok().json();
    assert!(sent["note"].as_str().unwrap().contains("continues as PID"), "{sent}");
    wait_until("it has answered", || agents.said(&process) == ["one", "two"]);
    assert!(agents.last_question().contains("the task") && agents.last_question().contains("the second task"));
}

#[test]
fn a_run_in_the_foreground_ends_with_its_turn_and_a_failed_turn_is_a_failure() {
    let test = "a_run_in_the_foreground";
    // It asks again, a few times.
    let failing = (0..20).fold(Turn::text("never"), |turn, _| turn.after(Failure::Status(400, None)));
    let Some(agents) = Agents::new(test, "claude", [Turn::text("Hello."), failing]) else { return };
    let ran = agents.world.relive(&["run", "-n", "--agent", "claude", "the task"]).ok();
    assert_eq!(ran.stdout, "Hello.\n");
    let listed = agents.world.relive(&["ps", "-a", "--json"]).ok().json();
    let uuid = listed["processes"][0]["uuid"].as_str().unwrap().to_owned();
    assert_eq!(listed["processes"][0]["exit"]["reason"], "completed");
    agents.world.relive(&["resume", &uuid, "--input", "the second task"]).ok();
    let ended = agents.world.await_field(&uuid, "state", "dead");
    assert_eq!((&ended["status"]["kind"], &ended["exit_code"]), (&json!("faulted"), &json!(1)), "{ended}");
}

#[test]
fn a_paused_claude_stands_still_and_takes_its_messages_when_it_is_resumed() {
    let test = "a_paused_claude";
    let command = "while [ ! -e go ]; do sleep 0.05; done";
    let turns = [bash(command), Turn::text("one"), Turn::text("two")];
    let Some(agents) = Agents::new(test, "claude", turns) else { return };
    let process = agents.run("claude", &["-y"]);
    wait_until("the tool runs", || agents.world.info(&process.uuid)["agent"]["activity"] == "running_tool");
    agents.world.relive(&["pause", "--now", &process.uuid]).ok();
    let info = agents.world.await_display(&process.uuid, "suspended");
    assert_eq!(info["session"]["frozen"], true);
    agents.world.relive(&["send", &process.uuid, "the second task"]).ok();
    fs::write(agents.world.work().join("go"), "").unwrap();
    agents.world.kill_daemon();
    wait_until("it is frozen", || agents.world.info(&process.uuid)["session"]["frozen"] == true);
    assert_eq!(agents.server.requests().len(), 1);
    agents.world.relive(&["resume", &process.uuid]).ok();
    wait_until("both tasks are done", || agents.last_question().contains("the second task"));
    agents.await_idle(&process, agents.turns(&process).max(1));
}

#[test]
fn options_that_a_cli_agent_does_not_support_are_refused_by_name() {
    let world = World::new();
    let run = |flags: &[&str]| {
        let mut args = vec!["run", "-d", "--agent", "claude"];
        args.extend(flags);
        args.push("the task");
        world.relive(&args)
    };
    run(&["--system", "x"]).fails(2, &["--system cannot be used with the CLI agent `claude`"]);
    run(&["--ask", "shell"]).fails(2, &["--allow, --ask and --deny cannot be used", "relive resolve"]);
    run(&["--max-steps", "5"]).fails(2, &["--max-steps cannot be used with the CLI agent `claude`"]);
    run(&["--max-tokens", "5"]).fails(2, &["can only be limited in time", "ANTHROPIC_API_KEY is not set", "--timeout"]);
    run(&["--isolation", "sealed"]).fails(2, &["cannot be sealed", "--isolation confined"]);
    run(&["--net", "none"]).fails(2, &["needs the network of this machine", "--net full"]);
    let listed = ["--isolation", "confined", "--net", "allow:example.com"];
    run(&listed).fails(2, &["needs the network of this machine", "--net full"]);
    let unknown = ["run", "-d", "--agent", "acp:mine --acp", "--isolation", "confined", "x"];
    world.relive(&unknown).fails(2, &["does not know the directory of its conversations", "state: [~/.mine]"]);
    let native = world.relive(&["run", "-d", "--memory", "1G", "x"]);
    native.fails(2, &["--agent"]);
    let unknown = world.relive(&["run", "-d", "--agent", "claud", "x"]);
    unknown.fails(2, &["no agent `claud`", "did you mean `claude`?"]);
    // A repository must not decide which program runs.
    fs::create_dir_all(world.work().join("agents")).unwrap();
    fs::write(world.work().join("agents/mine.yaml"), "command: [touch, owned]\ndialect: claude\n").unwrap();
    let refused = world.relive(&["run", "-d", "--agent", "mine", "x"]);
    refused.fails(2, &["`command`, `env` and `state` are not accepted from a file of the working directory"]);
    assert!(!world.work().join("owned").exists());
}

#[test]
fn an_agent_file_names_another_program_and_its_environment() {
    let world = World::new();
    let agents = world.root().join("config/relive/agents");
    fs::create_dir_all(&agents).unwrap();
    // It speaks the language of claude, as far as it needs to.
    let program = r#"read line; echo "$line" > heard; env > env
printf '{"type":"system","subtype":"init","session_id":"s1","model":"m","tools":[]}\n'
printf '{"type":"assistant","message":{"id":"1","role":"assistant","content":[{"type":"text","text":"%s"}]}}\n' "$1 $2"
printf '{"type":"result","subtype":"success","is_error":false,"session_id":"s1","usage":{"input_tokens":3,"output_tokens":1}}\n'
cat > /dev/null"#;
    fs::write(world.root().join("program"), program).unwrap();
    let file = format!(
        "command: [sh, {}]\ndialect: claude\nstart: [begin, '{{session}}']\nenv: {{PLANTED: from-the-file}}\n",
        world.root().join("program").display()
    );
    fs::write(agents.join("mine.yaml"), file).unwrap();
    let ran = world.relive(&["run", "-n", "--json", "--agent", "mine", "the task"]).ok();
    let uuid = ran.json_lines()[0]["uuid"].as_str().map(str::to_owned);
    let listed = world.relive(&["ps", "-a", "--json"]).ok().json();
    let process = &listed["processes"][0];
    assert!(uuid.is_none_or(|uuid| process["uuid"] == uuid.as_str()));
    let uuid = process["uuid"].as_str().unwrap();
    let ended = world.records(uuid, "model_ended");
    assert_eq!(ended[0]["text"], format!("begin {uuid}"));
    assert!(fs::read_to_string(world.work().join("heard")).unwrap().contains("\"text\":\"the task\""));
    assert!(fs::read_to_string(world.work().join("env")).unwrap().contains("PLANTED=from-the-file"));
    // It has no way to continue a conversation.
    let refused = world.relive(&["resume", "--fork", uuid]);
    refused.fails(2, &["a conversation of `mine` cannot be forked: agents/mine.yaml has no `fork`"]);
}

/// A user with an agent `mine` that speaks the language of claude, as far as its shell script needs to. Its arguments are
/// `first`, or `again` in a later run.
fn with_script(script: &str) -> World {
    let world = World::new();
    let agents = world.root().join("config/relive/agents");
    fs::create_dir_all(&agents).unwrap();
    let program = world.root().join("program");
    fs::write(&program, format!("{SAYINGS}{script}")).unwrap();
    let command = format!("command: [sh, {}]\n", program.display());
    let file = format!("{command}dialect: claude\nstart: [first]\nresume: [again]\n");
    fs::write(agents.join("mine.yaml"), file).unwrap();
    world
}

/// What a script can say.
const SAYINGS: &str = r#"take() { IFS= read -r line; echo "$line" >> heard; id=${line##*'"uuid":"'}; id=${id%%'"'*}; }
state() { printf '{"type":"command_lifecycle","command_uuid":"%s","state":"%s","uuid":"u","session_id":"s1"}\n' "$id" "$1"; }
init() { printf '{"type":"system","subtype":"init","session_id":"s1","model":"m","tools":[]}\n'; }
piece() { printf '{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}},"session_id":"s1"}\n' "$1"; }
says() { printf '{"type":"assistant","message":{"id":"1","role":"assistant","content":[{"type":"text","text":"%s"}]}}\n' "$1"; }
result() { printf '{"type":"result","subtype":"success","is_error":false,"session_id":"s1","usage":{"input_tokens":3,"output_tokens":1}}\n'; }
turn() { init; says "$1"; result; }
"#;

#[test]
fn an_answer_that_is_asked_for_again_is_shown_whole() {
    // It is cut off when its beginning has been shown.
    let script = r#"take; init; piece abc
until grep -q abc out; do sleep 0.05; done
printf '{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"retry_delay_ms":10,"error":"overloaded","session_id":"s1"}\n'
piece "second "; piece answer; says "second answer"; result
cat > /dev/null"#;
    let world = with_script(script);
    let out = fs::File::create(world.work().join("out")).unwrap();
    let ran = world.command(&["run", "--agent", "mine", "the task"]).stdout(out).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && told.contains("retrying in 0.0s (overloaded)"), "{told}");
    assert_eq!(fs::read_to_string(world.work().join("out")).unwrap(), "abc\nsecond answer\n");
}

#[test]
fn an_agent_that_ends_in_its_turn_fails_with_the_last_line_of_its_errors() {
    let world = with_script("take; init; says x; echo sorry >&2; exit 3");
    let ran = world.relive(&["run", "--agent", "mine", "the task"]);
    ran.fails(1, &["the agent ended in the middle of its turn: sorry"]);
}

#[test]
fn a_message_that_an_agent_drops_is_sent_to_its_next_program() {
    // It drops its second message, and has a turn of its own after that.
    let script = r#"take; state started; turn "$1"; state completed
[ "$1" = again ] || { take; state queued; state cancelled; until [ -e go ]; do sleep 0.05; done; turn alone; }
cat > /dev/null"#;
    let world = with_script(script);
    let ran = world.relive(&["run", "-d", "--json", "--agent", "mine", "the task"]).ok();
    let uuid = ran.json()["uuid"].as_str().unwrap().to_owned();
    let texts =
        || -> Vec<Value> { world.records(&uuid, "model_ended").iter().map(|said| said["text"].clone()).collect() };
    wait_until("it has answered", || texts() == ["first"]);
    world.relive(&["send", &uuid, "and the docs"]).ok();
    let is_idle = || world.info(&uuid)["agent"]["lifecycle"] == "idle";
    let has_dropped = || world.events(&uuid).iter().any(|event| event["kind"] == "warning");
    wait_until("it has dropped it", || has_dropped() && is_idle());
    fs::write(world.work().join("go"), "").unwrap();
    wait_until("it has worked by itself", || texts() == ["first", "alone"] && is_idle());
    world.relive(&["kill", &uuid]).ok();
    world.await_field(&uuid, "state", "dead");
    world.relive(&["resume", &uuid]).ok();
    wait_until("the next program has answered", || texts().last() == Some(&json!("again")));
    let heard = fs::read_to_string(world.work().join("heard")).unwrap();
    let heard: Vec<bool> = heard.lines().map(|line| line.contains("and the docs")).collect();
    assert_eq!(heard, [false, true, true]);
}

#[test]
fn a_node_of_a_compose_file_is_a_claude_and_its_last_text_is_the_result() {
    let test = "a_node_of_a_compose_file_is_a_claude";
    let Some(agents) = Agents::new(test, "claude", [Turn::text("forty-two")]) else { return };
    let file = "nodes:\n  ask: {cli: claude, intent: the task}\n  \
                tell: {command: [sh, -c, 'echo \"got $RELIVE_RESULT_ask\" > told'], depends_on: [ask], results: [ask]}\n";
    fs::write(agents.world.work().join("tree.yaml"), file).unwrap();
    agents.world.relive(&["compose", "up", "tree.yaml"]).ok();
    assert_eq!(fs::read_to_string(agents.world.work().join("told")).unwrap(), "got forty-two\n");
    let listed = agents.world.relive(&["ps", "-a", "--json"]).ok().json();
    let node = listed["processes"].as_array().unwrap().iter().find(|process| process["body"] == "cli").unwrap();
    agents.assert_nothing_left(&agents.world.info(node["uuid"].as_str().unwrap())["session"]["host_pid"]);
}
