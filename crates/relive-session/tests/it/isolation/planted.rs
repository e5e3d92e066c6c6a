//! Links that a program leaves in its working directory for the next launch, whose mounts they would lead astray.

use relive_sandbox::{Isolation, Unheld};
use relive_session::spec::Spec;
use relive_session::stage::SessionResult;

use super::world::World;

/// What is planted, and the attempt that profits from it if a mount follows it.
const PLANTED: &[(&str, &str)] = &[
    ("rm -rf .git && ln -s $ROOM/outside .git && touch .git/HEAD", "echo x > $ROOM/outside/file"),
    ("rm -rf .git && echo \"gitdir: $ROOM/outside\" > .git", "echo x > $ROOM/outside/file"),
    ("rm -rf .git/hooks && ln -s $ROOM/outside .git/hooks", "echo x > $ROOM/outside/file"),
    ("rm .git/config && ln -s $ROOM/outside/file .git/config", "echo x > .git/config"),
    ("mkdir -p .claude && ln -sf ~/.ssh/id .claude/settings.json", "cat .claude/settings.json"),
    ("rm .mcp.json && ln -s ~/.ssh/id .mcp.json", "cat .mcp.json"),
    ("ln -sfn ~/.ssh keys", "cat keys/id"),
    ("ln -sfn $ROOM/run/daemon socket", "$A socket socket"),
    ("ln -sfn $ROOM/outside/made outside", "mkdir outside/deeper || mkdir $(readlink outside)"),
];

#[tokio::test]
async fn links_in_the_working_directory_lead_no_mount_to_another_place() {
    let Some(world) = World::new("planted").await else { return };
    let work = world.room.join("home/work");
    for (number, (plant, attempt)) in PLANTED.iter().enumerate() {
        world.restore();
        let (planted, printed) = world.run(&format!("plant-{number}"), Isolation::None, plant).await;
        assert_eq!(planted.result, SessionResult::Exited(0), "{plant}: {printed}");
        for isolation in [Isolation::Confined, Isolation::Sealed] {
            let mut spec = world.spec(isolation, attempt);
            // A link in the place of what should be protected is reported, and must be harmless if that is accepted.
            spec.isolation.policy.unheld = Unheld::Say;
            let (held, printed) = world.run_spec(&format!("{isolation}-{number}"), &spec).await;
            let SessionResult::Exited(code) = held.result else { panic!("{plant}: {:?}", held.result) };
            assert_ne!(code, 0, "{isolation}: {plant}; {attempt}: {printed}");
            assert!(!world.room.join("outside/file").exists(), "{isolation}: {plant}; {attempt}");
            assert!(!printed.contains("sesame"), "{isolation}: {plant}: {printed}");
        }
        // At none each of them leads there.
        let (open, printed) = world.run(&format!("none-{number}"), Isolation::None, attempt).await;
        assert_eq!(open.result, SessionResult::Exited(0), "at none: {plant}; {attempt}: {printed}");
        for left in ["outside/HEAD", "outside/file", "home/work/socket", "home/work/keys", "home/work/.mcp.json"] {
            let _ = rustix::fs::unlink(world.room.join(left));
        }
        let _ = rustix::fs::unlink(work.join(".git"));
    }
}

/// What a confined program does in one launch, so that the attempt in the next one is not held.
const PREPARED: &[(&str, &str)] = &[
    ("mv .git/HEAD .git/H", "echo x > .git/hooks/pre-commit"),
    ("mv .git/HEAD .git/H", "echo x > .git/config"),
    ("mv .git/HEAD .git/H", "mv .git .git2"),
    ("rm .git/HEAD && ln -s refs/heads/main .git/HEAD", "echo x > .git/hooks/pre-commit"),
    ("rm .git/HEAD && mkdir .git/HEAD", "echo ../evil > .git/commondir"),
];

#[tokio::test]
async fn a_program_cannot_prepare_the_repository_for_its_next_launch() {
    let Some(world) = World::new("prepared").await else { return };
    for isolation in [Isolation::Confined, Isolation::Sealed] {
        for (number, (first, second)) in PREPARED.iter().enumerate() {
            world.restore();
            let (prepared, printed) = world.run(&format!("{isolation}-first-{number}"), isolation, first).await;
            assert_eq!(prepared.result, SessionResult::Exited(0), "{first}: {printed}");
            let held = world.exit_code(&format!("{isolation}-second-{number}"), isolation, second).await;
            assert_ne!(held, 0, "{isolation}: {first}; then {second}");
            assert!(!world.room.join("home/work/.git/hooks/pre-commit").exists(), "{first}; then {second}");
            let open = world.exit_code(&format!("{isolation}-none-{number}"), Isolation::None, second).await;
            assert_eq!(open, 0, "at none: {first}; then {second}");
        }
    }
}

#[tokio::test]
async fn a_cache_is_writable_only_in_the_home_of_the_user_and_not_through_a_link() {
    let Some(world) = World::new("caches").await else { return };
    let plant = "mkdir -p h/.cargo ~/.npm && ln -s $ROOM/outside h/.cache && ln -s $ROOM/outside h/.cargo/git && \
                 ln -s $ROOM/outside ~/.npm/_cacache && ln -s $ROOM/outside ~/.cargo/registry";
    assert_eq!(world.exit_code("plant", Isolation::None, plant).await, 0);
    let attempt = "echo x > $ROOM/outside/file";
    let work = world.room.join("home/work");
    for (name, home, cwd) in [
        ("chosen", work.join("h"), work.clone()),
        ("own", world.room.join("home"), work.clone()),
        ("here", world.room.join("home"), world.room.join("home")),
    ] {
        let mut spec = world.spec(Isolation::Confined, attempt);
        spec.cwd = cwd.display().to_string();
        spec.env.retain(|(name, _)| name != "HOME");
        spec.env.push(("HOME".into(), home.display().to_string()));
        spec.isolation.policy.home = Some(world.room.join("home"));
        // The links in the home cannot be protected in the home itself.
        spec.isolation.policy.unheld = Unheld::Say;
        let (held, printed) = world.run_spec(name, &spec).await;
        assert!(matches!(held.result, SessionResult::Exited(1..)), "{name}: {:?}: {printed}", held.result);
        assert!(!world.room.join("outside/file").exists(), "{name}");
        let left = std::fs::read_dir(world.room.join("outside")).unwrap().count();
        assert_eq!(left, 0, "{name}: nothing is made through a link");
    }
    assert_eq!(world.exit_code("none", Isolation::None, attempt).await, 0);
}

#[tokio::test]
async fn a_working_directory_inside_of_what_is_protected_is_no_way_around_it() {
    let Some(world) = World::new("inside").await else { return };
    for (number, (below, attempt)) in [
        (".git/hooks", "echo x > pre-commit"),
        (".git", "echo x > hooks/pre-commit"),
        (".git", "echo x > config"),
        (".claude", "echo x > settings.json"),
        (".claude", "rm settings.json"),
        (".codex", "echo x > config.toml"),
    ]
    .iter()
    .enumerate()
    {
        world.restore();
        let cwd = world.room.join("home/work").join(below).display().to_string();
        for isolation in [Isolation::Confined, Isolation::Sealed] {
            let spec = Spec { cwd: cwd.clone(), ..world.spec(isolation, attempt) };
            let (held, printed) = world.run_spec(&format!("{isolation}-{number}"), &spec).await;
            assert!(matches!(held.result, SessionResult::Exited(1..)), "{isolation}: {below}: {attempt}: {printed}");
            world.check_untouched(attempt);
        }
        let spec = Spec { cwd, ..world.spec(Isolation::None, attempt) };
        let (open, printed) = world.run_spec(&format!("none-{number}"), &spec).await;
        assert_eq!(open.result, SessionResult::Exited(0), "at none: {below}: {attempt}: {printed}");
    }
}
