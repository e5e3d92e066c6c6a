//! Results of nodes, whatever their programs wrote, and what is said of output that is not there yet.

use std::io::{BufRead as _, BufReader, Read as _};

use crate::world::{World, finish, wait_until};

#[test]
fn a_result_is_handed_on_whatever_else_its_program_wrote() {
    let world = World::new();
    // Both streams are in one log.
    let run = world.up(r#"nodes:
  lines: {command: [sh, -c, 'printf "a\nb\n\n"']}
  nul: {command: [sh, -c, 'printf "a\000b"']}
  no-text: {command: [sh, -c, 'printf "a\377b"']}
  long: {command: [sh, -c, 'head -c 2000000 /dev/zero | tr "\0" x; echo END']}
  loud: {command: [sh, -c, 'echo result; head -c 1000000 /dev/zero | tr "\0" e >&2']}
  see:
    command: [sh, -c, 'echo "$RELIVE_RESULT_lines,$RELIVE_RESULT_nul,$RELIVE_RESULT_no_text,${#RELIVE_RESULT_long},$RELIVE_RESULT_loud"']
    depends_on: [lines, nul, no-text, long, loud]
    results: [lines, nul, no-text, long, loud]
"#);
    world.relive(&["wait", &run.uuid]).ok();
    let seen = world.relive(&["compose", "logs", &run.uuid, "--node", "see"]).ok().stdout;
    assert_eq!(seen, "a\nb,a\u{fffd}b,a\u{fffd}b,32768,result\n");
}

#[test]
fn the_reason_of_a_failure_is_found_behind_much_output() {
    let world = World::new();
    let run = world.up(r#"nodes:
  bad: {command: [sh, -c, 'echo the disk is full >&2; head -c 1000000 /dev/zero | tr "\0" x; exit 7']}
"#);
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.node(&run, "bad")["reason"], "the disk is full");
}

#[test]
fn the_output_of_a_node_that_was_not_started_is_said_to_be_missing() {
    let world = World::new();
    let run = world.up("nodes:
  first: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done']}
  after: {command: [echo, hello], depends_on: [first]}
");
    let logs = ["compose", "logs", &run.uuid, "--node", "after"];
    let early = world.relive(&logs).ok();
    assert_eq!(early.stdout, "");
    let hint = early.stderr.strip_prefix("after has not started yet: it waits for first\nto follow it: relive ");
    let hint: Vec<&str> = hint.unwrap_or_else(|| panic!("{early:?}")).split_whitespace().collect();
    let mut followed = world.start(&hint);
    let mut said = BufReader::new(followed.stderr.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "after has not started yet: it waits for first");
    world.file("go", "");
    let shown = followed.wait_with_output().unwrap();
    assert_eq!((shown.status.code(), String::from_utf8(shown.stdout).unwrap().as_str()), (Some(0), "hello\n"));

    let run = world.up("nodes:
  first: {command: ['false']}
  after: {command: [echo, hello], depends_on: [first]}
");
    world.relive(&["wait", &run.uuid]).exits(1);
    for flags in [&[][..], &["-f"]] {
        let logs = world.relive(&[&["compose", "logs", &run.uuid, "--node", "after"], flags].concat()).ok();
        assert_eq!((logs.stdout.as_str(), logs.stderr.as_str()), ("", "after was skipped: first failed\n"));
    }
}

#[test]
fn compose_up_in_the_foreground_tells_each_change_and_each_result_in_json() {
    let world = World::new();
    world.file(
        "tree.yaml",
        "nodes:
  good: {command: ['true']}
  bad: {command: [sh, -c, 'exit 4'], depends_on: [good]}
  after: {command: ['true'], depends_on: [bad]}
",
    );
    let lines = world.relive(&["compose", "up", "--json", "tree.yaml"]).exits(1).json_lines();
    let (first, last) = (&lines[0], &lines[lines.len() - 1]);
    assert!(first["pid"].is_u64() && first["uuid"].is_string() && first.as_object().unwrap().len() == 2, "{first}");
    let states: Vec<String> = lines
        .iter()
        .filter(|line| line["kind"] == "node")
        .map(|line| format!("{}={}", line["node"].as_str().unwrap(), line["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, ["good=running", "good=succeeded", "bad=running", "bad=failed", "after=skipped"]);
    assert_eq!((&last["kind"], &last["uuid"], &last["exit_code"]), (&"exit".into(), &first["uuid"], &1.into()));
    let codes: Vec<Option<i64>> =
        last["nodes"].as_array().unwrap().iter().map(|node| node["exit"]["code"].as_i64()).collect();
    assert_eq!(codes, [Some(0), Some(4), None]);
    wait_until("nothing is left", || world.relive(&["ps", "-q"]).ok().stdout.is_empty());
}

/// The command after `hint: ` or after the last colon of a line, without `relive`.
#[track_caller]
fn hinted(said: &str) -> Vec<&str> {
    let command = said.rsplit_once("relive ").unwrap_or_else(|| panic!("no command in {said}")).1;
    command.split_whitespace().collect()
}

#[test]
fn a_run_whose_start_cannot_be_printed_is_said_to_run_with_a_command_that_waits_for_it() {
    let world = World::new();
    world.file("tree.yaml", "nodes: {a: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done; exit 4']}}\n");
    world.file(
        "loop.yaml",
        "children: {a: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done'], restart: temporary}}\n",
    );
    let cases = [
        (&["compose", "up", "-d", "tree.yaml"][..], 1),
        (&["compose", "up", "--json", "tree.yaml"], 1),
        (&["supervise", "-d", "loop.yaml"], 0),
    ];
    for (args, ends_with) in cases {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let said = world.command(args).stdout(full).output().unwrap();
        let (code, said) = (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned());
        assert!(code == Some(125) && said.contains("keeps running") && said.contains("hint: relive wait"), "{said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = world.command(args).stdout(writer).output().unwrap();
        let (code, closed) = (closed.status.code(), String::from_utf8_lossy(&closed.stderr).into_owned());
        assert!(code == Some(141) && closed.contains("nobody reads the output any more, PID "), "{closed}");
        world.file("go", "");
        for said in [said, closed] {
            world.relive(&hinted(&said)).exits(ends_with);
        }
        std::fs::remove_file(world.work().join("go")).unwrap();
    }
}

#[test]
fn a_run_that_has_ended_is_not_said_to_run_when_only_its_last_line_cannot_be_written() {
    let world = World::new();
    // The last line is longer than a pipe is, so its writer waits for the reader, who goes away then.
    let skipped = |number| format!("  skipped-{number:0>30}: {{command: ['true'], depends_on: [bad]}}\n");
    let skipped: String = (0..600).map(skipped).collect();
    world.file("tree.yaml", &format!("nodes:\n  bad: {{command: [sh, -c, 'exit 4']}}\n{skipped}"));
    let mut child = world.start(&["compose", "up", "--json", "tree.yaml"]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let begins = br#"{"kind":"exit""#;
    loop {
        let mut begun = vec![0; begins.len()];
        stdout.read_exact(&mut begun).unwrap();
        if begun == begins {
            break;
        }
        stdout.read_line(&mut String::new()).unwrap();
    }
    drop(stdout);
    let said = finish(child);
    let expect = "nobody reads the output any more, PID 1 has ended with exit code 1\n";
    assert_eq!((said.code, said.stderr.as_str()), (141, expect));
}
