//! A stdout that takes nothing: a full disk, or none at all.

use crate::world::World;

#[test]
fn a_pid_that_cannot_be_printed_is_told_with_the_error() {
    let world = World::new();
    for args in [&["run", "-d", "-n", "--model", &world.hanging(), "do it"][..], &["exec", "-d", "sleep", "60"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = world.command(args).stdout(full).output().unwrap();
        let said = ["cannot write to stdout; PID ", " keeps running", "hint: relive attach "];
        crate::world::output(output).fails(125, &said);
    }
}

#[test]
fn output_without_a_stdout_is_a_failure() {
    let world = World::new();
    let check = |args: &[&str], code: i32, said: &[&str]| {
        let relive = world.command(&[]);
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "exec \"$@\" >&-", "sh"]).arg(relive.get_program()).args(args).env_clear();
        shell.envs(relive.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.current_dir(relive.get_current_dir().unwrap()).stdin(std::process::Stdio::null());
        let output = crate::world::output(shell.output().unwrap());
        if code == 0 { drop(output.ok()) } else { drop(output.fails(code, said)) }
    };
    let model = world.script("turns: [{text: done}]");
    check(&["run", "-n", "--model", &model, "do it"], 125, &["cannot write to stdout"]);
    let said = ["cannot write to stdout; PID ", " keeps running", "hint: relive attach "];
    check(&["run", "-d", "-n", "--model", &world.hanging(), "do it"], 125, &said);
    check(&["exec", "echo", "hi"], 125, &["cannot write to stdout", "bad file descriptor", "hint: relive logs "]);
    // Nothing is printed on stdout.
    check(&["exec", "true"], 0, &[]);
    check(&["exec", "sh", "-c", "echo hi >&2"], 0, &[]);
    check(&["kill", "--all", "-y"], 0, &[]);
}
