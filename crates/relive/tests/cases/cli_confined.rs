//! CLI agents that are isolated and limited: the real programs, against a server that plays their model.

use std::fs;
use std::path::{Path, PathBuf};

use relive_fake_model::Turn;
use serde_json::json;
use tempfile::TempDir;

use crate::cli_agents::{Agents, bash};
use crate::isolation::worlds;
use crate::world::kill;

/// Agents of a user whose home is not in `/tmp`, which is empty for a confined program.
fn at_home(test: &str, agent: &str, turns: impl IntoIterator<Item = Turn>) -> Option<(Agents, TempDir)> {
    if worlds().is_empty() {
        return None;
    }
    let Agents { world, server } = Agents::new(test, agent, turns)?;
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let settings = ".codex/config.toml";
    fs::create_dir(home.path().join(".codex")).unwrap();
    fs::copy(world.root().join("home").join(settings), home.path().join(settings)).unwrap();
    let world = world.with_env("HOME", home.path().to_str().unwrap());
    Some((Agents { world, server }, home))
}

/// Returns whether a file below a directory has this text in its name.
fn has_file(directory: &Path, part: &str) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.iter().any(|path| path.display().to_string().contains(part) || (path.is_dir() && has_file(path, part)))
}

/// A confined agent works, keeps its conversation, and changes nothing that an agent executes which is not confined.
fn confined(agent: &str, tool: fn(&str) -> Turn, own: &str, fixed: &str, absent: &str) {
    let command = format!(
        "echo made > made; echo x > ~/outside; echo x > ~/{own}/scratch; echo x > ~/{own}/{fixed}; rm -f ~/{own}/{fixed}; \
         mv ~/{own}/{absent} ~/{own}/moved; mkdir -p ~/{own}/{absent}; echo x > ~/{own}/{absent}/x; mv ~/{own} ~/moved; \
         ls -A ~ > seen; true"
    );
    let turns = [tool(&command), Turn::text("One."), Turn::text("Two.")];
    let Some((agents, home)) = at_home(&format!("confined({agent})"), agent, turns) else { return };
    fs::create_dir(home.path().join(".ssh")).unwrap();
    let before = fs::read_to_string(home.path().join(own).join(fixed)).ok();
    let flags = ["-y", "--isolation", "confined", "--memory", "4G", "--pids", "500", "--cpu", "2"];
    let process = agents.run(agent, &flags);
    let info = agents.await_idle(&process, 1);
    assert_eq!(agents.said(&process).last().unwrap(), "One.");
    assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
    assert!(!home.path().join("outside").exists() && !home.path().join("moved").exists());
    let absent = home.path().join(own).join(absent);
    assert!(fs::read_dir(&absent).unwrap().next().is_none(), "it was missing, and is executed: {}", absent.display());
    assert_eq!(fs::read_to_string(home.path().join(own).join("scratch")).unwrap(), "x\n");
    let after = fs::read_to_string(home.path().join(own).join(fixed)).unwrap();
    assert_eq!(after.trim(), before.unwrap_or_else(|| "{}".to_owned()).trim(), "what it executes is as it was");
    let session = &info["session"];
    assert_eq!((&session["isolation"], &info["isolation"]), (&json!("confined"), &json!("confined")), "{info}");
    assert_eq!((&session["memory"], &session["pids"]), (&json!(4_u64 << 30), &json!(500)), "{session}");
    let shown = agents.world.relive(&["info", &process.uuid]).ok().stdout;
    assert!(shown.contains("ISOLATION  confined") && shown.contains("LIMITS     memory 4"), "{shown}");
    // Its calls go through the gateway, on the loopback of the machine.
    let (input, output) = agents.server.handed_out();
    assert_eq!((&info["tokens_in"], &info["tokens_out"]), (&json!(input), &json!(output)), "{info}");
    // Its conversation is kept, and continues in another program with the same isolation.
    let conversation = info["agent"]["session_id"].as_str().unwrap().to_owned();
    assert!(has_file(&home.path().join(own), &conversation), "{conversation} in {own}");
    kill(u32::try_from(session["host_pid"].as_u64().unwrap()).unwrap(), rustix::process::Signal::KILL);
    agents.world.await_field(&process.uuid, "state", "dead");
    agents.world.relive(&["resume", &process.uuid, "--input", "the second task"]).ok();
    let info = agents.await_idle(&process, 2);
    assert!(agents.last_question().contains("the task") && agents.last_question().contains("the second task"));
    assert_eq!(info["session"]["isolation"], "confined", "{info}");
    agents.world.relive(&["kill", &process.uuid]).ok();
    let ended = agents.world.await_field(&process.uuid, "state", "dead");
    agents.assert_nothing_left(&info["session"]["host_pid"]);
    assert_eq!(ended["isolation"], "confined");
}

#[test]
fn a_confined_claude_writes_to_its_directory_and_its_own_only() {
    confined("claude", bash, ".claude", "settings.json", "local");
}

#[test]
fn a_confined_claude_cannot_make_the_earlier_file_of_its_settings() {
    let own = r#"echo '{"mcpServers": {}}' > ~/.claude/.config.json"#;
    let turns = [bash(&format!("{own}; rm -f ~/.claude/.config.json; {own}; echo made > made; true")), Turn::text("x")];
    let Some((agents, home)) = at_home("a_confined_claude_cannot_make", "claude", turns) else { return };
    let process = agents.run("claude", &["-y", "--isolation", "confined"]);
    agents.await_idle(&process, 1);
    assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
    let earlier = home.path().join(".claude/.config.json");
    assert_eq!(fs::read_to_string(&earlier).unwrap(), "");
    agents.world.relive(&["kill", &process.uuid]).ok();
    agents.world.await_field(&process.uuid, "state", "dead");
    // Claude has its settings where it had them before.
    let process = agents.run("claude", &["-y"]);
    agents.await_idle(&process, 1);
    let settings = fs::read_to_string(home.path().join(".claude.json")).unwrap();
    assert!(settings.contains("firstStartTime"), "{settings}");
}

/// The real programs, where `scripts/install-agents all` has installed them.
fn real_confined(agent: &str, tool: &str) {
    let command = "echo made > made; echo x > ~/outside; true";
    let call = Turn::calls(tool, json!({"command": command, "description": "a command"}));
    let Some((agents, home)) =
        at_home(&format!("confined({agent})"), agent, [call, Turn::text("One."), Turn::text("Two.")])
    else {
        return;
    };
    let agents = agents.with_acp_settings();
    let settings = ".qwen/settings.json";
    fs::create_dir(home.path().join(".qwen")).unwrap();
    fs::copy(agents.world.root().join("home").join(settings), home.path().join(settings)).unwrap();
    let process = agents.run(agent, &["-y", "--isolation", "confined"]);
    let info = agents.await_idle(&process, 1);
    assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
    assert!(!home.path().join("outside").exists());
    assert_eq!(info["session"]["isolation"], "confined", "{info}");
    agents.world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
    agents.world.await_field(&process.uuid, "state", "dead");
    agents.world.relive(&["resume", &process.uuid, "--input", "the second task"]).ok();
    crate::cli_acp::await_launches(&agents, &process, 2);
    let info = agents.await_idle(&process, 2);
    assert!(agents.last_question().contains("the task") && agents.last_question().contains("the second task"));
    agents.world.relive(&["kill", &process.uuid]).ok();
    agents.world.await_field(&process.uuid, "state", "dead");
    agents.assert_nothing_left(&info["session"]["host_pid"]);
}

#[test]
fn real_confined_gemini_works_and_continues() {
    real_confined("gemini", "run_shell_command");
}

#[test]
fn real_confined_qwen_works_and_continues() {
    real_confined("qwen", "run_shell_command");
}

#[test]
fn real_confined_opencode_works_and_continues() {
    real_confined("opencode", "bash");
}

#[test]
fn a_confined_codex_writes_to_its_directory_and_its_own_only() {
    confined("codex", |command| Turn::calls("exec_command", json!({"cmd": command})), ".codex", "config.toml", "hooks");
}

#[test]
fn a_confined_claude_asks_for_permission_and_a_killed_daemon_does_not_disturb_it() {
    let turns = [bash("echo made > made"), Turn::text("Done.")];
    let Some((agents, _home)) = at_home("a_confined_claude_asks", "claude", turns) else { return };
    let process = agents.run("claude", &["--isolation", "confined"]);
    let before = agents.world.await_display(&process.uuid, "approval");
    agents.world.kill_daemon();
    let info = agents.world.await_display(&process.uuid, "approval");
    assert_eq!(info["session"]["host_pid"], before["session"]["host_pid"], "the program was not disturbed");
    agents.world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    agents.await_idle(&process, 1);
    assert_eq!(fs::read_to_string(agents.world.work().join("made")).unwrap(), "made\n");
}

#[test]
fn an_agent_whose_directory_is_a_link_is_not_started_and_says_why() {
    let Some((agents, home)) = at_home("an_agent_whose_directory_is_a_link", "claude", []) else { return };
    let target = home.path().join("target");
    fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, home.path().join(".claude")).unwrap();
    let args = ["run", "-d", "--agent", "claude", "--isolation", "confined", "the task"];
    let refused = agents.world.relive(&args);
    assert!(refused.code == 126 && refused.stderr.contains("isolation.writable"), "{refused:?}");
    assert!(fs::read_dir(&target).unwrap().next().is_none(), "nothing was made behind the link");
}

#[test]
fn an_agent_whose_directory_is_the_home_is_not_started_and_says_why() {
    let Some((agents, home)) = at_home("an_agent_whose_directory_is_the_home", "claude", []) else { return };
    let Agents { world, server } = agents;
    let world = world.with_env("CLAUDE_CONFIG_DIR", home.path().to_str().unwrap());
    let agents = Agents { world, server };
    let refused = agents.world.relive(&["run", "-d", "--agent", "claude", "--isolation", "confined", "the task"]);
    assert!(refused.code == 126 && refused.stderr.contains("contains the home directory"), "{refused:?}");
    assert!(!home.path().join("settings.json").exists(), "nothing was made in the home directory");
}
