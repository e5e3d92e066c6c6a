//! Containment: a session cannot reach Relive's resources, escape, or run while it is frozen.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;

use relive_session::directory::{Found, boot_id};
use relive_session::exit::EndedBy;
use relive_session::proc::Stat;
use relive_session::protocol::{Outcome, Verb};
use relive_session::sessions::{SessionStatus, Sessions};
use relive_session::spec::{Limits, Namespace, PidsLimit, Spec};
use relive_session::stage::{SessionResult, Stage};
use relive_session::tree::Tree;

use crate::harness::*;

async fn members(running: &Running) -> Vec<i32> {
    match running.connection.request(Verb::Stat).await {
        Ok(Outcome::Stat(stat)) => stat.members,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn case_36_a_session_has_only_descriptors_0_1_and_2_and_no_inherited_signals() {
    let lab = Lab::new();
    // A descriptor without the close-on-exec flag.
    let leaked = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: a descriptor of ours.
    assert_eq!(unsafe { libc::fcntl(leaked.as_raw_fd(), libc::F_SETFD, 0) }, 0);
    let first = lab.launch("first", &spec(&["sleep", "1000"])).await;
    first.reaches(Stage::Running).await;
    // Not its init, if the tree has one.
    let named = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    let pid = members(&first).await.into_iter().find(named).unwrap();
    // The dynamic linker has files of its own open before the program begins; what was inherited stays.
    wait_until("it has only three descriptors", || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let open: BTreeSet<String> = open.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        open.into_iter().eq(["0", "1", "2"])
    })
    .await;

    assert_eq!(first.connection.request(Verb::Kill).await, Ok(Outcome::Done));
    first.ended().await;
    let second = lab.launch("second", &spec(&["cat"])).await;
    second.reaches(Stage::Running).await;
    let term = Verb::signal(libc::SIGTERM);
    assert_eq!(first.connection.request(term).await, Ok(Outcome::NoProcess));
    second.connection.request(Verb::CloseInput).await.unwrap();
    assert_eq!(second.ended().await.result, SessionResult::Exited(0));
}

/// Three processes that try to escape: a double fork, a session of its own, and one that ignores signals.
const ESCAPES: &str = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & ) ; \
    setsid sh -c '(sleep 1000 &) ; sleep 1000' & echo away; ";

#[tokio::test]
async fn case_37_a_kill_reaches_processes_that_forked_away() {
    let lab = Lab::new();
    let running = lab.launch("kill", &shell(&format!("{ESCAPES} while :; do sleep 1; done"))).await;
    running.prints("away").await;
    let mut known = Vec::new();
    while known.len() < 5 {
        known = members(&running).await;
    }
    running.connection.request(Verb::signal(libc::SIGTERM)).await.unwrap();
    assert_eq!(running.connection.seen().borrow().snapshot.stage, Stage::Running, "TERM is ignored");
    assert_eq!(running.connection.request(Verb::Kill).await, Ok(Outcome::Done));
    let record = running.ended().await;
    assert_eq!((record.why, record.left.len()), (Some(EndedBy::Kill), 0));
    assert!(known.iter().all(|pid| !is_alive(*pid)));

    let running = lab.launch("end", &shell(&format!("{ESCAPES} read line"))).await;
    running.prints("away").await;
    let mut known = Vec::new();
    while known.len() < 5 {
        known = members(&running).await;
    }
    running.connection.write(b"leave\n").await.unwrap();
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    assert!(known.iter().all(|pid| !is_alive(*pid)), "they end with the program");
}

#[tokio::test]
async fn case_37_processes_that_left_the_cgroup_end_with_the_program() {
    let lab = Lab::new();
    let Some(outside) = ladder().plan.v2.as_ref().filter(|_| rustix::process::geteuid().is_root()) else {
        return eprintln!("skipped: only root moves between cgroups");
    };
    let procs = outside.join("cgroup.procs").display().to_string();
    let script = format!("setsid sh -c 'echo $$ > {procs}; echo away $$; exec sleep 1000' & read line");
    for (name, kill) in [("killed", true), ("ended", false)] {
        let running = lab.launch(name, &shell(&script)).await;
        running.prints("away").await;
        let printed = running.printed();
        let away: i32 = printed.trim().rsplit(' ').next().unwrap().parse().unwrap();
        assert!(is_alive(away) && !members(&running).await.contains(&away));
        if kill {
            assert_eq!(running.connection.request(Verb::Kill).await, Ok(Outcome::Done));
        } else {
            running.connection.write(b"leave\n").await.unwrap();
        }
        assert_eq!(running.ended().await.left, [0; 0]);
        assert!(!is_alive(away), "{name}");
    }
}

/// A script that starts a process outside of its cgroup, which counts in `$COUNTED`; `None` if nobody here may leave a cgroup.
fn leaves_its_cgroup(then: &str) -> Option<String> {
    let ladder = ladder();
    let outside = ladder.plan.v2.as_ref().filter(|_| rustix::process::geteuid().is_root())?;
    let procs = outside.join("cgroup.procs").display().to_string();
    let counts = "while :; do echo x >> $COUNTED; sleep 0.01; done";
    Some(format!("setsid sh -c 'echo $$ > {procs}; echo away $$; {counts}' & {then}"))
}

async fn escaped(running: &Running) -> i32 {
    running.prints("away").await;
    let away = running.printed().trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(is_alive(away) && !members(running).await.contains(&away));
    away
}

#[tokio::test]
async fn processes_that_left_the_cgroup_are_frozen_and_thawed_with_the_program() {
    let lab = Lab::new();
    let counted = lab.dir.path().join("counted");
    let Some(script) = leaves_its_cgroup("sleep 1000") else {
        return eprintln!("skipped: only root moves between cgroups");
    };
    let script = format!("COUNTED={}; export COUNTED; {script}", counted.display());
    let running = lab.launch("frozen-away", &shell(&script)).await;
    let away = escaped(&running).await;
    let count = || std::fs::metadata(&counted).map_or(0, |file| file.len());
    wait_until("it to count", || count() > 0).await;
    assert_eq!(running.connection.request(Verb::Freeze).await, Ok(Outcome::Done));
    // A shell that has just started a command waits until that executes, which is stopped before.
    assert!(matches!(Stat::of(away).unwrap().state, b'T' | b'D'));
    let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no stat") };
    assert!(stat.frozen);
    let before = count();
    assert_eq!(running.connection.request(Verb::Thaw).await, Ok(Outcome::Done));
    wait_until("it to go on", || count() > before).await;
    assert_eq!(running.connection.request(Verb::Freeze).await, Ok(Outcome::Done));
    assert_eq!(running.connection.request(Verb::Kill).await, Ok(Outcome::Done));
    assert_eq!(running.ended().await.left, [0; 0]);
    assert!(!is_alive(away));
}

#[tokio::test]
async fn processes_that_left_the_cgroup_end_when_the_shim_is_lost() {
    let lab = Lab::new();
    let Some(script) = leaves_its_cgroup("sleep 1000") else {
        return eprintln!("skipped: only root moves between cgroups");
    };
    let script = format!("COUNTED=/dev/null; export COUNTED; {script}");
    let running = lab.launch("lost-away", &shell(&script)).await;
    let away = escaped(&running).await;
    // SAFETY: a shim of this test that was not reaped.
    assert_eq!(unsafe { libc::kill(running.connection.shim_pid(), libc::SIGKILL) }, 0);
    assert!(within("the loss", running.connection.ended()).await.is_err());
    let sessions = Sessions::new(Lab::shim(), boot_id().unwrap(), ladder().plan.prefix.clone());
    let found = within("it to be found", sessions.find(running.directory.path())).await.unwrap();
    assert!(matches!(found, SessionStatus::Ended(_)), "{found:?}");
    assert!(!is_alive(away));
}

#[tokio::test]
async fn case_37_a_fork_bomb_is_bounded_and_killed() {
    let lab = Lab::new();
    if ladder().rungs.pids == "none" {
        return eprintln!("skipped: nothing here limits processes");
    }
    let limits = Limits { pids: Some(PidsLimit { max: 40, required: true }), ..Limits::default() };
    let bomb = Spec { limits, ..shell("bomb() { bomb | bomb & }; bomb; while :; do sleep 1; done") };
    let running = lab.launch("bomb", &bomb).await;
    running.reaches(Stage::Running).await;
    wait_until("the limit to be met", || running.printed().to_lowercase().contains("fork")).await;
    assert!(members(&running).await.len() <= 40);
    assert_eq!(running.connection.request(Verb::Kill).await, Ok(Outcome::Done));
    let record = running.ended().await;
    assert_eq!(record.left, [0; 0]);
}

#[tokio::test]
async fn case_38_a_lost_shim_is_noticed_and_its_program_found() {
    let lab = Lab::new();
    let running = lab.launch("lost", &shell("sleep 1000 & sleep 1000 & echo there; sleep 1000")).await;
    running.prints("there").await;
    running.reaches(Stage::Running).await;
    let pid = running.connection.seen().borrow().snapshot.host_pid.unwrap();
    // SAFETY: the shim's pid, which we have not reaped.
    assert_eq!(unsafe { libc::kill(running.connection.shim_pid(), libc::SIGKILL) }, 0);
    assert!(within("the loss", running.connection.ended()).await.is_err());
    assert!(running.connection.request(Verb::Stat).await.is_err());
    wait_until("the program to end with its shim", || !is_alive(pid)).await;
    let mut found = None;
    wait_until("the lock to be free", || {
        found = Some(running.directory.look(&boot_id().unwrap()).unwrap());
        !matches!(found, Some(Found::Starting))
    })
    .await;
    let Some(Found::ShimLost(Some(state))) = found else { panic!("{found:?}") };
    let tree = Tree::reopen(&state.tree);
    wait_until("what it left to be gone", || {
        tree.kill().unwrap();
        tree.is_empty()
    })
    .await;
    tree.remove().unwrap();
}

#[tokio::test]
async fn a_frozen_tree_uses_no_cpu_time_and_can_be_killed() {
    let lab = Lab::new();
    let running = lab.launch("frozen", &shell("(while :; do :; done) & while :; do :; done")).await;
    running.reaches(Stage::Running).await;
    let mut known = Vec::new();
    while known.len() < 2 {
        known = members(&running).await;
    }
    let ticks = || known.iter().map(|pid| Stat::of(*pid).unwrap().cpu_ticks).sum::<u64>();
    wait_until("it to run", || ticks() > 2).await;
    assert_eq!(running.connection.request(Verb::Freeze).await, Ok(Outcome::Done));
    let before = ticks();
    for number in 0..3 {
        lab.run(&format!("meanwhile-{number}"), &shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")).await;
    }
    assert_eq!(ticks(), before);
    let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no stat") };
    assert!(stat.frozen && stat.members.len() >= 2, "{stat:?}");
    assert_eq!(running.connection.request(Verb::Thaw).await, Ok(Outcome::Done));
    wait_until("it to go on", || ticks() > before).await;
    assert_eq!(running.connection.request(Verb::Freeze).await, Ok(Outcome::Done));
    assert_eq!(running.connection.request(Verb::Kill).await, Ok(Outcome::Done));
    assert_eq!(running.ended().await.result, SessionResult::Signaled(libc::SIGKILL));
}

#[tokio::test]
async fn an_incomplete_freeze_stays_in_force_and_is_reported() {
    let lab = Lab::new();
    if ladder().rungs.tree != "cgroup2" || !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root with cgroup2 makes a process that cannot be frozen");
    }
    let shim = Lab::shim().display().to_string();
    // The second waits in the kernel until its input ends, which is when the fifo is opened and closed.
    let fifo = lab.dir.path().join("fifo").display().to_string();
    let script = format!("mkfifo {fifo}; {shim} stuck < {fifo} & exec 3> {fifo}; while :; do echo x; sleep 0.01; done");
    let running = lab.launch("stuck", &shell(&script)).await;
    running.prints("there").await;
    let waits_in_the_kernel = |pid: &i32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let state = |path: std::path::PathBuf| std::fs::read_to_string(path.join("status")).unwrap_or_default();
        tasks.into_iter().any(|task| state(task.path()).contains("State:\tD"))
    };
    // Waiting for the disk takes a process there as well, but only for a moment.
    let mut looks = 0;
    while looks < 20 {
        looks = if members(&running).await.iter().any(waits_in_the_kernel) { looks + 1 } else { 0 };
    }
    assert_eq!(running.connection.request(Verb::Freeze).await, Ok(Outcome::Kept));
    // Its earlier output is in the log by the second answer.
    assert!(!members(&running).await.is_empty() && !members(&running).await.is_empty());
    let printed = running.printed();
    lab.run("meanwhile", &shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")).await;
    assert_eq!(running.printed(), printed, "whoever can stand still does");
    assert_eq!(running.connection.request(Verb::Freeze).await, Ok(Outcome::Kept));
    let Ok(Outcome::Stat(stat)) = running.connection.request(Verb::Stat).await else { panic!("no stat") };
    assert!(!stat.frozen, "not before all of it stands still");
    assert_eq!(running.connection.request(Verb::Thaw).await, Ok(Outcome::Done));
    wait_until("it to go on", || running.printed().len() > printed.len()).await;
    assert_eq!(running.connection.request(Verb::Kill).await, Ok(Outcome::Done));
    running.ended().await;
}

#[tokio::test]
async fn a_program_frozen_at_its_gate_stays_frozen_when_the_gate_opens() {
    let lab = Lab::new();
    for number in 0..20 {
        let running = lab.launch(&format!("gate-{number}"), &gated(shell("echo ran; sleep 1000"))).await;
        running.reaches(Stage::Ready).await;
        let open = running.connection.request(Verb::Proceed);
        let freeze = running.connection.request(Verb::Freeze);
        let (opened, frozen) = tokio::join!(open, freeze);
        assert_eq!((opened, frozen), (Ok(Outcome::Done), Ok(Outcome::Done)));
        // Its earlier output is in the log by the second answer.
        assert!(!members(&running).await.is_empty() && !members(&running).await.is_empty());
        let printed = running.printed();
        lab.run(&format!("meanwhile-{number}"), &spec(&["true"])).await;
        assert_eq!(running.printed(), printed);
        assert_eq!(running.connection.request(Verb::Thaw).await, Ok(Outcome::Done));
        running.prints("ran\n").await;
        assert_eq!(running.connection.request(Verb::Kill).await, Ok(Outcome::Done));
        running.ended().await;
    }
}

#[tokio::test]
async fn case_40_a_kill_for_lack_of_memory_is_reported() {
    let lab = Lab::new();
    if ladder().rungs.memory == "none" {
        return eprintln!("skipped: nothing here limits memory");
    }
    let limits = Limits { memory: Some(32 * 1024 * 1024), ..Limits::default() };
    let eats = Spec { limits, ..spec(&["dd", "if=/dev/zero", "of=/dev/null", "bs=500M", "count=1"]) };
    let (record, _) = lab.run("oom", &eats).await;
    assert_eq!((record.result, record.why), (SessionResult::Signaled(libc::SIGKILL), Some(EndedBy::Oom)));
    assert_eq!(record.oom_kills, 1);

    for (name, code, why) in [("fails", 3, Some(EndedBy::Oom)), ("copes", 0, None)] {
        let below = Spec { limits, ..shell(&format!("tail /dev/zero; exit {code}")) };
        let (record, _) = lab.run(name, &below).await;
        assert_eq!((record.result, record.why, record.oom_kills), (SessionResult::Exited(code), why, 1));
    }
}

#[tokio::test]
async fn a_program_without_an_owner_ends_at_its_time_limit() {
    let lab = Lab::new();
    let timed = Spec { timeout_ms: Some(300), ..shell("trap 'echo asked; exit 7' TERM; while :; do sleep 0.01; done") };
    let running = lab.launch("timed", &timed).await;
    drop(running.connection);
    wait_until("the shim to go", || running.directory.lock_is_free().unwrap()).await;
    let record = running.directory.read_exit().unwrap().unwrap();
    assert_eq!((record.result, record.timed_out), (SessionResult::Exited(7), true));

    let paused = lab.launch("paused", &Spec { timeout_ms: Some(500), ..spec(&["sleep", "1000"]) }).await;
    paused.reaches(Stage::Running).await;
    assert_eq!(paused.connection.request(Verb::Freeze).await, Ok(Outcome::Done));
    // Another one whose time limit is after that of the first.
    let other = lab.launch("other", &Spec { timeout_ms: Some(700), ..spec(&["sleep", "1000"]) }).await;
    assert!(other.ended().await.timed_out);
    assert_eq!(paused.connection.seen().borrow().snapshot.stage, Stage::Running, "its time stands still");
    assert_eq!(paused.connection.request(Verb::Deadline { left_ms: Some(100) }).await, Ok(Outcome::Done));
    assert_eq!(paused.connection.request(Verb::Thaw).await, Ok(Outcome::Done));
    let record = paused.ended().await;
    assert_eq!((record.result, record.timed_out), (SessionResult::Signaled(libc::SIGTERM), true));
}

#[tokio::test]
async fn an_idle_session_uses_little_private_memory() {
    // Of a build without optimisation, for the shim alone and with an init below it.
    const MAX_KB: [(Namespace, u64); 2] = [(Namespace::AsPlanned, 270), (Namespace::Pid, 330)];
    let lab = Lab::new();
    for (number, (namespace, max_kb)) in MAX_KB.into_iter().enumerate() {
        let spec = Spec { namespace, ..shell("echo there; exec sleep 1000") };
        let running = lab.launch(&format!("idle-{number}"), &spec).await;
        running.prints("there").await;
        let init = running.reaches(Stage::Running).await.init_pid;
        let pids = [Some(running.connection.shim_pid()), init];
        let rollups =
            pids.into_iter().flatten().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")));
        let rollups: Result<Vec<String>, _> = rollups.collect();
        running.connection.request(Verb::Kill).await.unwrap();
        running.ended().await;
        let Ok(rollups) = rollups else { return eprintln!("skipped: only root looks into a shim") };
        // What an init has in common with its shim counts once. Not Private_Dirty, which includes the file of a program
        // that was just built until it is on the disk.
        let share = |rollup: &String| {
            let line = rollup.lines().find(|line| line.starts_with("Pss_Anon:")).unwrap();
            line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let private: u64 = rollups.iter().map(share).sum();
        eprintln!("private memory of an idle session, {namespace:?}: {private} kB");
        assert_eq!(rollups.len(), if namespace == Namespace::Pid { 2 } else { 1 });
        assert!(private <= max_kb, "{namespace:?}: {rollups:?}");
    }
}
