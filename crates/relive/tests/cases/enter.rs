//! Programs that run inside the session of another program.

use std::fs;

use serde_json::json;

use crate::isolation::{RELIVE, worlds};
use crate::world::{World, begun, wait_for, wait_until};

/// A confined program without a network, with a file that only it sees, which runs until `go` is there.
pub(crate) fn target(world: &World, name: &str) {
    let script = "echo inside > /tmp/mark; touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 7";
    let flags = ["exec", "-d", "--isolation", "confined", "--net", "none", "--name", name, "--", "sh", "-c", script];
    world.relive(&flags).ok();
    wait_until("the program to be ready", || world.work().join("ready").exists());
}

#[test]
fn case_78_enter_sees_the_root_and_network_of_a_session_and_does_not_end_it() {
    for world in worlds() {
        target(&world, "held");
        let shown = world.relive(&["enter", "held", "--", "sh", "-c", "cat /tmp/mark; pwd; exit 3"]).exits(3);
        assert_eq!(shown.stdout, format!("inside\n{}\n", world.work().canonicalize().unwrap().display()));
        let devices = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; test ! -e /tmp/mark";
        let shown = world.relive(&["enter", "--ns", "net", "held", "--", "sh", "-c", devices]).ok();
        assert_eq!(shown.stdout, "lo\n", "the network of the session, and the files of everybody");
        if world.user().is_none() {
            let shown = world.on_terminal("enter -t held -- sh -c 'test -t 0 && cat /tmp/mark'");
            assert!(shown.stdout.contains("inside"), "{shown:?}");
        }
        assert_eq!(world.info("held")["display"], "running");
        fs::write(world.work().join("go"), "").unwrap();
        world.relive(&["wait", "held"]).exits(7);
    }
}

#[test]
fn a_program_that_enters_a_session_with_a_list_of_hosts_finds_its_proxy() {
    for world in worlds() {
        let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done";
        let flags = ["--isolation", "confined", "--net", "allow:good.localhost", "--name", "held"];
        world.relive(&[&["exec", "-d"], &flags[..], &["--", "sh", "-c", script]].concat()).ok();
        wait_until("the program to be ready", || world.work().join("ready").exists());
        let shows = "echo $http_proxy $HTTPS_PROXY $NO_PROXY";
        let entered = |flags: &[&str]| {
            let command = ["--env", "http_proxy=http://mine", "held", "--", "sh", "-c", shows];
            world.relive(&[&["enter"], flags, &command].concat()).ok().stdout
        };
        assert_eq!(entered(&[]), "http://127.0.0.1:3128 http://127.0.0.1:3128 localhost,127.0.0.1,::1\n");
        assert_eq!(entered(&["--ns", "net"]), entered(&[]));
        assert_eq!(entered(&["--ns", "ipc"]), "http://mine\n", "the network of everybody");
        fs::write(world.work().join("go"), "").unwrap();
        world.relive(&["wait", "held"]).ok();
    }
}

#[test]
fn a_program_that_entered_is_a_process_of_its_own_and_ends_with_the_session() {
    for world in worlds() {
        target(&world, "held");
        let entered = world.relive(&["enter", "-d", "--json", "held", "--", "sleep", "1000"]).ok().json();
        let entered = begun(&entered);
        let session = wait_for("the program to run", || {
            let session = world.info(&entered.uuid)["session"].clone();
            (session["stage"] == "running").then_some(session)
        });
        let own = world.info("held")["session"].clone();
        assert_eq!(session["mode"], "enter", "{session}");
        assert!(session["compact"].as_str().unwrap().starts_with("<enter running"), "{session}");
        assert_eq!(session["namespaces"], own["namespaces"]);
        assert!(own["namespaces"].as_array().unwrap().contains(&json!("net")), "{own}");
        let listed = world.relive(&["ps"]).ok().stdout;
        assert!(listed.lines().any(|line| line.contains("sleep 1000")), "{listed}");
        assert!(world.relive(&["info", &entered.uuid]).ok().stdout.contains("enter"), "info says so");

        let daemon = world.kill_daemon();
        assert_ne!(Some(daemon), world.daemon_pid());
        world.await_display(&entered.uuid, "running");
        world.relive(&["kill", "-9", "held"]).ok();
        world.relive(&["wait", &entered.uuid]).exits(137);
    }
}

#[test]
fn case_34_enter_refuses_what_is_gone_and_what_has_no_such_namespace() {
    for world in worlds() {
        target(&world, "held");
        let ran = |args: &[&str]| world.relive(&[&["enter"], args, &["--", "touch", "ran"]].concat());
        ran(&["--ns", "uts", "held"]).fails(2, &["has no uts namespace of its own; it has", "net"]);
        ran(&["nobody"]).fails(4, &["nobody"]);
        world.relive(&["pause", "held"]).ok();
        ran(&["held"]).fails(3, &["is suspended", "relive resume"]);
        world.relive(&["resume", "held"]).ok();
        let agent = world.run_hanging(&["--name", "thinker"]);
        ran(&["thinker"]).fails(2, &["is not a program"]);
        world.end(&agent);
        fs::write(world.work().join("go"), "").unwrap();
        world.relive(&["wait", "held"]).exits(7);
        ran(&["held"]).fails(3, &["`held` has ended, so it cannot be entered"]);
        assert!(!world.work().join("ran").exists());
    }
}

#[test]
fn a_program_of_an_isolated_process_enters_nothing() {
    for world in worlds() {
        let script = format!(
            "{RELIVE} exec -d --name kid -- sleep 1000; {RELIVE} enter kid -- touch ran 2> refused; echo $? >> refused"
        );
        world.relive(&["exec", "--isolation", "confined", "--", "sh", "-c", &script]).ok();
        let refused = fs::read_to_string(world.work().join("refused")).unwrap();
        assert!(refused.contains("a program of an isolated process cannot enter a session"), "{refused}");
        assert!(!world.work().join("ran").exists());
        // Without isolation, its own children can be entered.
        let script = format!("{RELIVE} exec -d --name open -- sleep 1000; {RELIVE} enter -d open -- touch ran");
        world.relive(&["exec", "-d", "--", "sh", "-c", &script]).ok();
        wait_until("the file of the program", || world.work().join("ran").exists());
    }
}

/// Pauses a process, and waits until it is: the command does not wait for a slow machine.
fn pause(world: &World, name: &str) {
    world.relive(&["pause", name]).ok();
    world.await_display(name, "suspended");
}

/// Without cgroups a pause of the session reaches only its own programs, which `docs/isolation.md` says.
fn has_freezer(world: &World) -> bool {
    world.info("held")["session"]["pause"] != "sigstop"
}

#[test]
fn a_program_that_is_frozen_with_the_session_it_entered_is_shown_so_and_not_resumed() {
    let world = World::new();
    target(&world, "held");
    if !has_freezer(&world) {
        return;
    }
    world.relive(&["enter", "-d", "--name", "guest", "held", "--", "sleep", "1000"]).ok();
    wait_until("the program to run", || world.info("guest")["session"]["stage"] == "running");
    let pid = world.info("held")["pid"].to_string();
    let hint = format!("relive resume {pid}");
    pause(&world, "held");

    let shown = world.info("guest");
    assert_eq!((&shown["display"], &shown["session"]["frozen"]), (&json!("suspended"), &json!(true)), "{shown}");
    assert_eq!(shown["hint"], hint);
    let listed = world.relive(&["ps"]).ok().stdout;
    let line = listed.lines().find(|line| line.contains("guest")).unwrap();
    assert!(line.contains("suspended"), "{listed}");
    let told = world.relive(&["info", "guest"]).ok().stdout;
    assert!(told.contains(&format!("the pause of PID {pid} (held), whose session it entered")), "{told}");

    let refused = [&format!("is paused with PID {pid} (held)"), hint.as_str()];
    world.relive(&["resume", "guest"]).fails(3, &refused);
    world.relive(&["enter", "guest", "--", "true"]).fails(3, &refused);
    assert_eq!(shown["resumable"], false);
    let told = world.relive(&["kill", "-s", "WINCH", "guest"]).ok().stderr;
    assert!(told.contains(&format!("SIGWINCH takes effect when that is resumed: {hint}")), "{told}");
    assert!(!told.contains("got SIGWINCH"), "{told}");
    let told = world.relive(&["pause", "guest"]).ok().stderr;
    assert!(told.contains(&format!("PID {pid} (held), whose session it entered, is paused too: {hint}")), "{told}");
    assert!(!told.contains("undo"), "{told}");
    world.await_display("guest", "suspended");
    world.relive(&["resume", "guest"]).fails(3, &refused);
    assert_eq!((&world.info("guest")["hint"], &world.info("guest")["resumable"]), (&json!(hint), &json!(false)));
    world.relive(&["resume", "held"]).ok();
    assert_eq!(world.info("guest")["display"], "suspended", "by itself");
    world.relive(&["resume", "guest"]).ok();
    wait_until("it to be thawed", || world.info("guest")["session"]["frozen"] == false);
    assert_eq!(world.info("guest")["display"], "running");

    pause(&world, "held");
    world.relive(&["resume", "--all"]).ok();
    assert_eq!(world.info("guest")["display"], "running");
    pause(&world, "held");
    let told = world.relive(&["kill", "-s", "PAUSE", "guest"]).ok().stderr;
    assert!(told.contains("whose session it entered, is paused too") && !told.contains("undo"), "{told}");
    let told = world.relive(&["kill", "guest"]).ok().stderr;
    assert!(told.contains(&format!("SIGTERM takes effect when that is resumed: {hint}")), "{told}");
    world.relive(&["resume", "held"]).ok();
    world.relive(&["wait", "guest"]).exits(143);
    fs::write(world.work().join("go"), "").unwrap();
    world.relive(&["wait", "held"]).exits(7);
}

#[test]
fn a_program_that_is_told_to_end_while_its_session_is_frozen_has_its_grace_after_that() {
    let world = World::new();
    target(&world, "held");
    if !has_freezer(&world) {
        return;
    }
    let script = "trap 'echo bye > said; exit 5' TERM; touch waits; while :; do sleep 0.02; done";
    let guest = begun(&world.relive(&["enter", "-d", "--json", "held", "--", "sh", "-c", script]).ok().json());
    wait_until("the program to wait", || world.work().join("waits").exists());
    // The same grace, of a program that is not frozen, is over once that is killed.
    let other = ["exec", "-d", "--json", "--", "sh", "-c", "trap '' TERM; touch deaf; while :; do sleep 0.02; done"];
    let other = begun(&world.relive(&other).ok().json());
    wait_until("the other one to ignore SIGTERM", || world.work().join("deaf").exists());
    pause(&world, "held");
    world.relive(&["kill", &guest.uuid]).ok();
    world.relive(&["kill", &other.uuid]).ok();
    world.relive(&["wait", &other.uuid]).exits(137);
    let shown = world.info(&guest.uuid);
    assert_eq!((&shown["state"], &shown["killed_by"]), (&json!("running"), &json!(null)), "{shown}");
    world.relive(&["resume", "held"]).ok();
    world.relive(&["wait", &guest.uuid]).exits(5);
    assert_eq!(fs::read_to_string(world.work().join("said")).unwrap(), "bye\n");
}

#[test]
fn a_program_that_is_frozen_with_its_session_can_be_killed_at_once_on_cgroup_v2() {
    let world = World::new();
    target(&world, "held");
    if world.info("held")["session"]["pause"] != "cgroup2-freeze" {
        return;
    }
    let guest = begun(&world.relive(&["enter", "-d", "--json", "held", "--", "sleep", "1000"]).ok().json());
    wait_until("the program to run", || world.info(&guest.uuid)["session"]["stage"] == "running");
    pause(&world, "held");
    world.relive(&["kill", "-9", &guest.uuid]).ok();
    world.relive(&["wait", &guest.uuid]).exits(137);
    assert_eq!(world.info("held")["display"], "suspended");
}
