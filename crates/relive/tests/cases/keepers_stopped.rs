//! A keeper that is stopped still has the environments: they are not lost, and nobody waits for it without end.

use std::fs;
use std::path::PathBuf;

use relive_fake_model::{Failure, FakeModel, Turn};
use rustix::process::Signal;

use super::environments::{SECRET, run_with};
use super::secrets::keeper_of;
use crate::world::{Begun, World, kill, wait_until};

const CLAUDE: &str = "anthropic/claude-sonnet-4-5";

/// An agent that has asked its model once, and asks again after each restart.
fn asking(world: &World, server: &FakeModel) -> Begun {
    let url = server.base_url();
    let process = run_with(world, &[("ANTHROPIC_API_KEY", SECRET), ("ANTHROPIC_BASE_URL", &url)], CLAUDE, &[]);
    wait_until("it has asked", || server.requests().len() == 1);
    process
}

#[test]
fn a_keeper_that_somebody_stopped_is_continued_by_the_next_daemon_and_nothing_is_lost() {
    let server = FakeModel::start([Turn::text("done").after(Failure::Silence)]);
    let world = World::new();
    let process = asking(&world, &server);
    let keeper = keeper_of(&world).unwrap();
    kill(keeper, Signal::STOP);
    world.kill_daemon();
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(keeper_of(&world), Some(keeper), "it is the same one");
    assert!(server.requests().iter().all(|request| request.key.as_deref() == Some(SECRET)));
}

/// A freezer of the test's own; it thaws whatever it has when it is dropped.
struct Freezer(PathBuf);

impl Freezer {
    /// Freezes a process; `None` where that cannot be done.
    fn freeze(pid: u32) -> Option<Self> {
        let parents = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let own = parents.map(|parent| PathBuf::from(parent).join(format!("relive-test-{pid}")));
        let freezer = Self(own.into_iter().find(|own| {
            fs::create_dir(own).is_ok() && (own.join("freezer.state").exists() || own.join("cgroup.freeze").exists())
        })?);
        fs::write(freezer.0.join("cgroup.procs"), pid.to_string()).ok()?;
        freezer.set("FROZEN", "1");
        Some(freezer)
    }

    fn set(&self, v1: &str, v2: &str) {
        for (name, value) in [("freezer.state", v1), ("cgroup.freeze", v2)] {
            if self.0.join(name).exists() {
                fs::write(self.0.join(name), value).unwrap();
            }
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set("THAWED", "0");
        if let Some(parent) = self.0.parent() {
            for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = fs::write(parent.join("cgroup.procs"), pid);
            }
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_waits_for_a_keeper_that_cannot_be_continued_and_continues_with_it() {
    let server = FakeModel::start([Turn::text("done").after(Failure::Silence)]);
    let world = World::new();
    let process = asking(&world, &server);
    let keeper = keeper_of(&world).unwrap();
    let Some(freezer) = Freezer::freeze(keeper) else {
        eprintln!("skipped: nothing can be frozen here");
        return;
    };
    world.kill_daemon();
    let info = world.await_field(&process.uuid, "suspend_reason", "needs_credentials");
    assert!(info["hint"].as_str().unwrap().contains("ANTHROPIC_API_KEY"), "{info}");
    let status = world.relive(&["daemon", "status"]).ok().stdout;
    let said = format!("the keeper of environments is stopped (OS process {keeper})");
    assert!(status.contains(&said) && status.contains(&format!("kill -CONT {keeper}")), "{status}");
    // Other processes are created meanwhile, and that takes nothing from it.
    run_with(&world, &[("TOKEN", "other")], "script/demo", &[]);
    drop(freezer);
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(keeper_of(&world), Some(keeper), "it was neither killed nor replaced");
    assert!(server.requests().iter().all(|request| request.key.as_deref() == Some(SECRET)));
}
