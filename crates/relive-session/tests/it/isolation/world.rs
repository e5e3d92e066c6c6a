//! A home with secrets, sockets and a repository, outside of the temporary directories, which a confined program does not
//! see anyway.

#![expect(clippy::disallowed_methods, reason = "a test's own files")]

use std::ffi::CString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use relive_sandbox::{Isolation, Policy};
use relive_session::exit::ExitRecord;
use relive_session::spec::{self, Spec};
use relive_session::stage::{SessionResult, Stage};

use crate::harness::*;

/// Where the rooms are, if not in the target directory.
pub(crate) const ROOMS: &str = "ISOLATION_ROOMS";

/// Makes a directory that a confined program sees: the target directory may lie in a temporary one.
fn make_room(name: &str) -> Option<tempfile::TempDir> {
    let chosen = std::env::var_os(ROOMS).map(PathBuf::from);
    let usual = [Some(env!("CARGO_TARGET_TMPDIR").into()), Some("/var/lib".into()), std::env::home_dir()];
    let places = chosen.map_or_else(|| usual.into_iter().flatten().collect(), |place| vec![place]);
    let is_shown = |place: &PathBuf| ["/tmp", "/var/tmp", "/dev/shm"].iter().all(|hidden| !place.starts_with(hidden));
    let real = places.into_iter().filter_map(|place| place.canonicalize().ok());
    real.filter(is_shown).find_map(|place| tempfile::Builder::new().prefix(name).tempdir_in(place).ok())
}

/// Files that no isolated program may change.
const UNTOUCHED: [&str; 6] = [
    "home/work/.mcp.json",
    "home/work/.claude/settings.json",
    "home/work/.codex/config.toml",
    "home/work/.cursor/mcp.json",
    "home/.profile",
    "home/.cargo/bin/cargo",
];

pub(crate) struct World {
    name: String,
    lab: Lab,
    pub(crate) room: PathBuf,
    _held: tempfile::TempDir,
    _sockets: Vec<UnixListener>,
    sibling: Child,
    neighbour: Running,
    neighbour_pid: i32,
    variables: Vec<(String, String)>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.unmount();
        let _ = self.sibling.kill();
        let _ = self.sibling.wait();
        // SAFETY: a number. The shim has not reaped it, so it is still the program's.
        unsafe { libc::kill(self.neighbour_pid, libc::SIGKILL) };
        // Its shim stays until the exit record is in its directory, which is about to be removed.
        let due = Instant::now() + PATIENCE;
        while Instant::now() < due && self.neighbour.directory.lock_is_free().is_ok_and(|free| !free) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl World {
    /// Returns nothing if this machine cannot isolate at all.
    pub(crate) async fn new(name: &str) -> Option<Self> {
        if let Some(refusal) = &ladder().isolation.no_namespaces {
            eprintln!("skipped: {refusal}");
            return None;
        }
        let Some(held) = make_room(name) else {
            eprintln!("skipped: no directory outside of the temporary directories is writable");
            return None;
        };
        let room = held.path().canonicalize().unwrap();
        for directory in ["outside", "data", "run/self", "keys", "home/.ssh", "home/.cargo/bin", "home/work"] {
            std::fs::create_dir_all(room.join(directory)).unwrap();
        }
        let secrets = ["data/secret", "keys/credentials", "home/.ssh/id", "home/.netrc"];
        for file in secrets.into_iter().chain(["home/work/AGENTS.md"]) {
            std::fs::write(room.join(file), "sesame\n").unwrap();
        }
        // A link: what it leads to is hidden as well.
        std::os::unix::fs::symlink(room.join("keys"), room.join("home/.aws")).unwrap();
        let sockets = ["run/daemon", "run/self/own", "docker.sock"];
        let sockets = sockets.map(|name| UnixListener::bind(room.join(name)).unwrap());
        let address = format!("relive-test-{}-{name}", std::process::id());
        let hidden = SocketAddr::from_abstract_name(&address).unwrap();
        let abstract_socket = UnixListener::bind_addr(&hidden).unwrap();
        copy_program(&Lab::shim(), &room.join("home/work/program"));
        let lab = Lab::new();
        let neighbour = lab.launch(&format!("{name}-neighbour"), &spec(&["sleep", "1000"])).await;
        let neighbour_pid = neighbour.reaches(Stage::Running).await.host_pid.unwrap();
        let shim = neighbour.directory.read_state().unwrap().unwrap().shim_pid;
        let sibling = Command::new("sleep").arg("1000").env("SECRET", "sesame").spawn().unwrap();
        let cgroup = ladder().plan.v2.as_ref().map_or(String::new(), |path| path.display().to_string());
        let variables = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME", room.join("home").display().to_string()),
            ("ROOM", room.display().to_string()),
            ("A", "./program attempt".to_owned()),
            ("ABSTRACT", address),
            ("SIBLING", sibling.id().to_string()),
            ("SHIM", shim.to_string()),
            ("CGROUP", cgroup),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let sockets = sockets.into_iter().chain([abstract_socket]).collect();
        let world = Self {
            name: name.to_owned(),
            lab,
            room,
            _held: held,
            _sockets: sockets,
            sibling,
            neighbour,
            neighbour_pid,
            variables,
        };
        world.restore();
        Some(world)
    }

    pub(crate) fn fresh(&self) -> &Self {
        self.restore();
        self
    }

    /// Returns whether `$CGROUP` names a cgroup.
    pub(crate) fn has_cgroup(&self) -> bool {
        ladder().plan.v2.is_some()
    }

    pub(crate) fn home(&self) -> String {
        self.room.join("home").display().to_string()
    }

    /// Removes what root has mounted at `none`, in the namespace of the tests: it would hide the files below it from the
    /// checks, and the room could not be removed.
    fn unmount(&self) {
        let outside = CString::new(self.room.join("outside").as_os_str().as_bytes()).unwrap();
        // SAFETY: a path owned here.
        while unsafe { libc::umount2(outside.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) } == 0 {}
    }

    /// Undoes what an attempt that succeeded has changed.
    pub(crate) fn restore(&self) {
        self.unmount();
        let work = self.room.join("home/work");
        for name in [".git", ".git2", ".claude", ".codex", ".cursor", "moved"] {
            let _ = std::fs::remove_dir_all(work.join(name));
        }
        let made = Command::new("git").args(["init", "-q"]).arg(&work).status().unwrap();
        assert!(made.success());
        for file in UNTOUCHED.map(|file| self.room.join(file)) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "untouched\n").unwrap();
        }
        for file in ["outside/file", "run/self/file"] {
            let _ = std::fs::remove_file(self.room.join(file));
        }
    }

    pub(crate) fn check_untouched(&self, script: &str) {
        let is = |file: &str, text: &str| {
            assert_eq!(std::fs::read_to_string(self.room.join(file)).unwrap(), text, "{file} after {script}");
        };
        for file in UNTOUCHED {
            is(file, "untouched\n");
        }
        assert!(!self.room.join("home/work/.git/commondir").exists(), "after {script}");
        for file in ["outside/file", "run/self/file"] {
            assert!(!self.room.join(file).exists(), "{file} after {script}");
        }
        assert!(!self.room.join("home/work/.git/hooks/pre-commit").exists(), "after {script}");
        let left = std::fs::read_dir(self.room.join("home")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.into_iter().all(|name| name != ".gnupg"), "nothing is made where nothing was: after {script}");
    }

    pub(crate) fn spec(&self, isolation: Isolation, script: &str) -> Spec {
        let policy = Policy {
            isolation,
            private: vec![self.room.join("data"), self.room.join("run")],
            shown: vec![self.room.join("run/self")],
            hidden: vec![self.room.join("docker.sock"), self.room.join("missing")],
            ..Policy::default()
        };
        let mut tree = ladder().plan.clone();
        if isolation == Isolation::None {
            // A namespace that only keeps the tree together would isolate as well.
            tree.pid_namespace = None;
        }
        Spec {
            tree,
            cwd: self.room.join("home/work").display().to_string(),
            env: self.variables.clone(),
            isolation: spec::Isolation { policy, machine: ladder().isolation.clone() },
            ..shell(script)
        }
    }

    pub(crate) async fn run(&self, name: &str, isolation: Isolation, script: &str) -> (ExitRecord, String) {
        self.run_spec(name, &self.spec(isolation, script)).await
    }

    /// Runs it to its end, as a session whose name no other test uses.
    pub(crate) async fn run_spec(&self, name: &str, spec: &Spec) -> (ExitRecord, String) {
        let ran = self.lab.run(&format!("{}-{name}", self.name), spec).await;
        assert!(is_alive(self.sibling.id() as i32) && self.neighbour.directory.path().exists());
        ran
    }

    pub(crate) async fn launch(&self, name: &str, spec: &Spec) -> Running {
        self.lab.launch(&format!("{}-{name}", self.name), spec).await
    }

    pub(crate) async fn exit_code(&self, name: &str, isolation: Isolation, script: &str) -> i32 {
        let (record, printed) = self.run(name, isolation, script).await;
        let SessionResult::Exited(code) = record.result else { panic!("{script}: {:?}\n{printed}", record.result) };
        code
    }
}
