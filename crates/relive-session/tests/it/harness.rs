//! A directory of sessions, and helpers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use relive_session::connection::Connection;
use relive_session::directory::{Found, SessionDirectory, boot_id};
use relive_session::exit::ExitRecord;
use relive_session::launch::Launcher;
use relive_session::log::{Item, Reader};
use relive_session::spec::{Gate, Spec, Stdio};
use relive_session::stage::{Snapshot, Stage};
use relive_session::tree::Ladder;

/// Longer than anything here takes on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Copies a program in another process. A copy of our own would be open for writing in every process that another test starts
/// meanwhile, and could not be run until those have executed their programs.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

pub(crate) struct Lab {
    pub(crate) dir: tempfile::TempDir,
    /// The directory around it, whose name is in the names of the cgroups: two labs have none in common.
    _owner: tempfile::TempDir,
    pub(crate) launcher: Launcher,
}

/// A session and its directory.
pub(crate) struct Running {
    pub(crate) connection: Connection,
    pub(crate) directory: SessionDirectory,
}

pub(crate) fn ladder() -> &'static Ladder {
    static LADDER: OnceLock<Ladder> = OnceLock::new();
    LADDER.get_or_init(|| Ladder::probe(&format!("relive-test-{}", std::process::id())))
}

pub(crate) fn spec(argv: &[&str]) -> Spec {
    let argv = argv.iter().map(|&word| word.to_owned()).collect();
    let env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    let plain = Spec::new(argv, env, "/".into(), ladder().plan.clone());
    Spec { stdio: Stdio::Pipes, log_max_bytes: 16 * 1024 * 1024, ..plain }
}

pub(crate) fn shell(script: &str) -> Spec {
    spec(&["sh", "-c", script])
}

pub(crate) fn gated(spec: Spec) -> Spec {
    Spec { gate: Gate::Closed, ..spec }
}

impl Lab {
    pub(crate) fn new() -> Self {
        let owner = tempfile::tempdir().unwrap();
        // Programs of other users pass through it.
        std::fs::set_permissions(owner.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let dir = tempfile::tempdir_in(&owner).unwrap();
        Self { dir, _owner: owner, launcher: Launcher::new(Self::shim()) }
    }

    pub(crate) fn shim() -> PathBuf {
        let program = std::env::var_os("SESSION_TEST_SHIM").map(PathBuf::from);
        program.unwrap_or_else(|| env!("CARGO_BIN_EXE_session-test-shim").into())
    }

    pub(crate) async fn launch(&self, name: &str, spec: &Spec) -> Running {
        let path = self.dir.path().join(name);
        let (opened, directory) = std::sync::mpsc::channel();
        let create = move || {
            let created = SessionDirectory::create(&path)?;
            // Before its program can remove it.
            opened.send(SessionDirectory::open(path)?).map_err(std::io::Error::other)?;
            Ok(created)
        };
        let connection = self.launcher.launch(create, spec).await.unwrap();
        Running { connection, directory: directory.recv().unwrap() }
    }

    /// Runs it to its end; returns its record and its output.
    pub(crate) async fn run(&self, name: &str, spec: &Spec) -> (ExitRecord, String) {
        let running = self.launch(name, spec).await;
        let record = running.ended().await;
        let printed = running.printed();
        (record, printed)
    }
}

impl Running {
    pub(crate) async fn ended(&self) -> ExitRecord {
        within("the end", self.connection.ended()).await.unwrap()
    }

    /// Returns the state of its directory once its shim is gone.
    pub(crate) async fn left(&self) -> Found {
        wait_until("the lock to be free", || self.directory.lock_is_free().unwrap()).await;
        self.directory.look(&boot_id().unwrap()).unwrap()
    }

    pub(crate) async fn reaches(&self, stage: Stage) -> Snapshot {
        let what = format!("stage {}", stage.name());
        within(&what, self.connection.wait_for(|seen| seen.snapshot.stage == stage)).await.unwrap().snapshot
    }

    /// Returns its output so far.
    pub(crate) fn printed(&self) -> String {
        let mut reader = Reader::open(self.directory.path(), 0).unwrap();
        let mut text = Vec::new();
        while let Some(item) = reader.next().unwrap() {
            match item {
                Item::Chunk(chunk) => text.extend(chunk.bytes),
                Item::Gap { .. } => {}
            }
        }
        String::from_utf8(text).unwrap()
    }

    pub(crate) async fn prints(&self, wanted: &str) {
        wait_until(&format!("{wanted:?} to be printed"), || self.printed().contains(wanted)).await;
    }
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

pub(crate) async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    within(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(crate) fn is_alive(pid: i32) -> bool {
    relive_session::proc::Stat::of(pid).is_ok_and(|stat| stat.lives())
}

/// A generator of numbers that are the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    /// Seeds from `RELIVE_SEED`, or from a random seed that is printed.
    pub(crate) fn new() -> Self {
        let seed = std::env::var("RELIVE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) * 2_654_435_761 + 1);
        eprintln!("RELIVE_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
