//! Programs in sessions, and a person at a terminal in front of one.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};

use relive_session::directory::{Found, SessionDirectory, boot_id};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use super::world::{Begun, World, begun, wait_for, wait_until};

impl World {
    /// Begins a program in the background.
    #[track_caller]
    pub(crate) fn exec(&self, flags: &[&str], argv: &[&str]) -> Begun {
        let mut args = vec!["exec", "-d", "--json"];
        args.extend(flags);
        args.push("--");
        args.extend(argv);
        begun(&self.relive(&args).ok().json())
    }

    /// Waits until the session of a process is at a stage.
    #[track_caller]
    pub(crate) fn await_stage(&self, of: &Begun, stage: &str) -> Value {
        wait_for(&format!("{} is {stage}", of.uuid), || {
            let session = self.info(&of.uuid)["session"].clone();
            (session["stage"] == stage).then_some(session)
        })
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub(crate) fn await_output(&self, of: &Begun, text: &str) {
        wait_until(&format!("it has printed {text:?}"), || self.relive(&["logs", &of.uuid]).ok().stdout.contains(text));
    }

    /// Waits until the daemon has a shim that waits for a session, and returns it.
    #[track_caller]
    pub(crate) fn spare_shim(&self) -> u64 {
        wait_for("a shim waits for a session", || spare_of(u64::from(self.daemon_pid()?)))
    }

    /// What a program ended with, as `wait` exits.
    #[track_caller]
    pub(crate) fn ends(&self, process: &Begun, code: i32) -> Value {
        self.relive(&["wait", "--json", &process.uuid]).exits(code).json()
    }
}

/// Ends every session below a data folder, and waits until their shims have gone.
pub(crate) fn end_all(data: &Path) {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let Ok(boot) = boot_id() else { return };
    for process in entries(&data.join("steps")) {
        for session in entries(&process.join("sessions")) {
            let Ok(folder) = SessionDirectory::open(session) else { continue };
            // A kill that is not read does no harm; one is enough that is.
            wait_until("the session has gone", || {
                if let Ok(Found::Alive(socket)) = folder.look(&boot) {
                    let _ = rustix::io::write(&socket, b"{\"id\":1,\"verb\":\"kill\"}\n");
                }
                folder.lock_is_free().unwrap_or(true)
            });
        }
    }
}

/// The child of a daemon that waits for a session.
pub(crate) fn spare_of(daemon: u64) -> Option<u64> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u64| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(daemon)
    };
    let waits = |pid: &u64| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"relive-shim\0waits-for-a-session")
    };
    pids.filter(is_child).find(waits)
}

/// Whether there is such an OS process.
pub(crate) fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The OS processes with this variable in their environment.
pub(crate) fn with_variable(variable: &str) -> Vec<u64> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u64| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
    };
    pids.filter(has).collect()
}

/// A command with a person in front of it.
pub(crate) struct Person {
    terminal: File,
    person: OwnedFd,
    child: Child,
    seen: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
}

impl Person {
    pub(crate) fn sits_down(mut command: Command, rows: u16, columns: u16) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(&terminal, size(rows, columns)).unwrap();
        command.stdin(terminal.try_clone().unwrap());
        command.stdout(terminal.try_clone().unwrap()).stderr(terminal.try_clone().unwrap());
        let child = command.spawn().unwrap();
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (eyes, mut screen) = (seen.clone(), File::from(person.try_clone().unwrap()));
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // Linux ends a terminal that nobody holds any more with an error.
            while let Ok(count @ 1..) = screen.read(&mut chunk) {
                eyes.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        Self { terminal, person, child, seen }
    }

    pub(crate) fn types(&self, text: impl AsRef<[u8]>) {
        File::from(self.person.try_clone().unwrap()).write_all(text.as_ref()).unwrap();
    }

    /// All there has been on the screen.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub(crate) fn sees(&self, text: &str) {
        let begun = std::time::Instant::now();
        while !self.screen().contains(text) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "no {text:?} on {:?}", self.screen());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// The window gets another size. The kernel tells those in the foreground of a controlling terminal; this one is
    /// nobody's, so the command is told here.
    pub(crate) fn resizes(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.terminal, size(rows, columns)).unwrap();
        super::world::kill(self.child.id(), rustix::process::Signal::WINCH);
    }

    pub(crate) fn signals(&self, signal: rustix::process::Signal) {
        super::world::kill(self.child.id(), signal);
    }

    /// Whether the terminal gives out lines, as it did before.
    pub(crate) fn has_a_usual_terminal(&self) -> bool {
        use rustix::termios::LocalModes;
        tcgetattr(&self.terminal)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    /// Waits for the command; its exit code.
    pub(crate) fn waits(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
