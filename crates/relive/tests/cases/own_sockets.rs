//! `RELIVE_SELF`: whoever has it is the process that it names, or is refused.

use std::fs;
use std::path::Path;

use crate::isolation::{RELIVE, worlds};
use crate::world::{Output, World, wait_for, wait_until};

const REFUSED: [&str; 2] =
    ["RELIVE_SELF names the socket of another process, or of one that has ended", "unset RELIVE_SELF"];

/// Runs a program to its end, and returns the socket that it had.
fn socket_of_ended(world: &World) -> String {
    let socket = world.relive(&["exec", "--", "sh", "-c", "echo $RELIVE_SELF"]).ok().stdout.trim().to_owned();
    wait_until("its socket is gone", || !Path::new(&socket).exists());
    socket
}

#[test]
fn case_68_a_copied_socket_of_an_ended_process_does_not_make_a_person() {
    let world = World::new();
    let ended = socket_of_ended(&world);
    let never = format!("{}/0198f3c1000070008000000000000000/s", world.socket().with_file_name("self").display());
    let other = World::new();
    let foreign = socket_of_ended(&other);
    let verbs: [&[&str]; 6] = [
        &["ps", "-a"],
        &["gc", "--force"],
        &["daemon", "stop"],
        &["exec", "--", "true"],
        &["self"],
        &["daemon", "status"],
    ];
    for socket in [&ended, &never, &foreign, "/nowhere/socket", "relative"] {
        for verb in verbs {
            world.relive_with(&[("RELIVE_SELF", socket)], verb).fails(5, &REFUSED);
        }
    }
    world.relive(&["daemon", "stop"]).ok();
    // Nobody is asked: a daemon that is started for it says who it is.
    world.relive_with(&[("RELIVE_SELF", &ended)], &["gc", "--force"]).fails(5, &REFUSED);
    World::new().relive_with(&[("RELIVE_SELF", &ended)], &["ps"]).fails(5, &REFUSED);
    world.relive_with(&[("RELIVE_SELF", "")], &["ps"]).ok();
}

/// A program whose own socket is not there yet is its process all the same.
#[test]
fn case_68_a_program_whose_socket_is_missing_is_known_by_its_session() {
    let world = World::new();
    let script = format!("rm $RELIVE_SELF && {RELIVE} self --json; {RELIVE} gc --force; echo $?");
    let said = world.relive(&["exec", "--", "sh", "-c", &script]);
    assert!(said.stdout.starts_with("{\"pid\":") && said.stdout.ends_with("\n5\n"), "{said:?}");
    assert!(said.stderr.contains("collecting journals is only for a person"), "{said:?}");
}

#[test]
fn case_68_the_socket_of_a_stranger_is_answered_like_one_that_never_was() {
    let world = World::new();
    let victim = world.exec(&[], &["sleep", "1000"]);
    let directory = world.socket().with_file_name("self");
    let there = directory.join(victim.uuid.replace('-', "")).join("s");
    wait_until("the victim's socket", || there.exists());
    let said = |uuid: &str, verb: &str| -> Output {
        let theirs = there.to_str().unwrap().replace(&victim.uuid.replace('-', ""), uuid);
        world.relive(&["exec", "--", "sh", "-c", &format!("RELIVE_SELF={theirs} {RELIVE} {verb}")])
    };
    for verb in ["ps", "self", "info 1", "gc --force", "handle list", "daemon status", "run -d --model x y"] {
        let (theirs, never) =
            (said(&victim.uuid.replace('-', ""), verb), said("0198f3c1000070008000000000000000", verb));
        let theirs = theirs.fails(5, &REFUSED);
        let told = |output: &Output| (output.code, output.stdout.clone(), output.stderr.clone());
        assert_eq!(told(&theirs), told(&never), "{verb}");
    }
}

/// Without its `RELIVE_SELF` an isolated program sees neither the daemon nor a process, and is told so.
#[test]
fn case_68_an_isolated_program_without_its_socket_is_refused_and_starts_no_daemon() {
    for world in worlds() {
        let model = world.hanging();
        for (isolation, init) in [("confined", true), ("sealed", true), ("sealed", false)] {
            let flags: &[&str] = if init { &[] } else { &["--init=false"] };
            let inside = |script: &str| {
                let start: &[&str] = &["exec", "-d", "--json", "--isolation", isolation];
                let _ = fs::remove_file(world.work().join("said"));
                let script = format!("({script}) > said 2>&1; echo code $? >> said");
                let begun = world.relive(&[start, flags, &["--", "sh", "-c", &script]].concat()).ok().json();
                let read = || fs::read_to_string(world.work().join("said")).ok().filter(|text| text.contains("code "));
                let said = wait_for("it was answered", read);
                world.relive(&["wait", begun["uuid"].as_str().unwrap()]);
                (said, begun)
            };
            for verb in [
                "ps -a",
                "exec -d -- true",
                &format!("run -d --model {model} x"),
                "daemon start",
                "daemon serve",
                "self",
            ] {
                let (said, _) = inside(&format!("unset RELIVE_SELF; exec {RELIVE} {verb}"));
                assert!(said.contains("runs inside a Relive process that is isolated"), "{isolation} {verb}: {said}");
                assert!(
                    said.contains("hint: export RELIVE_SELF=/") && said.ends_with("code 5\n"),
                    "{isolation} {verb}: {said}"
                );
            }
            let hint = "sed -n 's/^hint: //p'";
            let (said, begun) =
                inside(&format!("eval \"$(env -u RELIVE_SELF {RELIVE} ps 2>&1 | {hint})\"; {RELIVE} self --json"));
            assert!(said.contains(begun["uuid"].as_str().unwrap()), "the hint works: {said}");
            let cleared = "env -i HOME=/ RELIVE_DATA_DIR=\"$RELIVE_DATA_DIR\" XDG_RUNTIME_DIR=\"$XDG_RUNTIME_DIR\"";
            if init {
                let (said, _) = inside(&format!("{cleared} {RELIVE} ps"));
                assert!(said.contains("runs inside a Relive process that is isolated"), "{isolation}: {said}");
            }
        }
    }
}

#[test]
fn case_68_an_isolated_program_sees_its_own_socket_and_no_other() {
    for world in worlds() {
        let others = [world.exec(&[], &["sleep", "1000"]), world.exec(&["--isolation", "sealed"], &["sleep", "1000"])];
        for isolation in ["confined", "sealed"] {
            let script = "own=$(dirname $RELIVE_SELF); ls $own; ls $(dirname $own); ls $(dirname $(dirname $own))";
            let said = world.relive(&["exec", "--isolation", isolation, "--name", isolation, "--", "sh", "-c", script]);
            let uuid = world.info(isolation)["uuid"].as_str().unwrap().replace('-', "");
            assert_eq!(said.ok().stdout, format!("s\n{uuid}\nself\n"), "{isolation}");
        }
        let sockets = fs::read_dir(world.socket().with_file_name("self")).unwrap().count();
        assert_eq!(sockets, others.len(), "those of processes that have ended are removed");
        // Also those that a daemon left that was killed.
        if world.user().is_some() {
            continue;
        }
        world.kill_daemon();
        let left = world.socket().with_file_name("self").join("0198f3c1000070008000000000000000");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("s"), "").unwrap();
        world.relive(&["ps"]).ok();
        assert!(!left.exists());
    }
}

/// The directory of its socket is mounted for it, so it has to stay the same one.
#[test]
fn case_68_an_isolated_program_reaches_relive_after_the_daemon_was_stopped_and_by_enter() {
    for world in worlds() {
        let script = format!("while [ ! -e go ]; do sleep 0.02; done; {RELIVE} self --json > after; sleep 1000");
        let program = world.exec(&["--isolation", "confined"], &["sh", "-c", &script]);
        world.relive(&["daemon", "stop"]).ok();
        world.relive(&["ps"]).ok();
        fs::write(world.work().join("go"), "").unwrap();
        let read = || fs::read_to_string(world.work().join("after")).ok().filter(|text| text.ends_with('\n'));
        let after: serde_json::Value = serde_json::from_str(&wait_for("it was answered", read)).unwrap();
        assert_eq!(after["uuid"], program.uuid);
        let entered = world.relive(&["enter", &program.uuid, "--", RELIVE, "self", "--json"]).ok().json();
        assert_eq!(world.info(entered["uuid"].as_str().unwrap())["session"]["mode"], "enter", "{entered}");
    }
}

/// The logs of programs are in the data directory, which is hidden from it.
#[test]
fn an_isolated_program_is_told_that_it_cannot_be_shown_the_output_of_another_one() {
    for world in worlds() {
        let script = format!(
            "{RELIVE} exec -- echo 'a b' 2> said; echo code $? >> said; {RELIVE} ps -aq | wc -l >> said; \
             eval \"$(sed -n 's/^hint: relive/{}/p' said)\" > kid; {RELIVE} wait $(cat kid); cat output >> said; \
             {RELIVE} logs $(cat kid) 2> logs; echo code $? >> logs",
            RELIVE.replace('/', "\\/")
        );
        world.relive(&["exec", "--isolation", "confined", "--", "sh", "-c", &script]);
        let said = fs::read_to_string(world.work().join("said")).unwrap();
        assert!(said.contains("the output of a program cannot be shown here"), "{said}");
        assert!(said.ends_with("code 5\n1\na b\n"), "nothing was created, and the hint works: {said}");
        let logs = fs::read_to_string(world.work().join("logs")).unwrap();
        assert!(logs.contains("cannot be shown here: the process that this command runs in is isolated"), "{logs}");
        assert!(logs.ends_with("code 5\n"), "{logs}");
    }
}
