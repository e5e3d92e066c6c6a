//! What a program costs in system calls that wait for the disk, counted by strace.

use std::fs;
use std::process::{Child, Command, Stdio};

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
    /// Nothing where there is no strace, or it may not be used.
    fn start() -> Option<Self> {
        let works = Command::new("strace").args(["-o", "/dev/null", "true"]).output().is_ok_and(|o| o.status.success());
        if !works {
            eprintln!("skipped: there is no strace");
            return None;
        }
        let world = World::new();
        let relive = world.command(&["daemon", "serve"]);
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-e", "trace=fsync,fdatasync,syncfs,sync_file_range,rt_sigaction,execve", "-o"]);
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

    /// What one `true` in the foreground costs.
    fn program(&self) -> Calls {
        let before = self.calls().len();
        self.world.relive(&["exec", "--", "true"]).ok();
        wait_until("its shim has gone", || {
            let calls = self.calls();
            calls[before..].iter().any(|line| line.contains("exited with 0"))
        });
        let calls = &self.calls()[before..];
        let shim = calls.iter().position(|line| line.contains("execve(")).unwrap();
        let is_sync = |line: &&String| line.contains("sync(") || line.contains("sync_file_range(");
        let syncs = |calls: &[String]| calls.iter().filter(is_sync).cloned().collect();
        Calls {
            syncs_before_launch: syncs(&calls[..shim]),
            syncs_after_launch: syncs(&calls[shim..]),
            signal_calls: calls.iter().filter(|line| line.contains("rt_sigaction(")).count(),
        }
    }
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
    let Some(daemon) = Traced::start() else { return };
    daemon.program(); // reserves a block of PIDs
    let calls = daemon.program();
    let (before, after) = (calls.syncs_before_launch.len(), calls.syncs_after_launch.len());
    assert!((before, after) == (2, 2), "{calls:#?}");
    // Those of the standard library's start in the shim.
    assert!(calls.signal_calls <= 16, "{calls:#?}");
}
