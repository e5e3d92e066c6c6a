//! Programs that change the files of Relive about themselves: none runs twice, and none is hidden or cannot be killed.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::sessions_support::is_alive;
use super::world::{Begun, World, wait_until};

/// Begins a program that changes its own files once, and runs on. Waits until it has done so.
fn tampers(world: &World, with: &str) -> Begun {
    let script = format!("echo $$ >> runs; [ $(wc -l < runs) = 1 ] && ( {with} ); touch done; exec sleep 1000");
    let program = world.exec(&[], &["sh", "-c", &script, "sh"]);
    wait_until("it has done it", || world.work().join("done").exists());
    program
}

fn runs(world: &World) -> Vec<u64> {
    let runs = fs::read_to_string(world.work().join("runs")).unwrap();
    runs.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Where the program finds the files of its own process.
fn its_directory(world: &World) -> String {
    format!("cd {}/steps/*-*", world.data().display())
}

#[track_caller]
fn ran_once_and_is_gone(world: &World, info: &Value) {
    let runs = runs(world);
    assert_eq!(runs.len(), 1, "{info}");
    assert!(!is_alive(runs[0]), "{info}");
}

#[test]
fn a_program_that_removes_its_session_runs_once_and_is_gone() {
    for what in ["rm -rf sessions/1", "rm -rf sessions/1; mkdir sessions/2", "rm -rf sessions"] {
        let world = World::new();
        let program = tampers(&world, &format!("{}; {what}", its_directory(&world)));
        world.kill_daemon();
        let info = world.await_display(&program.uuid, "dead");
        assert_eq!(info["why"], "shim_lost", "{what}");
        ran_once_and_is_gone(&world, &info);
        world.kill_daemon();
        assert_eq!(world.info(&program.uuid)["state"], "dead");
        ran_once_and_is_gone(&world, &info);
    }
}

#[test]
fn a_program_that_removes_its_session_and_ends_meanwhile_is_not_started_again() {
    let world = World::new();
    let script = format!("echo $$ >> runs; ({}; rm -rf sessions/1); cat go", its_directory(&world));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.work().join("go"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let program = world.exec(&[], &["sh", "-c", &script]);
    let sessions = world.directory(&program.uuid).join("sessions");
    wait_until("it has removed its session", || runs_at(&world) && !sessions.join("1").exists());
    world.kill_daemon();
    drop(fs::File::options().write(true).open(world.work().join("go")).unwrap());
    let pid = runs(&world)[0];
    wait_until("it has ended", || !is_alive(pid));
    let info = world.await_display(&program.uuid, "dead");
    assert_eq!(info["why"], "shim_lost");
    ran_once_and_is_gone(&world, &info);
}

fn runs_at(world: &World) -> bool {
    world.work().join("runs").exists()
}

#[test]
fn a_program_that_removes_lock_and_socket_is_not_lost_with_its_host() {
    let world = World::new();
    let program = tampers(&world, &format!("{}; cd sessions/1; rm lock ctl", its_directory(&world)));
    world.kill_daemon();
    let info = world.await_display(&program.uuid, "dead");
    assert_eq!((&info["why"], &info["killed_by"]), (&json!("shim_lost"), &json!(0)), "{info}");
    assert_eq!((&info["status"]["kind"], &info["exit_code"]), (&json!("killed"), &json!(137)), "{info}");
    ran_once_and_is_gone(&world, &info);
}

#[test]
fn a_program_that_replaces_files_of_its_session_is_gone_when_it_is_called_dead() {
    const PIPE: &str = "mkfifo $file";
    let all = "ctl lock state exit";
    let others = ["ln -s nowhere $file", "mkdir $file", "touch $file; chmod 0 $file"];
    let cases = [("ctl lock", PIPE), ("ctl lock state", PIPE), (all, PIPE)];
    for (files, with) in cases.into_iter().chain(others.map(|with| (all, with))) {
        World::in_each_kind(|world| {
            let replaces = format!("cd sessions/1; for file in {files}; do rm -f $file; {with}; done");
            let program = tampers(world, &format!("{}; {replaces}", its_directory(world)));
            let pid = world.info(&program.uuid)["session"]["host_pid"].as_u64().unwrap();
            world.kill_daemon();
            let killed = world.relive(&["kill", "-9", &program.uuid]);
            // It may have ended with the shim that cannot be asked.
            assert!(killed.code == 0 || killed.stderr.contains("has ended"), "{files}, {with}: {killed:?}");
            let info = world.await_display(&program.uuid, "dead");
            assert_eq!((runs(world).len(), is_alive(pid)), (1, false), "{files}, {with}: {info}");
        });
    }
}

#[test]
fn a_program_whose_journal_may_not_be_read_is_killed_without_a_hint_to_remove_it() {
    World::in_each_kind(|world| {
        let program = tampers(world, &format!("{}; chmod 0 steps.jsonl", its_directory(world)));
        let pid = world.info(&program.uuid)["session"]["host_pid"].as_u64().unwrap();
        world.kill_daemon();
        let info = world.info(&program.uuid);
        let is_unread = info["display"] == "damaged";
        assert!(!is_unread || info["resumable"] == true, "{info}");
        let killed = world.relive(&["kill", "-9", &program.uuid]).ok().stderr;
        assert!(!killed.contains("relive rm"), "{killed}");
        wait_until("it is gone", || !is_alive(pid));
        if is_unread {
            world.relive(&["rm", "-y", &program.uuid]).fails(3, &["Permission denied", "hint: relive daemon restart"]);
        }
    });
}

#[test]
fn a_program_that_removes_its_socket_and_blocks_its_names_is_found_running() {
    World::in_each_kind(|world| {
        let removes = "cd sessions/1; rm ctl; mkdir -p ctl/full ctl.new/full";
        let program = tampers(world, &format!("{}; {removes}", its_directory(world)));
        world.kill_daemon();
        let pid = world.await_stage(&program, "running")["host_pid"].as_u64().unwrap();
        assert!(is_alive(pid));
        world.relive(&["pause", &program.uuid]).ok();
        world.relive(&["resume", &program.uuid]).ok();
        world.relive(&["kill", "-9", &program.uuid]).ok();
        let info = world.await_display(&program.uuid, "dead");
        assert_eq!((&info["status"]["kind"], &info["why"]), (&json!("killed"), &json!("user")), "{info}");
        assert_eq!((runs(world).len(), is_alive(pid)), (1, false), "{info}");
    });
}

#[test]
fn a_program_whose_shim_cannot_be_reached_is_killed_when_that_is_asked_for_and_not_much_later() {
    let world = World::new();
    let blocks = "rm sessions/1/ctl; prlimit --pid \"$(cut -d ' ' -f 4 /proc/$$/stat)\" --nofile=0:0";
    let program = tampers(&world, &format!("{}; {blocks}", its_directory(&world)));
    world.kill_daemon();
    let asked = std::time::Instant::now();
    world.relive(&["kill", "-9", &program.uuid]).ok();
    let info = world.await_display(&program.uuid, "dead");
    ran_once_and_is_gone(&world, &info);
    // Without being asked, it takes fifteen seconds until nobody hopes for its shim any more.
    assert!(asked.elapsed() < std::time::Duration::from_secs(12), "{:?}", asked.elapsed());
}

#[test]
fn a_program_that_forges_its_end_is_found_running() {
    let world = World::new();
    let before = world.exec(&[], &["true"]);
    world.ends(&before, 0);
    let forged: PathBuf = world.directory(&before.uuid).join("sessions/1/exit");
    let text = fs::read_to_string(forged).unwrap();
    let what = format!("printf '%s' '{}' > sessions/1/exit; rm sessions/1/lock", text.trim());
    let here =
        format!("cd $(grep -l 'sh' {}/steps/*-*/steps.jsonl | xargs -n1 dirname | tail -1)", world.data().display());
    let program = tampers(&world, &format!("{here}; {what}"));
    world.kill_daemon();
    assert_eq!(world.await_stage(&program, "running")["host_pid"], runs(&world)[0]);
    world.relive(&["kill", "-9", &program.uuid]).ok();
    let info = world.await_display(&program.uuid, "dead");
    assert_eq!(info["status"]["kind"], "killed", "{info}");
    ran_once_and_is_gone(&world, &info);
}

#[test]
fn a_program_that_damages_its_journal_can_be_killed() {
    for what in ["echo x > steps.jsonl", "sed -i s/seq/sEq/ steps.jsonl", "rm steps.jsonl", "chmod 0 steps.jsonl"] {
        let world = World::new();
        let program = tampers(&world, &format!("{}; {what}", its_directory(&world)));
        world.kill_daemon();
        let pid = runs(&world)[0];
        world.relive(&["kill", "-9", &program.uuid]).ok();
        wait_until(&format!("it is gone after `{what}`"), || !is_alive(pid));
        assert_eq!(runs(&world).len(), 1, "{what}");
    }
}

#[test]
fn a_damaged_program_is_addressed_by_all_its_names_and_can_be_removed_when_it_was_killed() {
    for by in ["--all", "PID", "name"] {
        let world = World::new();
        let script = format!(
            "{}; : > steps.jsonl; touch {}/done; exec sleep 1000",
            its_directory(&world),
            world.work().display()
        );
        let program = world.exec(&["--name", "spoilt"], &["sh", "-c", &script]);
        wait_until("it has done it", || world.work().join("done").exists());
        let host = world.await_stage(&program, "running")["host_pid"].as_u64().unwrap();
        world.kill_daemon();
        let info = world.info("spoilt");
        assert_eq!((&info["display"], &info["pid"]), (&json!("damaged"), &json!(program.pid)), "{info}");
        world.relive(&["rm", "-y", &program.uuid]).fails(3, &["its program runs", "hint: relive kill -9"]);
        let id = match by {
            "--all" => by.to_owned(),
            "PID" => program.pid.to_string(),
            _ => "spoilt".to_owned(),
        };
        let killed = world.relive(&["kill", "-9", "-y", &id]).ok().stderr;
        assert!(!killed.contains("undo") && killed.contains("relive rm -y"), "{killed}");
        wait_until("it is gone", || !is_alive(host));
        world.relive(&["wait", &program.uuid]).fails(3, &["could not be recovered"]);
        world.relive(&["rm", "-y", &id.replace("--all", &program.uuid)]).ok();
        world.relive(&["info", &program.uuid]).fails(4, &["was removed"]);
        world.kill_daemon();
        assert_eq!(world.relive(&["ps", "-a", "--json"]).ok().json()["processes"], json!([]));
    }
}

#[test]
fn a_damaged_process_that_nothing_else_describes_is_killed_and_removed_by_its_uuid() {
    let world = World::new();
    let program = tampers(&world, &format!("{}; : > steps.jsonl", its_directory(&world)));
    world.kill_daemon();
    for entry in fs::read_dir(world.data()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("index") {
            fs::remove_dir_all(path).unwrap();
        }
    }
    let killed = world.relive(&["kill", "-9", "--all", "-y"]).ok().stderr;
    assert!(!killed.contains("PID 0"), "{killed}");
    let pid = runs(&world)[0];
    wait_until("it is gone", || !is_alive(pid));
    world.relive(&["rm", "-y", &program.uuid]).ok();
    assert_eq!(world.relive(&["ps", "-a", "--json"]).ok().json()["processes"], json!([]));
}

#[test]
fn a_program_that_removes_its_markers_is_listed() {
    let world = World::new();
    let root = world.data().display().to_string();
    let program = tampers(&world, &format!("rm -f {root}/live/*-* {root}/steps/*.live"));
    world.kill_daemon();
    let listed = world.relive(&["ps", "--json"]).ok().json();
    let uuids: Vec<&Value> = listed["processes"].as_array().unwrap().iter().map(|process| &process["uuid"]).collect();
    assert_eq!(uuids, [&json!(program.uuid)]);
    world.relive(&["kill", "-9", &program.uuid]).ok();
    let info = world.await_display(&program.uuid, "dead");
    ran_once_and_is_gone(&world, &info);
}

#[test]
fn a_program_that_replaces_its_session_is_gone_when_it_is_called_dead() {
    for what in ["mv 1 a && ln -s a 1", "mv 1 a && touch 1", "cd .. && mv sessions a && touch sessions"] {
        let world = World::new();
        let program = tampers(&world, &format!("{}/sessions; {what}", its_directory(&world)));
        world.kill_daemon();
        let info = world.await_display(&program.uuid, "dead");
        assert_eq!(info["why"], "shim_lost", "{what}");
        ran_once_and_is_gone(&world, &info);
        world.kill_daemon();
        assert_eq!(world.info(&program.uuid)["state"], "dead", "{what}");
        ran_once_and_is_gone(&world, &info);
    }
}

/// It is listed, and `kill -9` ends it.
#[track_caller]
fn is_listed_and_can_be_killed(world: &World, program: &Begun, what: &str) {
    let listed = world.relive(&["ps", "--json"]).ok().json();
    let processes = listed["processes"].as_array().unwrap();
    let found = processes.iter().find(|process| process["uuid"] == json!(program.uuid));
    assert_eq!(found.map(|process| &process["display"]), Some(&json!("damaged")), "{what}: {listed}");
    let pid = *runs(world).last().unwrap();
    assert!(is_alive(pid), "{what}");
    world.relive(&["kill", "-9", &program.uuid]).ok();
    wait_until(&format!("it is gone after `{what}`"), || !is_alive(pid));
}

#[test]
fn a_program_that_removes_its_directory_is_not_forgotten() {
    let world = World::new();
    let what = "rm -rf $PWD";
    let program = tampers(&world, &format!("{}; {what}", its_directory(&world)));
    world.kill_daemon();
    is_listed_and_can_be_killed(&world, &program, what);
}

#[test]
fn a_program_with_the_journal_of_an_ended_one_is_not_taken_for_that() {
    let world = World::new();
    let before = world.exec(&[], &["true"]);
    world.ends(&before, 0);
    let ended = world.directory(&before.uuid).join("steps.jsonl");
    let here = format!("cd {}/steps/${{RELIVE_SESSION#*-}}", world.data().display());
    for what in [
        format!("cp {} steps.jsonl", ended.display()),
        format!("sed s/{}/${{RELIVE_SESSION#*-}}/ {} > steps.jsonl", before.uuid, ended.display()),
    ] {
        let _ = fs::remove_file(world.work().join("runs"));
        let _ = fs::remove_file(world.work().join("done"));
        let program = tampers(&world, &format!("{here}; {what}"));
        world.kill_daemon();
        is_listed_and_can_be_killed(&world, &program, &what);
    }
}
