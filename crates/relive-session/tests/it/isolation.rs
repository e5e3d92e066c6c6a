//! Isolation: what a program reaches at `none` and may not reach, it does not reach at `confined` and `sealed`.

mod enter;
mod network;
mod planted;
mod repository;
mod tools;
mod world;

use relive_sandbox::{Isolation, Machine, NamespaceKind, Namespaces, Network, Policy, Unheld};
use relive_session::spec::{Size, Spec, Stdio};
use relive_session::stage::SessionResult;

use crate::harness::*;
pub(crate) use world::ROOMS;
use world::World;

/// Returns the name of a namespace in `/proc/PID/ns`.
fn namespace_file(kind: NamespaceKind) -> &'static str {
    if kind == NamespaceKind::Mount { "mnt" } else { kind.name() }
}

/// Where an attempt succeeds if nothing is isolated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtNone {
    Succeeds,
    SucceedsForRoot,
    /// Not on every machine.
    MaySucceed,
}

use AtNone::{MaySucceed, Succeeds, SucceedsForRoot};

/// Attempts to leave. The variables are those of [`World::run`].
const ESCAPES: &[(&str, AtNone)] = &[
    ("echo x > $ROOM/outside/file", Succeeds),
    ("echo x > ~/.profile", Succeeds),
    ("echo x > ~/.cargo/bin/cargo", Succeeds),
    ("cat ~/.ssh/id", Succeeds),
    ("cat ~/.aws/credentials", Succeeds),
    ("cat $ROOM/keys/credentials", Succeeds),
    ("cat ~/.netrc | grep sesame", Succeeds),
    ("cat $ROOM/data/secret", Succeeds),
    ("$A socket $ROOM/run/daemon", Succeeds),
    ("echo x > $ROOM/run/self/file", Succeeds),
    ("$A socket $ROOM/docker.sock", Succeeds),
    ("$A abstract $ABSTRACT", Succeeds),
    ("grep -z sesame /proc/$SIBLING/environ", Succeeds),
    ("echo x > /proc/$SIBLING/root$ROOM/outside/file", SucceedsForRoot),
    ("$A ptrace $SIBLING", SucceedsForRoot),
    ("$A signal $SIBLING", Succeeds),
    ("$A signal $SHIM", Succeeds),
    ("$A prlimit $SIBLING", Succeeds),
    ("$A process_vm_readv $SIBLING", SucceedsForRoot),
    // The PID namespace does not keep it from its own children: the filter does.
    ("$A prlimit-of-child", Succeeds),
    ("$A process_vm_readv-of-child", Succeeds),
    ("echo $$ > $CGROUP/cgroup.procs", SucceedsForRoot),
    (": >> /proc/sys/kernel/core_pattern", SucceedsForRoot),
    (": > /proc/sysrq-trigger", MaySucceed),
    (": > /dev/kmsg", SucceedsForRoot),
    (": < /dev/loop-control", MaySucceed),
    (": < /dev/kvm", MaySucceed),
    ("$A mount $ROOM/outside", MaySucceed),
    ("$A keyctl", MaySucceed),
    ("$A io_uring", MaySucceed),
    ("$A bpf", MaySucceed),
    ("$A userfaultfd", MaySucceed),
    ("$A vsock", MaySucceed),
    ("$A packet", SucceedsForRoot),
    ("$A netlink-audit", MaySucceed),
    ("$A user-namespace", Succeeds),
    ("$A clone-user-namespace", Succeeds),
    ("$A x32", MaySucceed),
    ("mv .git .git2", Succeeds),
    ("echo ../evil > .git/commondir", Succeeds),
    ("echo x > .git/hooks/pre-commit", Succeeds),
    ("rm -rf .git/hooks", Succeeds),
    ("echo x > .git/config", Succeeds),
    ("git config core.fsmonitor ./evil", Succeeds),
    ("echo x > .mcp.json", Succeeds),
    ("echo x > .claude/settings.json", Succeeds),
    ("mv .claude moved && mkdir .claude && echo x > .claude/settings.json", Succeeds),
    ("mv .codex moved && mkdir .codex && echo x > .codex/config.toml", Succeeds),
    ("mv .cursor moved && mkdir .cursor && echo x > .cursor/mcp.json", Succeeds),
];

/// What a program needs at `confined`.
const NEEDS: &[&str] = &[
    "echo x > file && mkdir -p a/b && mv file a/b/",
    "echo x > ~/.cache/file && echo x > ~/.cargo/registry/file && echo x > ~/.cargo/git/file",
    "echo x > /tmp/file && echo x > /var/tmp/file && echo x > /dev/shm/file",
    "test \"$(stat -c %a /tmp)\" = 1777 && test \"$(stat -c %a /dev/shm)\" = 1777",
    "$A socket $ROOM/run/self/own",
    "$A unix && $A netlink-route && $A prlimit 0 && $A own-child",
    "cat ~/.profile && ls ~ $ROOM/outside && cat /etc/passwd > /dev/null",
    "echo x > AGENTS.md",
    "test $$ = 2 && test \"$(ls -d /proc/[0-9]* | wc -l)\" -le 6",
    "echo x > /dev/null && head -c 1 /dev/urandom > /dev/zero",
    "git add -A && git -c user.name=a -c user.email=a@b commit -qm x && git gc -q && git status",
];

/// Runs every attempt at `none`, where it must succeed, and then isolated, where it must not.
async fn check_escapes(isolation: Isolation) {
    let Some(world) = World::new(isolation.name()).await else { return };
    let mut escaped = Vec::new();
    for (number, (script, at_none)) in ESCAPES.iter().enumerate() {
        if script.contains("$CGROUP") && !world.has_cgroup() {
            eprintln!("skipped: no cgroup v2: {script}");
            continue;
        }
        let world = world.fresh();
        let open = world.exit_code(&format!("none-{number}"), Isolation::None, script).await;
        let root = rustix::process::geteuid().is_root();
        match at_none {
            Succeeds => assert_eq!(open, 0, "at none: {script}"),
            SucceedsForRoot if root => assert_eq!(open, 0, "at none: {script}"),
            SucceedsForRoot | MaySucceed if open != 0 => eprintln!("note: fails at none already: {script}"),
            SucceedsForRoot | MaySucceed => {}
        }
        world.restore();
        let held = world.exit_code(&format!("held-{number}"), isolation, script).await;
        if held == 0 {
            escaped.push(script);
        } else {
            world.check_untouched(script);
        }
    }
    assert!(escaped.is_empty(), "at {isolation}: {escaped:#?}");
    let room = world.room.clone();
    drop(world);
    assert!(!room.exists(), "something is still mounted in it: {}", room.display());
}

#[tokio::test]
async fn case_76_escapes_that_work_at_none_fail_at_confined() {
    check_escapes(Isolation::Confined).await;
}

#[tokio::test]
async fn escapes_that_work_at_none_fail_at_sealed() {
    check_escapes(Isolation::Sealed).await;
}

#[tokio::test]
async fn clone3_does_not_exist_at_confined_so_that_libraries_use_clone() {
    let Some(world) = World::new("clone3").await else { return };
    let open = world.exit_code("none", Isolation::None, "$A clone3").await;
    let held = world.exit_code("held", Isolation::Confined, "$A clone3").await;
    assert_eq!((open, held), (libc::EINVAL, libc::ENOSYS), "without arguments it fails in any case");
}

#[tokio::test]
async fn common_programs_work_at_confined() {
    let Some(world) = World::new("needs").await else { return };
    for (number, script) in NEEDS.iter().enumerate() {
        let (record, printed) = world.run(&format!("need-{number}"), Isolation::Confined, script).await;
        assert_eq!(record.result, SessionResult::Exited(0), "{script}\n{printed}");
    }
}

#[tokio::test]
async fn a_program_in_the_temporary_directory_is_shown_if_the_policy_says_so() {
    let Some(world) = World::new("program").await else { return };
    let elsewhere = tempfile::tempdir_in("/tmp").unwrap();
    let program = elsewhere.path().join("program");
    copy_program(&Lab::shim(), &program);
    let shown = program.display();
    let script = format!("{shown} attempt unix && ! echo x > {shown} && ! rm -f {shown} && echo x > /tmp/file");
    let mut spec = world.spec(Isolation::Confined, &script);
    let (record, printed) = world.run_spec("hidden", &spec).await;
    assert_eq!(record.result, SessionResult::Exited(127), "{printed}");
    spec.isolation.policy.programs = vec![program];
    let (record, printed) = world.run_spec("shown", &spec).await;
    assert_eq!(record.result, SessionResult::Exited(0), "{printed}");
}

#[tokio::test]
async fn secrets_in_a_working_directory_that_is_the_home_are_hidden() {
    let Some(world) = World::new("home").await else { return };
    let mut home = Spec { cwd: world.home(), ..world.spec(Isolation::Confined, "echo x > file && cat .ssh/id") };
    // A program that works here could remove the link to one of the secrets.
    let (record, _) = world.run_spec("refused", &home).await;
    let SessionResult::Error(failure) = record.result else { panic!("{record:?}") };
    assert!(failure.errno.ends_with(".aws is a link, and not protected"), "{failure:?}");
    home.isolation.policy.unheld = Unheld::Say;
    let (record, printed) = world.run_spec("home", &home).await;
    assert_eq!(record.result, SessionResult::Exited(1), "{printed}");
    assert!(world.room.join("home/file").exists(), "the directory itself is writable: {printed}");

    let hidden = Spec { cwd: format!("{}/.ssh", world.home()), ..world.spec(Isolation::Confined, "true") };
    let (record, _) = world.run_spec("hidden", &hidden).await;
    let SessionResult::Error(failure) = record.result else { panic!("{record:?}") };
    assert_eq!(failure.stage, "isolation");
    assert!(failure.errno.ends_with(".ssh is hidden at isolation confined"), "{failure:?}");
}

#[tokio::test]
async fn a_terminal_cannot_be_typed_into() {
    let Some(world) = World::new("terminal").await else { return };
    let terminal = |isolation, what: &str| Spec {
        stdio: Stdio::Pty(Size { rows: 24, columns: 80 }),
        ..world.spec(isolation, &format!("$A {what}"))
    };
    for what in ["tiocsti", "tiocsti-high"] {
        let (open, _) = world.run_spec(&format!("none-{what}"), &terminal(Isolation::None, what)).await;
        if open.result != SessionResult::Exited(0) {
            eprintln!("note: fails at none already: {what}: {:?}", open.result);
        }
        let (held, _) = world.run_spec(&format!("held-{what}"), &terminal(Isolation::Confined, what)).await;
        assert_eq!(held.result, SessionResult::Exited(libc::EPERM), "{what}");
    }
}

#[tokio::test]
async fn a_program_finds_its_terminal_and_can_make_others_in_its_own_devices() {
    let Some(world) = World::new("terminals").await else { return };
    let script = "tty && test -t 0 && echo x > \"$(tty)\" && test \"$(stty size)\" = '24 80' && : < /dev/tty && \
                  test \"$(ls /dev/pts)\" = ptmx && script -qec 'test \"$(tty)\" = /dev/pts/0' /dev/null < /dev/null";
    for isolation in [Isolation::None, Isolation::Confined, Isolation::Sealed] {
        // At none others have terminals there, too.
        let script = if isolation == Isolation::None { "tty && test -t 0" } else { script };
        let terminal = Stdio::Pty(Size { rows: 24, columns: 80 });
        let spec = Spec { stdio: terminal, ..world.spec(isolation, script) };
        let (record, printed) = world.run_spec(&format!("{isolation}"), &spec).await;
        assert_eq!(record.result, SessionResult::Exited(0), "{isolation}: {printed}");
    }
}

#[tokio::test]
async fn case_34_a_fresh_network_namespace_has_only_its_loopback() {
    let Some(world) = World::new("network").await else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let interfaces = "test \"$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')\" = lo";
    let loopback = "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); \
                    socket.create_connection(s.getsockname())'";
    let reach = format!("bash -c ': < /dev/tcp/127.0.0.1/{port}'");
    let run = |name: &'static str, policy: Policy, script: String| {
        let mut spec = world.spec(policy.isolation, &script);
        (spec.isolation.policy.network, spec.isolation.policy.namespaces) = (policy.network, policy.namespaces);
        let world = &world;
        async move { world.run_spec(name, &spec).await }
    };
    let offline = |isolation| Policy { isolation, network: Network::None, ..Policy::default() };
    let sealed = Policy { isolation: Isolation::Sealed, ..Policy::default() };
    let alone = Policy { namespaces: Namespaces::of([NamespaceKind::Net]), ..Policy::default() };
    let (record, _) = run("open", Policy { isolation: Isolation::Confined, ..Policy::default() }, reach.clone()).await;
    assert_eq!(record.result, SessionResult::Exited(0), "the network is full at confined");
    for (name, policy) in [
        ("none", offline(Isolation::None)),
        ("confined", offline(Isolation::Confined)),
        ("sealed", sealed),
        ("ns", alone),
    ] {
        let (record, printed) = run(name, policy, format!("{interfaces} && {loopback} && ! {reach}")).await;
        assert_eq!(record.result, SessionResult::Exited(0), "{name}: {printed}");
    }
}

#[tokio::test]
async fn namespaces_come_one_by_one() {
    let Some(world) = World::new("namespaces").await else { return };
    for kind in NamespaceKind::ALL {
        let mut spec =
            world.spec(Isolation::None, &format!("readlink /proc/self/ns/{}; read line", namespace_file(kind)));
        spec.isolation.policy.namespaces = Namespaces::of([kind]);
        let running = world.launch(kind.name(), &spec).await;
        running.prints("]").await;
        let ours = std::fs::read_link(format!("/proc/self/ns/{}", namespace_file(kind))).unwrap();
        assert_ne!(running.printed().trim(), ours.to_str().unwrap(), "{}", kind.name());
        let state = running.directory.read_state().unwrap().unwrap();
        assert!(state.rungs.namespaces.contains(&kind.name().to_owned()), "{:?}", state.rungs);
        assert_eq!(state.rungs.isolation, "none");
        running.connection.write(b"leave\n").await.unwrap();
        running.ended().await;
    }
}

#[tokio::test]
async fn a_machine_without_namespaces_holds_what_landlock_can_and_says_the_rest() {
    let Some(world) = World::new("landlock").await else { return };
    let abi = ladder().isolation.landlock_abi;
    if abi < 6 {
        return eprintln!("skipped: Landlock version {abi}");
    }
    let weak = Machine { no_namespaces: Some("tried in vain".into()), landlock_abi: abi };
    let mut spec =
        world.spec(Isolation::Confined, "echo x > file && ! echo x > $ROOM/outside/file && ! $A signal $SIBLING");
    spec.isolation.machine = weak;
    // The program chooses it, so it is not writable by that.
    spec.env.push(("TMPDIR".into(), world.room.join("outside").display().to_string()));
    let (record, _) = world.run_spec("refused", &spec).await;
    let SessionResult::Error(failure) = record.result else { panic!("{record:?}") };
    assert!(failure.errno.contains("sockets and UDP are not restricted"), "{failure:?}");

    spec.isolation.policy.unheld = Unheld::Say;
    let running = world.launch("said", &spec).await;
    let record = running.ended().await;
    assert_eq!(record.result, SessionResult::Exited(0), "{}", running.printed());
    let state = running.directory.read_state().unwrap().unwrap();
    assert!(state.rungs.degraded.iter().any(|line| line.starts_with("isolation: Landlock")), "{:?}", state.rungs);
}

#[tokio::test]
async fn a_step_that_fails_is_named_and_nothing_runs() {
    let Some(world) = World::new("step").await else { return };
    let mut spec = world.spec(Isolation::Confined, "echo ran");
    // Root alone may, and only where nothing else is.
    spec.isolation.policy.writable = vec!["/proc/self".into()];
    let (record, printed) = world.run_spec("step", &spec).await;
    let SessionResult::Error(failure) = record.result else { panic!("{record:?}") };
    assert!(failure.stage.starts_with("mount /proc/"), "{failure:?}");
    assert_eq!(printed, "");
}
