//! The work of others in a directory is never undone unasked.

use std::fs;
use std::path::Path;

use crate::workspaces_support::shell;
use crate::world::{Begun, World, begun};

impl World {
    /// Runs an agent in another directory, whose steps are these commands, and waits for its end.
    #[track_caller]
    fn run_in(&self, directory: &Path, commands: &[&str]) -> Begun {
        let turns: String = commands.iter().map(|command| shell(command)).collect();
        let path = self.root().join(format!("in-{}.yaml", fs::read_dir(self.root()).unwrap().count()));
        fs::write(&path, format!("turns:\n{turns}  - text: over\n")).unwrap();
        let model = format!("script/{}", path.display());
        let args = ["run", "-d", "--json", "-y", "--isolation", "none", "--model", &model, "do it"];
        let told = self.command(&args).current_dir(directory).output().unwrap();
        assert!(told.status.success(), "{told:?}");
        let process = begun(&serde_json::from_slice(&told.stdout).unwrap());
        self.relive(&["wait", &process.uuid]).ok();
        self.await_retired(&process.uuid);
        process
    }
}

#[test]
fn case_72_a_restore_does_not_make_the_changes_of_others_its_own() {
    let world = World::new();
    fs::write(world.work().join("notes"), "1\n").unwrap();
    let process = world.run_commands(&["echo g > g; echo f > f"], &[]);
    fs::write(world.work().join("notes"), "mine\n").unwrap();
    fs::write(world.work().join("new"), "mine\n").unwrap();
    let rewind = ["rewind", &process.uuid, "--to-step", "0", "-y"];
    world.relive(&rewind).fails(3, &["notes"]);
    world.relive(&["restore", &process.uuid, "--step", "0", "g"]).ok();
    assert!(!world.work().join("g").exists());
    world.relive(&rewind).fails(3, &["new", "notes", "--force"]);
    assert_eq!(fs::read_to_string(world.work().join("notes")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(world.work().join("new")).unwrap(), "mine\n");
    // What was forced over is not there any more, and its own work is never refused.
    world.relive(&["rewind", &process.uuid, "--to-step", "0", "--force"]).ok();
    assert_eq!(fs::read_to_string(world.work().join("notes")).unwrap(), "1\n");
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).ok();
    world.relive(&rewind).ok();
}

#[test]
fn case_72_a_rewind_waits_until_all_below_the_process_stand_still() {
    let world = World::new();
    let kid = world.hanging();
    let turns = [
        shell("echo 1 > f"),
        format!("  - calls: [{{name: spawn_agent, args: {{intent: kid, name: kid, model: '{kid}'}}}}]\n"),
        shell("echo 2 > f"),
        "  - calls: [{name: wait_agent, args: {uuid: '{{child}}', timeout: 10m}}]\n".to_owned(),
    ];
    let process = world.run_with(&format!("turns:\n{}", turns.concat()), &["-y"]);
    world.await_records(&process, "call_started", 4);
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).ok();
    assert_eq!(world.info("kid")["display"], "suspended", "{}", world.info("kid"));
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "1\n");
    world.relive(&["kill", "--subtree", "-y", &process.uuid]).ok();
}

#[test]
fn case_72_what_an_agent_did_in_a_directory_below_is_not_rewound() {
    let world = World::new();
    let sub = world.work().join("sub");
    fs::create_dir(&sub).unwrap();
    fs::write(sub.join("given"), "given\n").unwrap();
    let hold = world.hanging();
    let turns = [
        shell("echo a1 > own"),
        format!("  - calls: [{{name: spawn_agent, args: {{intent: hold, name: hold, model: '{hold}'}}}}]\n"),
        "  - calls: [{name: wait_agent, args: {uuid: '{{child}}', timeout: 10m}}]\n".to_owned(),
        shell("echo a2 > own"),
        "  - text: over\n".to_owned(),
    ];
    let above = world.run_with(&format!("turns:\n{}", turns.concat()), &["-y"]);
    world.await_records(&above, "call_started", 3);
    let below = world.run_in(&sub, &["echo b1 > theirs"]);
    world.relive(&["kill", "hold"]).ok();
    world.relive(&["wait", &above.uuid]).ok();
    world.await_retired(&above.uuid);
    let last = world.records(&above.uuid, "snapshot").pop().unwrap();
    // If nobody looked between the work of the two, its own counts as theirs too.
    assert!(last["foreign"].as_array().is_some_and(|paths| paths.contains(&"sub/theirs".into())), "{last}");
    world.relive(&["rewind", &above.uuid, "--to-step", "1", "-y"]).fails(3, &["sub/theirs", "--force"]);
    assert!(sub.join("theirs").exists());
    // The agent below may undo its own work.
    world.relive(&["rewind", &below.uuid, "--to-step", "0", "-y"]).ok();
    assert!(!sub.join("theirs").exists() && sub.join("given").exists());
}

#[test]
fn case_71_what_was_changed_before_a_fork_that_works_here_is_not_the_work_of_the_fork() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > g"], &[]);
    fs::write(world.work().join("mine"), "mine\n").unwrap();
    let path = world.root().join("fork.yaml");
    fs::write(&path, format!("turns:\n{}{}  - text: over\n", shell("true"), shell("echo 3 > h"))).unwrap();
    let model = format!("script/{}", path.display());
    let args =
        ["resume", "--fork", "--from-step", "1", "--workspace", "here", "--model", &model, "--json", &process.uuid];
    let fork = begun(&world.relive(&args).ok().json());
    world.relive(&["wait", &fork.uuid]);
    world.await_retired(&fork.uuid);
    assert!(world.work().join("h").exists(), "{}", world.relive(&["log", &fork.uuid]).stdout);
    for step in ["0", "1"] {
        let refused = world.relive(&["rewind", &fork.uuid, "--to-step", step, "-y"]);
        if step == "0" {
            refused.fails(3, &["mine", "--force"]);
        }
        assert_eq!(fs::read_to_string(world.work().join("mine")).unwrap(), "mine\n", "{step}");
        assert!(world.work().join("g").exists(), "{step}");
    }
}

#[test]
fn case_75_a_copy_in_which_another_process_works_is_not_removed() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f"], &["--workspace", "own"]);
    let copy = world.own(&process);
    let hold = world.script(&format!("turns:\n{}", "  - hang: true\n".repeat(9)));
    let args = ["resume", "--fork", "--workspace", "here", "--model", &hold, "--json", &process.uuid];
    let fork = begun(&world.relive(&args).ok().json());
    world.await_step(&fork, 3);
    let short = fork.pid.to_string();
    world
        .relive(&["workspace", "rm", "--force", &process.uuid])
        .fails(3, &["works there", &format!("relive kill {short}")]);
    assert!(copy.join("f").exists());
    world.end(&fork);
    world.relive(&["workspace", "rm", "--force", &process.uuid]).ok();
    assert!(!copy.exists());
}

#[test]
fn case_75_what_is_in_the_target_already_counts_as_merged() {
    let world = World::new();
    fs::write(world.work().join("f"), "1\n").unwrap();
    let process = world.run_commands(&["echo 2 > f; echo new > g"], &["--workspace", "own"]);
    fs::write(world.work().join("f"), "2\n").unwrap();
    fs::write(world.work().join("g"), "new\n").unwrap();
    world.relive(&["merge", &process.uuid]).ok();
    world.relive(&["workspace", "rm", "-y", &process.uuid]).ok();
}

#[test]
fn case_75_a_forced_merge_that_can_merge_nothing_does_not_hint_at_force() {
    let world = World::new();
    fs::write(world.work().join("f"), b"1\0").unwrap();
    let process = world.run_commands(&["printf '2\\000' > f"], &["--workspace", "own"]);
    fs::write(world.work().join("f"), b"3\0").unwrap();
    world.relive(&["merge", &process.uuid]).fails(3, &["conflict: f (binary)", "--force"]);
    let refused = world.relive(&["merge", "--force", &process.uuid]).fails(3, &["conflict: f (binary)"]);
    assert!(!refused.stderr.contains("--force") && refused.stderr.contains("relive workspace path"), "{refused:?}");
    assert_eq!(fs::read(world.work().join("f")).unwrap(), b"3\0");
    // The other version is only in the copy.
    world.relive(&["workspace", "rm", &process.uuid]).fails(3, &[]);
}
