//! Ends that somebody else brings about: nothing is left, nobody else is hit, and it is said what happened.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use super::sessions_support::{is_alive, with_variable};
use super::world::{World, begun, kill, wait_for, wait_until};

#[test]
fn case_36_a_session_gets_neither_another_s_signals_nor_our_descriptors() {
    let world = World::new();
    for round in 0..5 {
        let quick = world.exec(&[], &["true"]);
        let lasting = world.exec(&[], &["sleep", "1000"]);
        world.ends(&quick, 0);
        world.await_stage(&lasting, "running");
        world.relive(&["kill", "-s", "KILL", &quick.uuid]).ok();
        assert_eq!(world.info(&lasting.uuid)["display"], "running", "round {round}");
        world.relive(&["kill", "-s", "KILL", &lasting.uuid]).ok();
        world.ends(&lasting, 137);
    }
    // The shell itself is looked at; what `ls` opens is its own.
    let list = "ls /proc/$$/fd; :";
    assert_eq!(world.relive(&["exec", "--", "sh", "-c", list]).ok().stdout, "0\n1\n2\n");
    for flags in [&[][..], &["-t"], &["--ns", "pid"]] {
        let program = world.exec(flags, &["sh", "-c", list]);
        if world.info(&program.uuid)["status"]["kind"] == "startup_failed" {
            eprintln!("skipped: {flags:?} cannot be had here");
            continue;
        }
        world.ends(&program, 0);
        let shown = world.relive(&["logs", &program.uuid]).ok().stdout;
        assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2"], "{flags:?}");
    }
}

#[test]
fn case_37_a_program_that_ignores_sigterm_is_killed_after_the_grace() {
    World::in_each_kind(|world| {
        let stubborn = "trap '' TERM; echo up; while :; do sleep 0.05; done";
        let stubborn = world.exec(&[], &["sh", "-c", stubborn]);
        world.await_output(&stubborn, "up");
        world.relive(&["kill", &stubborn.uuid]).ok();
        let answer = world.ends(&stubborn, 137);
        assert_eq!(answer["why"], "user");
    });
}

#[test]
fn case_37_nothing_that_a_program_left_behind_survives_a_kill() {
    for (number, world) in World::of_each_kind().into_iter().enumerate() {
        let mark = format!("RELIVE_TEST_MARK=left-{}-{number}", std::process::id());
        let hide = "trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; (sleep 1000; :) & echo hidden; sleep 1000' &); sleep 1000";
        let hiding = world.exec(&["--env", &mark], &["sh", "-c", hide]);
        world.await_output(&hiding, "hidden");
        wait_until("all of them are there", || with_variable(&mark).len() >= 4);
        world.relive(&["kill", "-s", "KILL", &hiding.uuid]).ok();
        world.ends(&hiding, 137);
        assert_eq!(with_variable(&mark), Vec::<u64>::new());

        // Ended by itself, it leaves nothing either.
        let leaving = world.exec(&["--env", &mark], &["sh", "-c", "(setsid sleep 1000 &); exit 3"]);
        world.ends(&leaving, 3);
        assert_eq!(with_variable(&mark), Vec::<u64>::new());

        // Whoever cannot fork any more dies of it, so those who could stay where they are.
        let bomb = "bomb() { bomb & bomb & exec sleep 1000; }; bomb & exec sleep 1000";
        let bomb = world.exec(&["--env", &mark, "--pids", "64"], &["sh", "-c", bomb]);
        let info = world.info(&bomb.uuid);
        if info["status"]["kind"] == "startup_failed" {
            eprintln!("skipped: the number of processes cannot be bounded here: {}", info["status"]);
            continue;
        }
        world.await_stage(&bomb, "running");
        wait_until("it has gone off", || with_variable(&mark).len() > 8);
        assert!(with_variable(&mark).len() <= 80, "it is bounded");
        world.relive(&["kill", "-s", "KILL", &bomb.uuid]).ok();
        world.ends(&bomb, 137);
        assert_eq!(with_variable(&mark), Vec::<u64>::new());
    }
}

#[test]
fn case_38_a_lost_shim_is_heard_of_and_its_program_does_not_outlive_it() {
    for world in World::of_each_kind() {
        let program = world.exec(&[], &["sh", "-c", "trap '' HUP TERM; sleep 1000; :"]);
        let session = world.await_stage(&program, "running");
        let host = session["host_pid"].as_u64().unwrap();
        let is_shim =
            |pid: &u64| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "relive-shim");
        // In a PID namespace of its own a program has an init above it, and the shim is above that.
        let above = std::iter::successors(Some(parent_of(host)), |pid| Some(parent_of(*pid)));
        let shim = above.take_while(is_shim).last().unwrap();
        kill(u32::try_from(shim).unwrap(), Signal::KILL);
        let answer = wait_for("its end is known", || {
            let info = world.info(&program.uuid);
            (info["state"] == "dead").then_some(info)
        });
        assert_eq!((&answer["why"], &answer["exit_code"]), (&json!("shim_lost"), &json!(137)));
        assert!(!is_alive(host), "the program has gone with it");
        // What was in its pipes went with its shim.
        assert_eq!(answer["session"]["output_lost"], true);
        let logs = world.relive(&["logs", &program.uuid]).ok();
        assert!(logs.stderr.contains("the end of the output may be missing"), "{logs:?}");
    }
}

#[test]
fn case_40_killed_for_memory_is_said_to_be_that() {
    for world in World::of_each_kind() {
        // It cannot be run where memory cannot be bounded.
        let hungry = world.relive(&["exec", "-d", "--json", "--memory", "32M", "--", "tail", "/dev/zero"]);
        let hungry = begun(&hungry.json());
        let answer = world.relive(&["wait", "--json", &hungry.uuid]).json();
        if answer["status"]["kind"] == "startup_failed" {
            eprintln!("skipped: memory cannot be bounded here: {}", answer["status"]);
            continue;
        }
        assert_eq!((&answer["why"], &answer["exit"]["reason"]), (&json!("oom"), &json!("out of memory")));
        assert_eq!(answer["exit_code"], 137);

        // Whatever its parent makes of it.
        let below = world.exec(&["--memory", "32M"], &["sh", "-c", "tail /dev/zero; exit 3"]);
        assert_eq!(world.ends(&below, 3)["why"], "oom");
        let copes = ["exec", "--memory", "32M", "--name", "copes", "--", "sh", "-c", "tail /dev/zero; exit 0"];
        let said = world.relive(&copes).ok().stderr;
        assert!(said.contains("the kernel killed one of its processes: out of memory"), "{said}");
        assert_eq!(world.info("copes")["session"]["oom_kills"], 1);
        assert!(world.relive(&["info", "copes"]).ok().stdout.contains("killed one of its processes: out of memory"));
    }
}

#[test]
fn a_timeout_is_kept_without_a_daemon() {
    World::in_each_kind(|world| {
        let late = world.exec(&["--timeout", "3s"], &["sleep", "1000"]);
        let host = world.await_stage(&late, "running")["host_pid"].as_u64().unwrap();
        world.kill_daemon();
        wait_until("its time is up", || !is_alive(host));
        assert_eq!(world.daemon_pid(), None, "nobody else has ended it");
        let answer = world.ends(&late, 143);
        assert_eq!((&answer["why"], &answer["exit"]["reason"]), (&json!("timeout"), &json!("timed out")));
    });
}

fn parent_of(pid: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_limits_of_a_user_namespace_are_reported_and_can_be_avoided() {
    let owner_of_roots = |world: &World| {
        let looks = world.exec(&[], &["stat", "-c", "%u", "/etc/passwd"]);
        world.ends(&looks, 0);
        let degraded = world.info(&looks.uuid)["session"]["degraded"].to_string();
        (
            world.relive(&["logs", &looks.uuid]).ok().stdout,
            degraded.contains("ssh and sudo refuse to work") && degraded.contains("relive doctor"),
        )
    };
    for world in World::of_each_kind() {
        let rows = world.relive(&["doctor", "--json"]).ok().json();
        let tree = rows["rows"].as_array().unwrap().iter().find(|row| row["name"] == "tree").unwrap().clone();
        let (owner, said) = owner_of_roots(&world);
        assert_eq!(owner != "0\n", said, "{owner}");
        assert_eq!(tree["means"].as_str().unwrap().contains("ssh and sudo refuse to work"), said, "{tree}");
        if said {
            assert!(tree["hint"].as_str().unwrap().contains("RELIVE_LADDER=process-group relive daemon restart"));
            world.relive(&["daemon", "stop"]).ok();
            let world = world.with_env("RELIVE_LADDER", "process-group");
            assert_eq!(owner_of_roots(&world), ("0\n".to_owned(), false));
        }
    }
}

#[test]
fn a_limit_that_cannot_be_held_is_refused_or_visibly_degraded() {
    let world = World::new().with_env("RELIVE_LADDER", "process-group");
    for (flag, value, limit) in [("--memory", "32M", "memory"), ("--cpu", "0.5", "cpu")] {
        let refused = ["exec", flag, value, "--", "sh", "-c", "echo ran > ran"];
        world.relive(&refused).fails(126, &[limit, "--allow-degraded runs the program without it"]);
        assert!(!world.work().join("ran").exists());
        let allowed = world.exec(&[flag, value, "--allow-degraded"], &["true"]);
        world.ends(&allowed, 0);
        let degraded = world.info(&allowed.uuid)["session"]["degraded"].to_string();
        assert!(degraded.contains(&format!("{limit}: no limit can be held")), "{degraded}");
    }
}
