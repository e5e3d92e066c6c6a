//! The shim that is started before it is needed.

#![expect(clippy::disallowed_methods, reason = "a test's own files")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use relive_session::directory::boot_id;
use relive_session::proc;
use relive_session::protocol::Verb;
use relive_session::sessions::Sessions;
use relive_session::spec::{Limits, PidsLimit, Spec};
use relive_session::stage::{SessionResult, Stage};
use rustix::process::{Pid, Signal};

use crate::harness::*;

fn signal(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Launches a first session, and returns the shim that then waits for the next one.
async fn spare_of(lab: &Lab) -> i32 {
    let launched = std::fs::read_dir(lab.dir.path()).unwrap().count();
    lab.run(&format!("before-{launched}"), &spec(&["true"])).await;
    let mut spare = None;
    wait_until("a shim to wait", || {
        spare = lab.launcher.waiting_shim();
        spare.is_some()
    })
    .await;
    spare.unwrap()
}

#[tokio::test]
async fn a_shim_that_waits_becomes_that_of_the_next_session_and_is_found_by_its_directory() {
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    let running = lab.launch("second", &shell("echo $RELIVE_SESSION; exec sleep 1000")).await;
    assert_eq!(running.connection.shim_pid(), spare);
    running.prints("second").await;
    let shims = proc::shims().unwrap();
    let mut found = shims.iter().filter(|(_, path)| path == running.directory.path()).map(|(shim, _)| shim.pid);
    assert!(found.any(|pid| pid == spare), "{shims:?}");
    let program = running.reaches(Stage::Running).await.host_pid.unwrap();
    assert_eq!(proc::shim_above(program).as_deref(), Some(running.directory.path()));
    signal(program, Signal::KILL);
    assert_eq!(running.ended().await.result, SessionResult::Signaled(libc::SIGKILL));
}

#[tokio::test]
async fn a_shim_that_waits_has_one_socket_and_nothing_of_any_session() {
    let lab = Lab::new();
    let other = lab.launch("other", &spec(&["cat"])).await;
    let spare = spare_of(&lab).await;
    if !rustix::process::geteuid().is_root() {
        // Nor can another process of the user look.
        wait_until("it to be hidden", || fs::read_dir(format!("/proc/{spare}/fd")).is_err()).await;
        other.connection.request(Verb::Kill).await.unwrap();
        other.ended().await;
        return;
    }
    let mut held = BTreeSet::new();
    wait_until("it to wait", || {
        let entries = fs::read_dir(format!("/proc/{spare}/fd")).unwrap().flatten();
        held = entries.filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned)).collect();
        held.iter().any(|target| target == "/dev/null") && proc::Stat::of(spare).unwrap().state == b'S'
    })
    .await;
    let sockets = held.iter().filter(|target| target.starts_with("socket:")).count();
    assert_eq!((sockets, held.len()), (1, 2), "{held:?}");
    assert_eq!(fs::read(format!("/proc/{spare}/environ")).unwrap(), b"");
    other.connection.request(Verb::Kill).await.unwrap();
    other.ended().await;
}

#[tokio::test]
async fn a_session_does_not_depend_on_a_shim_that_died_while_it_waited() {
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    signal(spare, Signal::KILL);
    wait_until("it to be gone", || !is_alive(spare)).await;
    let running = lab.launch("second", &spec(&["true"])).await;
    assert_ne!(running.connection.shim_pid(), spare);
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
}

#[tokio::test]
async fn a_shim_that_was_stopped_while_it_waited_launches_nothing_later() {
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    signal(spare, Signal::STOP);
    let runs = lab.dir.path().join("runs");
    let running = lab.launch("second", &shell(&format!("echo once >> {}", runs.display()))).await;
    // It is replaced, unless another owner that began meanwhile has let it continue.
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    wait_until("it to be gone", || !is_alive(spare)).await;
    assert_eq!(fs::read_to_string(runs).unwrap(), "once\n");
}

#[tokio::test]
async fn a_stopped_shim_that_waits_for_a_living_owner_is_left_alone() {
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    signal(spare, Signal::STOP);
    let is_stopped = || proc::Stat::of(spare).is_ok_and(|stat| stat.state == b'T');
    wait_until("it to be stopped", is_stopped).await;
    let other = Sessions::new(Lab::shim(), boot_id().unwrap(), ladder().plan.prefix.clone());
    other.ladder().await.unwrap();
    assert!(is_stopped());
}

#[tokio::test]
async fn a_program_has_nothing_that_was_changed_on_the_shim_while_it_waited() {
    let lab = Lab::new();
    let show = "nice; ulimit -c; ulimit -n; grep Cpus_allowed_list /proc/self/status";
    let (_, before) = lab.run("first", &shell(show)).await;
    let changes: [fn(i32); 3] = [
        |pid| {
            // SAFETY: plain numbers; the shim is a child of this process that was not reaped.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as u32, 19) }, 0);
        },
        |pid| {
            let lower = libc::rlimit { rlim_cur: 0, rlim_max: 77 };
            // SAFETY: as before, and a structure owned here.
            assert_eq!(unsafe { libc::prlimit(pid, libc::RLIMIT_CORE, &raw const lower, std::ptr::null_mut()) }, 0);
        },
        |pid| {
            let one = 1_u64;
            // SAFETY: as before, and one number owned here.
            assert_eq!(unsafe { libc::sched_setaffinity(pid, size_of::<u64>(), (&raw const one).cast()) }, 0);
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let spare = spare_of(&lab).await;
        change(spare);
        let running = lab.launch(&format!("changed-{number}"), &shell(show)).await;
        assert_eq!(running.ended().await.result, SessionResult::Exited(0));
        assert_eq!(running.printed(), before, "{number}");
        assert_ne!(running.connection.shim_pid(), spare);
        // One of use in between: those of no use are not counted together.
        wait_until("the next shim waits", || lab.launcher.waiting_shim().is_some()).await;
        lab.run(&format!("between-{number}"), &spec(&["true"])).await;
    }
}

#[tokio::test]
async fn a_session_whose_path_is_too_long_for_a_shim_that_waits_gets_its_own() {
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    let deep = vec!["d".repeat(100); 11].join("/");
    fs::create_dir_all(lab.dir.path().join(&deep)).unwrap();
    let running = lab.launch(&format!("{deep}/second"), &spec(&["true"])).await;
    assert_ne!(running.connection.shim_pid(), spare);
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    assert_eq!(lab.launcher.waiting_shim(), Some(spare));
}

#[tokio::test]
async fn a_shim_that_waits_ends_with_its_owner() {
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    drop(lab);
    wait_until("it to be gone", || !is_alive(spare)).await;
}

/// Returns the directory of the leaves that count processes, where that takes a cgroup of the first version.
fn counting_leaves() -> Option<PathBuf> {
    let plan = &ladder().plan;
    plan.v1_pids.as_ref().map(|above| above.join(&plan.prefix))
}

/// Waits until a shim that waits is in its cgroup, and returns that.
async fn leaf_of(leaves: &Path, spare: i32) -> PathBuf {
    let leaf = leaves.join(format!("spare-{spare}"));
    wait_until("the shim to be in its cgroup", || members(&leaf).trim() == spare.to_string()).await;
    leaf
}

fn members(leaf: &Path) -> String {
    fs::read_to_string(leaf.join("cgroup.procs")).unwrap_or_default()
}

fn limited(max: u32, script: &str) -> Spec {
    let limits = Limits { pids: Some(PidsLimit { max, required: true }), ..Limits::default() };
    Spec { limits, ..shell(script) }
}

#[tokio::test]
async fn a_limit_of_processes_counts_the_program_alone_though_its_shim_is_in_the_same_cgroup() {
    let Some(leaves) = counting_leaves() else { return };
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    let waits_in = leaf_of(&leaves, spare).await;
    let script = "sleep 1000 & sleep 1000 & echo two; read go; (:); echo three";
    let running = lab.launch("limited", &limited(3, script)).await;
    assert_eq!(running.connection.shim_pid(), spare);
    running.prints("two").await;
    assert!(!waits_in.exists(), "it has another name now");
    let leaf = leaves.join(running.directory.read_state().unwrap().unwrap().tree.name);
    assert!(members(&leaf).lines().any(|pid| pid == spare.to_string()));
    running.connection.write(b"go\n").await.unwrap();
    // The shell and two more are all that is allowed.
    assert_eq!(running.ended().await.result, SessionResult::Exited(2));
    assert!(!running.printed().contains("three"));
    // The name is free as soon as the end is known.
    assert!(!leaf.exists());
    wait_until("the cgroup to be removed", || !waits_in.exists()).await;

    let spare = spare_of(&lab).await;
    leaf_of(&leaves, spare).await;
    let running = lab.launch("less limited", &limited(4, script)).await;
    assert_eq!(running.connection.shim_pid(), spare);
    running.connection.write(b"go\n").await.unwrap();
    assert_eq!(running.ended().await.result, SessionResult::Exited(0));
    running.prints("three").await;
}

#[tokio::test]
async fn a_shim_leaves_no_cgroup_behind_however_it_ends() {
    let Some(leaves) = counting_leaves() else { return };
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    let leaf = leaf_of(&leaves, spare).await;
    signal(spare, Signal::KILL);
    wait_until("the cgroup of a killed one to be removed", || !leaf.exists()).await;

    // This one is found dead, and replaced.
    lab.run("second", &spec(&["true"])).await;
    let spare = spare_of(&lab).await;
    let leaf = leaf_of(&leaves, spare).await;
    drop(lab);
    wait_until("the cgroup of one without an owner to be removed", || !leaf.exists()).await;
}

#[tokio::test]
async fn a_launch_that_fails_leaves_no_cgroup_behind() {
    let Some(leaves) = counting_leaves() else { return };
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    let waits_in = leaf_of(&leaves, spare).await;
    let wrong = Spec { cwd: "/nonexistent".into(), ..limited(100, "true") };
    let running = lab.launch("wrong", &wrong).await;
    assert_eq!(running.connection.shim_pid(), spare);
    assert!(matches!(running.ended().await.result, SessionResult::Error(_)));
    let name = running.directory.read_state().unwrap().unwrap().tree.name;
    assert!(!leaves.join(name).exists());
    wait_until("the cgroup to be removed", || !waits_in.exists()).await;
}

/// The owner of the test below, which dies without a word when its session runs.
#[tokio::test]
#[ignore = "run by the test below"]
async fn owner_that_dies() {
    let lab = Lab::new();
    let spare = spare_of(&lab).await;
    let leaves = counting_leaves().unwrap();
    leaf_of(&leaves, spare).await;
    let script = "while [ -e stay ]; do sleep 0.01; done";
    fs::write(lab.dir.path().join("stay"), "").unwrap();
    let spec = Spec { cwd: lab.dir.path().display().to_string(), ..limited(100, script) };
    let running = lab.launch("outlives", &spec).await;
    assert_eq!(running.connection.shim_pid(), spare);
    running.reaches(Stage::Running).await;
    println!("shim {spare} {} {}", leaves.display(), lab.dir.path().display());
    signal(std::process::id() as i32, Signal::KILL);
}

#[tokio::test]
async fn a_shim_that_outlives_its_owner_leaves_no_cgroup_behind() {
    if counting_leaves().is_none() {
        return;
    }
    let mut owner = std::process::Command::new(std::env::current_exe().unwrap());
    owner.args(["--exact", "spares::owner_that_dies", "--ignored", "--nocapture"]);
    let said = String::from_utf8(owner.output().unwrap().stdout).unwrap();
    let (_, line) = said.split_once("shim ").unwrap_or_else(|| panic!("{said}"));
    let [spare, leaves, work] = *line.split_whitespace().collect::<Vec<_>>() else { panic!("{line}") };
    let (spare, leaves) = (spare.parse().unwrap(), Path::new(leaves));
    assert!(is_alive(spare));
    fs::remove_file(Path::new(work).join("stay")).unwrap();
    wait_until("the shim to be gone", || !is_alive(spare)).await;
    // The shim that waited for the next session goes as well, and with the last one their directory.
    wait_until("the cgroups to be removed", || !leaves.exists()).await;
    fs::remove_dir_all(work).unwrap();
}
