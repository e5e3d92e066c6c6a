//! Errors that name a process as it was typed, and hints that repeat all that was typed.

use crate::world::{World, wait_until};

const TWO_STEPS: &str = "turns: [{text: a, calls: [{name: list, args: {}}], repeat: 9}]";

#[test]
fn a_refused_resume_is_offered_with_all_that_was_typed() {
    let world = World::new();
    let process = world.run_with(TWO_STEPS, &["--max-steps", "2", "--name", "ms"]);
    world.relive(&["wait", &process.uuid]).exits(1);
    let model = world.script("turns: [{text: done}]");
    let more = format!("--model {model} --input 'now the docs'");
    let hint = format!("hint: relive resume ms --max-steps 4 {more}\n");
    let told = world.relive(&["resume", "ms", "--input", "now the docs", "--model", &model]).fails(3, &["--max-steps"]);
    assert!(told.stderr.ends_with(&hint), "{told:?}");
    let fork = ["resume", "--fork", "--workspace", "here", "--name", "copy", "ms", "--timeout", "9s"];
    let hint = "hint: relive resume --fork --workspace here ms --max-steps 4 --timeout 9s --name copy\n";
    let told = world.relive(&fork).fails(3, &["--max-steps"]);
    assert!(told.stderr.ends_with(hint), "{told:?}");
    let told = world.relive(&["retry", "ms", "--name", "copy", "--input", "again"]).fails(3, &["--max-steps"]);
    assert!(told.stderr.ends_with("hint: relive retry ms --max-steps 4 --name copy --input again\n"), "{told:?}");
    // The step is what is wrong.
    let told = world.relive(&["resume", "--fork", "--from-step", "99", "ms"]).exits(2);
    assert!(told.stderr.contains("`ms` has no step 99: its last complete step is 2"), "{told:?}");
    assert!(!told.stderr.contains("--max-steps"), "{told:?}");
}

#[test]
fn an_error_names_the_process_as_it_was_typed() {
    let world = World::new();
    world.exec(&["--name", "prog"], &["sleep", "1000"]);
    world.relive(&["send", "prog", "hi"]).fails(2, &["error: `prog` accepts no messages"]);
    world.relive(&["send", "1", "hi"]).fails(2, &["error: PID 1 accepts no messages"]);
    let over = world.exec(&["--name", "over"], &["true"]);
    world.ends(&over, 0);
    world
        .relive(&["resume", "over", "--model", "script/demo"])
        .fails(2, &["error: `over` is a program: --model is only for agents"]);
}

#[test]
fn an_ambiguous_id_lists_the_processes_that_it_could_mean() {
    let world = World::new();
    let ended = world.run_with("turns: [{text: done}]", &["--name", "first"]);
    world.relive(&["wait", &ended.uuid]).ok();
    let living = world.run_hanging(&["--name", "second"]);
    wait_until("both are listed", || world.relive(&["ps", "-aq"]).stdout.lines().count() == 2);
    // Both begin with the time.
    let common = ended.uuid.chars().zip(living.uuid.chars()).take_while(|(one, other)| one == other).count();
    let told = world.relive(&["info", &ended.uuid[..common]]).fails(2, &["is ambiguous"]);
    let short = |uuid: &str| world.info(uuid)["short"].as_str().unwrap().to_owned();
    for line in [
        format!("\n  PID 1  {}  first  dead\n", short(&ended.uuid)),
        format!("\n  PID 2  {}  second  running\n", short(&living.uuid)),
    ] {
        assert!(told.stderr.contains(&line), "{line}: {told:?}");
    }
}

#[test]
fn the_beginning_of_a_name_is_taken_for_that_name() {
    let world = World::new();
    world.run_hanging(&["--name", "alphabet"]);
    world.run_hanging(&["--name", "alb"]);
    world.relive(&["info", "alp"]).fails(4, &["no process `alp`", "hint: did you mean `alphabet`?"]);
    world.relive(&["info", "albb"]).fails(4, &["hint: did you mean `alb`?"]);
}

#[test]
fn a_limit_that_suspends_is_named() {
    let world = World::new();
    let model = world.script("turns: [{text: slow, hang: true}]");
    let flags = ["--on-budget", "suspend", "--timeout", "100ms", "--name", "late"];
    let late = world.run_model(&model, &flags);
    world.await_display(&late.uuid, "suspended");
    assert_eq!(world.info(&late.uuid)["reached_limit"], "timeout");
    let shown = world.relive(&["ps", "--columns", "state,detail"]).ok().stdout;
    let row = shown.lines().nth(1).unwrap();
    assert!(row.starts_with("suspended  reached --timeout 0.1s"), "{shown}");
    assert!(world.relive(&["info", "late"]).ok().stdout.contains("suspended (reached --timeout 0.1s)"), "{shown}");
}

#[test]
fn a_model_with_a_colon_is_offered_with_a_slash() {
    let world = World::new();
    world.relive(&["run", "-n", "--model", "script:s.yaml", "x"]).fails(2, &["hint: did you mean `script/s.yaml`?"]);
}

#[test]
fn an_id_that_is_longer_than_any_can_be_is_invalid() {
    let world = World::new();
    world.run_hanging(&[]);
    let told = world.relive(&["info", &"x".repeat(70_000)]).fails(2, &["longer than 8192 bytes"]);
    assert!(told.stderr.len() < 200, "it is not repeated");
}

#[test]
fn piped_text_that_is_not_utf_8_is_refused_like_a_nul_byte() {
    let world = World::new();
    let bytes = world.root().join("bytes");
    std::fs::write(&bytes, b"a\xffb").unwrap();
    let mut command = world.command(&["run", "--model", "script/demo", "review"]);
    let told = crate::world::output(command.stdin(std::fs::File::open(&bytes).unwrap()).output().unwrap());
    told.fails(2, &["the standard input is not text: it is not UTF-8", "hint: relive run -n"]);
}

#[test]
fn amounts_say_what_is_missing() {
    let world = World::new();
    world.relive(&["exec", "--cpu", "-1", "--", "true"]).fails(2, &["--cpu needs a number of at least 0.01"]);
    world.relive(&["exec", "--memory", "5", "--", "true"]).fails(2, &["a size needs a unit, such as 5M or 5G"]);
    world.relive(&["config"]).fails(2, &["error: `relive config` needs a command"]);
}
