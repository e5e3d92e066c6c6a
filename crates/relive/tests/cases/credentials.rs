//! Whose key and whose server a process uses, and what becomes of one that has none.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use relive_fake_model::{Failure, FakeModel, Turn};
use serde_json::json;

use super::environments::{SECRET, assert_hidden, run_with, typed};
use super::secrets::keeper_of;
use crate::world::{World, kill, wait_until};

const CLAUDE: &str = "anthropic/claude-sonnet-4-5";

fn lists_then(last: Turn) -> FakeModel {
    FakeModel::start([Turn::calls("list", json!({})), last])
}

/// The keys that the server's requests came with, in their order.
fn keys(server: &FakeModel) -> Vec<String> {
    server.requests().into_iter().map(|request| request.key.unwrap_or_default()).collect()
}

#[test]
fn case_51_two_projects_under_one_daemon_use_each_its_own_key_and_server() {
    let (one, two) = (lists_then(Turn::text("one")), lists_then(Turn::text("two")));
    let world = World::new();
    let run = |key: &str, server: &FakeModel| {
        let url = server.base_url();
        run_with(&world, &[("ANTHROPIC_API_KEY", key), ("ANTHROPIC_BASE_URL", &url)], CLAUDE, &[])
    };
    let (first, second) = (run("key-one", &one), run("key-two", &two));
    world.relive(&["wait", &first.uuid]).ok();
    world.relive(&["wait", &second.uuid]).ok();
    assert_eq!((keys(&one), keys(&two)), (vec!["key-one".to_owned(); 2], vec!["key-two".to_owned(); 2]));
}

#[test]
fn case_51_without_its_key_after_a_boot_it_waits_with_a_hint_and_continues_when_it_has_it() {
    let server = lists_then(Turn::text("done").after(Failure::Silence).after(Failure::Silence));
    let (world, url) = (World::new(), server.base_url());
    let shell = |key| [("ANTHROPIC_API_KEY", key), ("ANTHROPIC_BASE_URL", url.as_str())];
    let process = run_with(&world, &shell(SECRET), CLAUDE, &[]);
    let asked = |count| wait_until("it has asked", || server.requests().len() == count);
    asked(2);
    // A restart from a shell without keys: the process has its own.
    world.kill_daemon();
    world.info(&process.uuid);
    asked(3);
    // A boot takes the daemon and the keeper.
    world.kill_daemon();
    kill(keeper_of(&world).unwrap(), rustix::process::Signal::KILL);
    wait_until("the keeper is gone", || keeper_of(&world).is_none());
    let info = world.await_field(&process.uuid, "suspend_reason", "needs_credentials");
    let hint = info["hint"].as_str().unwrap();
    assert!(hint.contains("export ANTHROPIC_API_KEY=...") && hint.contains("providers.anthropic.key_file"), "{hint}");
    assert!(hint.contains(&format!("relive resume {}", info["pid"])), "{hint}");
    assert!(world.relive(&["info", &process.uuid]).ok().stdout.contains(hint));
    world
        .relive(&["resume", &process.uuid])
        .fails(2, &["ANTHROPIC_API_KEY is not set", "hint: export ANTHROPIC_API_KEY=..."]);
    assert_eq!(world.info(&process.uuid)["suspend_reason"], "needs_credentials");
    typed(&world, &shell("key-new"), &["resume", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(keys(&server), [SECRET, SECRET, SECRET, "key-new"]);
    assert!(server.requests().iter().all(|request| request.refused.is_none()), "each call has its one result");
    assert_hidden(&world);
}

#[test]
fn a_key_that_is_refused_is_asked_for_and_another_one_is_taken() {
    let server = lists_then(Turn::text("done").after(Failure::Status(401, None)));
    let (world, url) = (World::new(), server.base_url());
    let shell = |key| [("ANTHROPIC_API_KEY", key), ("ANTHROPIC_BASE_URL", url.as_str())];
    let process = run_with(&world, &shell(SECRET), CLAUDE, &[]);
    let info = world.await_field(&process.uuid, "suspend_reason", "needs_credentials");
    assert!(info["hint"].as_str().unwrap().contains("ANTHROPIC_API_KEY"));
    // From a shell without any key: the one that there is was refused.
    let refused = world.relive(&["resume", &process.uuid]);
    assert!(!refused.stderr.contains("not set"), "{refused:?}");
    refused.fails(
        2,
        &["anthropic refused the key (401)", "and this shell has no other key", "hint: export ANTHROPIC_API_KEY=..."],
    );
    // Only the key is taken from this shell: without the address, the private server's process would ask a public one.
    typed(&world, &[("ANTHROPIC_API_KEY", "key-new")], &["resume", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(keys(&server), [SECRET, SECRET, "key-new"]);
    assert_hidden(&world);
}

#[test]
fn a_key_is_looked_for_in_the_environment_then_in_its_file_then_by_its_command_and_shown_nowhere() {
    let server = FakeModel::start([Turn::text("done")]);
    let world = World::new();
    let file = world.root().join("home/key");
    fs::write(&file, format!("{SECRET}-file\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let url = server.base_url();
    let ask = |section: &str, variables: &[(&str, &str)]| {
        world.configure(&format!("providers: {{anthropic: {{base_url: '{url}', {section}}}}}"));
        world.relive(&["daemon", "restart"]).ok();
        let process = run_with(&world, variables, CLAUDE, &[]);
        world.relive(&["wait", &process.uuid]).ok();
        for args in [
            &["info", "--json", &process.uuid][..],
            &["logs", "--json", &process.uuid],
            &["strace", "--json", &process.uuid],
            &["steps", "--json", &process.uuid],
            &["ps", "-a", "--json"],
            &["config", "show", "--json"],
            &["daemon", "status", "--json"],
        ] {
            let told = world.relive(args).ok();
            assert!(!told.stdout.contains(SECRET) && !told.stderr.contains(SECRET), "{told:?}");
        }
        assert_hidden(&world);
        keys(&server).pop().unwrap()
    };
    let (from_file, by_command) = ("key_file: ~/key, key_command: 'exit 1'", "key_command: 'echo \"$PART-command\"'");
    let (in_shell, part) = (format!("{SECRET}-shell"), [("PART", SECRET)]);
    assert_eq!(ask(from_file, &[("ANTHROPIC_API_KEY", &in_shell)]), in_shell);
    assert_eq!(ask(from_file, &[]), format!("{SECRET}-file"));
    let warnings = world.relive(&["daemon", "status"]).ok().stdout;
    assert!(warnings.contains("others can read this key; chmod 600"), "{warnings}");
    assert_eq!(ask(by_command, &part), format!("{SECRET}-command"));
    // The shell's own server comes before the configured one.
    let other = FakeModel::start([Turn::text("done")]);
    let process = run_with(&world, &[part[0], ("ANTHROPIC_BASE_URL", &other.base_url())], CLAUDE, &[]);
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(keys(&other), [format!("{SECRET}-command")]);
}
