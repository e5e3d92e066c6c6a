//! Every rung of this machine, with real programs below a real process in the role of the shim.

mod shim;

use std::collections::HashSet;
use std::time::Instant;

use shim::Shim;

use super::*;
use crate::proc::Stat;
use crate::spec::{PidsLimit, Unheld};

/// Two processes that ignore TERM, one of them with a session of its own, and their orphaned children.
const ESCAPES: &str = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; (sleep 1000 &); sleep 1001' &); sleep 1002";
const NO_LIMITS: Limits = Limits { memory: None, cpu: None, pids: None, unheld: Unheld::Fail };

/// Runs a test on each available rung; reports the others.
fn on_each_rung(test: impl Fn(&Ladder)) {
    for (start, name) in [
        (Start::Cgroup2, "cgroup2"),
        (Start::Cgroup1, "cgroup1"),
        (Start::PidNamespace, "pid-namespace"),
        (Start::ProcessGroup, "process-group"),
    ] {
        let ladder = Ladder::probe_from(start, &prefix());
        if ladder.rungs.tree == name {
            test(&ladder);
        } else {
            eprintln!("skipped: this kernel, or this user, has no {name} here: {:?}", ladder.notes);
        }
    }
}

/// Tests run concurrently, and each has its own directory.
fn prefix() -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("test").rsplit("::").next().unwrap_or("test").to_owned();
    format!("relive-test-{}-{name}", std::process::id())
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited too long: {what}");
        std::thread::yield_now();
    }
}

fn marked(name: &str) -> Vec<i32> {
    let all = proc::all().unwrap();
    let pids = all.iter().map(|stat| stat.identity.pid);
    pids.filter(|pid| proc::environment_has(*pid, MARKER, name)).collect()
}

fn ticks(pids: &[i32]) -> u64 {
    pids.iter().filter_map(|pid| Stat::of(*pid).ok()).map(|stat| stat.cpu_ticks).sum()
}

fn assert_no_trace(plan: &Plan) {
    let directories = [&plan.v2, &plan.v1_freezer, &plan.v1_memory, &plan.v1_pids, &plan.v1_cpu];
    for directory in directories.into_iter().flatten().map(|directory| directory.join(&plan.prefix)) {
        assert!(!directory.exists(), "{} is left", directory.display());
    }
}

#[test]
fn a_lost_launch_does_not_keep_the_next_one_from_its_leaves() {
    on_each_rung(|ladder| {
        let limits = Limits { pids: Some(PidsLimit { max: 100, required: false }), ..NO_LIMITS };
        // Its shim was killed, and is not there to remove it.
        let lost = Tree::make(&ladder.plan, "again", &limits).unwrap();
        let next = Tree::make(&ladder.plan, "again", &limits).unwrap();
        assert_eq!(next.made(), lost.made());
        next.remove().unwrap();
        assert_no_trace(&ladder.plan);
    });
}

#[test]
fn probing_leaves_nothing_behind() {
    on_each_rung(|ladder| assert_no_trace(&ladder.plan));
}

#[test]
fn remains_of_a_killed_probe_are_removed() {
    on_each_rung(|ladder| {
        let plan = &ladder.plan;
        if plan.v2.is_none() && plan.v1_freezer.is_none() {
            return;
        }
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let mut tree = Tree::make(plan, &format!("probe-{}-0", gone.id()), &NO_LIMITS).unwrap();
        let mut child = child::Child::clone_into(&tree, child::Task::Wait).unwrap();
        tree.place(child.pid).unwrap();
        child.run().unwrap();
        tree.freeze(FREEZE_MAX).unwrap();
        let held = std::fs::read_dir(format!("/proc/{}/fd", child.pid)).unwrap().count();
        assert_eq!(held, 2, "its gate, and its answers");
        let start = if plan.v2.is_some() { Start::Cgroup2 } else { Start::Cgroup1 };
        assert_eq!(Ladder::probe_from(start, &plan.prefix).rungs.tree, ladder.rungs.tree);
        assert_no_trace(plan);
        child.reap();
    });
}

#[test]
fn a_frozen_tree_uses_no_cpu_time_until_it_is_thawed() {
    on_each_rung(|ladder| {
        let mut shim = Shim::start(ladder, &NO_LIMITS, "(setsid sh -c 'while :; do :; done' &); while :; do :; done");
        wait_until("both run", || shim.members().len() >= 2 && ticks(&shim.members()) > 10);
        let members = shim.members();
        assert_eq!(shim.ask("freeze"), "done");
        let at_freeze = ticks(&members);
        // Time has passed for a process that is not frozen.
        let me = [std::process::id() as i32];
        let mine = ticks(&me);
        wait_until("time passes", || ticks(&me) > mine + 20);
        assert_eq!(ticks(&members), at_freeze, "{}", ladder.rungs.pause);
        assert_eq!(shim.ask("thaw"), "done");
        wait_until("it goes on", || ticks(&members) > at_freeze);
        shim.kill_and_remove();
        assert_no_trace(&ladder.plan);
    });
}

#[test]
fn a_thaw_does_not_continue_a_job_that_stopped_itself() {
    on_each_rung(|ladder| {
        let mut shim = Shim::start(ladder, &NO_LIMITS, "sleep 1000 & kill -STOP $!; while :; do :; done");
        let states = |members: &[i32]| {
            let mut states: Vec<u8> =
                members.iter().filter_map(|pid| Stat::of(*pid).ok()).map(|stat| stat.state).collect();
            states.sort_unstable();
            states
        };
        wait_until("one has stopped, and one runs", || states(&shim.members()) == *b"RT");
        let members = shim.members();
        for _ in 0..2 {
            // Repeated, as for a freeze that takes long.
            assert_eq!(shim.ask("freeze"), "done");
            assert_eq!(shim.ask("freeze"), "done");
            let at_freeze = ticks(&members);
            assert_eq!(shim.ask("thaw"), "done");
            wait_until("it goes on", || ticks(&members) > at_freeze);
            assert!(states(&members).contains(&b'T'), "{}: {:?}", ladder.rungs.pause, states(&members));
        }
        shim.kill_and_remove();
    });
}

#[test]
fn nested_cgroups_are_emptied_and_removed_at_any_depth() {
    on_each_rung(|ladder| {
        let mut shim = Shim::start(ladder, &NO_LIMITS, "sleep 1000 & sleep 1001");
        let made = shim.made();
        let Some(leaf) = made.leaves().next() else { return shim.kill_and_remove() };
        wait_until("both are there", || marked(&shim.name).len() >= 2);
        // Deeper than a path can express, and wide at every level.
        let open = |dir: std::os::fd::BorrowedFd<'_>, name: &str| {
            let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::openat(dir, name, flags, rustix::fs::Mode::empty()).unwrap()
        };
        let mut here = open(rustix::fs::CWD, leaf.to_str().unwrap());
        for _ in 0..40 {
            let name = "n".repeat(150);
            for name in [name.as_str(), "beside"] {
                rustix::fs::mkdirat(&here, name, rustix::fs::Mode::RWXU).unwrap();
            }
            here = open(here.as_fd(), &name);
        }
        let pid = shim.members()[0];
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
        let list = rustix::fs::openat(&here, "cgroup.procs", flags, rustix::fs::Mode::empty()).unwrap();
        rustix::io::write(&list, pid.to_string().as_bytes()).unwrap();
        assert!(shim.members().contains(&pid), "{}", ladder.rungs.tree);
        shim.kill_and_remove();
        assert_eq!(marked(&shim.name), [0; 0]);
        assert_no_trace(&ladder.plan);
    });
}

#[test]
fn a_kill_leaves_nothing_of_a_tree_that_tries_to_escape() {
    on_each_rung(|ladder| {
        let mut shim = Shim::start(ladder, &NO_LIMITS, ESCAPES);
        // The one that forks and exits exists for a moment only.
        wait_until("all are there, and in the tree", || {
            let (members, all) = (shim.members(), marked(&shim.name));
            all.len() >= 4 && members.into_iter().collect::<HashSet<_>>() == all.into_iter().collect()
        });
        assert!(!shim.members().contains(&shim.pid()));
        shim.kill_and_remove();
        assert_eq!(marked(&shim.name), [0; 0]);
        assert_no_trace(&ladder.plan);
    });
}

#[test]
fn a_frozen_tree_can_be_killed() {
    on_each_rung(|ladder| {
        let mut shim = Shim::start(ladder, &NO_LIMITS, ESCAPES);
        wait_until("all are there", || marked(&shim.name).len() >= 4);
        assert_eq!(shim.ask("freeze"), "done");
        shim.kill_and_remove();
        assert_eq!(marked(&shim.name), [0; 0]);
    });
}

#[test]
fn a_tree_whose_shim_was_killed_is_found_again_and_killed() {
    on_each_rung(|ladder| {
        let mut shim = Shim::start(ladder, &NO_LIMITS, ESCAPES);
        wait_until("all are there", || marked(&shim.name).len() >= 4);
        let made = shim.made();
        shim.die();
        let tree = Tree::reopen(&made);
        assert!(!tree.is_empty());
        assert_eq!(tree.rungs().tree, ladder.rungs.tree);
        wait_until("it is empty", || {
            tree.kill().unwrap();
            tree.is_empty()
        });
        wait_until("all have ended", || marked(&shim.name).is_empty());
        tree.remove().unwrap();
        assert_no_trace(&ladder.plan);
    });
}

#[test]
fn a_fork_bomb_is_bounded_and_killed() {
    const MAX: usize = 64;
    on_each_rung(|ladder| {
        if ladder.rungs.pids == "none" {
            eprintln!("skipped on {}: no limit of pids can be held", ladder.rungs.tree);
            return;
        }
        let limits = Limits { pids: Some(PidsLimit { max: MAX as u32, required: true }), ..Limits::default() };
        // The weakest limit counts all processes of the user, and others come and go while this runs: the bomb may have the
        // room that they leave, or none because of them.
        let weak = ladder.rungs.degraded.iter().any(|line| line.starts_with("pids: weak"));
        let tasks = || if weak { place::our_tasks().unwrap() as usize } else { 0 };
        let before = tasks();
        let mut shim = Shim::start(ladder, &limits, &shim::bomb());
        let shared = before.max(tasks());
        let mut most = 0;
        wait_until("it is full", || {
            most = most.max(shim.members().len());
            most > MAX / 2 || weak && tasks() >= before + MAX / 2
        });
        assert!(most <= MAX + shared, "{most} with {shared} others");
        shim.kill_and_remove();
        assert_eq!(marked(&shim.name), [0; 0]);
    });
}

#[test]
fn a_kill_for_lack_of_memory_is_detected() {
    on_each_rung(|ladder| {
        if ladder.rungs.memory == "none" {
            eprintln!("skipped on {}: no limit of memory can be held", ladder.rungs.tree);
            return;
        }
        let limits = Limits { memory: Some(16 * 1024 * 1024), ..Limits::default() };
        let mut shim = Shim::start(ladder, &limits, "sleep 1000 & x=$(head -c 64M /dev/zero | tr '\\0' x); wait");
        wait_until("it was killed for memory", || shim.ask("oom") == "true");
        shim.kill_and_remove();

        let mut calm = Shim::start(ladder, &limits, "sleep 1000");
        wait_until("it runs", || !marked(&calm.name).is_empty());
        assert_eq!(calm.ask("oom"), "false");
        calm.kill_and_remove();
    });
}

#[test]
fn a_limit_that_cannot_be_enforced_is_an_error_or_is_reported() {
    let plan = Plan { prefix: prefix(), ..Plan::default() };
    let memory = Limits { memory: Some(1 << 24), ..Limits::default() };
    let failure = Tree::make(&plan, "x", &memory).unwrap_err();
    assert_eq!((failure.stage.as_str(), failure.errno.as_str()), ("memory.max", "EOPNOTSUPP"));
    let pids = |required| Limits { pids: Some(PidsLimit { max: 64, required }), ..Limits::default() };
    let said = Tree::make(&plan, "x", &pids(false)).unwrap();
    assert!(said.rungs().degraded.iter().any(|line| line.starts_with("pids: ")), "{:?}", said.rungs());
    if rustix::process::geteuid().is_root() {
        assert_eq!(Tree::make(&plan, "x", &pids(true)).unwrap_err().stage, "pids.max");
    }
    let cpu = Limits { cpu: Some(500), ..Limits::default() };
    assert_eq!(Tree::make(&plan, "x", &cpu).unwrap_err().stage, "cpu.max");
    let all = Limits { memory: Some(1 << 24), cpu: Some(500), unheld: Unheld::Say, ..Limits::default() };
    let said = Tree::make(&plan, "x", &all).unwrap();
    for limit in ["memory: no limit can be held", "cpu: no limit can be held"] {
        assert!(said.rungs().degraded.iter().any(|line| line == limit), "{:?}", said.rungs());
    }
}

#[test]
fn a_process_that_cannot_be_stopped_is_not_reported_as_stopped() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root can stop everybody");
        return;
    }
    let of_root = Identity::of(1).unwrap();
    let mut stopped = HashSet::new();
    // It keeps running, so the sweep continues until its time limit.
    let swept = sweep::stop(|| Ok(vec![of_root]), &mut stopped, Duration::from_millis(20));
    assert_eq!((swept.unwrap_err().kind(), stopped), (io::ErrorKind::TimedOut, HashSet::new()));
}

#[test]
fn cpu_time_is_limited() {
    on_each_rung(|ladder| {
        if ladder.rungs.cpu == "none" {
            eprintln!("skipped on {}: no limit of processor time can be held", ladder.rungs.tree);
            return;
        }
        let limits = Limits { cpu: Some(50), ..Limits::default() };
        let mut shim = Shim::start(ladder, &limits, "while :; do :; done");
        wait_until("it runs", || !marked(&shim.name).is_empty());
        let (begun, members) = (Instant::now(), shim.members());
        let before = ticks(&members);
        // A tick is a hundredth of a second: with a twentieth of a core five of them take a second, and without a limit
        // a twentieth of one.
        wait_until("it has used five ticks", || ticks(&members) >= before + 5);
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(300), "{took:?} on {}", ladder.rungs.cpu);
        shim.kill_and_remove();
        assert_no_trace(&ladder.plan);
    });
}

#[test]
fn a_leaf_name_is_one_component() {
    on_each_rung(|ladder| {
        for name in ["", "a/b", "..", ".x"] {
            assert_eq!(Tree::make(&ladder.plan, name, &NO_LIMITS).unwrap_err().errno, "EINVAL", "{name}");
        }
        assert_no_trace(&ladder.plan);
    });
}

#[test]
fn a_leaf_with_processes_is_not_used_again() {
    on_each_rung(|ladder| {
        let mut shim = Shim::start(ladder, &NO_LIMITS, "sleep 1000");
        if ladder.rungs.tree.starts_with("cgroup") {
            assert_eq!(Tree::make(&ladder.plan, &shim.name, &NO_LIMITS).unwrap_err().errno, "EEXIST");
            assert!(!shim.members().is_empty());
        }
        shim.kill_and_remove();
        assert_no_trace(&ladder.plan);
    });
}

/// Root does not see the unprivileged rungs: so all tests run again as another user.
#[test]
fn every_rung_works_unprivileged() {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: we have no rights to give up");
        return;
    }
    let outer = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let program = outer.path().join("tests");
    // By another process: a test that forks meanwhile would have our copy open for writing, and it could not be run.
    let copied = std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let ran = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["tree::tests::", "--nocapture", "--test-threads=1"])
        .current_dir("/")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{err}");
    eprintln!("{err}");
}
