//! Something else where a file of the data directory is expected.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::world::{World, begun, output};

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A world whose daemon has run and stopped.
fn stopped() -> World {
    let world = World::new();
    let process = world.run("turns: [{text: done}]");
    world.relive(&["wait", &process.uuid]).ok();
    world.relive(&["daemon", "stop"]).ok();
    world
}

#[test]
fn case_66_a_pipe_for_the_log_is_named_and_keeps_nobody_from_starting() {
    let world = stopped();
    let log = world.data().join("daemon.log");
    fs::remove_file(&log).unwrap();
    pipe(&log);
    world.relive(&["daemon", "start"]).ok();
    let status = world.relive(&["daemon", "status", "--json"]).ok().json();
    // The world looks for the log when it goes.
    fs::remove_file(&log).unwrap();
    let warnings = status["daemon"]["warnings"].to_string();
    assert!(warnings.contains(&format!("{} is not a regular file", log.display())), "{status}");
}

#[test]
fn case_66_pipes_for_what_can_be_made_anew_keep_nobody_from_starting() {
    let world = stopped();
    let next = world.data().join("pids");
    let last: u64 = fs::read_to_string(&next).unwrap().trim().parse().unwrap();
    for name in ["pids", "tmp", "pids.log", "clock", "pulse", "reserve"] {
        let path = world.data().join(name);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
        pipe(&path);
    }
    let process = world.run("turns: [{text: done}]");
    assert!(process.pid > 1 && process.pid <= last + 1, "no PID is given out twice: {}", process.pid);
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(world.relive(&["ps", "-a", "-q"]).ok().stdout.lines().count(), 2);
}

#[test]
fn case_66_directories_for_what_can_be_made_anew_keep_nobody_from_starting() {
    let world = stopped();
    for name in ["pids", "clock", "pulse"] {
        let path = world.data().join(name);
        let _ = fs::remove_file(&path);
        fs::create_dir(&path).unwrap();
    }
    let process = world.run("turns: [{text: done}]");
    assert!(process.pid > 1, "no PID is given out twice: {}", process.pid);
    world.relive(&["gc"]).ok();
}

#[test]
fn case_66_what_cannot_be_made_anew_is_named() {
    for name in ["lock", "steps"] {
        let world = stopped();
        let path = world.data().join(name);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
        pipe(&path);
        let listed = if name == "steps" { world.relive(&["ps", "-a"]).code } else { 1 };
        assert_ne!(listed, 0, "no list is not an empty list");
        let told = world.relive(&["daemon", "start"]);
        // The world looks for the holder of the lock when it goes.
        fs::remove_file(&path).unwrap();
        assert!(told.code != 0 && told.stderr.contains(path.to_str().unwrap()), "{name}: {told:?}");
    }
}

#[test]
fn an_unknown_part_of_a_query_is_refused_by_name() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    for (path, said) in [
        ("/v1/processes?al=true", "al"),
        ("/v1/processes?limit=0", "limit"),
        ("/v1/resumable?page=2", "page"),
        ("/v1/processes/1/journal?folow=true", "folow"),
    ] {
        let (status, answer) = world.http("GET", path, "", "");
        assert!(status == 400 && answer.contains(said), "{path}: {status} {answer}");
    }
}

#[test]
fn an_agent_whose_directory_is_above_the_data_directory_writes_no_journal() {
    let world = World::new();
    let victim = world.run_hanging(&[]);
    let path = world.steps_file(&victim.uuid);
    let call = |tool: &str| format!("{{calls: [{{name: {tool}, args: {{path: {:?}, content: x}}}}]}}", path);
    let model = world.script(&format!("turns: [{}, {{text: done}}]", call("write")));
    let mut command = world.command(&["run", "-d", "--json", "--yes", "--model", &model, "do it"]);
    let agent = begun(&output(command.current_dir(world.root()).output().unwrap()).ok().json());
    world.relive(&["wait", &agent.uuid]).ok();
    let ended = &world.records(&agent.uuid, "call_ended")[0];
    assert!(ended.to_string().contains("belongs to Relive itself"), "{ended}");
    assert_eq!(world.info(&victim.uuid)["display"], "running");
}

#[test]
fn case_66_a_pipe_for_the_events_hides_nothing_that_the_journal_has_and_is_replaced() {
    let world = World::new();
    let process = world.run("turns: [{text: said once}, {text: said twice}]");
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    let events = world.directory(&process.uuid).join("events.jsonl");
    let _ = fs::remove_file(&events);
    pipe(&events);
    let shown = world.relive(&["logs", &process.uuid]).ok().stdout;
    assert!(shown.contains("said once"), "{shown}");
    let (status, streamed) = world.http("GET", &format!("/v1/processes/{}/events", process.uuid), "", "");
    assert!(status == 200 && streamed.contains("said once") && streamed.contains("event: end"), "{streamed}");
    world.relive(&["resume", "--input", "more", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    assert!(events.metadata().unwrap().is_file(), "new events have a file again");
}

#[test]
fn a_stream_continues_after_the_last_event_that_a_client_has_seen() {
    let world = World::new();
    let process = world.run("turns: [{text: said once}]");
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    for stream in ["events", "journal"] {
        let path = format!("/v1/processes/{}/{stream}", process.uuid);
        let (_, all) = world.http("GET", &path, "", "");
        let ids: Vec<_> = all.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        let (seen, rest) = (ids[ids.len() / 2], &ids[ids.len() / 2 + 1..]);
        assert!(!rest.is_empty(), "{all}");
        let header = format!("last-event-id: {seen}\r\n");
        // A client that connects again asks with its first address.
        for path in [path.clone(), format!("{path}?after={}", ids[0])] {
            let (status, later) = world.http("GET", &path, &header, "");
            let later: Vec<_> = later.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
            assert_eq!((status, &*later), (200, rest), "{path}");
        }
        let (status, told) = world.http("GET", &path, "last-event-id: nonsense\r\n", "");
        assert!(status == 400 && told.contains("not an id"), "{status} {told}");
    }
}

/// Root may read everything, so this shows nothing where only root can be had.
#[test]
fn files_that_may_not_be_read_are_named_with_what_helps() {
    for world in World::of_each_kind() {
        if world.user().is_none() && rustix::process::getuid().is_root() {
            continue;
        }
        world.relive(&["exec", "--name", "job", "--", "true"]).ok();
        let uuid = world.info("job")["uuid"].as_str().unwrap().to_owned();
        world.await_retired(&uuid);
        let directory = world.directory(&uuid);
        let close = |closed: &Path, mode| fs::set_permissions(closed, fs::Permissions::from_mode(mode)).unwrap();
        close(&directory, 0);
        let said = format!("error: {}: permission denied", directory.display());
        let hint = format!("hint: chmod -R u+rwX {}\n", directory.display());
        for args in [&["rm", "-y", "job"][..], &["resume", "job"], &["rename", "job", "other"]] {
            world.relive(args).fails(125, &[&said, &hint]);
        }
        world.relive(&["logs", "job"]).fails(125, &["the journal of PID 1 cannot be read\n  permission denied", &hint]);
        for verb in ["steps", "strace"] {
            world.relive(&[verb, "job"]).fails(125, &["the journal of PID 1 cannot be read", &hint]);
        }
        for verb in ["diff", "lineage"] {
            world.relive(&[verb, "job"]).fails(125, &[&said, &hint]);
        }
        close(&directory, 0o700);
        close(&directory.join("sessions"), 0);
        world.relive(&["rm", "-y", "job"]).fails(125, &[&said, &hint]);
        close(&directory.join("sessions"), 0o700);

        let runs = world.exec(&[], &["sleep", "1000"]);
        let sessions = world.directory(&runs.uuid).join("sessions");
        close(&sessions, 0);
        let session = format!("{}/1: permission denied", sessions.display());
        world.relive(&["logs", &runs.uuid]).fails(125, &["error: the output cannot be read\n", &session]);
        close(&sessions, 0o700);
        world.relive(&["kill", &runs.uuid]).ok();
        world.ends(&runs, 143);

        world.relive(&["daemon", "stop"]).ok();
        close(&world.data(), 0);
        let hint = "hint: export RELIVE_DATA_DIR=~/relive-data\n";
        let data = format!("{}: cannot be written to", world.data().display());
        world.relive(&["ps"]).fails(6, &[&data, hint]);
        let unknown = format!("{}: cannot find out whether a daemon uses this data directory", world.data().display());
        let look = format!("hint: ls -ld {}\n", world.data().display());
        for verb in ["status", "stop"] {
            world.relive(&["daemon", verb]).fails(6, &[&unknown, &look]);
        }
        close(&world.data(), 0o700);
        world.relive(&["rm", "-y", "job"]).ok();
    }
}
