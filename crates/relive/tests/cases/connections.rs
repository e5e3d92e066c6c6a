//! How often commands connect.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::world::{Output, World, output};

/// A socket that leads to the daemon's and counts who connects.
struct Turnstile {
    socket: PathBuf,
    passed: Arc<AtomicUsize>,
}

impl Turnstile {
    fn before(world: &World) -> Self {
        let (socket, daemon) = (world.root().join("turnstile"), world.socket());
        let (listener, passed) = (UnixListener::bind(&socket).unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&passed);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                pass_on(client.unwrap(), &daemon);
            }
        });
        Self { socket, passed }
    }

    /// Runs a command, and says how often it connected.
    fn relive(&self, world: &World, args: &[&str]) -> (Output, usize) {
        let before = self.passed.load(Ordering::SeqCst);
        let ran = output(world.command(args).env("RELIVE_SOCKET", &self.socket).output().unwrap());
        (ran, self.passed.load(Ordering::SeqCst) - before)
    }
}

fn pass_on(client: UnixStream, daemon: &Path) {
    let daemon = UnixStream::connect(daemon).unwrap();
    for (mut from, mut to) in [(client.try_clone().unwrap(), daemon.try_clone().unwrap()), (daemon, client)].into_iter()
    {
        std::thread::spawn(move || {
            // Either end may be gone at any moment.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

#[test]
fn every_command_that_asks_and_returns_connects_once() {
    let world = World::new();
    let ended = world.run("turns: [{text: first}, {text: second}]");
    world.relive(&["wait", "1"]).ok();
    // A second generation, so that there is more than one PID to tell events apart by.
    world.relive(&["resume", &ended.uuid, "--input", "more"]).ok();
    world.relive(&["wait", &ended.uuid]).ok();
    let running = world.run_hanging(&["--name", "running"]);
    let turnstile = Turnstile::before(&world);
    let (ended, model) = (ended.uuid.as_str(), world.script("turns: [{text: done}]"));
    let check = |code: i32, args: &[&str]| {
        let (ran, connections) = turnstile.relive(&world, args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert_eq!(connections, 1, "{args:?}: {ran:?}");
    };
    check(0, &["ps"]);
    check(0, &["ps", "-a", "--tree"]);
    check(0, &["info", ended]);
    check(0, &["wait", ended]);
    check(124, &["wait", "running", "--timeout", "10ms"]);
    check(0, &["logs", ended]);
    check(0, &["logs", "--json", ended]);
    check(0, &["strace", ended]);
    check(0, &["strace", "--json", ended]);
    check(0, &["steps", ended]);
    check(0, &["lineage", ended]);
    check(0, &["list-resumable"]);
    check(0, &["signals", "running"]);
    check(0, &["signals", "running", "--block", "INT"]);
    check(3, &["resolve", "running"]);
    check(0, &["send", "running", "hello"]);
    check(0, &["pause", "--now", "running"]);
    world.await_display(&running.uuid, "suspended");
    check(0, &["resume", "running"]);
    check(0, &["resume", "--fork", ended, "--json"]);
    check(0, &["kill", "--subtree", "running"]);
    check(0, &["run", "-d", "--model", &model, "x"]);
    check(0, &["exec", "-d", "--", "true"]);
    check(7, &["exec", "--", "sh", "-c", "exit 7"]);
    check(0, &["gc", "--dry-run"]);
    check(0, &["gc"]);
    check(0, &["doctor", "--json"]);
    check(0, &["daemon", "status"]);
    check(0, &["daemon", "start"]);
    // It asks for the names there are, to suggest one.
    check(4, &["info", "runing"]);
    check(0, &["daemon", "stop"]);
}
