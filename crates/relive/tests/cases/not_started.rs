//! A program that cannot be started is a failure of each command that starts it.

use serde_json::json;

use crate::world::World;

#[test]
fn a_program_that_cannot_be_started_again_fails_its_resume_and_its_retry() {
    let world = World::new();
    world.relive(&["exec", "-d", "--", "nosuchprog"]).exits(127);
    for verb in ["resume", "retry"] {
        let told = world.relive(&[verb, "1"]).fails(127, &["could not be started: program not found: nosuchprog"]);
        assert_eq!(told.stdout, "", "a script must not take it for a process that runs");
        let told = world.relive(&[verb, "1", "--json"]).exits(127).json();
        assert_eq!(told["error"]["code"], "NOT_FOUND", "{told}");
        assert!(told["pid"].is_u64() && told["uuid"].is_string(), "{told}");
    }
    // One that can be started is told as ever.
    let program = world.exec(&[], &["true"]);
    world.relive(&["wait", &program.uuid]).ok();
    let again = world.relive(&["resume", &program.uuid]).ok();
    assert!(again.stderr.contains("started"), "{again:?}");
}

#[test]
fn a_cli_agent_that_is_not_installed_fails_its_run() {
    let world = World::new().with_env("ANTHROPIC_API_KEY", "planted");
    // Whoever runs the tests may have installed it.
    let nothing_installed = world.root().join("home").display().to_string();
    let world = world.with_env("PATH", nothing_installed);
    let why = "could not be started: program not found: the CLI agent `claude` is not installed";
    let run = ["run", "-d", "--agent", "claude", "x"];
    let told = world.relive(&run).fails(127, &[why]);
    assert_eq!(told.stdout, "");
    let told = world.relive(&[&run[..], &["--json"]].concat()).exits(127).json();
    assert_eq!((&told["error"]["code"], told["pid"].is_u64()), (&json!("NOT_FOUND"), true), "{told}");
    let told = world.relive(&["run", "--agent", "claude", "x"]).exits(127);
    assert!(told.stderr.contains(why), "{told:?}");
}
