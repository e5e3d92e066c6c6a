//! Whose environment a process has, and that no secret of it is found anywhere else.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use relive_keeper::Keeper;
use serde_json::{Value, json};

use super::recovery::steps_then_hang;
use crate::world::{Begun, Output, World, begun, contents, output, wait_until};

pub(crate) const SECRET: &str = "sk-planted-7f3a9c";

/// Typed in a shell that has these variables as well.
pub(crate) fn typed(world: &World, variables: &[(&str, &str)], args: &[&str]) -> Output {
    output(world.command(args).envs(variables.iter().copied()).output().unwrap())
}

/// The keeper, talked to as the daemon of the next start would; nothing if there is none. The daemon is
/// killed.
pub(crate) fn with_keeper<T>(world: &World, talk: impl FnOnce(&mut Keeper) -> T) -> Option<T> {
    if world.daemon_pid().is_some() {
        world.kill_daemon();
    }
    let lock = fs::File::options().read(true).write(true).open(world.data().join("lock")).unwrap();
    wait_until("the daemon has gone", || lock.try_lock().is_ok());
    let found = Keeper::find(&world.data(), lock.as_fd()).unwrap();
    let told = found.map(|mut keeper| talk(&mut keeper));
    lock.unlock().unwrap();
    told
}

/// The environments that are kept, by UUID. The daemon is killed.
pub(crate) fn kept(world: &World) -> BTreeMap<String, BTreeMap<String, String>> {
    let groups = with_keeper(world, |keeper| keeper.list().unwrap()).unwrap_or_default();
    let named = |key: u128| relive_core::Uuid::from_u128(key).to_string();
    let of = |keys: Vec<u128>, value: &[u8]| {
        let environment: BTreeMap<String, String> = serde_json::from_slice(value).unwrap();
        keys.into_iter().map(move |key| (named(key), environment.clone())).collect::<Vec<_>>()
    };
    groups.into_iter().flat_map(|(keys, value)| of(keys, &value)).collect()
}

/// Forgets the environment of a process, as a boot would. The daemon is killed.
fn forget(world: &World, uuid: &str) {
    let key = uuid.parse::<relive_core::Uuid>().unwrap().as_u128();
    with_keeper(world, |keeper| keeper.remove(&[key]).unwrap()).unwrap();
}

pub(crate) fn run_with(world: &World, variables: &[(&str, &str)], model: &str, flags: &[&str]) -> Begun {
    let mut args = vec!["run", "-d", "--json", "--model", model];
    args.extend(flags);
    args.push("do it");
    begun(&typed(world, variables, &args).ok().json())
}

/// That the secret is in no file of the data or the runtime directory, and in no command line of this machine.
#[track_caller]
pub(crate) fn assert_hidden(world: &World) {
    let holds = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
    let files = contents(&world.data()).into_iter().chain(contents(&world.root().join("run")));
    let found: Vec<PathBuf> = files.filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path).collect();
    assert_eq!(found, Vec::<PathBuf>::new());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!holds(&line), "{:?}: {}", entry.path(), String::from_utf8_lossy(&line));
    }
    if let Some(daemon) = world.daemon_pid() {
        // Who is not root cannot read it at all.
        assert!(!holds(&fs::read(format!("/proc/{daemon}/environ")).unwrap_or_default()), "the daemon has it");
    }
}

#[test]
fn a_process_has_the_environment_of_who_typed_it_and_the_journal_has_its_names() {
    let world = World::new();
    let model = world.hanging();
    let one = run_with(&world, &[("PROJECT", "one"), ("TOKEN", SECRET)], &model, &[]);
    let two = run_with(&world, &[("PROJECT", "two")], &model, &[]);
    world.relive(&["daemon", "restart"]).ok();
    let kept = kept(&world);
    let of = |process: &Begun| &kept[&process.uuid];
    assert_eq!((of(&one)["PROJECT"].as_str(), of(&one)["TOKEN"].as_str()), ("one", SECRET));
    assert_eq!((of(&two)["PROJECT"].as_str(), of(&two).get("TOKEN")), ("two", None));
    assert_eq!(of(&one).get("RELIVE_SOCKET"), None);
    let names = world.records(&one.uuid, "spawned")[0]["env_names"].clone();
    let names: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.is_sorted() && names.contains(&"PROJECT") && names.contains(&"TOKEN"), "{names:?}");
    assert_hidden(&world);
}

#[test]
fn children_and_forks_inherit_the_environment_and_it_is_dropped_with_the_journal() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1}");
    let child = world.script("turns: [{text: hello}]");
    let model = world.script(&format!(
        "turns: [{{calls: [{{name: spawn_agent, args: {{intent: x, name: kid, model: {child}}}}}]}}, {{hang: true}}]"
    ));
    let parent = run_with(&world, &[("TOKEN", SECRET)], &model, &[]);
    let child = world.named("kid");
    world.await_step(&parent, 2);
    let fork =
        begun(&typed(&world, &[("TOKEN", "another")], &["resume", "--fork", "--json", &parent.uuid]).ok().json());
    let all = kept(&world);
    assert_eq!(all[&parent.uuid]["TOKEN"], SECRET);
    assert_eq!((&all[&child.uuid], &all[&fork.uuid]), (&all[&parent.uuid], &all[&parent.uuid]));
    let names = world.records(&fork.uuid, "spawned").last().unwrap()["env_names"].clone();
    assert_eq!(names, world.records(&parent.uuid, "spawned")[0]["env_names"]);
    world.await_retired(&child.uuid);
    world.end(&parent);
    // The fork has a handle to the child that its prefix names.
    assert_eq!(world.relive(&["gc", "--json"]).ok().json()["uuids"], json!([]));
    world.end(&fork);
    let removed = world.relive(&["gc", "--json"]).ok().json()["uuids"].clone();
    let is_removed = |uuid: &String| removed.as_array().unwrap().iter().any(|removed| removed == uuid.as_str());
    assert!(is_removed(&child.uuid), "{removed}");
    let left = kept(&world);
    assert_eq!(left.keys().collect::<Vec<_>>(), all.keys().filter(|uuid| !is_removed(uuid)).collect::<Vec<_>>());
}

#[test]
fn resume_brings_its_environment_only_if_the_process_has_none() {
    let world = World::new();
    let process = run_with(&world, &[("TOKEN", "first")], &world.hanging(), &[]);
    world.await_step(&process, 1);
    let again = |token: &str| {
        world.relive(&["pause", "--now", &process.uuid]).ok();
        world.await_display(&process.uuid, "suspended");
        typed(&world, &[("TOKEN", token)], &["resume", &process.uuid]).ok();
        kept(&world)[&process.uuid]["TOKEN"].clone()
    };
    assert_eq!(again("second"), "first");
    forget(&world, &process.uuid);
    assert_eq!(again("third"), "third");
    // One that is dead, as well.
    world.end(&process);
    forget(&world, &process.uuid);
    typed(&world, &[("TOKEN", "fourth")], &["resume", &process.uuid]).ok();
    assert_eq!(kept(&world)[&process.uuid]["TOKEN"], "fourth");
}

#[test]
fn env_and_env_file_override_the_environment_of_the_shell() {
    let world = World::new();
    fs::write(world.work().join("one.env"), format!("# keys\nexport A=\"file\"\nB=file\nTOKEN={SECRET}\n")).unwrap();
    let flags = ["--env-file", "one.env", "--env", "B=flag", "--env", "C=a=b"];
    let process = run_with(&world, &[("A", "shell"), ("D", "shell")], &world.hanging(), &flags);
    let kept = kept(&world).remove(&process.uuid).unwrap();
    let values: Vec<&str> = ["A", "B", "C", "D", "TOKEN"].iter().map(|name| kept[*name].as_str()).collect();
    assert_eq!(values, ["file", "flag", "a=b", "shell", SECRET]);
    assert_hidden(&world);

    fs::write(world.work().join("bad.env"), format!("A=1\n{SECRET}\n")).unwrap();
    let refused =
        world.relive(&["run", "-d", "--env-file", "bad.env", "x"]).fails(2, &["bad.env:2: not a line of the form"]);
    assert!(!refused.stderr.contains(SECRET), "{refused:?}");
    world.relive(&["run", "-d", "--env-file", "none.env", "x"]).fails(2, &["cannot read none.env"]);
    world.relive(&["run", "-d", "--env", "NONSENSE", "x"]).fails(2, &["--env NAME=VALUE"]);
}

#[test]
fn without_a_key_run_says_at_once_what_to_set() {
    let world = World::new();
    let run = |variables: &[(&str, &str)]| typed(&world, variables, &["run", "-d", "--model", "anthropic/claude", "x"]);
    run(&[]).fails(
        2,
        &["ANTHROPIC_API_KEY is not set", "hint: export ANTHROPIC_API_KEY=...", "providers.anthropic.key_file"],
    );
    run(&[("ANTHROPIC_API_KEY", "")]).fails(2, &["ANTHROPIC_API_KEY is not set"]);
    run(&[("OPENAI_API_KEY", SECRET)]).fails(2, &["ANTHROPIC_API_KEY is not set"]);
    let broken = run(&[("ANTHROPIC_API_KEY", &format!("{SECRET} \u{e9}"))]);
    let broken = broken.fails(2, &["ANTHROPIC_API_KEY does not contain a valid key"]);
    assert!(!broken.stderr.contains(SECRET), "{broken:?}");
    assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, "");
    assert_hidden(&world);
}

#[test]
fn a_key_file_or_command_that_gives_no_key_is_named_and_nothing_of_it_is_shown() {
    let world = World::new();
    let check = |provider: &str, said: &[&str]| {
        world.configure(&format!("providers: {{anthropic: {{{provider}}}}}"));
        world.relive(&["daemon", "restart"]).ok();
        let told = world.relive(&["run", "-d", "--model", "anthropic/claude", "x"]).fails(2, said);
        assert!(!told.stderr.contains(SECRET), "{told:?}");
        assert_hidden(&world);
    };
    check("key_file: ~/none", &["home/none: the key cannot be read", "hint: export ANTHROPIC_API_KEY=..."]);
    fs::write(world.root().join("home/key"), "\n").unwrap();
    check("key_file: ~/key", &["home/key: the key cannot be read: it is empty"]);
    check("key_command: 'cat ~/.secret; exit 3'", &["providers.anthropic.key_command failed: exit status: 3"]);
    check("key_command: 'true'", &["providers.anthropic.key_command printed nothing"]);
    fs::write(world.root().join("home/key"), format!("{SECRET} and more\n")).unwrap();
    check("key_command: 'cat ~/key'", &["providers.anthropic.key_command does not contain a valid key"]);

    world.configure("providers:\n  anthropic:\n    key_file: keys/anthropic\n");
    let wrong = "config.yaml:3:15: `key_file` must be an absolute path, or one that begins with `~/`";
    world.relive(&["daemon", "restart"]).fails(2, &[wrong]);
    world.configure(&format!("providers:\n  anthropic:\n    key: {SECRET}\n"));
    let told = world.relive(&["daemon", "restart"]).fails(2, &["config.yaml:3:5: no such key", "key: ..."]);
    assert!(!told.stderr.contains(SECRET), "{told:?}");
}

fn meta(world: &World, uuid: &str) -> Value {
    serde_json::from_slice(&fs::read(world.directory(uuid).join("process-meta.json")).unwrap()).unwrap()
}

#[test]
fn case_23_an_agents_file_and_the_instructions_of_its_directory_are_read_once_at_the_start() {
    let world = World::new();
    let model = world.script("turns: [{calls: [{name: write, args: {path: x, content: y}}]}, {hang: true}]");
    let file = world.work().join("agents/reviewer.yaml");
    fs::create_dir(file.parent().unwrap()).unwrap();
    let text = format!(
        "model: {model}\nsystem_prompt: Review it.\ntools: [read, search]\n\
         limits: {{max_steps: 7, max_tokens: 5000, max_cost_usd: 0.5, timeout: 10m}}\n"
    );
    fs::write(&file, text).unwrap();
    fs::write(world.work().join("AGENTS.md"), "Use tabs.\n").unwrap();
    let run = |flags: &[&str]| {
        let mut args = vec!["run", "-d", "--json", "--agent", "reviewer"];
        args.extend(flags);
        begun(&world.relive(&[&args[..], &["x"]].concat()).ok().json())
    };
    let process = run(&["--max-steps", "9"]);
    let before = meta(&world, &process.uuid);
    let prompt = before["system_prompt"].as_str().unwrap();
    assert!(prompt.starts_with("Review it.\n") && prompt.ends_with("\n\nUse tabs.\n"), "{prompt:?}");
    let tools: Vec<&Value> = before["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(tools, ["read", "search"]);
    let limits = &world.records(&process.uuid, "spawned")[0]["limits"];
    let expected = json!({"max_steps": 9, "max_tokens": 5000, "max_cost_usd": 0.5, "timeout_ms": 600_000});
    assert_eq!(*limits, expected, "flags win over the file");
    // A tool that it was not given is no tool.
    world.await_step(&process, 2);
    let result = &world.records(&process.uuid, "call_ended")[0];
    assert_eq!((&result["ok"], result["result"].as_str()), (&json!(false), Some("there is no tool `write`")));
    assert!(!world.work().join("x").exists());

    let info = world.info(&process.uuid);
    let paths: Vec<&str> =
        info["instructions"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [file.to_str().unwrap(), world.work().join("AGENTS.md").to_str().unwrap()]);
    assert!(world.relive(&["info", &process.uuid]).ok().stdout.contains("AGENTS.md (10 bytes)"));
    assert_eq!(world.events(&process.uuid).iter().filter(|event| event["kind"] == "instructions").count(), 2);

    fs::write(&file, "model: script/none\nsystem_prompt: Break it.\n").unwrap();
    fs::write(world.work().join("AGENTS.md"), "Use blanks.\n").unwrap();
    world.kill_daemon();
    assert_eq!(world.info(&process.uuid)["display"], "running");
    assert_eq!(meta(&world, &process.uuid), before);
    let fork = begun(&world.relive(&["resume", "--fork", "--from-step", "0", "--json", &process.uuid]).ok().json());
    world.await_records(&fork, "call_ended", 1);
    assert_eq!(world.records(&fork.uuid, "call_ended")[0]["ok"], false);
    assert_eq!(meta(&world, &fork.uuid), before);
}

#[test]
fn an_agent_is_looked_for_here_then_beside_the_configuration_and_one_that_is_not_there_is_named() {
    let world = World::new();
    let model = world.hanging();
    let place = |directory: &str, name: &str, prompt: &str| {
        let directory = world.root().join(directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{name}.yaml")), format!("model: {model}\nsystem_prompt: {prompt}\n"))
            .unwrap();
    };
    let prompt = |name: &str| {
        let process = begun(&world.relive(&["run", "-d", "--json", "--agent", name, "x"]).ok().json());
        meta(&world, &process.uuid)["system_prompt"].as_str().unwrap().to_owned()
    };
    place("config/relive/agents", "fixer", "from the configuration");
    place("config/relive/agents", "reviewer", "r");
    assert_eq!(prompt("fixer"), "from the configuration");
    place("work/agents", "fixer", "from the directory");
    assert_eq!(prompt("fixer"), "from the directory");
    place("work/.relive/agents", "fixer", "from .relive");
    assert_eq!(prompt("fixer"), "from .relive");

    let run = |name: &str| world.relive(&["run", "-d", "--agent", name, "x"]);
    run("fixr").fails(
        2,
        &["no agent `fixr`", "did you mean `fixer`? There are: claude, codex, fixer, gemini, opencode, qwen, reviewer"],
    );
    run("other").fails(2, &["hint: there are: claude, codex, fixer, gemini, opencode, qwen, reviewer"]);
    run("../config").fails(2, &["cannot be the name of an agent"]);
    fs::write(world.work().join("agents/bad.yaml"), "modle: x\ntools: [reed]\n").unwrap();
    let said = ["agents/bad.yaml:1:1: no such key: `modle` (did you mean `model`?)", "1 | modle: x", "`reed`"];
    run("bad").fails(2, &said);
}

#[test]
fn instructions_outside_the_directory_are_ignored_and_long_ones_are_cut() {
    let world = World::new();
    let instructions = world.work().join("AGENTS.md");
    fs::write(world.root().join("home/private"), SECRET).unwrap();
    std::os::unix::fs::symlink("../home/private", &instructions).unwrap();
    let process = world.run_hanging(&[]);
    assert!(!meta(&world, &process.uuid)["system_prompt"].as_str().unwrap().contains(SECRET));
    let warnings = world.relive(&["daemon", "status", "--json"]).ok().json()["daemon"]["warnings"].to_string();
    assert!(warnings.contains("AGENTS.md: ignored: it leads out of the directory"), "{warnings}");
    fs::create_dir(world.work().join("agents")).unwrap();
    std::os::unix::fs::symlink("../../home/private", world.work().join("agents/spy.yaml")).unwrap();
    let refused = world.relive(&["run", "-d", "--agent", "spy", "--model", "script/demo", "x"]);
    refused.fails(2, &["agents/spy.yaml: cannot be read: it leads out of the directory"]);

    // Nobody writes into the pipe, and nobody waits for it.
    fs::remove_file(&instructions).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&instructions).status().unwrap().success());
    world.run_hanging(&[]);

    fs::remove_file(&instructions).unwrap();
    fs::write(&instructions, "\u{e9}".repeat(40_000)).unwrap();
    let process = world.run_hanging(&[]);
    let told = meta(&world, &process.uuid);
    let prompt = told["system_prompt"].as_str().unwrap();
    assert_eq!(prompt.matches('\u{e9}').count(), 32 << 10);
    assert!(prompt.ends_with("(the rest of AGENTS.md was left out)"));
    assert_eq!(told["instructions"][0]["cut"], true);
    assert!(world.relive(&["info", &process.uuid]).ok().stdout.contains("only the beginning was read"));
}

#[test]
fn dollars_are_a_limit_too() {
    let world = World::new();
    let yaml = "turns: [{calls: [{name: list, args: {}}], usage: {input: 1, output: 1, cost_usd: 0.2}, repeat: 9}]";
    let process = world.run_with(yaml, &["--max-cost", "$0.50"]);
    let answer = world.relive(&["wait", "--json", &process.uuid]).exits(2).json();
    assert_eq!(answer["exit"]["reason"], "budget_exceeded");
    assert_eq!(world.info(&process.uuid)["cost_usd"], 0.6);
    for bad in ["0", "-1", "much", "inf"] {
        world.relive(&["run", "-d", &format!("--max-cost={bad}"), "x"]).fails(2, &["use an amount "]);
    }
}

#[test]
fn a_run_that_is_sent_again_finds_its_process_also_when_the_agents_file_has_gone() {
    let world = World::new();
    fs::create_dir(world.work().join("agents")).unwrap();
    let file = world.work().join("agents/a.yaml");
    fs::write(&file, format!("model: {}\n", world.script(&steps_then_hang(1)))).unwrap();
    world.relive(&["daemon", "start"]).ok();
    let uuid = "01900000-0000-7000-8000-000000000001";
    let body = json!({"uuid": uuid, "intent": "x", "agent": "a", "cwd": world.work()}).to_string();
    let first = world.http("POST", "/v1/processes", "", &body);
    assert_eq!(first.0, 200, "{first:?}");
    fs::remove_file(&file).unwrap();
    assert_eq!(world.http("POST", "/v1/processes", "", &body), first);
    let bad = json!({"uuid": uuid, "intent": "x", "cwd": "/", "env": {"A=B": SECRET}}).to_string();
    let (status, said) = world.http("POST", "/v1/processes", "", &bad);
    assert!(status == 400 && said.contains("A=B") && !said.contains(SECRET), "{said}");
    wait_until("it runs", || world.info(uuid)["step"] == 1);
}
