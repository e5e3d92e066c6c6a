//! Trees whose processes start late, start again, or never start.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};

use crate::world::{World, finish, wait_until};

#[test]
fn the_logs_of_a_node_are_followed_through_its_tries_and_every_mark_begins_a_line() {
    let world = World::new();
    let run = world.up("nodes:
  a: {command: [sh, -c, 'if [ -e go ]; then printf two; else echo one; while [ ! -e go ]; do sleep 0.01; done; exit 1; fi'],
      retries: {max: 2, backoff: 1ms}}
  b: {command: [sh, -c, 'echo after'], depends_on: [a]}
");
    let follow = |node: &str| world.start(&["compose", "logs", &run.uuid, "--node", node, "-f"]);
    let (mut first, second) = (follow("a"), follow("b"));
    let mut output = BufReader::new(first.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    world.file("go", "");
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), first.wait().unwrap().code()), ("two", Some(0)), "the second try is followed, too");
    assert_eq!(finish(second).ok().stdout, "after\n", "it had not started when it was followed");
    world.relive(&["wait", &run.uuid]).ok();
    let all = world.relive(&["compose", "logs", &run.uuid]).ok().stdout;
    assert_eq!(all, "==> a <==\ntwo\n==> b <==\nafter\n");
}

#[test]
fn services_run_again_when_a_node_of_an_ended_run_is_resumed() {
    let world = World::new();
    let run = world.up("nodes:
  db: {command: [sh, -c, 'echo db >> ran; exec sleep 1000'], restart: permanent}
  test: {command: [sh, -c, 'echo test >> ran; test -e go'], depends_on: {db: started}}
");
    world.relive(&["wait", &run.uuid]).exits(1);
    fs::write(world.work().join("go"), "").unwrap();
    world.relive(&["compose", "resume", &run.uuid, "--node", "test"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["db", "db", "test", "test"]);
}

#[test]
fn a_node_is_not_resumed_while_what_it_depends_on_runs_again() {
    let world = World::new();
    let run = world.up("nodes:
  a: {command: [sh, -c, 'while [ -e hold ]; do sleep 0.01; done; echo a >> ran; wc -l < ran']}
  b: {command: [sh, -c, 'echo \"b $RELIVE_RESULT_a\" >> ran'], depends_on: [a], results: [a]}
");
    world.relive(&["wait", &run.uuid]).ok();
    world.file("hold", "");
    world.relive(&["compose", "resume", &run.uuid, "--node", "a"]).ok();
    let refused = world.relive(&["compose", "resume", &run.uuid, "--node", "b"]).exits(3);
    assert!(refused.stderr.contains("b starts again when what it depends on is done"), "{refused:?}");
    fs::remove_file(world.work().join("hold")).unwrap();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["a", "a", "b 1", "b 3"]);
}

#[test]
fn a_node_that_cannot_be_started_has_not_started() {
    let world = World::new();
    for db in ["intent: serve, agent: nobody-of-that-name", "command: [no-such-program-anywhere]"] {
        let run = world.up(&format!(
            "nodes:
  db: {{{db}}}
  web: {{command: [sh, -c, 'echo web >> ran'], depends_on: {{db: started}}}}
"
        ));
        world.relive(&["wait", &run.uuid]).exits(1);
        assert_eq!(world.states(&run), "db=failed web=skipped", "{db}");
        assert!(world.ran().is_empty());
    }
    // One that ends at once was there.
    let run = world.up("nodes:
  db: {command: ['false']}
  web: {command: [sh, -c, 'echo web >> ran'], depends_on: {db: started}}
");
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.states(&run), "db=failed web=succeeded");
}

#[test]
fn a_child_that_is_still_being_created_is_restarted_with_the_one_that_failed() {
    let world = World::new();
    // A copy of so many files takes longer than the failure of the first child.
    let many = world.work().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..3000 {
        fs::write(many.join(format!("file-{number}")), "text").unwrap();
    }
    let run = world.supervise(
        "strategy: one_for_all
backoff: 10ms
children:
  first: {command: [sh, -c, 'test -e again || { touch again; exit 1; }; exec sleep 1000']}
  second: {command: [sleep, '1000'], cwd: many, workspace: own}
",
    );
    wait_until("the first one has failed", || world.work().join("again").exists());
    wait_until("both run again", || {
        let generations = |node: &str| {
            let uuid = world.node(&run, node)["uuid"].as_str().map(str::to_owned);
            uuid.map_or(0, |uuid| world.generations(&uuid))
        };
        generations("first") == 2 && world.states(&run) == "first=running second=running"
    });
}

#[test]
fn two_nodes_of_an_ended_run_that_are_resumed_at_once_leave_it_readable() {
    let world = World::new();
    let run = world.up("nodes:
  one: {command: [sh, -c, 'test -e go || exec sleep 1000']}
  two: {command: [sh, -c, 'test -e go || exec sleep 1000']}
");
    for _ in 0..4 {
        world.await_node(&run, "one", "running");
        world.await_node(&run, "two", "running");
        world.relive(&["compose", "down", &run.uuid]).ok();
        let resumed = ["one", "two"].map(|node| world.start(&["compose", "resume", &run.uuid, "--node", node]));
        for resumed in resumed {
            finish(resumed).ok();
        }
    }
    fs::write(world.work().join("go"), "").unwrap();
    world.relive(&["compose", "down", &run.uuid]).ok();
    world.relive(&["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.states(&run), "one=succeeded two=succeeded");
}

#[test]
fn a_tree_that_is_too_deep_is_refused_before_anything_starts() {
    let world = World::with_config("limits: {max_depth: 1}");
    world.file("keep.yaml", "children: {outer: {supervisor: {children: {inner: {command: [sleep, '1000']}}}}}");
    let refused = world.relive(&["supervise", "-d", "keep.yaml"]);
    refused.fails(2, &["its processes would be 2 levels deep, but limits.max_depth is 1", "relive config edit"]);
    assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, "");
}

#[test]
fn a_limit_on_children_that_was_raised_counts_at_once() {
    let world = World::with_config("limits: {max_children: 1}");
    let relive = env!("CARGO_BIN_EXE_relive");
    let script = format!(
        "begin() {{ {relive} exec -d -- sleep 1000; }}; begin || exit 9; begin && exit 8; touch full; \
         until test -e go; do sleep 0.05; done; begin && touch done; exec sleep 1000"
    );
    world.relive(&["exec", "-d", "--", "sh", "-c", &script]).ok();
    wait_until("its only place is taken", || world.work().join("full").exists());
    fs::write(world.root().join("config/relive/config.yaml"), "limits: {max_children: 2}").unwrap();
    fs::write(world.work().join("go"), "").unwrap();
    wait_until("there is room for another one", || world.work().join("done").exists());
}

#[test]
fn the_logs_of_a_node_that_could_not_be_started_say_why() {
    let world = World::new();
    let run = world.up("nodes:
  a: {intent: serve, agent: nobody-of-that-name}
  b: {command: [echo, said], cwd: nowhere}
");
    world.relive(&["wait", &run.uuid]).exits(1);
    let logs = world.relive(&["compose", "logs", &run.uuid, "--node", "a"]).ok();
    assert!(logs.stderr.contains("a was not started: "), "{logs:?}");
    assert!(logs.stderr.contains("nobody-of-that-name"), "{logs:?}");
    let followed = world.relive(&["compose", "logs", &run.uuid, "--node", "a", "-f"]).ok();
    assert!(followed.stderr.contains("a was not started: "), "{followed:?}");
    assert!(world.relive(&["compose", "logs", &run.uuid]).ok().stderr.contains("a was not started: "));
    let reason = world.node(&run, "b")["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("no such directory: "), "{reason}");
    let fork = world.relive(&["compose", "resume", &run.uuid, "--node", "a", "--fork"]);
    let hint = format!("hint: relive compose resume {} --node a\n", run.pid);
    fork.fails(3, &["cannot fork a: it was never started", &hint]);
}

#[test]
fn the_refusal_to_resume_a_paused_node_names_the_command_that_continues_it() {
    let world = World::new();
    let run = world.up("nodes: {b: {command: [sleep, '1000']}}");
    // It is shown as running a moment before its process has a PID.
    let pid = crate::world::wait_for("it has a PID", || {
        world.await_node(&run, "b", "running")["pid"].as_u64().map(|pid| pid.to_string())
    });
    world.relive(&["pause", &pid]).ok();
    world.await_display(&pid, "suspended");
    let refused = world.relive(&["compose", "resume", &run.uuid, "--node", "b"]).exits(3);
    assert!(refused.stderr.contains(&format!("hint: relive resume {pid}")), "{refused:?}");
}

#[test]
fn ctrl_c_says_that_it_ends_the_run_and_exits_as_an_interrupted_command() {
    let world = World::new();
    world.file("tree.yaml", "nodes: {a: {command: [sh, -c, 'touch runs; exec sleep 1000']}}");
    let up = world.start(&["compose", "up", "tree.yaml"]);
    wait_until("it runs", || world.work().join("runs").exists());
    rustix::process::kill_process(rustix::process::Pid::from_child(&up), rustix::process::Signal::INT).unwrap();
    let ended = finish(up).exits(130);
    let refused = world.relive(&["send", "1", "hello"]).exits(3);
    assert!(refused.stderr.contains("hint: relive compose resume 1 --node NODE --input hello"), "{refused:?}");
    assert!(ended.stderr.contains("press Ctrl-C again to kill it"), "{ended:?}");
}
