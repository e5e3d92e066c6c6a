//! That the keys of one process are out of reach of the programs of another, and outlive the daemon all the same.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use relive_fake_model::{Failure, FakeModel, Turn};
use rustix::process::Signal;
use serde_json::json;

use super::environments::{SECRET, assert_hidden, kept, run_with, with_keeper};
use crate::world::{World, kill, output, wait_until};

const CLAUDE: &str = "anthropic/claude-sonnet-4-5";

/// The OS pid of the keeper of a world's data directory.
pub(crate) fn keeper_of(world: &World) -> Option<u32> {
    let line = format!("{}\0{}\0", relive_keeper::KEEPER, world.data().display());
    let is_keeper = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line.as_bytes());
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_keeper)
}

#[test]
fn the_shell_of_one_process_finds_the_keys_of_another_in_no_file() {
    let world = World::with_config("tools: {shell: allow}\n");
    let victim = run_with(&world, &[("ANTHROPIC_API_KEY", SECRET)], &world.hanging(), &[]);
    world.await_step(&victim, 1);
    // The brackets: what it looks for is in its own journal as well.
    let looks = format!(
        "grep -rlsE -D skip 'sk-[p]lanted' {} {} || echo nothing",
        world.data().display(),
        world.root().join("run").display()
    );
    let turns = json!({"turns": [{"calls": [{"name": "shell", "args": {"command": looks}}]}, {"text": "done"}]});
    let thief = world.run(&turns.to_string());
    world.relive(&["wait", &thief.uuid]).ok();
    let result = world.records(&thief.uuid, "call_ended")[0]["result"].to_string();
    assert!(result.contains("nothing") && !result.contains(&victim.uuid), "{result}");
    assert_hidden(&world);
    assert_eq!(kept(&world)[&victim.uuid]["ANTHROPIC_API_KEY"], SECRET);
}

#[test]
fn no_other_program_of_the_user_looks_into_the_daemon_or_the_keeper() {
    for world in World::of_each_kind() {
        let Some(user) = world.user().or_else(|| Some(rustix::process::getuid().as_raw()).filter(|uid| *uid != 0))
        else {
            // Nothing can be kept from root.
            continue;
        };
        let process = run_with(&world, &[("TOKEN", SECRET)], "script/demo", &[]);
        world.relive(&["wait", &process.uuid]).ok();
        let reads = |pid: u32, file: &str| {
            let mut command = Command::new("head");
            command.args(["-c", "1", &format!("/proc/{pid}/{file}")]).uid(user).gid(user).env_clear();
            command.output().unwrap()
        };
        let lists = |pid: u32| {
            let mut command = Command::new("ls");
            command.arg(format!("/proc/{pid}/fd")).uid(user).gid(user).env_clear();
            command.output().unwrap().status.success()
        };
        // A program as any other can be looked into, so the check is worth something.
        let mut open = Command::new("sleep").arg("600").uid(user).gid(user).env("X", "y").spawn().unwrap();
        assert!(reads(open.id(), "environ").status.success() && lists(open.id()));
        open.kill().unwrap();
        open.wait().unwrap();
        let (daemon, keeper) = (world.daemon_pid().unwrap(), keeper_of(&world).unwrap());
        for (name, pid) in [("daemon", daemon), ("keeper", keeper)] {
            for file in ["environ", "mem", "maps", "auxv"] {
                let output = reads(pid, file);
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(said.contains("Permission denied"), "{file} of the {name}: {output:?}");
            }
            assert!(!lists(pid), "the descriptors of the {name}");
        }
        assert_hidden(&world);
    }
}

#[test]
fn a_debugger_may_look_into_a_daemon_that_was_started_for_it() {
    let world = World::new().with_env("RELIVE_DUMPABLE", "1");
    world.relive(&["daemon", "start"]).ok();
    let uid = |pid: u32| fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
    assert_eq!(uid(world.daemon_pid().unwrap()), rustix::process::getuid().as_raw());
    let log = fs::read_to_string(world.data().join("daemon.log")).unwrap();
    assert!(log.contains("RELIVE_DUMPABLE is set"), "{log}");
}

/// A process that has asked twice with its key, and asks again whenever it is recovered.
fn asking() -> FakeModel {
    let last = Turn::text("done").after(Failure::Silence).after(Failure::Silence).after(Failure::Silence);
    FakeModel::start([Turn::calls("list", json!({})), last])
}

#[test]
fn after_a_kill_of_the_keeper_another_has_everything_when_the_daemon_is_killed() {
    let (server, world) = (asking(), World::new());
    let url = server.base_url();
    let shell = [("ANTHROPIC_API_KEY", SECRET), ("ANTHROPIC_BASE_URL", url.as_str())];
    let process = run_with(&world, &shell, CLAUDE, &[]);
    let asked = |count| wait_until("it has asked", || server.requests().len() == count);
    asked(2);
    let first = keeper_of(&world).unwrap();
    kill(first, Signal::KILL);
    wait_until("there is another keeper", || keeper_of(&world).is_some_and(|keeper| keeper != first));
    let second = keeper_of(&world).unwrap();
    // It has been given everything before it is told of another one.
    run_with(&world, &[("TOKEN", "other")], "script/demo", &[]);
    world.kill_daemon();
    assert_eq!(world.info(&process.uuid)["display"], "running");
    asked(3);
    assert_eq!(keeper_of(&world), Some(second), "the next daemon talks to the same");
    assert!(server.requests().iter().all(|request| request.key.as_deref() == Some(SECRET)));
}

#[test]
fn the_keeper_is_in_a_session_of_its_own_and_ends_when_it_keeps_nothing() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 0}");
    let process = run_with(&world, &[("TOKEN", SECRET)], &world.hanging(), &[]);
    let keeper = keeper_of(&world).unwrap();
    let stat = fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap();
    assert_eq!(stat.rsplit(')').next().unwrap().split_whitespace().nth(3), Some(keeper.to_string().as_str()), "{stat}");
    let cgroup = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert_eq!(cgroup(keeper), cgroup(world.daemon_pid().unwrap()));
    world.relive(&["daemon", "stop"]).ok();
    assert_eq!(keeper_of(&world), Some(keeper), "the process goes on with the next start");
    let key = process.uuid.parse::<relive_core::Uuid>().unwrap().as_u128();
    with_keeper(&world, |keeper| keeper.remove(&[key]).unwrap()).unwrap();
    wait_until("the keeper has gone", || keeper_of(&world).is_none());
}

#[test]
fn the_keeper_ends_with_a_daemon_that_is_stopped_while_nothing_is_alive() {
    let world = World::new();
    let program = world.exec(&[], &["true"]);
    world.ends(&program, 0);
    let keeper = keeper_of(&world);
    assert!(keeper.is_some());
    world.relive(&["daemon", "restart"]).ok();
    assert_eq!(keeper_of(&world), keeper, "the next daemon has all environments");
    let lasting = world.exec(&[], &["sleep", "1000"]);
    world.relive(&["daemon", "stop"]).ok();
    assert_eq!(keeper_of(&world), keeper, "a program runs on");
    world.relive(&["kill", "-9", &lasting.uuid]).ok();
    world.relive(&["wait", &lasting.uuid]).exits(137);
    assert_eq!(keeper_of(&world), keeper);
    world.relive(&["daemon", "stop"]).ok();
    wait_until("the keeper has gone", || keeper_of(&world).is_none());
    let info = world.info(&program.uuid);
    assert_eq!(info["state"], "dead", "and nothing else is: {info}");
}

#[test]
fn environments_in_files_of_an_earlier_version_are_moved_and_the_files_removed() {
    let world = World::new();
    let process = run_with(&world, &[("TOKEN", "new")], &world.hanging(), &[]);
    world.await_step(&process, 1);
    let directory = world.socket().with_file_name("env");
    let keeper = keeper_of(&world).unwrap();
    world.kill_daemon();
    kill(keeper, Signal::KILL);
    wait_until("the keeper has gone", || keeper_of(&world).is_none());
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(directory.join(&process.uuid), json!({"TOKEN": SECRET}).to_string()).unwrap();
    world.relive(&["daemon", "start"]).ok();
    assert!(!directory.exists());
    assert_hidden(&world);
    assert_eq!(kept(&world)[&process.uuid]["TOKEN"], SECRET);
}

#[test]
fn sixteen_thousand_equal_environments_cost_little_and_go_if_their_processes_do_not_exist() {
    const COUNT: u128 = 16_000;
    let world = World::new();
    let process = run_with(&world, &[("TOKEN", SECRET)], &world.hanging(), &[]);
    let value = json!({"TOKEN": SECRET, "LONG": "x".repeat(8 << 10)}).to_string();
    with_keeper(&world, |keeper| keeper.put(&(0..COUNT).collect::<Vec<_>>(), value.as_bytes()).unwrap()).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", keeper_of(&world).unwrap())).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kilobytes: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 8 << 10, "{kilobytes} kB");
    eprintln!("the keeper of 16,000 equal environments has {kilobytes} kB of its own");
    // There are no such processes, and the next daemon forgets them.
    world.relive(&["daemon", "start"]).ok();
    assert_eq!(kept(&world).into_keys().collect::<Vec<_>>(), [process.uuid]);
}

#[test]
fn the_name_of_the_keeper_typed_by_hand_says_who_starts_it() {
    let mut typed = Command::new(env!("CARGO_BIN_EXE_relive"));
    let output = typed.arg0(relive_keeper::KEEPER).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.contains("is started by the Relive daemon")), (Some(1), true), "{said}");
}

/// A place in `/tmp` that goes away with the test.
struct Squat(std::path::PathBuf);

impl Drop for Squat {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_a_runtime_directory_a_place_that_somebody_else_has_taken_is_not_used() {
    const USER: u32 = 61_234;
    const NOBODY: u32 = 65_534;
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can be somebody else");
        return;
    }
    let world = World::new();
    for directory in ["", "work", "run", "config", "config/relive", "home"] {
        std::os::unix::fs::chown(world.root().join(directory), Some(USER), Some(USER)).unwrap();
    }
    let typed = |args: &[&str]| {
        let mut command = world.command(args);
        command.uid(USER).gid(USER).env_remove("XDG_RUNTIME_DIR").env("PATH", "/usr/local/bin:/usr/bin:/bin");
        output(command.output().unwrap())
    };
    let socket = || typed(&["paths", "--json"]).ok().json()["socket"].as_str().unwrap().to_owned();
    let squat = Squat(format!("/tmp/relive-{USER}").into());
    fs::create_dir(&squat.0).unwrap();
    fs::set_permissions(&squat.0, fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::chown(&squat.0, Some(NOBODY), Some(NOBODY)).unwrap();
    typed(&["daemon", "start"]).ok();
    assert_eq!(socket(), world.data().join("run/socket").to_str().unwrap());
    assert_eq!(fs::read_dir(&squat.0).unwrap().count(), 0, "nothing was put there");
    typed(&["daemon", "stop"]).ok();
    // Told to use it all the same, it refuses and says whose it is.
    let mut forced = world.command(&["ps"]);
    forced.uid(USER).gid(USER).env("RELIVE_SOCKET", squat.0.join("deep/socket"));
    let told = output(forced.output().unwrap()).fails(5, &["belongs to uid 65534, not to you (uid 61234)"]);
    assert!(told.stderr.contains("hint: unset RELIVE_SOCKET\n"), "{told:?}");

    fs::remove_dir(&squat.0).unwrap();
    typed(&["daemon", "start"]).ok();
    assert!(socket().starts_with(squat.0.join("relive").to_str().unwrap()), "{}", socket());
    let found = fs::metadata(&squat.0).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (USER, 0o700));
    typed(&["daemon", "stop"]).ok();
}

/// Kills the daemon, runs one that can be looked into, and looks for a key in it. The key is not in this text.
const USURPER: &str = r#"
import os, re, signal, subprocess, sys, time
relive, daemon = sys.argv[1], int(sys.argv[2])
while not os.path.exists("go"):
    time.sleep(0.02)
os.kill(daemon, signal.SIGKILL)
env = {k: v for k, v in os.environ.items() if k not in ("RELIVE_SELF", "RELIVE_SESSION")}
env["RELIVE_DUMPABLE"] = "1"
while True:
    own = subprocess.Popen([relive, "daemon", "serve"], env=env, stderr=open("log", "w"))
    while own.poll() is None and "serving" not in open("log").read():
        time.sleep(0.02)
    if own.poll() is None:
        break
secret, found = b"sk-" + b"planted-" + b"7f3a9c", 0
with open("/proc/%d/mem" % own.pid, "rb") as memory:
    for line in open("/proc/%d/maps" % own.pid):
        area = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
        if area:
            start, end = (int(word, 16) for word in area.groups())
            try:
                memory.seek(start)
                found += memory.read(end - start).count(secret)
            except OSError:
                pass
open("found", "w").write("%d\n" % found)
time.sleep(1000)
"#;

#[test]
fn a_program_that_kills_the_daemon_and_runs_its_own_gets_no_key_of_another() {
    for ladder in [None, Some("process-group")] {
        let mut world = World::new();
        if let Some(ladder) = ladder {
            world = world.with_env("RELIVE_LADDER", ladder);
        }
        let victim = run_with(&world, &[("ANTHROPIC_API_KEY", SECRET)], &world.hanging(), &[]);
        world.await_step(&victim, 1);
        let daemon = world.daemon_pid().unwrap().to_string();
        let relive = env!("CARGO_BIN_EXE_relive");
        let program = world.exec(&[], &["python3", "-c", USURPER, relive, &daemon]);
        fs::write(world.work().join("go"), "").unwrap();
        let read = || fs::read_to_string(world.work().join("found")).ok().filter(|text| text.ends_with('\n'));
        let found = crate::world::wait_for("it has looked", read);
        let log = fs::read_to_string(world.work().join("log")).unwrap_or_default();
        assert_eq!(found, "0\n", "{ladder:?}: the keeper gave it a key: {log}");
        assert!(log.contains("this daemon runs inside of a process"), "{ladder:?}: {log}");
        // The keeper is still that of the first daemon, and has the key for the next one.
        world.relive(&["kill", "-s", "KILL", &program.uuid]);
        wait_until("the daemon inside has gone", || world.daemon_pid().is_none_or(|pid| pid.to_string() != daemon));
        assert_eq!(kept(&world)[&victim.uuid]["ANTHROPIC_API_KEY"], SECRET, "{ladder:?}");
    }
}
