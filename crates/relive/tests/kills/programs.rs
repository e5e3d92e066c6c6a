//! Programs beside the agents, and the loss of the shims of both.

use std::fs;
use std::path::Path;

use relive_api::ExecRequest;
use relive_core::Uuid;
use relive_session::connection::Connection;
use relive_session::directory::SessionDirectory;
use relive_session::log::{Item, Reader};
use relive_session::protocol::Verb;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;

use crate::daemon::Places;
use crate::drive::Driver;
use crate::oracle::Trait;

/// Programs exit with codes below this.
const CODES: u64 = 7;
/// How many messages a program reads that listens.
pub(crate) const MESSAGES: usize = 3;
/// More connections than a shim takes.
const CONNECTIONS: usize = 80;

/// The command of a program that exits with `code`: one line in the world, the same on its output.
pub(crate) fn command(places: &Places, code: u64, away: bool, pauses_ms: [u64; 2]) -> String {
    let lines = places.lines.display();
    let [before, after] = pauses_ms.map(|pause| format!("sleep {}.{:03}", pause / 1000, pause % 1000));
    let away = if away { "setsid sleep 300 & " } else { "" };
    format!("{away}{before}; echo \"$RELIVE_SESSION x\" >> {lines}; echo begun; {after}; echo over; exit {code}")
}

/// The command of a program with a trait. It does what it is known for after its line is in the world.
fn command_of(places: &Places, uuid: Uuid, code: u64, trait_of: Trait) -> String {
    let plain = command(places, code, false, [0, 300]);
    let (lines, data) = (places.lines.display(), places.data.display());
    let (line, rest) = plain.split_once("echo begun").unwrap_or((&plain, ""));
    match trait_of {
        Trait::Gated => plain,
        Trait::Listens => format!(
            "n=0; while [ $n -lt {MESSAGES} ] && read -r line; do n=$((n + 1)); \
             echo \"$RELIVE_SESSION b $line\" >> {lines}; done; {plain}"
        ),
        Trait::Forges => {
            let used = r#"{"user_ms":0,"system_ms":0,"max_rss_kb":0}"#;
            let forged = format!(r#"{{"version":1,"result":{{"exited":{code}}},"at_ms":1,"log_end":0,"used":{used}}}"#);
            let session = format!("{data}/steps/{uuid}/sessions/${{RELIVE_SESSION%%-*}}");
            format!("{line} echo '{forged}' > {session}/exit; echo begun{rest}")
        }
        Trait::StopsItsShim => format!("{line} kill -STOP $PPID; echo begun{rest}"),
    }
}

/// The request for a program that runs a line of shell.
pub(crate) fn request(places: &Places, uuid: Uuid, command: &str) -> ExecRequest {
    let request = json!({
        "uuid": uuid,
        "argv": ["/bin/sh", "-c", command],
        "cwd": places.work,
        "stdio": "null",
        "env": { "PATH": "/usr/bin:/bin" },
    });
    serde_json::from_value(request).unwrap()
}

impl Driver<'_> {
    /// Begins a program.
    pub(crate) fn exec(&mut self) {
        let (uuid, code) = (self.dice.uuid(), self.dice.between(0, CODES));
        let pauses = [self.dice.between(0, 50), self.dice.between(0, 1500)];
        let command = command(self.places, code, self.dice.chance(30), pauses);
        self.exec_as(uuid, code, &command, None);
    }

    /// Begins a program that is not like the others.
    pub(crate) fn exec_with(&mut self, trait_of: Trait) {
        let (uuid, code) = (self.dice.uuid(), self.dice.between(0, CODES));
        let command = command_of(self.places, uuid, code, trait_of);
        self.exec_as(uuid, code, &command, Some(trait_of));
    }

    /// One of those that cost no time.
    pub(crate) fn exec_odd(&mut self) {
        let odd = [Trait::Gated, Trait::Listens, Trait::Listens, Trait::Forges];
        if let Some(trait_of) = self.dice.pick(&odd).copied() {
            self.exec_with(trait_of);
        }
    }

    fn exec_as(&mut self, uuid: Uuid, code: u64, command: &str, trait_of: Option<Trait>) {
        self.oracle.program(uuid, code, trait_of);
        let mut request = request(self.places, uuid, command);
        request.gate = trait_of == Some(Trait::Gated);
        if trait_of == Some(Trait::Listens) {
            request.stdio = relive_core::program::Stdio::Pipes;
        }
        match self.ask("a program", |client| client.exec(&request)) {
            Some(Ok(started)) => self.oracle.exists(uuid, started.pid),
            Some(Err(refused)) => self.oracle.violation(format!("a program was refused: {refused:?}")),
            None => {}
        }
    }

    /// Opens the gate of some program, whether or not it waits there.
    pub(crate) fn proceed(&mut self) {
        if let Some(uuid) = self.one_of(|asked| asked.trait_of == Some(Trait::Gated)) {
            self.proceed_one(uuid);
        }
    }

    pub(crate) fn proceed_one(&self, uuid: Uuid) {
        let id = uuid.to_string();
        self.ask("a proceed", |client| client.proceed(&id));
    }

    /// Looks at some program as one does who attaches to it: a connection, a question, and its output from the beginning.
    pub(crate) fn attach(&mut self) {
        let Some(directory) = self.some_session() else { return };
        let Ok(socket) = directory.ctl_connect() else { return };
        let path = directory.path().to_owned();
        self.client.call(async |_| {
            let asked = async {
                let connection = Connection::adopt(socket).await.ok()?;
                connection.request(Verb::Stat).await.ok()
            };
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), asked).await;
        });
        let Ok(mut reader) = Reader::open(&path, 0) else { return };
        let mut printed = String::new();
        while let Ok(Some(Item::Chunk(chunk))) = reader.next() {
            printed.push_str(&String::from_utf8_lossy(&chunk.bytes));
        }
        if !"begun\nover\n".starts_with(&printed) {
            self.oracle.violation(format!("K: {} printed {printed:?}", path.display()));
        }
    }

    /// Holds all connections that some shim takes for a moment.
    pub(crate) fn hold_a_shim(&mut self) {
        let Some(directory) = self.some_session() else { return };
        let held: Vec<_> =
            std::iter::repeat_with(|| directory.ctl_connect()).take(CONNECTIONS).map_while(Result::ok).collect();
        std::thread::sleep(std::time::Duration::from_millis(self.dice.between(10, 200)));
        drop(held);
    }

    /// The directory of a session of some program that runs.
    fn some_session(&mut self) -> Option<SessionDirectory> {
        let programs: Vec<_> = shims(self.places).into_iter().filter(|(_, name)| !name.starts_with("call-")).collect();
        let (_, name) = self.dice.pick(&programs)?;
        let (number, owner) = name.split_once('-')?;
        SessionDirectory::open(self.places.data.join("steps").join(owner).join("sessions").join(number)).ok()
    }

    /// Kills some shim with -9.
    pub(crate) fn lose_a_shim(&mut self) {
        let shims = shims(self.places);
        let Some((pid, session)) = self.dice.pick(&shims) else { return };
        let Some(pid) = Pid::from_raw(*pid) else { return };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // The descriptor stands for whoever has the pid now.
        if shim_of(self.places, pid.as_raw_nonzero().get()).as_ref() == Some(session) {
            self.oracle.lock().shims_lost.insert(session.clone());
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

/// The shims of this run: pid, and the name of the session.
pub(crate) fn shims(places: &Places) -> Vec<(i32, String)> {
    processes().filter_map(|pid| Some((pid, shim_of(places, pid)?))).collect()
}

/// All OS processes.
pub(crate) fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The name of the session whose shim this is. A child at the gate looks the same, and has it as its parent.
fn shim_of(places: &Places, pid: i32) -> Option<String> {
    let session = session_of(places, pid)?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(session).filter(|session| session_of(places, parent).as_ref() != Some(session))
}

/// By its command line: the directory's name, and whose it is.
fn session_of(places: &Places, pid: i32) -> Option<String> {
    let line = String::from_utf8(fs::read(format!("/proc/{pid}/cmdline")).ok()?).ok()?;
    let mut words = line.split('\0');
    let directory = words.next().filter(|name| *name == "relive-shim").and(words.next()).map(Path::new)?;
    let below = directory.strip_prefix(places.data.join("steps")).ok()?;
    let mut parts = below.iter().map(|part| part.to_string_lossy());
    let (owner, session) = (parts.next()?, parts.nth(1)?);
    Some(format!("{session}-{owner}"))
}
