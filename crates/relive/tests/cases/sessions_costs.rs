//! What a program, and a step of an agent, cost in system calls, counted by strace.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::world::{World, wait_until};

/// A daemon under strace.
struct Traced {
    world: World,
    strace: Child,
}

/// What was called since the last look.
#[derive(Debug, PartialEq, Eq)]
struct Calls {
    syncs_before_launch: Vec<String>,
    syncs_after_launch: Vec<String>,
    signal_calls: usize,
}

impl Traced {
    /// Follows these system calls. Nothing where there is no strace, or it may not be used.
    fn start(calls: &str) -> Option<Self> {
        let works = Command::new("strace").args(["-o", "/dev/null", "true"]).output().is_ok_and(|o| o.status.success());
        if !works {
            eprintln!("skipped: there is no strace");
            return None;
        }
        let world = World::new();
        let relive = world.command(&["daemon", "serve"]);
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-e", &format!("trace={calls}"), "-o"]);
        command.arg(world.root().join("calls")).arg(relive.get_program()).args(relive.get_args()).env_clear();
        command.envs(relive.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(world.work());
        let strace = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the daemon answers", || world.relive(&["daemon", "status"]).code == 0);
        Some(Self { world, strace })
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.world.root().join("calls")).unwrap();
        text.lines().filter(|line| !line.contains("resumed>")).map(str::to_owned).collect()
    }

    /// All that was called for one `true` in the foreground.
    fn calls_of_a_program(&self) -> Vec<String> {
        let before = self.calls().len();
        self.world.relive(&["exec", "--", "true"]).ok();
        wait_until("its shim has gone", || {
            let calls = &self.calls()[before..];
            let is_end = |shim: &str| calls.iter().any(|line| line.starts_with(shim) && line.contains("exited with 0"));
            shim_in(calls).is_some_and(|shim| is_end(&shim))
        });
        self.calls().split_off(before)
    }

    /// All that was called for an agent that makes this call so often.
    fn calls_of_steps(&self, call: &str, steps: usize) -> Vec<String> {
        let model = self.world.script(&format!("turns:\n  - calls: [{call}]\n    repeat: {steps}\n"));
        let before = self.calls().len();
        self.world.relive(&["run", "--model", &model, "follow the script"]).ok();
        self.calls().split_off(before)
    }

    /// What one `true` in the foreground costs.
    fn program(&self) -> Calls {
        let calls = &self.calls_of_a_program();
        // The shim of the next program is started as well.
        let is_launch = |line: &String| line.contains("execve(") && !line.contains("\"relive-shim\"");
        let launch = calls.iter().position(is_launch).unwrap();
        let is_sync = |line: &&String| line.contains("sync(") || line.contains("sync_file_range(");
        let syncs = |calls: &[String]| calls.iter().filter(is_sync).cloned().collect();
        Calls {
            syncs_before_launch: syncs(&calls[..launch]),
            syncs_after_launch: syncs(&calls[launch..]),
            signal_calls: calls.iter().filter(|line| line.contains("rt_sigaction(")).count(),
        }
    }
}

/// The beginning of the lines of the shim, which syncs the log of its session.
fn shim_in(calls: &[String]) -> Option<String> {
    let line = calls.iter().find(|line| line.contains("fdatasync(") && line.contains("/sessions/1/log>"))?;
    Some(format!("{} ", line.split(' ').next()?))
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.world.relive(&["daemon", "stop"]);
        // It also follows whoever outlives the daemon.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

#[test]
fn a_program_costs_two_syncs_before_its_launch_and_four_in_all() {
    let calls = "fsync,fdatasync,syncfs,sync_file_range,rt_sigaction,execve";
    let Some(daemon) = Traced::start(calls) else { return };
    daemon.program(); // reserves a block of PIDs
    let calls = daemon.program();
    let (before, after) = (calls.syncs_before_launch.len(), calls.syncs_after_launch.len());
    assert!((before, after) == (2, 2), "{calls:#?}");
    // Those of the standard library's start in the shim, and perhaps in the next one.
    assert!(calls.signal_calls <= 32, "{calls:#?}");
}

#[test]
fn a_shim_looks_at_each_file_of_the_kernel_once_and_makes_few_calls() {
    let Some(daemon) = Traced::start("all") else { return };
    daemon.calls_of_a_program();
    let calls = daemon.calls_of_a_program();
    let shim = shim_in(&calls).unwrap();
    // A build for tests looks at descriptors before it closes them.
    let is_own = |line: &&String| line.starts_with(&shim) && line.contains('(') && !line.contains("F_GETFD");
    let own: Vec<&String> = calls.iter().filter(is_own).collect();
    let mut looked = std::collections::HashSet::new();
    let opened = own.iter().filter(|line| line.contains("openat(") && !line.contains(" = -1 "));
    let paths = opened.filter_map(|line| line.split('"').nth(1)).filter(|path| path.starts_with("/sys/fs/cgroup/"));
    let twice: Vec<&str> = paths.filter(|path| !looked.insert(path.to_string())).collect();
    assert_eq!(twice, [""; 0]);
    assert!(own.len() < 260, "{}: {own:#?}", own.len());
}

/// In a Git repository, whose commit is noted in each step.
#[test]
fn a_step_starts_no_program_and_syncs_its_journal_only_for_an_effect() {
    const STEPS: usize = 40;
    let Some(daemon) = Traced::start("execve,fork,vfork,clone,clone3,fsync,fdatasync,syncfs,sync_file_range") else {
        return;
    };
    let git = daemon.world.work().join(".git");
    fs::create_dir_all(git.join("refs/heads")).unwrap();
    fs::create_dir(git.join("objects")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(git.join("refs/heads/main"), "8f1de0b8a1b7f6ab7f4c4b4b67a01b1c8c0f5e3d\n").unwrap();
    fs::write(daemon.world.work().join("note.txt"), "a note\n").unwrap();
    daemon.world.configure("workspace: {snapshots: off}\n");
    let write = "{name: write, args: {path: written.txt, content: \"{{turn}}\"}}";
    for (call, syncs_each) in [("{name: read, args: {path: note.txt}}", 0), (write, 2)] {
        daemon.calls_of_steps(call, 1);
        let few = daemon.calls_of_steps(call, STEPS);
        let begun = Instant::now();
        let many = daemon.calls_of_steps(call, 2 * STEPS);
        let slow = usize::try_from(begun.elapsed().as_millis() / 50).unwrap();
        let of = |calls: &[String], name: &str, file: &str| {
            calls.iter().filter(|line| line.contains(name) && line.contains(file)).count()
        };
        assert_eq!(of(&many, "execve(", ""), 0, "{call}");
        // Threads that have nothing to do for a while end, and others begin: not one for each step.
        assert!(of(&many, "clone", "") < STEPS / 2, "{call}: {} for {STEPS} steps", of(&many, "clone", ""));
        let [few, many] = [&few, &many].map(|calls| of(calls, "sync(", "/steps.jsonl>"));
        // One that runs beside the next call covers its records too, so there may be fewer. Records are synced after 50 ms
        // whatever follows: that is one more for each of these.
        let most = 2 * STEPS * syncs_each + slow + 4;
        assert!(many <= most, "{call}: {many} syncs of at most {most}, {few} for half as many steps");
        assert!(few > 0, "the syncs of journals are seen");
    }
}
