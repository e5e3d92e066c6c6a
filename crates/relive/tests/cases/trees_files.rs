//! Nodes that work on copies, and isolated nodes.

use std::fs;

use serde_json::json;

use super::workspaces_support::shell;
use crate::world::{Begun, World, wait_until};

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

impl World {
    fn put(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).unwrap();
    }

    #[track_caller]
    fn text_of(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).unwrap()
    }

    fn uuid_of(&self, run: &Begun, node: &str) -> String {
        self.node(run, node)["uuid"].as_str().unwrap().to_owned()
    }

    /// A script of an agent that runs commands, outside of the files that it works on.
    fn commands(&self, name: &str, commands: &[&str]) -> String {
        let turns: String = commands.iter().map(|command| shell(command)).collect();
        let path = self.root().join(name);
        fs::write(&path, format!("turns:\n{turns}  - text: over\n")).unwrap();
        format!("script/{}", path.display())
    }
}

#[test]
fn copies_of_nodes_are_merged_before_a_node_that_depends_on_them_starts() {
    let world = World::new();
    world.put("f", LINES);
    let model = world.commands("agent.yaml", &["sed -i s/1/one/ f; echo new > added"]);
    let run = world.up(&format!(
        "nodes:
  agent: {{intent: edit, model: {model}, allow: [shell], workspace: own}}
  program: {{command: [sh, -c, 'sed -i s/9/nine/ f; test ! -e added'], workspace: own}}
  bad: {{command: [sh, -c, 'sed -i s/5/five/ f; exit 1'], workspace: own}}
  join: {{command: [sh, -c, 'cat f added'], depends_on: {{agent: succeeded, program: succeeded, bad: completed}}}}
  last: {{command: [sh, -c, 'echo last > last; cat f'], depends_on: [join], workspace: own}}
"
    ));
    world.relive(&["wait", &run.uuid]).exits(1);
    let merged = "one\n2\n3\n4\n5\n6\n7\n8\nnine\n";
    let logs = |node: &str| world.relive(&["compose", "logs", &run.uuid, "--node", node]).ok().stdout;
    assert_eq!(logs("join"), format!("{merged}new\n"), "what failed is not merged");
    assert_eq!((world.text_of("f"), logs("last")), (merged.to_owned(), merged.to_owned()));
    // Nothing depends on the last one: its copy is a person's to merge.
    assert!(!world.work().join("last").exists());
    world.relive(&["merge", &world.uuid_of(&run, "last")]).ok();
    assert_eq!(world.text_of("last"), "last\n");
}

#[test]
fn copies_that_conflict_fail_the_join_until_a_person_has_merged_them() {
    let world = World::new();
    world.put("f", LINES);
    let run = world.up("nodes:
  left: {command: [sed, -i, s/5/left/, f], workspace: own}
  right: {command: [sed, -i, s/5/right/, f], workspace: own, depends_on: {left: started}}
  join: {command: [sh, -c, 'echo join >> ran'], depends_on: [left, right]}
  after: {command: [sh, -c, 'echo after >> ran'], depends_on: [join]}
");
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.states(&run), "left=succeeded right=succeeded join=failed after=skipped");
    let exit = world.node(&run, "join")["exit"].clone();
    let right = world.uuid_of(&run, "right");
    let work = world.work().display().to_string();
    let reason = format!("the changes of right conflict in f (hint: relive merge {right} --into {work} --force)");
    assert_eq!((exit["code"].as_i64(), exit["reason"].as_str()), (Some(126), Some(reason.as_str())));
    assert_eq!(world.text_of("f"), LINES.replace('5', "left"));
    // As it is, it conflicts again.
    world.relive(&["compose", "resume", &run.uuid, "--node", "join"]).ok();
    world.relive(&["wait", &run.uuid]).exits(1);
    assert!(world.ran().is_empty());
    world.relive(&["merge", &right, "--into", &work, "--force"]);
    world.relive(&["compose", "resume", &run.uuid, "--node", "join"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["after", "join"]);
    // The PID of the first run is that of this run as well.
    let status = world.relive(&["compose", "status", "--json", &run.pid.to_string()]).ok().json();
    assert_eq!(status["state"], "succeeded");
}

#[test]
fn pipes_and_sockets_are_no_obstacle_to_a_join() {
    let world = World::new();
    let work = world.work();
    let socket = std::os::unix::net::UnixListener::bind(work.join("socket")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(work.join("pipe")).status().unwrap().success());
    let run = world.up("nodes:
  make: {command: [sh, -c, 'echo new > new; mkfifo made'], workspace: own}
  join: {command: [sh, -c, 'cat new; test ! -e made; test -p pipe; test -S socket'], depends_on: [make]}
");
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.states(&run), "make=succeeded join=succeeded");
    drop(socket);
    let merged = world.relive(&["merge", &world.uuid_of(&run, "make"), "--dry-run"]).ok();
    assert!(merged.stderr.contains("not merged, because they are pipes, sockets or devices: made"), "{merged:?}");
}

#[test]
fn a_join_names_files_that_no_snapshot_keeps_and_continues_once_the_others_are_merged() {
    let world = World::with_config("workspace: {max_file_mb: 1}\n");
    let run = world.up("nodes:
  make: {command: [sh, -c, 'echo new > new; truncate -s 2M large'], workspace: own}
  join: {command: [sh, -c, 'cat new'], depends_on: [make]}
");
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.states(&run), "make=succeeded join=failed");
    let (make, work) = (world.uuid_of(&run, "make"), world.work().display().to_string());
    let reason = world.node(&run, "join")["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("these cannot be kept now: large"), "{reason}");
    assert!(reason.contains(&format!("(hint: relive merge {make} --into {work} --force)")), "{reason}");
    world.relive(&["merge", &make, "--into", &work, "--force"]).ok();
    world.relive(&["compose", "resume", &run.uuid, "--node", "join"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.states(&run), "make=succeeded join=succeeded");
}

#[test]
fn a_fork_of_a_node_takes_back_what_was_merged_of_the_process_before() {
    let world = World::new();
    world.put("f", LINES);
    let model = world.commands("agent.yaml", &["sed -i s/1/one/ f", "sed -i s/9/nine/ f; echo x > extra"]);
    let run = world.up(&format!(
        "nodes:
  work: {{intent: edit, model: {model}, allow: [shell], workspace: own}}
  join: {{command: [sh, -c, 'cat f; ls']}}
"
    )
    .replace("ls']}", "ls'], depends_on: [work]}"));
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.text_of("f"), "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    world.commands("agent.yaml", &["sed -i s/1/one/ f", "sed -i s/9/neun/ f"]);
    world.relive(&["compose", "resume", &run.uuid, "--node", "work", "--fork", "--from-step", "1"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.text_of("f"), "one\n2\n3\n4\n5\n6\n7\n8\nneun\n");
    assert!(!world.work().join("extra").exists());
}

#[test]
fn the_conflict_of_a_fork_is_settled_by_the_command_that_it_names() {
    let world = World::new();
    world.put("f", LINES);
    let model = world.commands("agent.yaml", &["sed -i s/5/five/ f", "sed -i s/1/one/ f"]);
    let run = world.up(&format!(
        "nodes:
  work: {{intent: edit, model: {model}, allow: [shell], workspace: own}}
  join: {{command: [sh, -c, 'echo join >> ran'], depends_on: [work]}}
"
    ));
    world.relive(&["wait", &run.uuid]).ok();
    // A person changes a line that the fork, which changes nothing, takes back.
    world.put("f", &world.text_of("f").replace("one", "mine"));
    world.commands("agent.yaml", &["sed -i s/5/five/ f"]);
    for _ in 0..2 {
        // The second fork is one of a fork of which nothing was merged.
        world.relive(&["compose", "resume", &run.uuid, "--node", "work", "--fork", "--from-step", "1"]).ok();
        world.relive(&["wait", &run.uuid]).exits(1);
        assert_eq!(world.states(&run), "work=succeeded join=failed");
    }
    let reason = world.node(&run, "join")["reason"].as_str().unwrap().to_owned();
    let hint = reason.split("(hint: relive ").nth(1).unwrap_or_else(|| panic!("{reason}")).trim_end_matches(')');
    assert!(hint.ends_with("--force"), "{reason}");
    world.relive(&hint.split(' ').collect::<Vec<_>>());
    assert!(world.text_of("f").contains("<<<<<<<"), "{}", world.text_of("f"));
    world.relive(&["compose", "resume", &run.uuid, "--node", "join"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["join", "join"]);
}

#[test]
fn a_fork_of_a_node_without_a_copy_works_where_the_node_does() {
    let world = World::new();
    world.put("f", LINES);
    let model = world.commands("agent.yaml", &["sed -i s/1/one/ f", "sed -i s/9/nine/ f"]);
    let run = world.up(&format!("nodes: {{work: {{intent: edit, model: {model}, allow: [shell]}}}}"));
    world.relive(&["wait", &run.uuid]).ok();
    world.commands("agent.yaml", &["sed -i s/1/one/ f", "sed -i s/5/five/ f"]);
    world.relive(&["compose", "resume", &run.uuid, "--node", "work", "--fork", "--from-step", "1"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.text_of("f"), "one\n2\n3\n4\nfive\n6\n7\n8\nnine\n");
}

#[test]
fn copies_are_merged_once_whenever_the_daemon_is_killed() {
    let world = World::new();
    // Lines that are changed have others between them: neighbours would conflict.
    let lines: String = (1..8).map(|line| format!("{line}\n-\n-\n")).collect();
    world.put("f", &lines);
    let mut text = "nodes:\n".to_owned();
    for (before, node) in [("", 1), ("n1", 2), ("n1", 3), ("n2, n3", 4), ("n4", 5), ("n4", 6), ("n5, n6", 7)] {
        text.push_str(&format!(
            "  n{node}: {{command: [sh, -c, 'sed -i s/{node}/x{node}/ f; echo n{node} >> {}/ran; sleep 0.05'], \
             workspace: own, depends_on: [{before}]}}\n",
            world.root().display()
        ));
    }
    text.push_str("  end: {command: [sh, -c, 'cat f'], depends_on: [n7]}\n");
    let run = world.up(&text);
    let ran = || fs::read_to_string(world.root().join("ran")).unwrap_or_default().lines().count();
    for begun in 1..8 {
        wait_until("one more has begun", || ran() >= begun);
        if world.daemon_pid().is_some() {
            world.kill_daemon();
        }
        world.relive(&["ps", "-q"]).ok();
    }
    world.relive(&["wait", &run.uuid]).ok();
    let expect: String = (1..8).map(|line| format!("x{line}\n-\n-\n")).collect();
    assert_eq!(world.text_of("f"), expect);
    assert_eq!(ran(), 7, "each ran once");
}

#[test]
fn a_node_reaches_what_its_isolation_allows() {
    for world in super::isolation::worlds() {
        // What it writes elsewhere is refused, or in a directory that only it sees.
        let run = world.up("nodes:
  held: {command: [sh, -c, 'echo x > inside; echo x > ../outside'], isolation: confined, network: none}
  copy: {command: [sh, -c, 'echo y > inside; echo x > ../outside'], isolation: confined, workspace: own, depends_on: {held: completed}}
  free: {command: [sh, -c, 'test ! -e ../outside && echo x > ../outside'], depends_on: {copy: completed}}
");
        world.relive(&["wait", &run.uuid]);
        assert_eq!(world.node(&run, "free")["state"], "succeeded");
        assert!(world.root().join("outside").exists());
        assert_eq!(
            world.text_of("inside"),
            if world.node(&run, "copy")["state"] == "succeeded" { "y\n" } else { "x\n" }
        );
        let session = |node: &str| world.info(world.uuid_of(&run, node))["session"].clone();
        assert_eq!((&session("copy")["isolation"], &session("copy")["network"]), (&json!("confined"), &json!("full")));
        assert_eq!(session("held")["network"], "none");
    }
}

#[test]
fn a_fork_of_a_node_is_merged_into_the_directory_of_the_node() {
    let world = World::new();
    world.put("f", LINES);
    let model = world.commands("agent.yaml", &["sed -i s/1/one/ f", "sed -i s/9/nine/ f"]);
    let run = world.up(&format!("nodes: {{work: {{intent: edit, model: {model}, allow: [shell], workspace: own}}}}"));
    world.relive(&["wait", &run.uuid]).ok();
    let first = world.uuid_of(&run, "work");
    world.commands("agent.yaml", &["sed -i s/1/one/ f", "sed -i s/5/five/ f"]);
    world.relive(&["compose", "resume", &run.uuid, "--node", "work", "--fork", "--from-step", "1"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    let fork = world.uuid_of(&run, "work");
    assert_ne!(fork, first);
    world.relive(&["merge", &fork]).ok();
    assert_eq!(world.text_of("f"), "one\n2\n3\n4\nfive\n6\n7\n8\n9\n");
    // Nothing of it is only in its copy, whether or not the one of the process before is there.
    world.relive(&["workspace", "rm", "-y", "--force", &first]).ok();
    world.relive(&["workspace", "rm", "-y", &fork]).ok();
}

#[test]
fn a_fork_that_its_run_has_merged_is_merged() {
    let world = World::new();
    world.put("f", LINES);
    let model = world.commands("agent.yaml", &["sed -i s/1/one/ f", "sed -i s/9/nine/ f"]);
    let run = world.up(&format!(
        "nodes:
  work: {{intent: edit, model: {model}, allow: [shell], workspace: own}}
  join: {{command: [cat, f], depends_on: [work]}}
"
    ));
    world.relive(&["wait", &run.uuid]).ok();
    let first = world.uuid_of(&run, "work");
    world.commands("agent.yaml", &["sed -i s/1/one/ f", "sed -i s/5/five/ f"]);
    world.relive(&["compose", "resume", &run.uuid, "--node", "work", "--fork", "--from-step", "1"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.text_of("f"), "one\n2\n3\n4\nfive\n6\n7\n8\n9\n");
    let fork = world.uuid_of(&run, "work");
    for uuid in [&first, &fork] {
        world.relive(&["workspace", "rm", "-y", uuid]).ok();
    }
}
