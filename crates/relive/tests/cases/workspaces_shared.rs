//! Two agents that work in one directory.

use serde_json::Value;

use crate::workspaces_support::shell;
use crate::world::{Begun, World};

impl World {
    /// The lines of a file of the directory, each with the process that wrote it.
    #[track_caller]
    fn blamed(&self, file: &str) -> Vec<(String, Value)> {
        let blame = self.relive(&["blame", file, "--json"]).ok().json();
        let lines = blame["lines"].as_array().unwrap().iter();
        lines.map(|line| (line["text"].as_str().unwrap().to_owned(), line["uuid"].clone())).collect()
    }

    /// Begins an agent whose model thinks in the second step until it is killed.
    fn begin_thinking(&self, command: &str) -> Begun {
        let process = self.run_with(&format!("turns:\n{}  - hang: true\n", shell(command)), &["-y"]);
        self.await_records(&process, "call_ended", 1);
        process
    }
}

#[test]
fn case_75_a_line_is_not_blamed_on_an_agent_that_recorded_its_own_work_later() {
    let world = World::new();
    std::fs::write(world.work().join("g"), "given\n").unwrap();
    let first = world.begin_thinking("echo a1 > f");
    let second = world.run_commands(&["echo b1 >> f; echo b1 >> g"], &[]);
    // Its snapshot of the first step is recorded only now.
    world.relive(&["kill", &first.uuid]).ok();
    world.await_retired(&first.uuid);
    let lines = world.blamed("f");
    assert_eq!(lines[1..], [("b1".to_owned(), second.uuid.clone().into())], "{lines:?}");
    assert_ne!(lines[0].1, second.uuid.as_str(), "{lines:?}");
    assert_eq!(world.blamed("g"), [("given".to_owned(), Value::Null), ("b1".to_owned(), second.uuid.into())]);
}

#[test]
fn case_72_a_file_that_two_agents_changed_is_foreign_for_the_one_and_blamed_line_by_line() {
    let world = World::new();
    // A process that can be waited for, and changes nothing.
    let hold = world.hanging();
    let turns = [
        shell("echo a1 > f; echo a1 > own"),
        format!("  - calls: [{{name: spawn_agent, args: {{intent: hold, name: hold, model: '{hold}'}}}}]\n"),
        "  - calls: [{name: wait_agent, args: {uuid: '{{child}}', timeout: 10m}}]\n".to_owned(),
        shell("echo a2 >> f; echo a2 >> own"),
        "  - text: over\n".to_owned(),
    ];
    let first = world.run_with(&format!("turns:\n{}", turns.concat()), &["-y"]);
    world.await_records(&first, "call_started", 3);
    let second = world.run_commands(&["echo b1 >> f"], &[]);
    world.relive(&["kill", "hold"]).ok();
    world.relive(&["wait", &first.uuid]).ok();
    world.await_retired(&first.uuid);
    let whose = |text: &str, process: &Begun| (text.to_owned(), Value::from(process.uuid.as_str()));
    assert_eq!(world.blamed("f"), [whose("a1", &first), whose("b1", &second), whose("a2", &first)]);
    let last = world.records(&first.uuid, "snapshot").pop().unwrap();
    assert_eq!(last["foreign"], serde_json::json!(["f"]), "{last}");
    // Its own file goes back, the one of both does not.
    world.relive(&["rewind", &first.uuid, "--to-step", "1", "-y"]).fails(3, &["others changed", ": f"]);
    world.relive(&["restore", &first.uuid, "--step", "1", "own"]).ok();
    assert_eq!(std::fs::read_to_string(world.work().join("f")).unwrap(), "a1\nb1\na2\n");
    assert_eq!(std::fs::read_to_string(world.work().join("own")).unwrap(), "a1\n");
}

#[test]
fn case_75_lines_of_a_copy_and_of_its_target_keep_their_authors_after_a_merge() {
    let world = World::new();
    std::fs::write(world.work().join("f"), "1\n2\n3\n4\n5\n").unwrap();
    let copy = world.run_commands(&["sed -i 's/5/five/' f"], &["--workspace", "own"]);
    let here = world.run_commands(&["sed -i 's/1/one/' f"], &[]);
    world.relive(&["merge", &copy.uuid]).ok();
    let after = world.run_commands(&["sed -i 's/3/three/' f"], &[]);
    let whose: Vec<Value> = world.blamed("f").into_iter().map(|(_, uuid)| uuid).collect();
    let expected = [here.uuid.into(), Value::Null, after.uuid.into(), Value::Null, copy.uuid.into()];
    assert_eq!(whose, expected, "{:?}", world.blamed("f"));
}

#[test]
fn case_75_lines_that_a_rewind_brought_back_are_blamed_on_the_step_that_wrote_them() {
    let world = World::new();
    let process = world.run_commands(&["echo one > f", "echo two > f"], &[]);
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).ok();
    let next = world.run_commands(&["echo next >> f"], &[]);
    let lines = world.blamed("f");
    assert_eq!(lines, [("one".to_owned(), process.uuid.into()), ("next".to_owned(), next.uuid.into())]);
}
