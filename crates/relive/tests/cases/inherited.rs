//! Programs have the settings of the shell in which their command was typed, and not those of the daemon.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;

use serde_json::json;

use super::sessions_support::is_alive;
use super::world::{World, wait_for, wait_until};

/// Shows the settings of a program.
const SHOW: &str = "umask; nice; ulimit -Sn; ulimit -Hn; ulimit -c; \
                    grep -e SigIgn -e Cpus_allowed_list /proc/self/status";

impl World {
    /// Types a line in a shell with settings of its own, where `$1` is this program and `$2` shows the settings.
    fn type_in_shell(&self, line: &str) -> String {
        let relive = self.command(&[]).get_program().to_str().unwrap().to_owned();
        let mut command = std::process::Command::new("sh");
        let settings = "umask 027; ulimit -Sn 321; ulimit -Hn 4321; ulimit -c 7; trap '' HUP USR1 PIPE";
        command.args(["-c", &format!("{settings}; {line}"), "sh", &relive, SHOW]).current_dir(self.work()).env_clear();
        command.envs(self.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the shell itself hands down.
    fn typed(&self) -> String {
        let typed = self.type_in_shell("taskset -c 0 nice -n 5 sh -c \"$2\"");
        // The tests may run with another priority than usual themselves.
        let niceness: i32 = self.type_in_shell("nice").trim().parse().unwrap();
        assert!(typed.starts_with(&format!("0027\n{}\n321\n4321\n7\n", (niceness + 5).min(19))), "{typed}");
        assert!(typed.ends_with("Cpus_allowed_list:\t0\n"), "{typed}");
        typed
    }

    fn shown(&self) -> String {
        wait_for("the settings are shown", || fs::read_to_string(self.work().join("shown")).ok())
    }
}

/// A command that shows its settings in a file.
fn in_file() -> String {
    format!("({SHOW}) > new; mv new shown")
}

#[test]
fn a_program_inherits_from_the_shell_it_was_typed_in_and_not_from_the_daemon() {
    let world = World::new();
    world.relive(&["ps"]).ok();
    let typed = world.typed();
    let exec = "taskset -c 0 nice -n 5 \"$1\" exec -- sh -c \"$2\"";
    assert_eq!(world.type_in_shell(exec), typed);
    // Nor from the shim that waited for it.
    let spare = world.spare_shim();
    assert_eq!(world.type_in_shell(exec), typed);
    wait_until("that shim was used", || !is_alive(spare));
    // A signal that the shell does not ignore is not ignored.
    let pipe = |shown: &str| shown.lines().find(|line| line.starts_with("SigIgn")).unwrap().to_owned();
    assert_ne!(pipe(&world.relive(&["exec", "--", "sh", "-c", SHOW]).ok().stdout), pipe(&typed));
}

#[test]
fn the_commands_of_an_agent_inherit_from_the_shell_that_its_run_was_typed_in() {
    let world = World::with_config("tools: {shell: allow}\n");
    world.relive(&["ps"]).ok();
    let args = json!({ "command": in_file() });
    let model = world.script(&format!("turns: [{{calls: [{{name: shell, args: {args}}}]}}, {{text: done}}]"));
    world.type_in_shell(&format!("taskset -c 0 nice -n 5 \"$1\" run --model {model} 'do it' >&2"));
    assert_eq!(world.shown(), world.typed());
}

#[test]
fn the_programs_of_a_tree_inherit_from_the_shell_that_it_was_typed_in() {
    let world = World::new();
    world.relive(&["ps"]).ok();
    for (command, part) in [("compose up", "nodes"), ("supervise", "children")] {
        let restart = if part == "children" { ", restart: transient" } else { "" };
        let tree = format!("{part}:\n  one: {{command: {}{restart}}}\n", json!(["sh", "-c", in_file()]));
        fs::write(world.work().join("tree.yaml"), tree).unwrap();
        world.type_in_shell(&format!("taskset -c 0 nice -n 5 \"$1\" {command} -d tree.yaml >&2"));
        assert_eq!(world.shown(), world.typed(), "{command}");
        fs::remove_file(world.work().join("shown")).unwrap();
    }
}

#[test]
fn a_variable_that_cannot_be_passed_on_is_named() {
    let world = World::new();
    let mut command = world.command(&["exec", "--", "sh", "-c", "echo \"$PLAIN\""]);
    command.env("PLAIN", "there").env("LATIN", std::ffi::OsStr::from_bytes(b"caf\xe9"));
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "there\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "warning: the environment variable LATIN is not UTF-8 and is not passed on\n");
}

#[test]
fn a_limit_that_cannot_be_raised_again_is_shown() {
    let world = World::of_each_kind().pop().unwrap();
    if world.user().is_none() {
        return eprintln!("skipped: only root can start a daemon with lower limits than another user's");
    }
    // The daemon of nobody has the limits of this command.
    let lower = format!("ulimit -n 1000; exec {} exec -- true", world.command(&[]).get_program().to_str().unwrap());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &lower]).current_dir(world.work()).env_clear();
    command.envs(world.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let nobody = world.user().unwrap();
    command.uid(nobody).gid(nobody);
    assert!(command.output().unwrap().status.success());
    let sleeper = world.exec(&[], &["sleep", "1000"]);
    let degraded = world.await_stage(&sleeper, "running")["degraded"].to_string();
    assert!(degraded.contains("open files: at most 1000 instead of"), "{degraded}");
    let shown = world.relive(&["info", &sleeper.uuid]).ok().stdout;
    let row = shown.lines().find(|line| line.starts_with("DEGRADED")).unwrap_or(&shown);
    assert!(row.contains("open files: at most 1000 instead of"), "{shown}");
}
