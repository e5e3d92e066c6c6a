//! Programs that enter the session of another one.

use std::collections::BTreeSet;
use std::path::PathBuf;

use relive_sandbox::{Isolation, NamespaceKind, Namespaces, Network};
use relive_session::proc::Identity;
use relive_session::spec::{Enter, Gate, Spec};
use relive_session::stage::{Mode, SessionResult, Stage};

use super::namespace_file;
use super::world::World;
use crate::harness::*;

/// A session to enter, which runs until a line is typed.
struct Target {
    running: Running,
    program: Identity,
    namespaces: Namespaces,
}

impl Target {
    async fn new(world: &World, name: &str, spec: Spec) -> Self {
        let running = world.launch(name, &spec).await;
        running.prints("ready").await;
        let pid = running.reaches(Stage::Running).await.host_pid.unwrap();
        let own = running.directory.read_state().unwrap().unwrap().rungs.namespaces;
        let namespaces =
            Namespaces::of(NamespaceKind::ALL.into_iter().filter(|kind| own.contains(&kind.name().to_owned())));
        Self { running, program: Identity::of(pid).unwrap(), namespaces }
    }

    async fn confined(world: &World, name: &str) -> Self {
        let mut spec = world.spec(Isolation::Confined, "echo inside > /tmp/mark; echo ready; read line; exit 7");
        spec.isolation.policy.network = Network::None;
        Self::new(world, name, spec).await
    }

    fn entering(&self, namespaces: Namespaces, world: &World, script: &str) -> Spec {
        let enter = Enter { program: self.program, namespaces };
        Spec { enter: Some(enter), ..world.spec(Isolation::None, script) }
    }

    fn is_running(&self) -> bool {
        is_alive(self.program.pid) && !self.running.directory.lock_is_free().unwrap()
    }
}

fn namespace_of(pid: i32, kind: NamespaceKind) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/ns/{}", namespace_file(kind))).unwrap()
}

/// What a user needs besides the namespaces that it wants to join.
fn needed(target: &Target) -> Option<NamespaceKind> {
    Some(NamespaceKind::User).filter(|user| target.namespaces.has(*user) && !rustix::process::geteuid().is_root())
}

#[tokio::test]
async fn case_78_a_program_joins_exactly_the_namespaces_asked_for_and_the_session_goes_on() {
    let Some(world) = World::new("enter-exactly").await else { return };
    let target = Target::confined(&world, "target").await;
    let wanted = target.namespaces.iter().map(|kind| Namespaces::of([kind].into_iter().chain(needed(&target))));
    for (number, joined) in wanted.chain([target.namespaces.clone()]).enumerate() {
        let spec = target.entering(joined.clone(), &world, "echo $$; read line; exit 3");
        let entered = world.launch(&format!("entered-{number}"), &spec).await;
        let snapshot = entered.reaches(Stage::Running).await;
        let pid = snapshot.host_pid.unwrap();
        let same: BTreeSet<NamespaceKind> = NamespaceKind::ALL
            .into_iter()
            .filter(|kind| namespace_of(pid, *kind) == namespace_of(target.program.pid, *kind))
            .collect();
        let shared = NamespaceKind::ALL.into_iter().filter(|kind| !target.namespaces.has(*kind));
        let expect: BTreeSet<NamespaceKind> = joined.iter().chain(shared).collect();
        assert_eq!(same, expect, "{joined:?}");
        assert_eq!(snapshot.mode, Mode::Enter);
        assert!(snapshot.to_string().starts_with("<enter running"), "{snapshot}");
        entered.prints("\n").await;
        assert_eq!(entered.printed().trim(), snapshot.child_pid.unwrap().to_string());
        let rungs = entered.directory.read_state().unwrap().unwrap().rungs;
        assert_eq!(rungs.namespaces, joined.iter().map(|kind| kind.name().to_owned()).collect::<Vec<_>>());

        entered.connection.write(b"leave\n").await.unwrap();
        assert_eq!(entered.ended().await.result, SessionResult::Exited(3));
        assert!(target.is_running(), "the end of one that entered is not the end of the session");
    }
    target.running.connection.write(b"leave\n").await.unwrap();
    assert_eq!(target.running.ended().await.result, SessionResult::Exited(7));
}

#[tokio::test]
async fn case_78_a_program_that_entered_sees_the_root_the_network_and_the_processes_of_the_session() {
    let Some(world) = World::new("enter-root").await else { return };
    let target = Target::confined(&world, "target").await;
    let script = format!(
        "cat /tmp/mark && test ! -e ~/.ssh/id && ! echo x > $ROOM/outside/file && \
         test \"$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')\" = lo && \
         test \"$(readlink /proc/2/ns/pid)\" = '{}' && kill -0 2",
        namespace_of(target.program.pid, NamespaceKind::Pid).display()
    );
    let (record, printed) = world.run_spec("all", &target.entering(target.namespaces.clone(), &world, &script)).await;
    assert_eq!(record.result, SessionResult::Exited(0), "{printed}");
    assert!(printed.contains("inside\n"), "{printed}");

    let only = Namespaces::of([NamespaceKind::Net].into_iter().chain(needed(&target)));
    let script = "test ! -e /tmp/mark && test -d $ROOM/outside";
    let (record, printed) = world.run_spec("network", &target.entering(only, &world, script)).await;
    assert_eq!(record.result, SessionResult::Exited(0), "{printed}");
}

#[tokio::test]
async fn a_program_that_entered_ends_with_the_session_and_is_in_its_cgroup() {
    let Some(world) = World::new("enter-end").await else { return };
    let target = Target::confined(&world, "target").await;
    let only = Namespaces::of([NamespaceKind::Net].into_iter().chain(needed(&target)));
    let script = "sleep 1000 & echo $!; setsid sleep 1000 & wait";
    let mut entered = Vec::new();
    for (name, joined) in [("all", target.namespaces.clone()), ("network", only)] {
        let running = world.launch(name, &target.entering(joined, &world, script)).await;
        running.prints("\n").await;
        entered.push(running);
    }
    let gated = Spec { gate: Gate::Closed, ..target.entering(target.namespaces.clone(), &world, "true") };
    let gated = world.launch("gated", &gated).await;
    gated.reaches(Stage::Ready).await;
    let leaf = |running: &Running| {
        let made = running.directory.read_state().unwrap().unwrap().tree;
        made.v2.or(made.v1_freezer)
    };
    for running in &entered {
        if let Some(session) = leaf(&target.running) {
            assert!(leaf(running).unwrap().starts_with(session), "{:?}", leaf(running));
        }
    }
    target.running.connection.write(b"leave\n").await.unwrap();
    assert_eq!(target.running.ended().await.result, SessionResult::Exited(7));
    for running in &entered {
        assert_eq!(running.ended().await.result, SessionResult::Signaled(libc::SIGKILL));
    }
    gated.ended().await;
}

#[tokio::test]
async fn case_34_a_session_that_is_gone_or_whose_pid_was_reused_is_not_entered() {
    let Some(world) = World::new("enter-gone").await else { return };
    let target = Target::confined(&world, "target").await;
    let refused = |result: SessionResult| {
        let SessionResult::Error(failure) = result else { panic!("{result:?}") };
        assert_eq!((failure.stage.as_str(), failure.errno.as_str()), ("enter", "ESRCH"));
    };
    let mut spec = target.entering(target.namespaces.clone(), &world, "echo ran");
    // The pid lives, but not since then: it was another process.
    spec.enter.as_mut().unwrap().program.start_time -= 1;
    let (record, printed) = world.run_spec("reused", &spec).await;
    refused(record.result);
    assert_eq!(printed, "");

    let spec = target.entering(target.namespaces.clone(), &world, "echo ran");
    target.running.connection.write(b"leave\n").await.unwrap();
    target.running.ended().await;
    refused(world.run_spec("gone", &spec).await.0.result);
}

#[tokio::test]
async fn the_limits_of_a_session_hold_for_a_program_that_enters_it() {
    use relive_session::spec::{Limits, PidsLimit};
    let Some(world) = World::new("enter-limits").await else { return };
    let limits = Limits { pids: Some(PidsLimit { max: 12, required: true }), ..Limits::default() };
    let mut spec = world.spec(Isolation::Confined, "echo ready; read line");
    spec.limits = limits;
    let running = world.launch("probe", &spec).await;
    running.reaches(Stage::Running).await;
    let rungs = running.directory.read_state().unwrap().unwrap().rungs;
    running.connection.write(b"leave\n").await.unwrap();
    running.ended().await;
    if !rungs.pids.starts_with("cgroup") {
        return eprintln!("skipped: the limit of processes is held by {}", rungs.pids);
    }
    let target = Target::new(&world, "target", spec).await;
    let script = "for i in $(seq 30); do sleep 1000 & done; wait";
    let (record, printed) = world.run_spec("many", &target.entering(target.namespaces.clone(), &world, script)).await;
    assert_ne!(record.result, SessionResult::Exited(0), "{printed}");
    assert!(printed.contains("fork"), "{printed}");
    assert!(target.is_running());
}
