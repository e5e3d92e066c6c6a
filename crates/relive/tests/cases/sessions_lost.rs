//! Sessions whose shim cannot be asked any more: each has an end of its own, and nothing is started twice.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use relive_core::{ErrorCode, Moment, Timestamp};
use relive_journal::data::{SpaceRules, SpawnRequest};
use relive_journal::record::{OpenedBy, Spawned};
use relive_journal::{DataDirectory, Io, Opening};
use relive_session::directory::{SessionDirectory, boot_id};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::sessions_support::is_alive;
use super::world::{Begun, World, finish, kill, wait_for, wait_until};
use crate::freezer::is_frozen;

/// A program that runs, and then neither a daemon nor a shim.
fn lost(world: &World) -> (Begun, PathBuf) {
    let program = world.exec(&[], &["sh", "-c", "echo once >> runs; exec sleep 1000"]);
    let session = world.await_stage(&program, "running");
    let runs = world.work().join("runs");
    wait_until("it has run", || fs::read_to_string(&runs).is_ok_and(|text| text == "once\n"));
    let folder = PathBuf::from(session["folder"].as_str().unwrap());
    let state: Value = serde_json::from_slice(&fs::read(folder.join("state")).unwrap()).unwrap();
    world.kill_daemon();
    kill(u32::try_from(state["shim_pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
    let host = session["host_pid"].as_u64().unwrap();
    wait_until("the program went with its shim", || !is_alive(host));
    (program, folder)
}

#[test]
fn attach_reports_the_end_of_a_lost_program() {
    let world = World::new();
    let program = world.exec(&["--name", "job"], &["sh", "-c", "echo up; exec sleep 1000"]);
    let session = world.await_stage(&program, "running");
    world.await_output(&program, "up");
    let mut attached = world.command(&["attach", "job"]);
    attached.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut attached = attached.spawn().unwrap();
    attached.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    let state = fs::read(Path::new(session["folder"].as_str().unwrap()).join("state")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    kill(u32::try_from(state["shim_pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
    let told = finish(attached);
    let code = world.relive(&["wait", "job"]).code;
    assert!(code != 0, "it did not end by itself");
    told.fails(code, &[&format!("PID 1 has ended with exit code {code}: ")]);
}

/// It cannot be continued by anybody but its tracer, so a KILL does not wait for its answer.
#[test]
fn a_program_that_traces_its_shim_is_killed_without_it() {
    let world = World::new();
    let script = "import ctypes, os, time\n\
                  result = ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)\n\
                  open('attached' if result == 0 else 'refused', 'w')\n\
                  ticks = open('ticks', 'w')\n\
                  while True: print(file=ticks, flush=True); time.sleep(0.01)\n";
    let program = world.exec(&[], &["python3", "-c", script]);
    let made = |name: &str| world.work().join(name).exists();
    wait_until("it has tried", || made("attached") || made("refused"));
    if made("refused") {
        return;
    }
    let ticks = || fs::metadata(world.work().join("ticks")).unwrap().len();
    world.relive(&["pause", &program.uuid]).ok();
    world.await_display(&program.uuid, "suspended");
    let paused = ticks();
    world.exec(&[], &["sleep", "0.1"]);
    assert_eq!(ticks(), paused, "it is frozen without its shim");
    world.relive(&["resume", &program.uuid]).ok();
    wait_until("it continues", || ticks() > paused);
    world.relive(&["kill", "-9", &program.uuid]).ok();
    // Far more than it takes, and less than two answers that do not come.
    world.relive(&["wait", "--timeout", "8s", &program.uuid]).exits(137);
}

#[test]
fn a_program_of_another_boot_went_down_with_its_host_and_can_be_started_again() {
    let world = World::new();
    let (program, folder) = lost(&world);
    fs::write(folder.join("lock"), "another boot").unwrap();
    let state = fs::read_to_string(folder.join("state")).unwrap();
    fs::write(folder.join("state"), state.replace(&boot_id().unwrap(), "another boot")).unwrap();
    let info = world.await_display(&program.uuid, "dead");
    assert_eq!((&info["state"], &info["why"]), (&json!("dead"), &json!("host_lost")));
    assert_eq!(info["session"]["stage"], "errored");
    assert_eq!(info["session"]["result"]["error"]["stage"], "boot");
    assert_eq!(fs::read_to_string(world.work().join("runs")).unwrap(), "once\n", "not started again by itself");
    world.relive(&["resume", &program.uuid]).ok();
    world.await_stage(&program, "running");
}

/// Its session's directory is not synced, so the power may have taken it.
#[test]
fn a_program_of_which_another_boot_left_no_session_may_have_run_and_is_not_started_again() {
    let world = World::new();
    let before = world.exec(&[], &["touch", "ran"]);
    world.ends(&before, 0);
    let spawned: Spawned = serde_json::from_value(world.records(&before.uuid, "spawned")[0].clone()).unwrap();
    world.relive(&["daemon", "stop"]).ok();
    fs::remove_file(world.work().join("ran")).unwrap();
    for (boot_id, why, runs) in
        [("another boot".to_owned(), json!("host_lost"), false), (boot_id().unwrap(), json!(null), true)]
    {
        let data = wait_for("the daemon has gone", || {
            DataDirectory::open(&world.data(), Io::default(), SpaceRules::default()).ok()
        });
        let uuid = relive_core::uuid_v7(Timestamp::now(), [u8::from(runs); 10]);
        let now = Moment { at: Timestamp::now(), up_ms: 1 };
        let (pid, by) = (data.next_pid().unwrap(), OpenedBy::Spawn);
        let opening = Opening { pid, by, boot_id, now, req: None, seen: None, cause: None };
        let spawned = Spawned { uuid, ..spawned.clone() };
        data.spawn(SpawnRequest { opening, spawned, meta: None, input: None, records: Vec::new() }).unwrap();
        drop(data);
        let info = world.await_display(&uuid.to_string(), "dead");
        assert_eq!((&info["why"], world.work().join("ran").exists()), (&why, runs), "{info}");
        world.relive(&["daemon", "stop"]).ok();
    }
}

#[test]
fn a_program_whose_shim_is_lost_says_so_also_to_the_next_daemon() {
    let world = World::new();
    let (program, _) = lost(&world);
    let info = world.await_display(&program.uuid, "dead");
    assert_eq!((&info["state"], &info["why"]), (&json!("dead"), &json!("shim_lost")));
    assert_eq!(info["session"]["result"]["error"]["stage"], "shim");
    assert_eq!(fs::read_to_string(world.work().join("runs")).unwrap(), "once\n");
}

/// Stands between a shim and its owners from now on, and changes its greeting.
fn greets_as(session: &Path, greeting: Value) {
    stand_between(session, greeting, None);
}

/// Stands between a shim and its owners from now on, and changes its greeting. Hangs up once on an owner that sends this;
/// the shim gets it all the same.
fn stand_between(session: &Path, greeting: Value, hang_up_on: Option<&'static str>) {
    let hangs_up = Arc::new(AtomicBool::new(hang_up_on.is_some()));
    fs::rename(session.join("ctl"), session.join("ctl.real")).unwrap();
    let listener = SessionDirectory::open(session).unwrap().ctl_bind().unwrap();
    let real = rustix::net::SocketAddrUnix::new(session.join("ctl.real")).unwrap();
    rustix::io::ioctl_fionbio(&listener, false).unwrap();
    std::thread::spawn(move || {
        while let Ok(owner) = rustix::net::accept(&listener) {
            let flags = rustix::net::SocketFlags::CLOEXEC;
            let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
            let shim = rustix::net::socket_with(family, kind, flags, None).unwrap();
            if rustix::net::connect(&shim, &real).is_err() {
                return;
            }
            let mut hello = vec![0; 16 * 1024];
            let length = rustix::io::read(&shim, &mut hello).unwrap();
            let mut hello: Value = serde_json::from_slice(&hello[..length]).unwrap();
            for (name, value) in greeting.as_object().unwrap() {
                hello[name] = value.clone();
            }
            let _ = rustix::io::write(&owner, hello.to_string().as_bytes());
            let (owner, shim) = (Arc::new(owner), Arc::new(shim));
            for (from, to) in [(owner.clone(), shim.clone()), (shim, owner)] {
                let hangs_up = Arc::clone(&hangs_up);
                std::thread::spawn(move || {
                    let mut packet = vec![0; 64 * 1024];
                    while let Ok(length @ 1..) = rustix::io::read(&from, &mut packet) {
                        let sent = String::from_utf8_lossy(&packet[..length]);
                        if hang_up_on.is_some_and(|text| sent.contains(text)) && hangs_up.swap(false, Ordering::Relaxed)
                        {
                            let _ = rustix::net::shutdown(&from, rustix::net::Shutdown::Both);
                        }
                        if rustix::io::write(&to, &packet[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = rustix::net::shutdown(&to, rustix::net::Shutdown::Both);
                });
            }
        }
    });
}

#[test]
fn a_shim_of_a_later_version_that_knows_ours_is_adopted() {
    let world = World::new();
    let program = world.exec(&["-i"], &["sh", "-c", "read line; echo \"got $line\"; exit 7"]);
    let session = world.await_stage(&program, "running");
    world.kill_daemon();
    greets_as(Path::new(session["folder"].as_str().unwrap()), json!({"version": 99, "oldest": 1}));
    world.relive(&["send", &program.uuid, "hello"]).ok();
    world.ends(&program, 7);
    assert_eq!(world.relive(&["logs", &program.uuid]).ok().stdout, "got hello\n");
}

#[test]
fn a_program_whose_shim_speaks_another_version_keeps_running_and_can_be_killed() {
    for greeting in [json!({"version": 99, "oldest": 98}), json!({"version": 0})] {
        let world = World::new();
        let begin = || {
            let program = world.exec(&[], &["sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; exit 7"]);
            let session = world.await_stage(&program, "running");
            (program, session["host_pid"].as_u64().unwrap(), session["folder"].as_str().unwrap().to_owned())
        };
        let (ends, killed) = (begin(), begin());
        world.kill_daemon();
        for (_, _, session) in [&ends, &killed] {
            greets_as(Path::new(session), greeting.clone());
        }
        for (program, host, _) in [&ends, &killed] {
            world.await_display(&program.uuid, "running");
            assert!(is_alive(*host));
        }
        let (program, host, _) = &killed;
        world.relive(&["kill", "-9", &program.uuid]).ok();
        assert_eq!(world.ends(program, 137)["why"], "user");
        assert!(!is_alive(*host));
        fs::write(world.work().join("go"), "").unwrap();
        world.ends(&ends.0, 7);
    }
}

#[test]
fn a_signal_is_sent_once_by_a_shim_that_hangs_up_before_it_answers() {
    let world = World::new();
    let traps = "trap 'echo usr2' USR2; trap 'echo usr1' USR1; echo up; while :; do sleep 0.01; done";
    let program = world.exec(&[], &["sh", "-c", traps]);
    world.await_output(&program, "up");
    let session = world.info(&program.uuid)["session"]["folder"].as_str().unwrap().to_owned();
    world.kill_daemon();
    stand_between(Path::new(&session), json!({}), Some("SIGUSR2:"));
    let sent = world.relive(&["kill", "-USR2", &program.uuid]).ok().stderr;
    assert!(sent.contains("got SIGUSR2"), "{sent}");
    world.await_output(&program, "usr2");
    world.relive(&["kill", "-USR1", &program.uuid]).ok();
    world.await_output(&program, "usr1");
    assert_eq!(world.relive(&["logs", &program.uuid]).ok().stdout, "up\nusr2\nusr1\n");
    world.relive(&["kill", "-9", &program.uuid]).ok();
}

/// Programs that run while the shim of each speaks another version than the daemon.
fn foreign<const N: usize>(world: &World, programs: [&Begun; N]) {
    let sessions = programs.map(|program| world.await_stage(program, "running"));
    world.kill_daemon();
    for session in sessions {
        greets_as(Path::new(session["folder"].as_str().unwrap()), json!({"version": 99, "oldest": 98}));
    }
}

#[test]
fn requests_that_need_the_shim_are_refused_if_its_version_differs() {
    let world = World::new();
    let program = world.exec(&["-i"], &["sleep", "1000"]);
    foreign(&world, [&program]);
    world.await_display(&program.uuid, "running");
    let uuid = program.uuid.as_str();
    let refused = [
        vec!["send", uuid, "hello"],
        vec!["resume", uuid, "--input", "hello"],
        vec!["kill", "-HUP", uuid],
        vec!["proceed", uuid],
        vec!["abort", uuid],
    ];
    for args in refused {
        let code = ErrorCode::Conflict.exit_code();
        world.relive(&args).fails(code.into(), &["its shim belongs to another version of Relive"]);
    }
    world.relive(&["kill", "-9", uuid]).ok();
    world.ends(&program, 137);
}

#[test]
fn a_program_with_a_shim_of_another_version_stays_paused_until_it_is_resumed_and_is_not_paused() {
    std::thread::scope(|scope| {
        for world in [World::new(), World::new().with_env("RELIVE_LADDER", "process-group")] {
            scope.spawn(move || stays_paused_until_it_is_resumed(&world));
        }
    });
}

#[track_caller]
fn stays_paused_until_it_is_resumed(world: &World) {
    let (paused, runs) = (world.exec(&[], &["sleep", "1000"]), world.exec(&[], &["sleep", "1000"]));
    world.await_stage(&paused, "running");
    world.relive(&["pause", &paused.uuid]).ok();
    world.await_display(&paused.uuid, "suspended");
    foreign(world, [&paused, &runs]);
    world.await_display(&runs.uuid, "running");
    let warned = |text: &str| {
        let status = world.relive(&["daemon", "status", "--json"]).ok().json();
        let warnings = status["daemon"]["warnings"].as_array().unwrap().clone();
        warnings.iter().filter(|warning| warning.as_str().unwrap().contains(text)).count()
    };
    wait_until("both were found", || warned("is left running") == 2);
    for _ in 0..2 {
        world.relive(&["pause", &runs.uuid]);
        world.await_display(&runs.uuid, "running");
    }
    assert_eq!(warned("cannot be paused"), 1);
    assert_eq!(world.info(&paused.uuid)["display"], "suspended");
    assert!(world.records(&paused.uuid, "resumed").is_empty(), "nobody has thawed it");
    let host = world.info(&paused.uuid)["session"]["host_pid"].as_u64().unwrap();
    assert!(is_frozen(host));
    world.relive(&["resume", &paused.uuid]).ok();
    wait_until("it runs again", || !is_frozen(host));
    world.await_display(&paused.uuid, "running");
    // There is nobody to ask it to end.
    for program in [&paused, &runs] {
        world.relive(&["kill", &program.uuid]).ok();
        world.await_display(&program.uuid, "dead");
    }
    assert_eq!(warned("is killed at once"), 2);
}

#[test]
fn a_program_whose_shims_die_before_it_runs_is_given_up_after_five_launches() {
    let world = World::new();
    let gated = world.exec(&["--gate"], &["sh", "-c", "echo ran > ran"]);
    let mut killed = std::collections::HashSet::new();
    wait_until("it is given up", || {
        let info = world.info(&gated.uuid);
        let shim = info["session"]["folder"].as_str().and_then(|path| fs::read(Path::new(path).join("state")).ok());
        let shim = shim.and_then(|state| serde_json::from_slice::<Value>(&state).ok()?["shim_pid"].as_u64());
        if let Some(shim) = shim.filter(|shim| is_alive(*shim) && killed.insert(*shim)) {
            kill(u32::try_from(shim).unwrap(), Signal::KILL);
        }
        info["state"] == "dead"
    });
    assert_eq!(killed.len(), 5, "launches: {}", world.info(&gated.uuid));
    let status = world.info(&gated.uuid)["status"].clone();
    assert_eq!((&status["kind"], &status["stage"]), (&json!("startup_failed"), &json!("shim")));
    assert!(!world.work().join("ran").exists());
}
