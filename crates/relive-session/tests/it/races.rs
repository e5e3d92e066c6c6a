//! Launches that are ended at any moment: each ends once, and leaves nothing.

#![expect(clippy::disallowed_methods, reason = "a test's own files")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relive_session::directory::{Found, SessionDirectory, boot_id};
use relive_session::proc::{self, Stat};
use relive_session::protocol::Verb;
use relive_session::sessions::{SessionStatus, Sessions};
use relive_session::spec::{Gate, Namespace, Size, Spec, Stdio};
use relive_session::stage::SessionResult;

use crate::harness::*;

/// How many run concurrently.
const AT_ONCE: u64 = 8;
/// The variable that marks every program of these launches.
const MARK: &str = "RELIVE_RACE";
/// More descriptors than the other tests use in the meantime, and fewer than there are launches.
const DESCRIPTORS_OF_OTHERS: usize = 128;

fn any_spec(random: &mut Random, lab: &Lab) -> Spec {
    let program = match random.below(4) {
        0 => spec(&["true"]),
        1 => spec(&["sleep", "1000"]),
        2 => shell("(setsid sleep 1000 &); trap '' TERM; while :; do sleep 1; done"),
        _ => shell("while :; do echo some output; done"),
    };
    let stdio = match random.below(3) {
        0 => Stdio::Null,
        1 => Stdio::Pipes,
        _ => Stdio::Pty(Size { rows: 24, columns: 80 }),
    };
    let gate = if random.below(3) == 0 { Gate::Closed } else { Gate::Open };
    let namespace = if random.below(4) == 0 { Namespace::Pid } else { Namespace::AsPlanned };
    let mut env = program.env.clone();
    env.push((MARK.to_owned(), lab.dir.path().display().to_string()));
    Spec { env, stdio, gate, namespace, log_max_bytes: 256 * 1024, ..program }
}

fn any_verb(random: &mut Random) -> Verb {
    match random.below(7) {
        0 => Verb::Proceed,
        1 => Verb::Abort { by: None },
        2 => Verb::Freeze,
        3 => Verb::Thaw,
        4 => Verb::signal(libc::SIGTERM),
        5 => Verb::signal(libc::SIGKILL),
        _ => Verb::Kill,
    }
}

async fn one(lab: Arc<Lab>, name: String, spec: Spec, verbs: Vec<Verb>, pauses: Vec<u64>) {
    let running = lab.launch(&name, &spec).await;
    for (verb, pause) in verbs.into_iter().zip(pauses) {
        tokio::time::sleep(Duration::from_micros(pause)).await;
        within("an answer", running.connection.request(verb)).await.unwrap();
    }
    within("an answer", running.connection.request(Verb::Kill)).await.unwrap();
    let record = running.ended().await;
    let Found::Ended(on_disk) = running.left().await else { panic!("{name}: no record") };
    assert_eq!((on_disk, record.left.len()), (record.clone(), 0), "{name}");
    let shim = running.connection.shim_pid();
    wait_until("the shim to be reaped", || Stat::of(shim).is_err()).await;
    // A concurrent launch may have a copy of it until it executes its program.
    wait_until("the lock to be free", || running.directory.lock_is_free().unwrap()).await;
    assert!(record.host_pid.is_none_or(|pid| !is_alive(pid)), "{name}");
    let files = std::fs::read_dir(running.directory.path()).unwrap();
    let files: Vec<_> = files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let stays = |file: &String| matches!(file.as_str(), "lock" | "state" | "exit") || file.starts_with("log");
    assert!(files.iter().all(stays), "{name}: {files:?}");
}

/// Returns processes with the mark, and processes cloned by a shim of these launches that never became another program.
fn left_of(dir: &Path) -> Vec<(i32, String)> {
    let dir = dir.to_str().unwrap();
    let command = |pid| {
        String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
    };
    let pids = proc::all().unwrap().into_iter().map(|stat| stat.identity.pid);
    let named = pids.map(|pid| (pid, command(pid)));
    named.filter(|(pid, command)| command.contains(dir) || proc::environment_has(*pid, MARK, dir)).collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the number of ended shims that nobody reaps.
fn zombies() -> usize {
    let me = format!(" {} ", std::process::id());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(|stat| stat.split_once(") Z").is_some_and(|(_, rest)| rest.starts_with(&me))).count()
}

/// A launch that was lost leaves a directory of a program that never ran. Whoever removes its remains must not end the next
/// launch, which has the same cgroup.
#[tokio::test]
async fn a_session_is_not_killed_by_others_that_look_for_it_while_it_is_launched() {
    let lab = Lab::new();
    let sessions = Arc::new(Sessions::new(Lab::shim(), boot_id().unwrap(), ladder().plan.prefix.clone()));
    sessions.ladder().await.unwrap();
    let directory = lab.dir.path().join("sessions");
    std::fs::create_dir(&directory).unwrap();
    let mut random = Random::new();
    for number in 0..60 {
        let path = directory.join(number.to_string());
        drop(SessionDirectory::create(&path).unwrap());
        let mut looks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (sessions, path, pause) = (Arc::clone(&sessions), path.clone(), random.below(3000));
            looks.spawn(async move {
                tokio::time::sleep(Duration::from_micros(pause)).await;
                while let SessionStatus::NeverRan = sessions.find(&path).await.unwrap() {}
            });
        }
        let connection = sessions.launch(&path, &shell("sleep 0.02; exit 7")).await.unwrap();
        let ended = within("the end", connection.ended()).await.unwrap();
        assert_eq!(ended.result, SessionResult::Exited(7), "{number}: {ended:?}");
        while let Some(look) = within("a look", looks.join_next()).await {
            look.unwrap();
        }
    }
}

#[tokio::test]
async fn a_launch_that_nobody_waits_for_is_over_when_all_sessions_are() {
    let lab = Lab::new();
    let sessions = Sessions::new(Lab::shim(), boot_id().unwrap(), ladder().plan.prefix.clone());
    sessions.ladder().await.unwrap();
    let mut random = Random::new();
    for number in 0..40 {
        let directory = lab.dir.path().join(number.to_string()).join("sessions");
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("1");
        let spec = spec(&["sleep", "1000"]);
        let launch = sessions.launch(&path, &spec);
        let _ = tokio::time::timeout(Duration::from_micros(random.below(2000)), launch).await;
        sessions.end_all(&directory).await.unwrap();
        assert_eq!(proc::shims().unwrap().iter().filter(|(_, of)| *of == path).count(), 0, "{number}");
        assert!(
            SessionDirectory::open(&path).is_err() || {
                let found = sessions.find(&path).await.unwrap();
                matches!(found, SessionStatus::Ended(_) | SessionStatus::NeverRan)
            }
        );
    }
    // None began later.
    assert_eq!(left_of(lab.dir.path()), []);
}

/// In a process of its own: the other tests end while their shims are not reaped yet.
#[test]
fn an_abandoned_launch_leaves_no_zombie() {
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "races::abandoned_launches", "--ignored", "--nocapture"]);
    let output = alone.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn abandoned_launches() {
    let lab = Lab::new();
    let mut random = Random::new();
    for number in 0..60 {
        let patience = Duration::from_micros(random.below(3000));
        let (name, spec) = (format!("left-{number}"), spec(&["true"]));
        let launch = lab.launch(&name, &spec);
        let _ = tokio::time::timeout(patience, launch).await;
    }
    for number in 0..60 {
        let path = lab.dir.path().join(format!("left-{number}"));
        let Ok(directory) = relive_session::SessionDirectory::open(path) else { continue };
        wait_until("its shim to be gone", || directory.lock_is_free().unwrap()).await;
    }
    wait_until("all of them to be reaped", || zombies() == 0).await;
}

#[tokio::test]
async fn every_launch_ends_whenever_it_is_killed_and_nothing_is_left() {
    let launches = std::env::var("RELIVE_LAUNCHES").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    let lab = Arc::new(Lab::new());
    let descriptors_before = descriptors();
    let mut random = Random::new();
    let mut open = tokio::task::JoinSet::new();
    for number in 0..launches {
        let spec = any_spec(&mut random, &lab);
        let verbs: Vec<Verb> = (0..random.below(4)).map(|_| any_verb(&mut random)).collect();
        let pauses = (0..4).map(|_| random.below(4000)).collect();
        open.spawn(one(Arc::clone(&lab), format!("race-{number}"), spec, verbs, pauses));
        if open.len() as u64 >= AT_ONCE {
            open.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(ended) = open.join_next().await {
        ended.unwrap();
    }
    assert_eq!(left_of(lab.dir.path()), [], "processes of ended sessions");
    let plan = &ladder().plan;
    for directory in [&plan.v2, &plan.v1_freezer, &plan.v1_memory, &plan.v1_pids, &plan.v1_cpu].into_iter().flatten() {
        let leaves = std::fs::read_dir(directory.join(&plan.prefix)).map(|entries| {
            entries
                .filter(|entry| {
                    entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("race-"))
                })
                .count()
        });
        assert_eq!(leaves.unwrap_or(0), 0, "{}", directory.display());
    }
    let ours = lab.dir.path().to_owned();
    let held =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    assert_eq!(held.filter(|target| target.starts_with(&ours)).count(), 0, "descriptors of ended sessions");
    wait_until("sockets to be closed", || descriptors() < descriptors_before + DESCRIPTORS_OF_OTHERS).await;
}

/// Its next launch has cgroups of the same names as the one that was lost before it ran.
#[tokio::test]
async fn a_session_that_is_launched_again_is_not_taken_for_its_remains() {
    const LAUNCHES: usize = 40;
    const LOOKERS: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let sessions = Arc::new(Sessions::new(Lab::shim(), boot_id().unwrap(), ladder().plan.prefix.clone()));
    for number in 0..LAUNCHES {
        let path = dir.path().join(format!("again-{number}"));
        // What a shim leaves that is lost before its program runs: a directory whose lock is free.
        drop(SessionDirectory::create(&path).unwrap());
        let over = Arc::new(AtomicBool::new(false));
        let lookers: Vec<_> = (0..LOOKERS)
            .map(|_| {
                let (sessions, path, over) = (Arc::clone(&sessions), path.clone(), Arc::clone(&over));
                tokio::spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        sessions.find(&path).await.unwrap();
                    }
                })
            })
            .collect();
        let connection = sessions.launch(&path, &shell("sleep 0.02; exit 7")).await.unwrap();
        let mut seen = connection.seen();
        let ended = within("its end", seen.wait_for(|seen| seen.ended.is_some())).await.unwrap().ended.clone();
        over.store(true, Ordering::Relaxed);
        assert_eq!(ended.unwrap().result, SessionResult::Exited(7), "launch {number}");
        for looker in lookers {
            looker.await.unwrap();
        }
    }
}
