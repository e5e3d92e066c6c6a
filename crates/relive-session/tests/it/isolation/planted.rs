//! Links that a program leaves in its working directory for the next launch, whose mounts they would lead astray.

use relive_sandbox::{Isolation, Unheld};
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
